//! A target in a process of its own, for what is counted by process: descriptors, memory,
//! processor time. The process is this test program again, running the same test, which finds
//! out that it is the child and serves.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use weft_target::Target;
use weft_target::config::Config;

/// Names the test whose child this process is.
const VARIABLE: &str = "WEFT_TEST_CHILD_OF";

/// How the child's answers are told from what the test harness prints.
const MARK: &str = "child: ";

/// A target in another process.
#[derive(Debug)]
pub(crate) struct ChildTarget {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_kib: usize,
    pub(crate) descriptors: usize,
}

/// Whether this process is the child of a test.
pub(crate) fn is_child_of(test: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|name| name == test)
}

/// The child's part: serves until its parent has had enough.
pub(crate) fn serve(config: Config) {
    serve_target(Target::start(config).expect("a target"));
}

/// The same with a target that the test has started.
pub(crate) fn serve_target(target: Target) {
    println!("\n{MARK}{}", super::address(&target));
    for request in std::io::stdin().lines() {
        match request.expect("a request").as_str() {
            "cpu" => {
                println!("\n{MARK}{}", weft_reactor::process_cpu_time().as_micros());
            }
            "groups" => {
                let times = [0, 1].map(|group| thread_time(&format!("weft-group-{group}")));
                println!("\n{MARK}{} {}", times[0], times[1]);
            }
            _ => break,
        }
    }
    target.stop().expect("a clean stop");
    println!("\n{MARK}stopped");
}

impl ChildTarget {
    /// Runs this test in another process, where [`is_child_of`] holds, on this driver.
    /// `descriptors`: how many it may have.
    pub(crate) fn of(test: &str, driver: &str, descriptors: Option<u64>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = match descriptors {
            None => Command::new(program),
            // A hard limit can only be set before the program begins.
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\"")).arg(program);
                shell
            }
        };
        let mut child = command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(VARIABLE, test)
            .env(weft_reactor::DRIVER_VARIABLE, driver)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let requests = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut target = Self { child, requests, answers, address };
        target.address = target.answer().parse().expect("an address");
        target
    }

    /// What the child has used so far. It may have no descriptor left to look for itself.
    pub(crate) fn usage(&mut self) -> Usage {
        let cpu = self.ask("cpu").parse().expect("a number");
        let process = format!("/proc/{}", self.child.id());
        Usage {
            cpu: Duration::from_micros(cpu),
            resident_kib: resident_kib(&process),
            descriptors: std::fs::read_dir(process + "/fd").expect("its descriptors").count(),
        }
    }

    /// How long each of its two groups' threads have run, in nanoseconds.
    pub(crate) fn group_times(&mut self) -> [u64; 2] {
        let answer = self.ask("groups");
        let times: Vec<u64> =
            answer.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        times.try_into().expect("two groups")
    }

    /// Ends the child in good order.
    pub(crate) fn stop(mut self) {
        assert_eq!(self.ask("stop"), "stopped");
        assert!(self.child.wait().expect("an end").success());
    }

    /// How a child ends that was not asked to.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("an end").code()
    }

    fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests, "{request}").expect("the child listens");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "the child has ended");
            if let Some(answer) = line.trim_end().strip_prefix(MARK) {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for ChildTarget {
    fn drop(&mut self) {
        // It has ended already, or the test has failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How long the thread of this name has run, in nanoseconds.
fn thread_time(name: &str) -> u64 {
    for task in std::fs::read_dir("/proc/self/task").expect("threads") {
        let path = task.expect("a thread").path();
        let called = std::fs::read_to_string(path.join("comm")).expect("a name");
        if called.trim_end() == name {
            let times = std::fs::read_to_string(path.join("schedstat")).expect("times");
            return times.split(' ').next().and_then(|time| time.parse().ok()).expect("a time");
        }
    }
    panic!("no thread {name}");
}

/// Memory that a process has in use.
fn resident_kib(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("{process}/status")).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}
