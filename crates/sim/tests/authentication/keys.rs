//! Keys in files.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Secrets of each length and with each transformation.
pub(crate) const KEYS: [&str; 6] = [
    "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:",
    "DHHC-1:01:MjM0NTY3ODk6Ozw9Pj9AQUJDREVGR0hJSktMTU5PUFGALiae:",
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:",
    "DHHC-1:03:lpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR\
     0tPU1Vgn0I4=:",
    "DHHC-1:00:BwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QEFC\
     Q0RFRsueZT4=:",
    "DHHC-1:01:TU5PUFFSU1RVVldYWVpbXF1eX2BhYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ent8w+V3Pw==:",
];

/// [`KEYS`] in files that only their owner may read.
#[derive(Debug)]
pub(crate) struct Keys {
    folder: tempfile::TempDir,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let keys = Self { folder: tempfile::tempdir().expect("a folder") };
        for (number, key) in KEYS.iter().enumerate() {
            keys.write(number, key);
        }
        keys
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    pub(crate) fn path(&self, number: usize) -> String {
        self.file(number).to_str().expect("a path").to_owned()
    }

    pub(crate) fn write(&self, number: usize, key: &str) {
        std::fs::write(self.file(number), format!("{key}\n")).expect("it is written");
        self.set_mode(number, 0o600);
    }

    pub(crate) fn set_mode(&self, number: usize, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.file(number), mode).expect("its mode is set");
    }
}
