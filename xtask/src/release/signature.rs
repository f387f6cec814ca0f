//! Signatures by gpg, which have the time of the commit and are the same for the same bytes.

use crate::cargo::target_folder;
use crate::packages;
use crate::python::succeeded;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the key that is made to try a release.
const TRIAL: &str = "weft, a trial <weft@localhost>";

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Signer {
    /// The folder of gpg's that has it.
    pub(super) home: PathBuf,
    key: String,
    /// When it signs, in seconds: the time of the whole release.
    pub(super) time: String,
}

impl Signer {
    /// A key of the maintainer's, or one that is made once for trials.
    pub(super) fn new(root: &Path, key: Option<&str>, time: &str) -> Result<Self> {
        packages::need("releases are signed", &[("gpg", "gnupg"), ("rpmsign", "rpm")])?;
        let own = std::env::var_os("GNUPGHOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".gnupg"));
        if let Some(key) = key {
            let home = own.or_else(home).context("neither GNUPGHOME nor HOME is set")?;
            return Ok(Self { home, key: key.to_owned(), time: time.to_owned() });
        }
        let home = target_folder(root).join("trial-key");
        let signer = Self { home, key: TRIAL.to_owned(), time: time.to_owned() };
        if !signer.home.exists() {
            fs::create_dir_all(&signer.home)?;
            fs::set_permissions(&signer.home, fs::Permissions::from_mode(0o700))?;
            let make =
                ["--passphrase", "", "--quick-generate-key", TRIAL, "rsa3072", "sign", "never"];
            // Before the commit, so that it may sign then.
            let mut gpg = Self { time: "1000000000".to_owned(), ..signer.clone() }.gpg();
            succeeded(gpg.args(make))?;
        }
        Ok(signer)
    }

    /// Ends the process that gpg has left behind for the trial's key.
    pub(super) fn end(&self) -> Result<()> {
        if self.key != TRIAL {
            return Ok(());
        }
        let mut end = Command::new("gpgconf");
        succeeded(end.arg("--homedir").arg(&self.home).args(["--kill", "all"])).map(drop)
    }

    fn gpg(&self) -> Command {
        let mut gpg = Command::new("gpg");
        gpg.args(["--batch", "--yes", "--quiet", "--homedir"]).arg(&self.home);
        gpg.arg(format!("--faked-system-time={}!", self.time));
        gpg.args(["--digest-algo", "SHA256", "--local-user", &self.key]);
        gpg
    }

    /// The key that others check with.
    pub(super) fn public_key(&self) -> Result<String> {
        succeeded(
            self.gpg()
                .args(["--armor", "--export-options", "export-minimal", "--export"])
                .arg(&self.key),
        )
    }

    /// Writes the signature of a file beside it.
    pub(super) fn sign(&self, file: &Path, name: &str) -> Result<()> {
        let mut gpg = self.gpg();
        gpg.args(["--armor", "--detach-sign", "--output"]).arg(file.with_file_name(name));
        succeeded(gpg.arg(file)).map(drop)
    }

    /// Writes a copy of a text with its signature beside it.
    pub(super) fn sign_within(&self, file: &Path, name: &str) -> Result<()> {
        let mut gpg = self.gpg();
        gpg.args(["--clear-sign", "--output"]).arg(file.with_file_name(name));
        succeeded(gpg.arg(file)).map(drop)
    }

    /// Signs an RPM, which has its signature within.
    pub(super) fn sign_rpm(&self, package: &Path) -> Result<()> {
        let extra = format!("--batch --faked-system-time={}!", self.time);
        let mut sign = Command::new("rpmsign");
        // Debian's looks for a gpg2, which Debian's gnupg has not.
        sign.args(["--define", "__gpg /usr/bin/gpg"]);
        sign.args(["--addsign", "--define", &format!("_gpg_name {}", self.key)]);
        sign.args(["--define", &format!("_gpg_path {}", self.home.display())]);
        sign.args(["--define", &format!("_gpg_sign_cmd_extra_args {extra}")]);
        succeeded(sign.arg(package)).map(drop)
    }
}
