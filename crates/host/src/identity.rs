//! The NQN and the Host Identifier of this host.

use std::path::Path;
use std::sync::OnceLock;

use uuid::Uuid;
use weft_backend::files::read_text;
use weft_nvme::Nqn;

/// The file in which nvme-cli keeps the NQN of this host.
pub const HOST_NQN_FILE: &str = "/etc/nvme/hostnqn";
/// The file in which nvme-cli keeps its Host Identifier.
pub const HOST_ID_FILE: &str = "/etc/nvme/hostid";

/// A host's name and identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) nqn: Nqn,
    pub(crate) id: [u8; 16],
}

/// The identity of this machine, or of this process where the machine has none. Linux refuses a
/// second host NQN with the same identifier and the reverse, so the two are chosen together.
pub(crate) fn default_identity() -> Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    *IDENTITY.get_or_init(|| {
        read_identity(Path::new(HOST_NQN_FILE), Path::new(HOST_ID_FILE))
            .unwrap_or_else(random_identity)
    })
}

/// An identity that no other host has.
pub(crate) fn random_identity() -> Identity {
    from_uuid(Uuid::new_v4())
}

/// The identity of a host with this name.
pub(crate) fn of_name(nqn: Nqn) -> Identity {
    let default = default_identity();
    let made = || Uuid::new_v5(&Uuid::NAMESPACE_URL, nqn.as_bytes()).into_bytes();
    match uuid_in(&nqn) {
        // Whose identifier may be another than the UUID of its name.
        _ if nqn == default.nqn => default,
        Some(id) => Identity { nqn, id },
        None => Identity { nqn, id: made() },
    }
}

/// The UUID in a name of the form `nqn.2014-08.org.nvmexpress:uuid:…`.
pub(crate) fn uuid_in(nqn: &Nqn) -> Option<[u8; 16]> {
    let text = nqn.as_str().strip_prefix(Nqn::UUID_PREFIX)?;
    Some(Uuid::try_parse(text).ok()?.into_bytes())
}

fn from_uuid(uuid: Uuid) -> Identity {
    let id = uuid.into_bytes();
    Identity { nqn: Nqn::from_uuid(id), id }
}

fn read_identity(nqn_file: &Path, id_file: &Path) -> Option<Identity> {
    let text = read_text(nqn_file).ok()?;
    let nqn: Nqn = text.lines().next()?.trim().parse().ok()?;
    let id = read_text(id_file).ok();
    let id = id.and_then(|text| Uuid::try_parse(text.lines().next()?.trim()).ok());
    let id = id.map(Uuid::into_bytes).or_else(|| uuid_in(&nqn));
    Some(Identity { nqn, id: id.unwrap_or_else(|| Uuid::new_v4().into_bytes()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0f01fb42-9f7f-4856-b0b3-51e60b8de349";

    /// A target refuses an identifier with another name than the one that showed it first.
    #[test]
    fn each_name_has_an_identifier_of_its_own() {
        let name = |text: &str| text.parse::<Nqn>().expect("a name");
        let id = |text: &str| of_name(name(text)).id;
        let (one, other) = ("nqn.2024-01.io.example:a", "nqn.2024-01.io.example:b");
        assert!(id(one) == id(one) && id(one) != id(other) && id(one) != default_identity().id);
        assert_eq!(of_name(default_identity().nqn), default_identity());
        let uuid = format!("{}{UUID}", Nqn::UUID_PREFIX);
        assert_eq!(Some(id(&uuid)), uuid_in(&name(&uuid)));
    }

    #[test]
    fn a_name_from_a_uuid_gives_it_back() {
        let uuid = Uuid::try_parse(UUID).unwrap();
        let identity = from_uuid(uuid);
        assert_eq!(identity.nqn.as_str(), format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
        assert_eq!(uuid_in(&identity.nqn), Some(identity.id));
        assert_eq!(uuid_in(&"nqn.2024-01.io.example:host".parse().unwrap()), None);
        assert_eq!(default_identity(), default_identity());
        assert_ne!(default_identity().id, [0; 16]);
    }

    #[test]
    fn files_as_nvme_cli_writes_them() {
        let folder = std::env::temp_dir().join(format!("weft-host-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let (nqn, id) = (folder.join("hostnqn"), folder.join("hostid"));
        assert_eq!(read_identity(&nqn, &id), None);
        std::fs::write(&nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}\n")).unwrap();
        let identity = read_identity(&nqn, &id).unwrap();
        assert_eq!(identity.id, *Uuid::try_parse(UUID).unwrap().as_bytes());
        let other = "11111111-2222-3333-4444-555555555555";
        std::fs::write(&id, other).unwrap();
        let identity = read_identity(&nqn, &id).unwrap();
        assert_eq!(identity.id, *Uuid::try_parse(other).unwrap().as_bytes());
        std::fs::write(&nqn, "\n").unwrap();
        assert_eq!(read_identity(&nqn, &id), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
