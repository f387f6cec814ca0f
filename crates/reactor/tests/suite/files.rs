//! Cases about files.

use crate::harness::{Driver, ExternalFile, outcome_of, pattern, token, wait_for};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use weft_reactor::{Buffer, Config, FileId, Operation, Outcome, Reactor};

/// `O_DIRECT` of the architectures that we test on.
#[cfg(target_arch = "x86_64")]
const DIRECT: i32 = 0o40000;
#[cfg(not(target_arch = "x86_64"))]
const DIRECT: i32 = 0o200000;

fn filled(reactor: &Reactor, bytes: &[u8]) -> Buffer {
    let mut buffer = reactor.pool().take(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

fn write(reactor: &mut Reactor, file: FileId, offset: u64, bytes: &[u8], durable: bool) {
    let buffer = filled(reactor, bytes);
    let range = 0..bytes.len();
    reactor.submit(token(1), Operation::Write { file, offset, buffer, range, durable });
    match outcome_of(reactor, 1) {
        Outcome::Transferred { buffer } => assert!(buffer[..] == *bytes),
        other => panic!("{other:?}"),
    }
}

fn read(reactor: &mut Reactor, file: FileId, offset: u64, len: usize) -> Buffer {
    let buffer = reactor.pool().take(len).unwrap();
    reactor.submit(token(2), Operation::Read { file, offset, buffer, range: 0..len });
    match outcome_of(reactor, 2) {
        Outcome::Transferred { buffer } => buffer,
        other => panic!("{other:?}"),
    }
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done)
}

pub(crate) fn what_is_written_is_read(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    for (offset, len, durable) in [(0, 1, false), (512, 4096, true), (1 << 33, 1 << 20, false)] {
        let bytes = pattern(offset + 1, len);
        write(&mut reactor, file, offset, &bytes, durable);
        assert!(read(&mut reactor, file, offset, len)[..] == bytes);
        let mut seen = vec![0; len];
        under.read(offset, &mut seen);
        assert!(seen == bytes);
    }
    reactor.submit(token(3), Operation::Sync { file });
    assert!(is_done(&outcome_of(&mut reactor, 3)));
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn only_the_range_is_touched(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    under.write(0, &pattern(1, 8192));
    let mut buffer = reactor.pool().take(8192).unwrap();
    buffer.fill(0xee);
    let operation = Operation::Read { file, offset: 100, buffer, range: 1000..3000 };
    reactor.submit(token(1), operation);
    let Outcome::Transferred { buffer } = outcome_of(&mut reactor, 1) else { panic!() };
    assert!(buffer[1000..3000] == pattern(1, 8192)[100..2100]);
    assert!(buffer[..1000].iter().chain(&buffer[3000..]).all(|byte| *byte == 0xee));
    let range = 1000..3000;
    let operation = Operation::Write { file, offset: 8192, buffer, range, durable: false };
    reactor.submit(token(1), operation);
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Transferred { .. }));
    assert_eq!(under.len(), 10_192);
}

pub(crate) fn an_end_of_file_on_the_way_is_an_error(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    under.write(0, &[1; 1000]);
    for offset in [0, 999, 1000, 5000] {
        let buffer = reactor.pool().take(4096).unwrap();
        reactor.submit(token(1), Operation::Read { file, offset, buffer, range: 0..1001 });
        match outcome_of(&mut reactor, 1) {
            Outcome::Failed { error, buffer: Some(_), .. } => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn many_at_once_complete_once_each(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    let count = 1500;
    for n in 0..count {
        let buffer = filled(&reactor, &pattern(u64::from(n), 4096));
        let offset = u64::from(n) * 4096;
        let operation = Operation::Write { file, offset, buffer, range: 0..4096, durable: false };
        reactor.submit(token(n), operation);
    }
    let mut completions = wait_for(&mut reactor, count as usize);
    completions.sort_by_key(|completion| completion.token);
    for (n, completion) in (0..count).zip(completions) {
        assert_eq!(completion.token, token(n));
        assert!(matches!(completion.outcome, Outcome::Transferred { .. }), "{completion:?}");
        let mut seen = [0; 4096];
        under.read(u64::from(n) * 4096, &mut seen);
        assert!(seen[..] == pattern(u64::from(n), 4096));
    }
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn direct_files_take_whole_sectors(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).custom_flags(DIRECT);
    // Not every file system does this; the one of the build folder usually does.
    let Ok(under) = options.open(directory.path().join("direct")) else { return };
    under.set_len(6000).unwrap();
    let file = reactor.add_file(Arc::new(under), true);
    let bytes = pattern(4, 4096);
    write(&mut reactor, file, 0, &bytes, true);
    assert!(read(&mut reactor, file, 0, 4096)[..] == bytes);
    // What the device cannot do is an error, not a wrong result.
    let buffer = reactor.pool().take(4096).unwrap();
    reactor.submit(token(3), Operation::Read { file, offset: 1, buffer, range: 0..100 });
    assert!(matches!(outcome_of(&mut reactor, 3), Outcome::Failed { buffer: Some(_), .. }));
    // The file ends inside the third page.
    let buffer = reactor.pool().take(8192).unwrap();
    reactor.submit(token(3), Operation::Read { file, offset: 0, buffer, range: 0..8192 });
    match outcome_of(&mut reactor, 3) {
        Outcome::Failed { error, buffer: Some(_), .. } => {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
        other => panic!("{other:?}"),
    }
}

/// A device without polled queues may complete what is polled, or refuse it; its driver decides.
pub(crate) fn polled_files_complete_or_say_why(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, bytes) = (directory.path().join("polled"), pattern(4, 8192));
    std::fs::write(&path, &bytes).unwrap();
    let mut options = OpenOptions::new();
    let Ok(under) = options.read(true).custom_flags(DIRECT).open(&path) else { return };
    let file = match reactor.add_polled_file(Arc::new(under)) {
        Ok(file) => file,
        Err(error) => {
            assert_eq!(reactor.driver_name(), "epoll", "{error}");
            return assert!(error.to_string().starts_with("only io_uring"), "{error}");
        }
    };
    for n in 0..2 {
        let buffer = reactor.pool().take(4096).unwrap();
        let operation =
            Operation::Read { file, offset: u64::from(n) * 4096, buffer, range: 0..4096 };
        reactor.submit(token(n), operation);
    }
    for completion in wait_for(&mut reactor, 2) {
        let at = completion.token.tag as usize * 4096;
        match completion.outcome {
            Outcome::Transferred { buffer } => assert!(buffer[..] == bytes[at..at + 4096]),
            Outcome::Failed { error, buffer: Some(_), .. } => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    // What is no read or write goes its usual way.
    reactor.submit(token(3), Operation::Sync { file });
    assert!(matches!(outcome_of(&mut reactor, 3), Outcome::Done));
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
    // One that is dropped under way waits for it.
    let buffer = reactor.pool().take(4096).unwrap();
    reactor.submit(token(4), Operation::Read { file, offset: 0, buffer, range: 0..4096 });
}

pub(crate) fn discard_and_zeroes_read_as_zeroes(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    let len = 1 << 20;
    let bytes = pattern(3, len);
    let erase: [fn(FileId, u64, u64) -> Operation; 3] = [
        |file, offset, length| Operation::Discard { file, offset, length },
        |file, offset, length| Operation::WriteZeroes { file, offset, length, unmap: true },
        |file, offset, length| Operation::WriteZeroes { file, offset, length, unmap: false },
    ];
    for (n, erase) in erase.into_iter().enumerate() {
        under.write(0, &bytes);
        let before = under.allocated();
        reactor.submit(token(1), erase(file, 65_536 - 512, 512 * 1024 + 1024));
        let outcome = outcome_of(&mut reactor, 1);
        assert!(is_done(&outcome), "{n}: {outcome:?}");
        let seen = read(&mut reactor, file, 0, len);
        let (start, end) = (65_536 - 512, 65_536 + 512 * 1024 + 512);
        assert!(seen[..start] == bytes[..start], "{n}");
        assert!(seen[start..end].iter().all(|byte| *byte == 0), "{n}");
        assert!(seen[end..] == bytes[end..], "{n}");
        assert_eq!(under.len(), len as u64, "{n}");
        let after = under.allocated();
        if n < 2 {
            assert!(after < before, "{n}: {after} of {before} blocks");
        }
    }
}

pub(crate) fn requests_that_make_no_sense_fail(driver: &impl Driver) {
    let mut reactor = driver.with(Config { io_threads: 1, ..Config::default() });
    let (file, _) = driver.file(&mut reactor);
    reactor.submit(token(1), Operation::Discard { file, offset: u64::MAX, length: 2 });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { .. }));
    let buffer = reactor.pool().take(10).unwrap();
    let offset = u64::MAX - 3;
    reactor.submit(token(1), Operation::Read { file, offset, buffer, range: 0..10 });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { buffer: Some(_), .. }));
    // Nothing to do is done at once.
    reactor.submit(token(1), Operation::Discard { file, offset: 0, length: 0 });
    assert!(is_done(&outcome_of(&mut reactor, 1)));
    reactor.remove_file(file);
    reactor.submit(token(1), Operation::Sync { file });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { .. }));
}

pub(crate) fn a_removed_file_finishes_what_it_began(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, under) = driver.file(&mut reactor);
    for n in 0..20 {
        let buffer = filled(&reactor, &[9; 4096]);
        let offset = u64::from(n) * 4096;
        let operation = Operation::Write { file, offset, buffer, range: 0..4096, durable: false };
        reactor.submit(token(n), operation);
    }
    reactor.remove_file(file);
    let completions = wait_for(&mut reactor, 20);
    assert!(completions.iter().all(|it| matches!(it.outcome, Outcome::Transferred { .. })));
    assert_eq!(under.len(), 20 * 4096);
}

pub(crate) fn cancelled_file_operations_complete_once(driver: &impl Driver) {
    let mut reactor = driver.with(Config { io_threads: 1, ..Config::default() });
    let (file, _) = driver.file(&mut reactor);
    for n in 0..200 {
        let buffer = filled(&reactor, &[9; 4096]);
        let offset = u64::from(n) * 4096;
        let operation = Operation::Write { file, offset, buffer, range: 0..4096, durable: true };
        reactor.submit(token(n), operation);
    }
    for n in 0..200 {
        reactor.cancel(token(n));
    }
    let mut completions = wait_for(&mut reactor, 200);
    completions.sort_by_key(|completion| completion.token);
    for (n, completion) in (0..200).zip(&completions) {
        assert_eq!(completion.token, token(n));
        assert!(
            matches!(
                completion.outcome,
                Outcome::Transferred { .. } | Outcome::Cancelled { buffer: Some(_), .. }
            ),
            "{completion:?}"
        );
    }
    drop(completions);
    assert_eq!(reactor.pool().available(), reactor.pool().capacity());
}

pub(crate) fn dropping_a_reactor_waits_for_its_files(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let (file, _) = driver.file(&mut reactor);
    let pool = reactor.pool().clone();
    for n in 0..100 {
        let buffer = filled(&reactor, &[9; 65_536]);
        let offset = u64::from(n) * 65_536;
        let operation = Operation::Write { file, offset, buffer, range: 0..65_536, durable: true };
        reactor.submit(token(n), operation);
    }
    let mut completions = Vec::new();
    reactor.poll(weft_reactor::WaitLimit::NoWait, &mut completions);
    drop(reactor);
    drop(completions);
    assert_eq!(pool.available(), pool.capacity());
}

/// A file system in memory can punch holes but not zero ranges: the zeroes are written.
pub(crate) fn zeroes_are_written_where_they_cannot_be_made(driver: &impl Driver) {
    let mut reactor = driver.reactor();
    let Ok(under) = tempfile::tempfile_in("/dev/shm") else { return };
    let bytes = pattern(8, 3 << 20);
    ExternalFile::write(&Arc::new(under.try_clone().unwrap()), 0, &bytes);
    let file = reactor.add_file(under, false);
    for (round, unmap) in [false, true].into_iter().enumerate() {
        let offset = 1000 + round as u64;
        let length = (1 << 20) + 77;
        reactor.submit(token(1), Operation::WriteZeroes { file, offset, length, unmap });
        let outcome = outcome_of(&mut reactor, 1);
        assert!(is_done(&outcome), "{outcome:?}");
    }
    let end = 1001 + (1 << 20) + 77;
    let seen = read(&mut reactor, file, 0, 3 << 20);
    assert!(seen[..1000] == bytes[..1000]);
    assert!(seen[1000..end].iter().all(|byte| *byte == 0));
    assert!(seen[end..] == bytes[end..]);
}

/// A block device over a file, where we may make one.
struct LoopDevice {
    path: String,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    fn new(bytes: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.as_file().set_len(bytes).unwrap();
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(Self { path, _file: file })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

pub(crate) fn block_devices_discard_and_zero(driver: &impl Driver) {
    let Some(device) = LoopDevice::new(8 << 20) else {
        eprintln!("no block device can be made here (that takes root and a loop driver)");
        return;
    };
    let mut reactor = driver.reactor();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(DIRECT);
    let Ok(under) = options.open(&device.path) else { return };
    let file = reactor.add_file(under, true);
    let bytes = pattern(6, 1 << 20);
    let erase: [fn(FileId, u64, u64) -> Operation; 3] = [
        |file, offset, length| Operation::Discard { file, offset, length },
        |file, offset, length| Operation::WriteZeroes { file, offset, length, unmap: true },
        |file, offset, length| Operation::WriteZeroes { file, offset, length, unmap: false },
    ];
    for (n, erase) in erase.into_iter().enumerate() {
        write(&mut reactor, file, 0, &bytes, true);
        reactor.submit(token(1), erase(file, 65_536, 262_144));
        let outcome = outcome_of(&mut reactor, 1);
        assert!(is_done(&outcome), "{n}: {outcome:?}");
        let seen = read(&mut reactor, file, 0, 1 << 20);
        assert!(seen[..65_536] == bytes[..65_536], "{n}");
        assert!(seen[65_536..65_536 + 262_144].iter().all(|byte| *byte == 0), "{n}");
        assert!(seen[65_536 + 262_144..] == bytes[65_536 + 262_144..], "{n}");
        reactor.submit(token(2), Operation::Sync { file });
        assert!(is_done(&outcome_of(&mut reactor, 2)));
    }
    // Half a sector is the caller's mistake, and comes back as an error.
    reactor.submit(token(1), Operation::Discard { file, offset: 100, length: 100 });
    assert!(matches!(outcome_of(&mut reactor, 1), Outcome::Failed { .. }));
}
