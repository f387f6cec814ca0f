//! Tests beside fio itself, where it is installed (Debian's packages fio and fio-examples).
//!
//! `cargo xtask agreement` installs both and runs these with [`REQUIRED`] set.

use std::{
    path::Path,
    process::Command,
    sync::{Arc, atomic::AtomicBool},
};

use weft_backend::{DeviceFactory, DeviceSpec};

use crate::{Extent, Job, Pattern, RunResult, run, verify::checksum::Checksum};

/// With this variable a test that cannot run has failed.
const REQUIRED: &str = "WEFT_TEST_FIO_REQUIRED";

/// Whether something is there; what is not is told.
fn is_there(what: &str, found: bool) -> bool {
    assert!(found || std::env::var_os(REQUIRED).is_none(), "{what} is not installed");
    if !found {
        eprintln!("SKIPPED: {what} is not installed");
    }
    found
}

/// What fio prints and whether it ended well, or none without fio.
pub(crate) fn fio(folder: &Path, words: &[&str]) -> Option<(String, bool)> {
    let output = Command::new("fio").current_dir(folder).args(words).output();
    if !is_there("fio (Debian's package fio)", output.is_ok()) {
        return None;
    }
    let output = output.expect("fio");
    let text = [output.stdout, output.stderr].concat();
    Some((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
}

fn file(path: &Path) -> Arc<dyn DeviceFactory> {
    let spec = format!("file:{},direct=off", path.display());
    spec.parse::<DeviceSpec>().expect("a file").build().expect("a file")
}

fn run_on(factory: &Arc<dyn DeviceFactory>, job: &Job) -> RunResult {
    run(job, factory, &AtomicBool::new(false), &mut |_| {}).expect("a run")
}

/// Each verifies what the other one wrote, with each checksum, and finds the byte that is wrong.
#[test]
fn verified_blocks_are_fios() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let disk = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
    let disk = disk.expect("a file");
    disk.set_len(1 << 20).expect("1 MiB");
    for checksum in [Checksum::Crc32c, Checksum::Md5, Checksum::Sha256, Checksum::Xxhash] {
        let job = Job { verify: true, checksum, block_bytes: 8192, depth: 4, ..Job::default() };
        let size = Some(Extent::Percent(100));
        let write = Job { pattern: Pattern::RandWrite, size, ..job.clone() };
        let read = Job { pattern: Pattern::Read, size, ..job };
        let verify = format!("--verify={}", checksum.name());
        let of_fio = |rw: &str| {
            let words = ["--name=x", "--filename=disk", "--bs=8k", "--size=1m", rw, &verify];
            fio(folder.path(), &[words.as_slice(), &["--do_verify=0"]].concat())
        };
        assert!(!run_on(&file(&path), &write).failed(), "{}", checksum.name());
        let Some((said, is_well)) = of_fio("--rw=read") else { return };
        assert!(is_well, "{}: {said}", checksum.name());
        let mut byte = [0];
        disk.read_exact_at(&mut byte, 100_000).expect("a byte");
        disk.write_all_at(&[byte[0] ^ 4], 100_000).expect("a byte");
        assert!(of_fio("--rw=read").is_some_and(|(_, is_well)| !is_well), "{}", checksum.name());
        let found = run_on(&file(&path), &read).total().verify;
        assert_eq!((found.blocks, found.faults), (128, 1), "{}", checksum.name());
        assert_eq!(found.described[0].byte_offset, 100_000);

        let Some((said, is_well)) = of_fio("--rw=randwrite") else { return };
        assert!(is_well, "{}: {said}", checksum.name());
        let found = run_on(&file(&path), &read).total().verify;
        assert_eq!((found.blocks, found.faults), (128, 0), "{:?}", found.described);
        disk.read_exact_at(&mut byte, 100_000).expect("a byte");
        disk.write_all_at(&[byte[0] ^ 4], 100_000).expect("a byte");
        let found = run_on(&file(&path), &read).total().verify;
        assert_eq!(found.faults, 1, "{}", checksum.name());
        assert!(found.described[0].to_string().contains("checksum"), "{}", found.described[0]);
    }
}
