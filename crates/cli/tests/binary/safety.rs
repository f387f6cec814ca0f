//! What a measurement must not do: destroy what nobody named, lose its result, outlast its target.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weft_load::limits::RECONNECT_TIMEOUT;

use crate::weft::{Folder, Target, command, text, weft};

/// A megabyte that somebody still needs.
fn precious(folder: &Folder, name: &str) -> std::path::PathBuf {
    folder.write(name, vec![0x5a; 1 << 20])
}

fn is_untouched(path: &Path) -> bool {
    fs::read(path).expect("the file").iter().all(|byte| *byte == 0x5a)
}

#[test]
fn bench_writes_to_no_file_that_was_not_named() {
    let folder = Folder::new("named");
    let disk = precious(&folder, "disk.img");
    let name = text(&disk);
    let delayed = format!("delay:write=1us:file:{name}");
    for load in [
        &[name, "--rw", "write"][..],
        &[name, "--rw", "randwrite", "--verify", "crc32c"],
        &[name, "--rw", "rw", "--loopback"],
        &[name, "--rw", "read", "--beside", "rw=randrw"],
        &[&delayed, "--rw", "randwrite"],
        &[name, "--rw", "write", "--yes-destroy", "/dev/null"],
    ] {
        let words = [&["bench"], load, &["--io-size", "64KiB", "--quiet"]].concat();
        let fault = weft("epoll", &words).fault();
        assert!(fault.contains(&format!("--yes-destroy {name}")), "{words:?}: {fault}");
        assert!(is_untouched(&disk), "{words:?}");
    }
    let load = ["--rw", "write", "--io-size", "64KiB", "--quiet"];
    weft(
        "epoll",
        [&["bench", name, "--rw", "read", "--io-size", "64KiB"][..], &["--quiet"]].concat(),
    )
    .text();
    weft("epoll", [&["bench", name, "--yes-destroy", name], &load[..]].concat()).text();
    assert!(!is_untouched(&disk));
    let fresh = format!("{},size=1MiB", text(&folder.path("fresh.img")));
    weft("epoll", [&["bench", &fresh], &load[..]].concat()).text();
}

#[test]
fn a_study_overwrites_no_file_that_was_there() {
    let folder = Folder::new("plan");
    let text_of_plan = "name = \"mine\"\ntitle = \"T\"\nquestion = \"Q\"\n\
                        source = { document = \"weft\", figure = \"none\" }\n[axes]\n\
                        transport = [\"local\"]\n";
    let plan = folder.write("plan.toml", text_of_plan);
    let here = folder.path("");
    let how = ["--local", "null:1GiB", "--quick", "--runtime", "50ms", "--ramp-time", "0"];
    let words = [&["study", "run", text(&plan), "--out", text(&here)], &how[..]].concat();
    let fault = weft("epoll", &words).fault();
    assert!(fault.contains("plan.toml"), "{fault}");
    assert_eq!(fs::read_to_string(&plan).expect("the plan"), text_of_plan);
}

#[test]
fn a_job_file_is_no_device() {
    let folder = Folder::new("job-file");
    let job = precious(&folder, "nightly.fio");
    let name = text(&job);
    for named in [&["--yes-destroy", name][..], &[]] {
        let load = ["bench", name, "--rw", "randwrite", "--io-size", "64KiB", "--quiet"];
        let fault = weft("epoll", [&load[..], named].concat()).fault();
        assert!(fault.contains("job file"), "{fault}");
        assert!(is_untouched(&job));
    }
}

/// A file has a default name, and there is one of that name already.
#[test]
fn a_file_that_was_not_named_is_not_overwritten() {
    let folder = Folder::new("unnamed");
    let results = |name: &str| format!("{}/../../docs/gallery/{name}", env!("CARGO_MANIFEST_DIR"));
    let results = ["pairings", "slurm"].map(results);
    for (words, name, flag) in [
        (&["trace", "--control", "unix:/nonexistent"][..], "trace.json", "--output"),
        (&["report", &results[0], &results[1]], "report.html", "--out"),
    ] {
        let file = precious(&folder, name);
        let mut command = command("epoll");
        let ran = command.args(words).current_dir(folder.path("")).output().expect("weft");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains("is there already") && said.contains(flag), "{said}");
        assert_eq!(ran.status.code(), Some(1));
        assert!(is_untouched(&file));
    }
}

/// A write that does not fit, and verbs whose option and address name two namespaces.
#[test]
fn what_does_not_fit_or_contradicts_itself_writes_nothing() {
    let folder = Folder::new("fits");
    let disks = ["one.img", "two.img"].map(|name| precious(&folder, name));
    let [one, two] = disks.each_ref().map(|disk| text(disk));
    let target = Target::start("epoll", &["--file", one, "--file", two]);
    let data = folder.write("data", vec![0; 1 << 20]);
    let fault = target.weft("write", 1, &["--start-block", "1", "--data", text(&data)]).fault();
    assert!(fault.contains("go beyond the end"), "{fault}");
    let url = target.url(1);
    for words in [
        &["write", &url, "--namespace-id", "2", "--data", text(&data)][..],
        &["write-zeroes", &url, "--namespace-id", "2", "--block-count", "8"],
        &["bench", &url, "--namespace-id", "2", "--rw", "write", "--io-size", "64KiB"],
    ] {
        let fault = weft("epoll", words).fault();
        assert!(fault.contains("names namespace 2, and nsid=1"), "{words:?}: {fault}");
    }
    assert!(disks.iter().all(|disk| is_untouched(disk)));
    target.weft("write", 1, &["--namespace-id", "1", "--data", text(&data)]).text();
    assert!(!is_untouched(&disks[0]));
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for words in [&["help"][..], &["--version"], &["bench", "--help"]] {
        let full = fs::File::create("/dev/full").expect("/dev/full");
        let ran = command("epoll").args(words).stdout(full).output().expect("weft");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{words:?}");
        assert!(said.contains("standard output"), "{said}");
    }
}

/// Whoever has started it would take an end without an error for what was asked.
#[test]
fn a_target_that_nobody_reads_from_is_an_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let words = ["target", "--memory", "1MiB", "--listen", "tcp://127.0.0.1:0"];
    let ran = command("epoll").args(words).stdout(writer).output().expect("weft");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write to standard output"), "{said}");
}

/// Whatever the file is that is read as a whole.
#[test]
fn what_is_read_as_a_whole_has_an_end() {
    let folder = Folder::new("endless");
    let endless = |name: &str| {
        let path = folder.path(name);
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        path
    };
    let paths = ["t.toml", "job.fio", "plan.toml", "site.toml", "key", "marks", "log"].map(endless);
    let [config, job, plan, site, key, marks, log] = paths.each_ref().map(|path| text(path));
    let marks = format!("uncorrectable:file={marks}:memory:1MiB");
    let replay = folder.write("replay.fio", format!("[job]\nread_iolog={log}\n"));
    for words in [
        &["target", "--config", config][..],
        &["target", "--check", "--config", config],
        &["bench", "memory:1MiB", job],
        &["bench", "memory:1MiB", text(&replay)],
        &["study", "run", plan],
        &["site", "check", "--site", site],
        &["key", "check", key],
        &["target", "--device", &marks, "--listen", "tcp://127.0.0.1:0"],
    ] {
        let fault = weft("epoll", words).fault();
        assert!(paths.iter().any(|path| fault.contains(text(path))), "{words:?}: {fault}");
    }
}

#[test]
fn a_misspelt_option_makes_no_file() {
    let folder = Folder::new("misspelt");
    let disk = precious(&folder, "disk.img");
    let there = || fs::read_dir(folder.path("")).expect("the folder").count();
    let spec = format!("{},readonly,size=1MiB", text(&disk));
    let device = format!("file:{spec}");
    let toml = "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"nqn.x:y\"\n\
                [[subsystem.namespace]]\n";
    let in_text = folder.write("text.toml", format!("{toml}device = \"{device}\"\n"));
    let path = format!("{toml}file = \"{}\"\nreadonly = true\n", text(&disk));
    let in_key = folder.write("key.toml", path);
    let before = there();
    for words in [
        &["target", "--file", &spec][..],
        &["target", "--device", &device],
        &["target", "--config", text(&in_text)],
        &["target", "--config", text(&in_key)],
        &["bench", &device],
        &["bench", &spec],
        &["study", "run", "size-sweep", "--local", &device, "--out", text(&folder.path("out"))],
    ] {
        let mut said = weft("epoll", words).stderr;
        said.retain(|character| character != '`');
        assert!(said.contains("readonly") && said.contains("did you mean read-only"), "{said}");
        assert_eq!(there(), before, "{words:?}");
    }
    assert!(is_untouched(&disk));
}

#[test]
fn a_comma_in_a_path_is_written_twice() {
    let folder = Folder::new("comma");
    let disk = precious(&folder, "a,b.img");
    let once = weft("epoll", ["bench", text(&disk)]).fault();
    assert!(once.contains("\"b.img\"") && once.contains("\",,\""), "{once}");
    let twice = text(&disk).replace(',', ",,");
    for device in [twice.clone(), format!("file:{twice},read-only")] {
        weft("epoll", ["bench", &device, "--io-size", "64KiB", "--quiet"]).text();
    }
    assert!(is_untouched(&disk));
}

#[test]
fn a_result_that_cannot_be_written_is_told_before_the_run() {
    let folder = Folder::new("unwritable");
    let disk = folder.path("disk.img");
    let device = format!("file:{},size=1MiB", text(&disk));
    let output = folder.path("missing/result.json");
    let load = ["bench", &device, "--rw", "write", "--io-size", "64KiB", "--quiet"];
    let fault = weft("epoll", [&load[..], &["--output", text(&output)]].concat()).fault();
    assert!(fault.contains(text(&output)), "{fault}");
    assert!(!disk.exists(), "nothing had begun");
    // What an earlier run has left is there until there is something in its place.
    let kept = folder.write("result.json", "earlier\n");
    let none = ["bench", "file:/no/such/file", "--output", text(&kept)];
    weft("epoll", none).fault();
    assert_eq!(fs::read_to_string(&kept).expect("the result"), "earlier\n");
    weft("epoll", [&load[..], &["-o", "json", "--output", text(&kept)]].concat()).text();
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(&kept).expect("a result")).expect("JSON");
    assert_eq!(json["jobs"][0]["write"]["io_bytes"], 64 << 10);
    let full = weft("epoll", ["bench", "null:1GiB", "--io-size", "64KiB", "--output", "/dev/full"]);
    assert_eq!(full.code, Some(1));
    let shown = String::from_utf8_lossy(&full.stdout);
    assert!(full.stderr.contains("/dev/full") && shown.contains("read  :"), "{shown}");
}

/// How long a bench goes on whose target is lost while it runs, and what it says in the end.
fn outlives(load: &[&str], how: Signal) -> (Duration, String) {
    let target = Target::start("epoll", &["--memory", "16MiB"]);
    let url = target.url(1);
    let mut child = command("epoll");
    child.args(["bench", &url, "--quiet"]).args(load).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("the binary");
    let reads =
        || target.weft("log", 1, &["smart", "-o", "json"]).json()["host_read_commands"].clone();
    while reads() == 0 {}
    target.signal(how);
    let lost = Instant::now();
    let ended = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{load:?}: {said}");
    (lost.elapsed(), said)
}

/// How much longer than its timeouts say a bench may take to end.
const GRACE: Duration = Duration::from_secs(5);

#[test]
fn a_bench_ends_with_its_target() {
    for (depth, more) in [("1", &[][..]), ("32", &["--rw", "randwrite", "--verify", "crc32c"])] {
        let load = [&["--runtime", "2", "--iodepth", depth], more].concat();
        let (lasted, said) = outlives(&load, Signal::KILL);
        let words = "did not end within 3s of the end: the connection to its controller is lost";
        assert!(said.contains(words), "{said}");
        // Its runtime, and how long it waits for requests that no connection carries.
        let timeouts = Duration::from_secs(2) + RECONNECT_TIMEOUT;
        assert!(lasted < timeouts + GRACE, "{lasted:?}");
    }
}

/// Nothing ends these jobs but that their controller is given up, or their requests are.
#[test]
fn a_bench_ends_when_its_controller_is_given_up() {
    let by_size = ["--size", "16MiB", "--loops", "1000000", "--iodepth", "8"];
    let by_time = ["--runtime", "1h", "--time_based"];
    let writes = [&by_size[..], &["--rw", "randwrite"]].concat();
    let (three, soon) = (Duration::from_secs(3), ["--reconnect-delay", "1"]);
    for (load, timeout) in [
        (&by_size[..], "--ctrl-loss-tmo"),
        (&writes[..], "--ctrl-loss-tmo"),
        (&by_time[..], "--ctrl-loss-tmo"),
        (&by_size[..], "--fast-io-fail-tmo"),
    ] {
        let load = [load, &[timeout, "3"], &soon].concat();
        let (lasted, said) = outlives(&load, Signal::KILL);
        assert!(said.contains("failed: "), "{load:?}: {said}");
        assert!(said.contains("controller is"), "{load:?}: {said}");
        assert!(lasted < three + GRACE, "{load:?}: {lasted:?}");
        // There is hope until the last attempt that the time allows.
        assert!(lasted > Duration::from_secs(1), "{load:?}: {lasted:?}");
    }
}

/// Whether the controller is lost or only silent: a user who has asked for the end waits for
/// neither.
#[test]
fn a_bench_that_waits_for_its_controller_ends_at_the_first_signal() {
    for (how, signal) in [(Signal::KILL, Signal::TERM), (Signal::STOP, Signal::INT)] {
        let target = Target::start("epoll", &["--memory", "16MiB"]);
        let mut child = command("epoll");
        child.args(["bench", &target.url(1), "--quiet", "--runtime", "1h", "--time_based"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the binary");
        let reads = || {
            let log = target.weft("log", 1, &["smart", "-o", "json"]).json();
            log["host_read_commands"].clone()
        };
        while reads() == 0 {}
        target.signal(how);
        std::thread::sleep(Duration::from_millis(500));
        let asked = Instant::now();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).expect("a signal");
        let ended = child.wait_with_output().expect("its end");
        // A silent controller has five seconds to say goodbye.
        assert!(asked.elapsed() < 2 * GRACE, "{:?}", asked.elapsed());
        assert_eq!(ended.status.code(), Some(130));
    }
}

/// A target that is there and says nothing is lost after its Keep Alive Timeout, and then each
/// attempt to come back hangs.
#[test]
fn a_bench_ends_when_its_target_is_silent() {
    let by_size = ["--size", "16MiB", "--loops", "1000000"];
    let timeouts = ["--keep-alive-tmo", "1", "--ctrl-loss-tmo", "3", "--reconnect-delay", "1"];
    let (lasted, said) = outlives(&[&by_size[..], &timeouts].concat(), Signal::STOP);
    assert!(said.contains("failed: "), "{said}");
    assert!(lasted < Duration::from_secs(1 + 3) + GRACE, "{lasted:?}");
    let by_time = ["--runtime", "2", "--keep-alive-tmo", "1"];
    let (lasted, said) = outlives(&by_time, Signal::STOP);
    assert!(said.contains("did not end within 3s of the end: "), "{said}");
    assert!(lasted < Duration::from_secs(2) + RECONNECT_TIMEOUT + GRACE, "{lasted:?}");
}
