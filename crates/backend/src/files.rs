//! Files that are replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file: after a crash it has what it had before or all of this. The file is for its
/// owner only.
///
/// # Errors
/// The file cannot be written; it is as it was, or new.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = aside(path);
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The canonical path of a file, also of one that does not exist yet.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    let canonical = path.canonicalize().or_else(|error| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
        path.file_name().map(|name| parent.join(name)).ok_or(error)
    });
    canonical.unwrap_or_else(|_| path.to_owned())
}

/// Where the new contents of a file are written first.
#[must_use]
pub fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
