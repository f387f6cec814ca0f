//! Keys of TLS for the targets of a study: made for one target, and in files that end with it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weft_host::Options;
use weft_lab::study::launch::{TargetSpec, Tls};
use weft_nvmf::auth::{HashFunction, Secret};
use weft_nvmf::keys::TlsKey;
use weft_reactor::system::random_bytes;

/// The keys of one target and of its host.
#[derive(Debug)]
pub(super) struct Keys {
    kind: Kind,
    /// Holds the key's file and the configuration that names it.
    folder: PathBuf,
}

#[derive(Debug)]
enum Kind {
    Tls(TlsKey),
    Concatenation(Secret),
}

impl Keys {
    /// New keys, and a folder for them that only this user has access to.
    pub(super) fn new(tls: Tls, folder: PathBuf) -> Result<Self, String> {
        let random =
            || random_bytes::<64>().map_err(|error| format!("cannot get random bytes: {error}"));
        let key = |hash: HashFunction| -> Result<Kind, String> {
            let secret = random()?.get(..hash.length()).unwrap_or_default().to_vec();
            let key = TlsKey::new(Some(hash), secret.into());
            key.map(Kind::Tls).map_err(|error| error.to_string())
        };
        let kind = match tls {
            Tls::Aes128Gcm => key(HashFunction::Sha256)?,
            Tls::Aes256Gcm => key(HashFunction::Sha384)?,
            Tls::Concatenation => {
                let secret = Secret::new(&random()?, None);
                Kind::Concatenation(secret.ok_or("a secret has 64 bytes")?)
            }
        };
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self { kind, folder })
    }

    /// Writes the key and the configuration of a target that has it, and returns the latter's path.
    pub(super) fn configure(
        &self,
        spec: &TargetSpec,
        listen: &str,
        nqn: &str,
    ) -> Result<PathBuf, String> {
        let key = self.folder.join("key");
        let (text, mode, named) = match &self.kind {
            Kind::Tls(tls) => (tls.text(), "required", format!("psk = [{key:?}]")),
            Kind::Concatenation(secret) => {
                (secret.text(), "allowed", format!("dhchap-key = {key:?}\ndhchap-concat = true"))
            }
        };
        write(&key, text.as_bytes())?;
        let host = Options::default_host_nqn();
        let mut config = format!(
            "[[port]]\nlisten = {listen:?}\ntls = \"{mode}\"\n[[subsystem]]\nnqn = {nqn:?}\n\
             [[subsystem.host]]\nnqn = \"{host}\"\n{named}\n"
        );
        for (nsid, device) in (1..).zip(&spec.devices) {
            let device = device.to_string();
            config += &format!("[[subsystem.namespace]]\nnsid = {nsid}\ndevice = {device:?}\n");
        }
        let path = self.folder.join("target.toml");
        write(&path, config.as_bytes())?;
        Ok(path)
    }

    /// Gives a host its keys.
    pub(super) fn give(&self, options: Options) -> Options {
        match &self.kind {
            Kind::Tls(key) => Options { tls_key: Some(key.clone()), ..options },
            Kind::Concatenation(secret) => {
                Options { dhchap_secret: Some(secret.clone()), concat: true, ..options }
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // What is left are files that only this user can read, and keys of a target that has ended.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes a new file, which only this user can read.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
