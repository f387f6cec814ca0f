//! The file in which the reservations of a namespace outlast the target, in the form of SPDK, and
//! the one beside it with the NQNs of the registrants, for which SPDK's form has no place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;
use weft_backend::files::read_text;
use weft_nvme::reservation::ReservationType;
use weft_nvmf::reservation::{CurrentReservation, HostId, Reservations};

use crate::config::HexId;

/// What is in the file.
#[derive(Debug, Deserialize)]
struct ReservationFile {
    /// Persist Through Power Loss.
    ptpl: bool,
    #[serde(default)]
    rtype: u8,
    bdev_uuid: HexId<16>,
    holder_uuid: Option<HexId<16>>,
    #[serde(default)]
    registrants: Vec<StoredRegistrant>,
}

#[derive(Debug, Deserialize)]
struct StoredRegistrant {
    rkey: u64,
    /// Host Identifier.
    host_uuid: HexId<16>,
}

/// Where the NQNs of registrants are: by Host Identifier.
fn owners_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".hosts");
    name.into()
}

/// Writes the reservations of a namespace, which were others before. The names are written first,
/// so that a crash leaves no registrant without its name.
pub(crate) fn write(
    path: &Path,
    before: &Reservations,
    after: &Reservations,
    uuid: &[u8; 16],
) -> io::Result<()> {
    let owners = before.owners().iter().chain(after.owners());
    let names: BTreeMap<_, _> =
        owners.map(|(id, name)| (Uuid::from_bytes(*id).to_string(), &**name)).collect();
    let is_kept = after.persists() && !names.is_empty();
    if is_kept {
        crate::replace_file(&owners_path(path), format!("{}\n", json!(names)).as_bytes())?;
    }
    crate::replace_file(path, text(after, uuid).as_bytes())?;
    if is_kept {
        return Ok(());
    }
    let removed = std::fs::remove_file(owners_path(path));
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The text of the file for a namespace with this UUID.
pub(crate) fn text(reservations: &Reservations, uuid: &[u8; 16]) -> String {
    let uuid_of = |bytes: &[u8; 16]| Uuid::from_bytes(*bytes).to_string();
    let mut stored = json!({ "ptpl": reservations.persists(), "bdev_uuid": uuid_of(uuid) });
    if reservations.persists() {
        let registrants = reservations.registrants();
        let one = |(host, key)| json!({ "rkey": key, "host_uuid": uuid_of(host) });
        stored["registrants"] = registrants.iter().map(one).collect();
        if let Some(held) = reservations.held() {
            stored["rtype"] = held.kind.0.into();
            stored["crkey"] = registrants.get(&held.holder).copied().unwrap_or_default().into();
            stored["holder_uuid"] = uuid_of(&held.holder).into();
        }
    }
    format!("{stored}\n")
}

/// Reads the reservations of a namespace with this UUID; none if there is no file.
pub(crate) fn read(path: &Path, uuid: &[u8; 16]) -> Result<Reservations, String> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Reservations::default()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut reservations = parse(&text, uuid).map_err(|what| {
        format!("{}: {what}; move the file away to begin without reservations", path.display())
    })?;
    reservations.add_owners(read_owners(&owners_path(path))?);
    Ok(reservations)
}

fn read_owners(path: &Path) -> Result<Vec<(HostId, Arc<str>)>, String> {
    let text = match read_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let wrong = |what: &dyn Display| {
        let path = path.display();
        format!("{path}: {what}; move the file away to have registrants known by identifier only")
    };
    let names: BTreeMap<String, String> =
        serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let one = |(id, name): (String, String)| {
        let id = Uuid::parse_str(&id).map_err(|error| wrong(&error))?;
        Ok((id.into_bytes(), name.into()))
    };
    names.into_iter().map(one).collect()
}

fn parse(text: &str, uuid: &[u8; 16]) -> Result<Reservations, String> {
    let stored: ReservationFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if stored.bdev_uuid.0 != *uuid {
        let (other, own) = (Uuid::from_bytes(stored.bdev_uuid.0), Uuid::from_bytes(*uuid));
        return Err(format!("these reservations are of namespace {other}, and this one is {own}"));
    }
    if !stored.ptpl {
        return Ok(Reservations::default());
    }
    let registrants: BTreeMap<[u8; 16], u64> =
        stored.registrants.iter().map(|one| (one.host_uuid.0, one.rkey)).collect();
    let held = (stored.rtype != 0).then(|| CurrentReservation {
        kind: ReservationType(stored.rtype),
        holder: stored.holder_uuid.map(|id| id.0).unwrap_or_default(),
    });
    Reservations::restored(registrants, held)
        .ok_or_else(|| "the holder of the reservation is not one of the registrants".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [5; 16];

    fn reservations() -> Reservations {
        let registrants = BTreeMap::from([([1; 16], 0x11), ([2; 16], u64::MAX)]);
        let kind = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
        let held = CurrentReservation { kind, holder: [2; 16] };
        Reservations::restored(registrants, Some(held)).expect("a registrant")
    }

    #[test]
    fn what_is_written_is_read() {
        let text = text(&reservations(), &UUID);
        assert_eq!(parse(&text, &UUID), Ok(reservations()));
        assert!(parse(&text, &[6; 16]).expect_err("another").contains("06060606-0606"));
        let none = super::text(&Reservations::default(), &UUID);
        assert_eq!(parse(&none, &UUID), Ok(Reservations::default()));
    }

    /// A file as SPDK writes it.
    #[test]
    fn spdks_files_are_read() {
        let text = r#"{
  "ptpl": true,
  "rtype": 1,
  "crkey": 11400714819323198485,
  "bdev_uuid": "05050505-0505-0505-0505-050505050505",
  "holder_uuid": "0f1e2d3c-4b5a-4968-8776-655443322110",
  "registrants": [
    { "rkey": 11400714819323198485, "host_uuid": "0f1e2d3c-4b5a-4968-8776-655443322110" }
  ]
}"#;
        let read = parse(text, &UUID).expect("a file");
        let held = read.held().expect("a reservation");
        assert_eq!(held.kind, ReservationType::WRITE_EXCLUSIVE);
        assert_eq!(held.holder[..4], [0x0f, 0x1e, 0x2d, 0x3c]);
        assert_eq!(read.registrants()[&held.holder], 11_400_714_819_323_198_485);
        let without = text.replace("holder_uuid", "other_uuid");
        assert!(parse(&without, &UUID).is_err());
    }

    /// The new file is written aside: at any byte of it a crash leaves the one before.
    #[test]
    fn a_crash_at_any_byte_leaves_what_was_there() {
        let folder = std::env::temp_dir().join(format!("weft-ptpl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("one.json");
        let before = Reservations::restored(BTreeMap::new(), None).expect("none");
        crate::replace_file(&path, text(&before, &UUID).as_bytes()).expect("written");
        let after = text(&reservations(), &UUID);
        let aside = weft_backend::files::aside(&path);
        assert_eq!(aside.parent(), path.parent(), "a rename within a folder is one step");
        for length in 0..=after.len() {
            std::fs::write(&aside, &after.as_bytes()[..length]).expect("cut off");
            assert_eq!(read(&path, &UUID), Ok(before.clone()), "after {length} bytes");
        }
        // What was left aside does not disturb the next one.
        crate::replace_file(&path, after.as_bytes()).expect("written");
        assert_eq!(read(&path, &UUID), Ok(reservations()));
        assert!(!aside.exists());
        assert_eq!(read(&folder.join("none"), &UUID), Ok(Reservations::default()));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_file_that_is_cut_off_is_said_to_be() {
        let whole = text(&reservations(), &UUID);
        for length in 0..whole.len() - 1 {
            assert!(parse(&whole[..length], &UUID).is_err(), "{length} bytes");
        }
    }
}
