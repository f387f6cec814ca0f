//! A table whose keys are never valid twice: what is removed leaves a new generation behind, so
//! that a late event for an old key finds nothing.

/// Names one entry of a [`Slab`] for as long as that entry lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Bits of the generation that are used, so that a key and two more bits fit in 64.
    const GENERATION_MASK: u32 = (1 << 30) - 1;

    /// The key as a number below 2^62.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key whose [`bits`](Self::bits) these are; higher bits are ignored.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        Self {
            index: u32::from_le_bytes([a, b, c, d]),
            generation: u32::from_le_bytes([e, f, g, h]) & Self::GENERATION_MASK,
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// A table of `T` by [`Key`].
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return Key { index, generation: entry.generation };
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries");
        self.entries.push(Entry { generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1) & Key::GENERATION_MASK;
        self.free.push(key.index);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let index = u32::try_from(index).ok()?;
            Some((Key { index, generation: entry.generation }, entry.value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_outlive_its_entry() {
        let mut slab = Slab::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first), Some(1));
        let second = slab.insert(2);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn keys_survive_their_bits() {
        let mut slab = Slab::new();
        for round in 0..5 {
            let keys: Vec<_> = (0..4).map(|n| slab.insert(n + round)).collect();
            for key in keys {
                assert!(key.bits() < 1 << 62);
                assert_eq!(Key::from_bits(key.bits()), key);
                assert_eq!(Key::from_bits(key.bits() | 3 << 62), key);
                slab.remove(key);
            }
        }
    }

    #[test]
    fn iterates_over_what_lives() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..4).map(|n| slab.insert(n)).collect();
        slab.remove(keys[1]);
        let found: Vec<_> = slab.iter().map(|(key, value)| (key, *value)).collect();
        assert_eq!(found, [(keys[0], 0), (keys[2], 2), (keys[3], 3)]);
    }
}
