//! Keys in their interchange form: in files, or in the kernel's keyring.

mod kernel;

use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use weft_backend::{OwnFile, files};
use weft_nvmf::auth::SecretBytes;
use weft_nvmf::keys::ParseKeyError;
use weft_reactor::read_private_file;

/// Whether a text has a key itself, where a name or a path is meant.
#[must_use]
pub fn is_key(text: &str) -> bool {
    ["DHHC-1:", "NVMeTLSkey-1:"].iter().any(|start| text.contains(start))
}

/// Set where core dumps are wanted nevertheless.
static DUMPS: OnceLock<()> = OnceLock::new();

/// The process may leave core dumps, and other processes of its user may trace it, although it has
/// keys. To be called before the first key is read.
pub fn allow_core_dumps() {
    // It makes no difference how often it is said.
    let _ = DUMPS.set(());
}

/// Whether this is a key of the kernel's keyring: `%user:NAME` as `keyctl` has it, or `%SERIAL`. A
/// file whose name begins so is given as `./%…`.
pub(crate) fn is_in_kernel(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"%")
}

/// Reads a key. From then on the process leaves no core dump, unless that is allowed.
pub(crate) fn read_bytes(path: &Path) -> io::Result<SecretBytes> {
    if DUMPS.get().is_none()
        && let Err(error) = weft_reactor::system::forbid_dumps()
    {
        log::warn!("a core dump of this process would have its keys: {error}");
    }
    if is_in_kernel(path) {
        return kernel::read(&path.to_string_lossy());
    }
    files::check_not_served(path)?;
    let bytes = read_private_file(path).map(SecretBytes::from)?;
    // No host reads it, also when it is a key no longer.
    OwnFile::keep(path);
    Ok(bytes)
}

/// Reads the key in a file that only its owner can read, or in the kernel's keyring. The error is a
/// sentence and has nothing of the key.
///
/// # Errors
/// The key cannot be read, others have access to its file, or it is no key of the wanted form.
pub fn read<K: FromStr<Err = ParseKeyError>>(path: &Path) -> Result<K, String> {
    let name = path.display();
    if is_key(&name.to_string()) {
        return Err(
            "give the path of a file that has the key, or %user:NAME, not the secret: other users \
                    can read command lines"
                .to_owned(),
        );
    }
    let place = if is_in_kernel(path) { "kernel's key" } else { "key file" };
    let bytes = read_bytes(path);
    let bytes = bytes.map_err(|error| format!("cannot read the {place} {name}: {error}"))?;
    let text = str::from_utf8(&bytes).unwrap_or_default();
    text.parse().map_err(|error| format!("the {place} {name} holds no usable key: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weft_nvmf::keys::{Key, TlsKey};

    const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn a_key_is_read_and_anything_else_is_refused_with_the_files_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, contents: &[u8], mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, contents).expect("a file");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("a mode");
            path
        };
        let good = write("good", format!("{KEY}\n").as_bytes(), 0o600);
        assert!(matches!(read::<Key>(&good), Ok(Key::Tls(_))));
        for (name, contents, mode, why) in [
            ("open", KEY.as_bytes(), 0o640, "chmod 600"),
            ("empty", b"", 0o600, "begins with"),
            ("binary", &[0xff; 40], 0o600, "begins with"),
            ("other", b"DHHC-1:00:AAAA:", 0o600, "begins with"),
        ] {
            let error = read::<TlsKey>(&write(name, contents, mode)).expect_err(why);
            assert!(error.contains(why) && error.contains(name), "{error}");
            assert!(!error.contains("VRL"), "{error}");
        }
        let error = read::<TlsKey>(Path::new(KEY)).expect_err("a key is no path");
        assert!(error.contains("not the secret") && !error.contains("VRL"), "{error}");
        let error = read::<TlsKey>(&folder.path().join("none")).expect_err("no file");
        assert!(error.contains("none"), "{error}");
    }
}
