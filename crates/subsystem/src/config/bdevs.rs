//! Block devices by name, in the order in which they were created.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use weft_backend::DeviceSpec;

use super::HexId;

/// The kind of a block device, as SPDK names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BdevKind {
    /// Memory of this process.
    Malloc,
    /// A device that forgets what is written.
    Null,
    /// A file or block device that was made with SPDK's `bdev_aio_create`.
    Aio,
    /// One that was made with `bdev_uring_create`.
    Uring,
    /// An image of a Ceph cluster that was made with `bdev_rbd_create`.
    Rbd,
    /// Another block device with a delay that was made with `bdev_delay_create`.
    Delay,
    /// Any other device, as the command line writes it.
    Device,
}

impl BdevKind {
    /// The word for it in SPDK's methods.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Null => "null",
            Self::Aio => "aio",
            Self::Uring => "uring",
            Self::Rbd => "rbd",
            Self::Delay => "delay",
            Self::Device => "device",
        }
    }

    /// The kind of a device that a configuration describes.
    #[must_use]
    pub fn of(device: &DeviceSpec) -> Self {
        match device {
            DeviceSpec::Memory { .. } => Self::Malloc,
            DeviceSpec::Null { .. } => Self::Null,
            _ => Self::Device,
        }
    }
}

/// A block device with a name: it exists, and keeps its contents, whether a namespace uses it or
/// not.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bdev {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: BdevKind,
    /// The device.
    #[serde_as(as = "DisplayFromStr")]
    pub device: DeviceSpec,
    /// The block device that it delays, by name; none: it stands on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Its UUID, which a namespace on it has as well.
    #[serde_as(as = "HexId<16>")]
    pub uuid: [u8; 16],
}

/// A namespace of a configuration without a block device of its own name: it has this name where
/// one is needed.
#[must_use]
pub fn implied_bdev_name(nqn: &str, nsid: u32) -> String {
    format!("{nqn}:{nsid}")
}

/// Block devices of which one is found, added or removed without a look at the others. Written as a
/// list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Bdev>", into = "Vec<Bdev>")]
pub struct Bdevs {
    in_order: BTreeMap<u64, Bdev>,
    by_name: HashMap<String, u64>,
    /// By the file, device or image that they stand on.
    by_storage: HashMap<String, u64>,
    /// By the name of the block device that they delay.
    by_base: HashMap<String, u64>,
}

impl Bdevs {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> std::collections::btree_map::Values<'_, u64, Bdev> {
        self.in_order.values()
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bdev> {
        self.in_order.get(self.by_name.get(name)?)
    }

    /// The one that delays the one of this name.
    pub(crate) fn on_base(&self, base: &str) -> Option<&Bdev> {
        self.in_order.get(self.by_base.get(base)?)
    }

    /// The one that stands on the same file, device or image.
    pub(crate) fn on_storage_of(&self, bdev: &Bdev) -> Option<&Bdev> {
        self.in_order.get(self.by_storage.get(&bdev.device.stored_name()?)?)
    }

    /// Adds one behind the others; one of the same name is replaced in its place.
    pub(crate) fn put(&mut self, bdev: Bdev) {
        let last = self.in_order.last_key_value().map_or(0, |(number, _)| *number);
        let number = self.by_name.get(&bdev.name).copied();
        self.put_at(number.unwrap_or(last.wrapping_add(1)), bdev);
    }

    /// The one of this name with its place.
    pub(crate) fn with_place(&self, name: &str) -> Option<(u64, &Bdev)> {
        let number = *self.by_name.get(name)?;
        Some((number, self.in_order.get(&number)?))
    }

    /// Puts one in a place that it has, or had before it was removed.
    pub(crate) fn put_at(&mut self, number: u64, bdev: Bdev) {
        self.remove(&bdev.name);
        self.by_name.insert(bdev.name.clone(), number);
        match &bdev.base {
            Some(base) => drop(self.by_base.insert(base.clone(), number)),
            None => {
                let storage = bdev.device.stored_name();
                self.by_storage.extend(storage.map(|storage| (storage, number)));
            }
        }
        self.in_order.insert(number, bdev);
    }

    /// Removes the one of this name.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Bdev> {
        let number = self.by_name.remove(name)?;
        let bdev = self.in_order.remove(&number)?;
        if let Some(base) = &bdev.base {
            self.by_base.remove(base);
        } else if let Some(storage) = bdev.device.stored_name()
            && self.by_storage.get(&storage) == Some(&number)
        {
            self.by_storage.remove(&storage);
        }
        Some(bdev)
    }
}

impl PartialEq for Bdevs {
    /// The same ones in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl FromIterator<Bdev> for Bdevs {
    fn from_iter<T: IntoIterator<Item = Bdev>>(bdevs: T) -> Self {
        let mut all = Self::default();
        bdevs.into_iter().for_each(|bdev| all.put(bdev));
        all
    }
}

impl From<Vec<Bdev>> for Bdevs {
    fn from(bdevs: Vec<Bdev>) -> Self {
        bdevs.into_iter().collect()
    }
}

impl From<Bdevs> for Vec<Bdev> {
    fn from(bdevs: Bdevs) -> Self {
        bdevs.in_order.into_values().collect()
    }
}

impl<'a> IntoIterator for &'a Bdevs {
    type Item = &'a Bdev;
    type IntoIter = std::collections::btree_map::Values<'a, u64, Bdev>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BdevKind;

    fn bdev(name: &str, device: &str) -> Bdev {
        let device = device.parse().expect("a device");
        let (name, kind) = (name.to_owned(), BdevKind::of(&device));
        Bdev { name, kind, device, base: None, uuid: [1; 16] }
    }

    #[test]
    fn the_order_is_that_of_creation() {
        let mut all: Bdevs =
            ["b", "a", "c"].map(|name| bdev(name, "null:1MiB")).into_iter().collect();
        let names = |all: &Bdevs| all.iter().map(|bdev| bdev.name.clone()).collect::<String>();
        assert_eq!(names(&all), "bac");
        let (place, removed) = all.with_place("b").map(|(at, bdev)| (at, bdev.clone())).expect("b");
        all.remove("b");
        assert_eq!((names(&all).as_str(), all.len(), all.get("b")), ("ac", 2, None));
        let without = all.clone();
        all.put_at(place, removed);
        assert_eq!(names(&all), "bac");
        all.put(bdev("a", "null:2MiB"));
        assert_eq!(names(&all), "bac", "another size does not change its place");
        assert_ne!(all, without);
    }

    #[test]
    fn one_that_stands_on_the_same_file_is_found_until_it_is_gone() {
        let mut all: Bdevs = [bdev("a", "file:/x")].into_iter().collect();
        let other = bdev("b", "file:/x,size=1MiB");
        assert_eq!(all.on_storage_of(&other).map(|bdev| bdev.name.as_str()), Some("a"));
        assert_eq!(all.on_storage_of(&bdev("n", "null:1MiB")), None);
        all.remove("a");
        assert_eq!(all.on_storage_of(&other), None);
    }
}
