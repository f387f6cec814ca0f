//! Files that are read as a whole, and those that only their owner may read: what keys are kept in.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Most bytes that are read: no key is longer.
const BYTES_MAX: u64 = 4096;

/// Opens a regular file to read it. A person or a peer has given the path: a FIFO is refused, which
/// would otherwise keep the caller for as long as nobody writes to it, and a device is not opened,
/// which may do more than be read.
///
/// # Errors
/// The file cannot be opened, or is no regular one: [`io::ErrorKind::InvalidInput`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    let check = |is_file| match is_file {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    };
    check(path.metadata()?.is_file())?;
    let file = File::options().read(true).custom_flags(no_wait()).open(path)?;
    // Of what was opened: the name may lead elsewhere by now.
    check(file.metadata()?.is_file())?;
    Ok(file)
}

/// The flags of `open` with which no FIFO is waited for, and no terminal taken.
#[must_use]
pub fn no_wait() -> i32 {
    i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0)
}

/// The contents of a file that belongs to this user or to root and that others have no access to.
///
/// systemd gives a service its credentials by an access control list, which shows as access of the
/// group (mode 0440): of files in `$CREDENTIALS_DIRECTORY` that is no access of others.
///
/// # Errors
/// The file cannot be read, or others may read or write it; the error says which, and nothing of
/// the contents.
pub fn read_private_file(path: &Path) -> io::Result<Vec<u8>> {
    read(path, std::env::var_os("CREDENTIALS_DIRECTORY").as_deref().map(Path::new))
}

fn read(path: &Path, credentials: Option<&Path>) -> io::Result<Vec<u8>> {
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    let user = rustix::process::geteuid().as_raw();
    let file = open_regular(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let what = format!("{error}; chown it to user {user}, as which this runs");
            io::Error::new(error.kind(), what)
        }
        _ => error,
    })?;
    let metadata = file.metadata()?;
    let mode = metadata.mode() & 0o7777;
    let is_credential = credentials.is_some() && path.parent() == credentials;
    let others = if is_credential { 0o037 } else { 0o077 };
    if mode & others != 0 {
        return refused(format!("others have access to it (mode {mode:04o}); chmod 600 it"));
    }
    if metadata.uid() != user && metadata.uid() != 0 {
        let owner = metadata.uid();
        return refused(format!("it belongs to user {owner}, not to this one ({user}) or root"));
    }
    let length = usize::try_from(metadata.len().min(BYTES_MAX)).unwrap_or_default();
    // Reserved at once: growing would leave copies of the contents in memory.
    let mut contents = Vec::with_capacity(length + 1);
    file.take(BYTES_MAX + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long for a key"));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(contents: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), contents).expect("it is written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), mode).expect("its mode is set");
        file
    }

    #[test]
    fn a_credential_of_systemd_is_read_by_its_access_control_list() {
        let credential = file(b"secret", 0o440);
        let folder = credential.path().parent();
        assert_eq!(read(credential.path(), folder).expect("it is read"), b"secret");
        read(credential.path(), None).expect_err("it is another file");
        read(credential.path(), Some(Path::new("/run"))).expect_err("it is elsewhere");
        read(file(b"secret", 0o444).path(), folder).expect_err("everybody reads it");
        read(file(b"secret", 0o460).path(), folder).expect_err("a group writes it");
    }

    #[test]
    fn only_the_owner_may_have_access() {
        for mode in [0o600, 0o400] {
            let read = read_private_file(file(b"secret", mode).path());
            assert_eq!(read.expect("it is read"), b"secret");
        }
        for mode in [0o640, 0o604, 0o620, 0o644, 0o660, 0o601] {
            let file = file(b"secret", mode);
            let error = read_private_file(file.path()).expect_err("refused");
            assert!(error.to_string().contains("chmod 600"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn a_key_is_a_short_file() {
        assert_eq!(read_private_file(file(&[7; 4096], 0o600).path()).expect("read").len(), 4096);
        let error = read_private_file(file(&[7; 4097], 0o600).path()).expect_err("refused");
        assert!(error.to_string().contains("too long"), "{error}");
        let error = read_private_file(Path::new("/")).expect_err("refused");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        read_private_file(Path::new("/nowhere")).expect_err("missing");
    }
}
