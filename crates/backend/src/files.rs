//! Files that are read, and replaced, as a whole.

use crate::{StorageId, claim};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of a file that is read, or replaced, as a whole.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Reads a text that is in memory as a whole, such as a configuration or a state. Whatever the file
/// is, the bytes are bounded.
///
/// # Errors
/// It cannot be read, is no UTF-8, or is longer: [`io::ErrorKind::FileTooLarge`].
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        let what = "it has more than 64 MiB and cannot be what is meant: name another file";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let is_no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
    String::from_utf8(bytes).map_err(is_no_text)
}

/// Replaces a file: after a crash it has what it had before or all of this. The file is for its
/// owner only. A symbolic link stays, and what it leads to is replaced. What a device of this
/// process stands on is never replaced.
///
/// # Errors
/// The file cannot be written; it is as it was, or new. It would be longer than what is read again:
/// [`io::ErrorKind::FileTooLarge`].
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        let what = "it would have more than 64 MiB and could not be read again: keep less in it";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let path = &canonical(path);
    let new = aside(path);
    for path in [path, &new] {
        if StorageId::of(path).is_some_and(|id| claim::is_claimed(&id)) {
            let what = format!("a device stands on {}: name another file here", path.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
    }
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether this process can make a file in a folder.
pub fn can_create_in(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?)
}

/// The canonical path of a file, also of one that does not exist yet.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    let canonical = path.canonicalize().or_else(|error| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
        match path.read_link() {
            Ok(target) if error.kind() == io::ErrorKind::NotFound => {
                Ok(self::canonical(&parent.join(target)))
            }
            _ => path.file_name().map(|name| parent.join(name)).ok_or(error),
        }
    });
    canonical.unwrap_or_else(|_| path.to_owned())
}

/// Locks the file beside this one whose name ends in `.lock`: for what is replaced, which has no
/// lock of its own. The lock is held until the result is dropped.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: another process has it.
pub fn lock_beside(path: &Path) -> io::Result<File> {
    let mut name = canonical(path).into_os_string();
    name.push(".lock");
    loop {
        let options =
            File::options().write(true).create(true).truncate(false).mode(0o600).open(&name);
        let file = options?;
        claim::take(&file, false)?;
        // The lock is that of the open file, and others open the path.
        if is_at(&file, Path::new(&name)) {
            return Ok(file);
        }
    }
}

/// Whether a path leads to the file that is open.
#[must_use]
pub fn is_at(file: &File, path: &Path) -> bool {
    let own = file.metadata().ok().map(|metadata| StorageId::of_metadata(&metadata));
    own.is_some() && own == StorageId::of(path)
}

/// Where the new contents of a file are written first.
#[must_use]
pub fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceSpec;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_text_is_read_and_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (bytes, read) in
            [(&b"a text"[..], Ok("a text".to_owned())), (b"\xff", Err(io::ErrorKind::InvalidData))]
        {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read_text(&path).map_err(|error| error.kind()), read);
        }
        let most = File::options().write(true).open(&path).unwrap();
        for (length, is_read) in [(TEXT_BYTES_MAX, true), (TEXT_BYTES_MAX + 1, false)] {
            most.set_len(0).unwrap();
            most.set_len(length).unwrap();
            assert_eq!(read_text(&path).is_ok(), is_read, "{length} bytes");
        }
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_a_device_stands_on_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["disk", "kept.new"] {
            fs::write(at(name), [7; 4096]).unwrap();
        }
        let spec = |name: &str| format!("file:{}", at(name).display()).parse::<DeviceSpec>();
        let served = ["disk", "kept.new"].map(|name| spec(name).unwrap().build().unwrap());
        symlink("disk", at("link")).unwrap();
        for name in ["disk", "link", "kept"] {
            let error = replace_file(&at(name), b"text").expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{name}: {error}");
        }
        for name in ["disk", "kept.new"] {
            assert_eq!(fs::read(at(name)).unwrap(), [7; 4096], "{name}");
        }
        drop(served);
        replace_file(&at("link"), b"text").expect("nothing is served any more");
    }

    #[test]
    fn what_a_link_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        symlink("real/file", at("link")).unwrap();
        symlink("link", at("second")).unwrap();
        symlink("round", at("round")).unwrap();
        for contents in ["first", "second"] {
            replace_file(&at("second"), contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("real/file")).unwrap(), contents);
            assert!(at("link").is_symlink() && at("second").is_symlink());
        }
        assert_eq!(canonical(&at("round")), folder.path().canonicalize().unwrap().join("round"));
    }

    #[test]
    fn what_is_locked_has_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let lock = lock_beside(&path).unwrap();
        assert_eq!(lock_beside(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        let lock = lock_beside(&path).unwrap();
        // Who waits for the lock of a file that goes meanwhile has not that of the path.
        let waits = std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock_beside(&path));
            std::thread::sleep(core::time::Duration::from_millis(100));
            fs::remove_file(folder.path().join("state.lock")).unwrap();
            drop(lock);
            waits.join().unwrap()
        });
        let waited = waits.expect("that of a new file");
        assert!(is_at(&waited, &folder.path().join("state.lock")));
        assert_eq!(lock_beside(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn nothing_is_written_that_could_not_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace_file(&path, b"before").unwrap();
        let mut bytes = vec![b' '; 64 << 20];
        bytes.push(b' ');
        let error = replace_file(&path, &bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
        assert_eq!(read_text(&path).unwrap(), "before");
        bytes.pop();
        replace_file(&path, &bytes).unwrap();
        assert_eq!(read_text(&path).unwrap().len(), bytes.len());
    }
}
