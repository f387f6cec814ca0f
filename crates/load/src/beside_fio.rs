//! Tests beside fio itself, where it is installed (Debian's packages fio and fio-examples).
//!
//! `cargo xtask test` installs both and runs these with [`REQUIRED`] set.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use weft_backend::{DeviceFactory, DeviceSpec};

use crate::jobfile::{self, Section, ini};
use crate::logs::Logs;
use crate::report::Entry;
use crate::report::disks::Disks;
use crate::report::fio::{reports, reports_with_bins};
use crate::verify::checksum::Checksum;
use crate::{Extent, Job, Pattern, RunResult, run};

/// With this variable a test that cannot run has failed.
const REQUIRED: &str = "WEFT_TEST_FIO_REQUIRED";

/// Where Debian's package fio-examples has its files.
const EXAMPLES: &str = "/usr/share/doc/fio/examples";

/// Whether something is there; what is not is told.
fn is_there(what: &str, found: bool) -> bool {
    assert!(found || std::env::var_os(REQUIRED).is_none(), "{what} is not installed");
    if !found {
        // The harness keeps what a test that passes prints by a macro.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not installed");
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

/// Where fio's report has a value that ours has not, or one of another type.
fn differences(place: &str, fios: &Value, ours: &Value, found: &mut Vec<String>) {
    // What these hold is each program's own, or follows from the samples.
    const OWN: [&str; 3] = ["job options", "percentile", "bins"];
    let is_own = OWN.iter().any(|own| place.ends_with(own));
    match (fios, ours) {
        (Value::Object(fios), Value::Object(ours)) if !is_own => {
            for (name, value) in fios {
                match ours.get(name) {
                    Some(own) => differences(&format!("{place}.{name}"), value, own, found),
                    None => found.push(format!("{place}.{name} is missing")),
                }
            }
        }
        (Value::Array(fios), Value::Array(ours)) if fios.len() == ours.len() => {
            for (value, own) in fios.iter().zip(ours) {
                differences(place, value, own, found);
            }
        }
        (Value::Object(_), Value::Object(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_)) => {}
        (fios, ours) => found.push(format!("{place}: {fios} beside {ours}")),
    }
}

#[test]
fn reports_have_the_keys_and_types_of_fios() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![1; 4 << 20]).expect("a file");
    let words: &[&str] = &["rw=randread", "rw=randrw", "rw=write"];
    // Whoever looks for a depth counts its last window alone: that has requests of both kinds.
    let timed = [("time_based", "1"), ("runtime", "1")];
    let search = [("latency_target", "20ms"), ("latency_window", "50ms")];
    let search = [search, timed].concat();
    let options: &[&[(&str, &str)]] = &[&[], &search, &[("fsync", "4")]];
    for (rw, options) in words.iter().zip(options) {
        let mut given = vec![("name", "x"), ("bs", "4k"), ("size", "4m")];
        given.extend(rw.split_once('='));
        given.extend(options.iter().copied());
        for form in ["json", "json+"] {
            let mut words: Vec<String> =
                given.iter().map(|(word, value)| format!("--{word}={value}")).collect();
            words.extend([format!("--output-format={form}"), "--filename=disk".to_owned()]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let Some((text, is_well)) = fio(folder.path(), &words) else { return };
            assert!(is_well, "{text}");
            let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
            let fios: Value = serde_json::from_str(json).expect("fio's report");

            let words = given.iter().map(|(word, value)| (*word, Some(*value)));
            let job = jobfile::of_command_line(words).expect("the same job").job;
            let disks = Disks::below([path.as_path()]);
            let result = run_on(&file(&path), &job);
            let entry = Entry { group: 0, job, device: "disk".to_owned(), result };
            let write = if form == "json" { reports } else { reports_with_bins };
            let mut ours = write(&[entry], Duration::from_secs(1));
            ours["disk_util"] = disks.used().unwrap_or(Value::Null);
            let mut found = Vec::new();
            differences("", &fios, &ours, &mut found);
            assert_eq!(found, Vec::<String>::new(), "{given:?} {form}");
            let target = |report: &Value| {
                let job = &report["jobs"][0];
                ["latency_target", "latency_window"].map(|name| job[name].clone())
            };
            assert_eq!(target(&ours), target(&fios), "{given:?}");
        }
    }
}

/// Blocks of files are as small as the requests want them, as fio's are.
#[test]
fn requests_of_any_length_reach_a_file_through_the_page_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    std::fs::write(&path, vec![1; 1 << 20]).expect("a file");
    let spec: DeviceSpec = format!("file:{},direct=off", path.display()).parse().expect("a file");
    for (bytes, block) in [(2300, 4), (512, 512), (1, 1), (8192, 4096), (1536, 512)] {
        let words = [("rw", "write"), ("bs", &bytes.to_string()), ("fdatasync", "1")]
            .map(|(word, value)| (word.to_owned(), value.to_owned()));
        let words = words.iter().map(|(word, value)| (word.as_str(), Some(value.as_str())));
        let job = jobfile::of_command_line(words.chain([("number_ios", Some("100"))]));
        let job = job.expect("a job").job;
        let device = spec.build_for(job.granularity()).expect("a file");
        assert_eq!(device.geometry().block_bytes, block, "{bytes}");
        let total = run_on(&device, &job).total();
        assert_eq!((total.error, total.write.bytes), (None, 100 * bytes), "{bytes}");
    }
    // Past the page cache blocks are those of the disk.
    let direct: DeviceSpec = format!("file:{}", path.display()).parse().expect("a file");
    assert_eq!(direct.build_for(4).expect("a file").geometry().block_bytes, 512);
}

/// Of a job that a file of the package has, one that ends soon on a small device.
fn shortened(section: &Section) -> Job {
    Job {
        size: Some(Extent::Bytes(4 << 20)),
        io_size: None,
        offset: Extent::Bytes(0),
        offset_increment: Extent::Bytes(0),
        number_ios: Some(64),
        loops: 1,
        runtime: Some(Duration::from_secs(20)),
        time_based: false,
        ramp: Duration::ZERO,
        start_delay: (Duration::ZERO, Duration::ZERO),
        rate: None,
        rate_min: None,
        think: None,
        latency_target: None,
        logs: Logs::default(),
        ..section.job.clone()
    }
}

/// The sections of fio's own words for a file, as it prints them; a word `name` of the global
/// section looks as the beginning of one.
fn of_fios_words(words: &str, file: &[ini::Section]) -> Result<Vec<Section>, String> {
    let mut lines = String::from("[global]\n");
    let mut names = file.iter().map(|section| section.name.as_str()).peekable();
    for word in words.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
        match word.strip_prefix("name=") {
            Some(name) if names.next_if_eq(&name).is_some() => lines += &format!("[{name}]\n"),
            _ => lines += &format!("{word}\n"),
        }
    }
    let sections = ini::parse(&lines, Path::new("words"), &|_| None)?;
    sections.iter().map(jobfile::of_file).collect()
}

/// Of the package's files these run; what they are read as is what fio itself reads them as.
const RUN: &[&str] = &[
    "1mbs_clients",
    "aio-read",
    "backwards-read",
    "basic-verify",
    "cross-stripe-verify",
    "disk-zone-profile",
    "exitwhat",
    "fio-rand-RW",
    "fio-rand-read",
    "fio-rand-write",
    "fio-seq-RW",
    "fio-seq-read",
    "fio-seq-write",
    "fixed-rate-submission",
    "fsx",
    "iometer-file-access-server",
    "jesd219",
    "latency-profile",
    "poisson-rate-submission",
    "rand-zones",
    "ssd-steadystate",
    "ssd-test",
    "tiobench-example",
    "waitfor",
];

#[test]
fn the_files_of_fio_examples_run_or_are_refused_with_a_sentence() {
    let folder = Path::new(EXAMPLES);
    let found = std::fs::read_dir(folder);
    if !is_there("Debian's package fio-examples", found.is_ok()) {
        return;
    }
    let names = found.expect("the files").map(|entry| entry.expect("a file").path());
    let mut paths: Vec<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|end| end == "fio")).collect();
    paths.sort_unstable();
    let (mut ran, mut refused) = (Vec::new(), 0);
    for path in &paths {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let read = jobfile::read(path);
        let Some((words, is_read)) = fio(folder, &["--showcmd", &path.to_string_lossy()]) else {
            return;
        };
        let sections = match read {
            Ok(sections) => sections,
            Err(error) => {
                // The file, the line, the word, and what to do.
                assert!(error.starts_with(EXAMPLES) && error.len() > 80, "{name}: {error}");
                refused += 1;
                continue;
            }
        };
        assert!(is_read, "{name}: fio refuses it: {words}");
        let file = ini::read(path).expect(name);
        let mut of_fio = of_fios_words(&words, &file).expect(name);
        for (fios, ours) in of_fio.iter_mut().zip(&sections) {
            // With randrepeat=0 they differ each time.
            fios.job.seed = ours.job.seed;
        }
        assert_eq!(of_fio, sections, "{name}");
        for section in &sections {
            let memory = "memory:64MiB,block=512".parse::<DeviceSpec>().expect("a device");
            let result = run_on(&memory.build().expect("memory"), &shortened(section));
            assert_eq!(result.total().error, None, "{name}");
            assert!(!result.failed(), "{name}: {}", section.job.name);
        }
        ran.push(name);
    }
    assert!(refused > 30, "{refused}");
    assert_eq!(ran, RUN);
}
