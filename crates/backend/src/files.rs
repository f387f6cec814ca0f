//! Files that are read, and replaced, as a whole.

use crate::{StorageId, claim};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weft_reactor::{no_wait, open_regular};

/// Most bytes of a file that is read, or replaced, as a whole.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// A file that is replaced becomes no longer than this at a time, as far as it is asked before
/// whether there is room.
const ROOM: u64 = 16 << 10;

/// Reads a text that is in memory as a whole, such as a configuration or a state.
///
/// # Errors
/// It cannot be read, is no regular file, no UTF-8, or longer: [`io::ErrorKind::FileTooLarge`].
pub fn read_text(path: &Path) -> io::Result<String> {
    text_of(open_regular(path)?)
}

/// The same of what the command that reads it may wait for, such as a pipe. Whatever it is, the
/// bytes are bounded.
///
/// # Errors
/// Those of [`read_text`], but for the kind of the file.
pub fn read_input(path: &Path) -> io::Result<String> {
    text_of(File::open(path)?)
}

fn text_of(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
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
    check_replaced(path, &new)?;
    let options = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = options?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    claim::note_replaced(path);
    File::open(folder_of(path))?.sync_all()
}

/// No device stands on what is replaced, or on where that is written first.
fn check_replaced(path: &Path, new: &Path) -> io::Result<()> {
    check_not_served(path)?;
    check_not_served(new)
}

/// What a device of this process stands on is not also a file of the process itself.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`]: a device stands on it.
pub fn check_not_served(path: &Path) -> io::Result<()> {
    // What is only looked at is claimed by its name.
    let named = StorageId::Named(path.display().to_string());
    if StorageId::of(path).into_iter().chain([named]).any(|id| claim::is_claimed(&id)) {
        let what = format!("a device stands on {}: name another file here", path.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
    }
    Ok(())
}

/// Whether [`replace_file`] can be expected to replace this file. Nothing is changed by it.
///
/// # Errors
/// As of [`replace_file`].
pub fn can_replace(path: &Path) -> io::Result<()> {
    let path = &canonical(path);
    let new = aside(path);
    check_replaced(path, &new)?;
    match new.metadata() {
        // Who opens what is no file may have to wait.
        Ok(found) if !found.is_file() && !found.is_dir() => {}
        Ok(_) => drop(File::options().write(true).open(&new)?),
        Err(_) => {
            let (file, next) = (create_unnamed(&new)?, path.metadata().map_or(0, |it| it.len()));
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, next + ROOM) {
                // Elsewhere whether there is room shows with the first block.
                Err(Errno::OPNOTSUPP) => (&file).write_all(&[0; 4096])?,
                reserved => reserved?,
            }
        }
    }
    if path.is_dir() { Err(Errno::ISDIR.into()) } else { Ok(()) }
}

/// Makes a file without a name where one of this name would be made: who can do this can do that,
/// and nothing is left of it.
pub(crate) fn create_unnamed(path: &Path) -> io::Result<File> {
    let path = canonical(path);
    let folder = folder_of(&path);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        // Some file systems, as 9p, have no such files, and lose one whose name is removed: one is
        // made to see whether that is possible, and memory stands for it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let named = folder.join(format!(".weft-{}", std::process::id()));
            File::options().write(true).create_new(true).mode(0o600).open(&named)?;
            fs::remove_file(&named)?;
            Ok(rustix::fs::memfd_create("weft", MemfdFlags::CLOEXEC)?.into())
        }
        made => Ok(made?.into()),
    }
}

/// Whether a file of this name can be made, which is not.
///
/// # Errors
/// It cannot.
pub fn can_create(path: &Path) -> io::Result<()> {
    create_unnamed(path).map(drop)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The canonical path of a file, also of one that does not exist yet.
#[must_use]
pub fn canonical(path: &Path) -> PathBuf {
    let canonical = path.canonicalize().or_else(|error| {
        let parent = folder_of(path).canonicalize()?;
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
    let name = lock_of(path);
    loop {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(no_wait());
        let file = options.open(&name)?;
        claim::take(&file, false)?;
        // The lock is that of the open file, and others open the path.
        if is_at(&file, &name) {
            return Ok(file);
        }
    }
}

/// Whether [`lock_beside`] can be expected to succeed. No file is made.
///
/// # Errors
/// As of [`lock_beside`].
pub fn can_lock_beside(path: &Path) -> io::Result<()> {
    let name = lock_of(path);
    match File::options().write(true).custom_flags(no_wait()).open(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_unnamed(&name).map(drop),
        opened => Ok(claim::take(&opened?, false)?),
    }
}

fn lock_of(path: &Path) -> PathBuf {
    let mut name = canonical(path).into_os_string();
    name.push(".lock");
    name.into()
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
        let error = read_input(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    /// Nobody writes to the FIFO: whoever waits for it waits for ever.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            let path = folder.path().join(name);
            let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
            assert!(made.unwrap().success());
            path
        };
        let pipe = fifo("pipe");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let paths = [pipe, socket, folder.path().to_owned(), "/dev/zero".into()];
        let (state, _) = (folder.path().join("state"), fifo("state.lock"));
        std::thread::spawn(move || {
            for path in paths {
                for read in
                    [read_text(&path).map(drop), weft_reactor::read_private_file(&path).map(drop)]
                {
                    tell.send((path.clone(), read.unwrap_err().to_string())).unwrap();
                }
            }
            let locked = [lock_beside(&state).map(drop), can_lock_beside(&state)];
            for error in locked.map(|locked| locked.unwrap_err().raw_os_error()) {
                assert_eq!(error, Some(rustix::io::Errno::NXIO.raw_os_error()));
            }
        });
        let at_most = core::time::Duration::from_secs(20);
        let mut errors = 0;
        loop {
            match told.recv_timeout(at_most) {
                Ok((path, error)) => assert!(error.contains("not a regular"), "{path:?}: {error}"),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(timeout) => panic!("{timeout} after {errors}"),
            }
            errors += 1;
        }
        assert_eq!(errors, 8);
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

    /// By whatever path, and also once it is replaced or where it does not exist yet.
    #[test]
    fn no_device_stands_on_a_file_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        replace_file(&at("state"), &[7; 4096]).unwrap();
        symlink("state", at("link")).unwrap();
        let own = [at("link"), at("state"), at("none")].map(|path| crate::OwnFile::of(&path));
        let other = crate::OwnFile::of(&at("state"));
        replace_file(&at("state"), &[8; 4096]).unwrap();
        fs::hard_link(at("state"), at("hard")).unwrap();
        let open = |name: &str, option: &str| {
            let spec = format!("file:{}{option}", at(name).display());
            spec.parse::<DeviceSpec>().unwrap().build().map(drop).map_err(|e| e.to_string())
        };
        let each =
            [("state", ""), ("link", ",shared"), ("hard", ",read-only"), ("none", ",size=1MiB")];
        for (name, option) in each {
            let error = open(name, option).unwrap_err();
            assert!(error.contains("keeps for itself"), "{name}: {error}");
        }
        assert!(!at("none").exists(), "what was made is removed");
        assert!(open("other", ",size=1MiB").is_ok(), "nobody keeps that");
        crate::OwnFile::keep(&at("key"));
        crate::OwnFile::keep(&at("key"));
        drop(own);
        assert!(open("hard", "").is_err(), "one still keeps it");
        drop(other);
        for (name, option) in each {
            open(name, option).expect(name);
        }
        drop(crate::OwnFile::of(&at("key")));
        assert!(open("key", ",size=1MiB").is_err(), "it is kept");
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
