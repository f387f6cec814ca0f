//! Tests of weft beside programs and kernels of others. `cargo xtask` runs this program for all
//! commands that are not its own.

mod agreement;
mod arm;
mod ceph;
mod completion;
mod fio_plot;
mod guest;
mod kernels;
mod machines;
mod pair;
mod process;
mod prometheus;
mod report_page;
mod scale;
mod security;
mod spdk;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use guest::{Exit, Guest, Image, Kernel, Options};
use kernels::Driver;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use xtask::report::Report;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Tests of weft beside programs and kernels of others")]
enum Task {
    /// Run all of them, as `cargo xtask test` does
    Beside {
        /// Include the slower tests
        #[arg(long)]
        all: bool,
    },
    /// Check the load generator: its own cost, known delays, and agreement with fio
    Agreement(agreement::Options),
    /// Run only the tests with real peers
    Peers {
        /// Only steps whose name (suite/step) contains this text; one that takes minutes if this is
        /// its whole name
        filter: Option<String>,
        /// The reactor's driver of weft
        #[arg(long, default_value = "uring", value_parser = ["uring", "epoll"])]
        driver: String,
    },
    /// Run only the tests of report pages in a browser
    Page {
        /// Arguments of the test program; --help lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run only the tests with SPDK's own clients, which come from PyPI
    Spdk,
    /// Run only the tests of completions with zsh and fish
    Completion,
    /// Run only the tests of keys and TLS with nvme-cli and OpenSSL
    Security,
    /// Measure what subsystems, namespaces and hosts cost a target (docs/scale.md)
    Scale,
    /// Run only the tests of the crates as on Arm, by QEMU
    Arm {
        /// Those of the larger crates, too
        #[arg(long)]
        all: bool,
    },
    /// Run only the tests of studies on several machines; needs root
    Machines {
        /// Only this one: the folder of its results under target/machines, or slurm
        name: Option<String>,
    },
    /// Run only the tests of a pair of targets with Debian's etcd
    Pair,
    /// Run only the tests with a Ceph cluster of Debian's packages
    Ceph(ceph::Options),
    /// Run only the tests with Debian's Prometheus
    Prometheus,
    /// Run only the tests with fio-plot, which comes from PyPI
    FioPlot,
    /// Run a Linux kernel in a temporary virtual machine
    #[command(subcommand)]
    Guest(GuestTask),
}

#[derive(Debug, Subcommand)]
enum GuestTask {
    /// Prepare QEMU, kernel and root file system (cached; other commands do it on demand)
    Build {
        /// Build them anew, from the newest packages
        #[arg(long)]
        force: bool,
    },
    /// Compile soft-iWARP for the guest's kernel (cached; downloads half a gigabyte)
    Siw,
    /// Boot, run one command as root, and exit with its status
    ///
    /// 124: timeout; 125: the guest ended; 126: it could not be started.
    Run {
        #[command(flatten)]
        options: GuestOptions,
        /// NAME=VALUE for the command's environment
        #[arg(long)]
        env: Vec<String>,
        /// End the command after this many seconds
        #[arg(long, default_value_t = 600)]
        timeout: u64,
        /// Save the kernel's console output here
        #[arg(long)]
        console: Option<PathBuf>,
        /// A bash command line
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// Boot and run a shell on this terminal
    Shell {
        #[command(flatten)]
        options: GuestOptions,
    },
}

#[derive(Debug, Args)]
struct GuestOptions {
    /// A folder to be mounted as /share in the guest, read-write
    #[arg(long)]
    share: Option<PathBuf>,
    /// OUTSIDE:INSIDE, a port of 127.0.0.1 that is forwarded to the guest
    #[arg(long, value_parser = port_pair)]
    forward: Vec<(u16, u16)>,
    /// Load a kernel module
    #[arg(long)]
    modprobe: Vec<String>,
    /// Processors
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Boot the newest kernel for the release in place of the release's own
    #[arg(long)]
    backports: bool,
}

impl GuestOptions {
    fn image(&self) -> Result<Image> {
        let kernel = if self.backports { Kernel::Backports } else { Kernel::Release };
        Image::prepare(kernel, false)
    }

    fn options(self) -> Result<Options> {
        let share = self.share.map(|path| path.canonicalize().context("--share")).transpose()?;
        Ok(Options {
            share,
            forwards: self.forward,
            modules: self.modprobe,
            ssd: None,
            cpus: self.cpus,
            memory_mib: self.memory,
        })
    }
}

fn main() -> ExitCode {
    run(Task::parse()).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(126)
    })
}

fn run(task: Task) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no workspace")?;
    let mut report = Report::begin();
    match task {
        Task::Guest(task) => return guest_task(task),
        Task::Agreement(options) => {
            let agrees = agreement::run(root, &options)?;
            return Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Task::Beside { all } => beside(root, &mut report, all),
        Task::Peers { filter, driver } => {
            let driver = if driver == "epoll" { Driver::Epoll } else { Driver::Uring };
            kernels::run(root, &mut report, &[driver], filter.as_deref());
        }
        Task::Page { arguments } => report_page::run(root, &mut report, &arguments),
        Task::Spdk => spdk::run(root, &mut report),
        Task::Completion => completion::run(root, &mut report),
        Task::Security => security::run(root, &mut report),
        Task::Machines { name } => {
            let which = name.as_deref().map_or(machines::Selection::All, machines::Selection::One);
            machines::run(root, &mut report, which);
        }
        Task::Pair => pair::run(root, &mut report),
        Task::Scale => scale::run(root, &mut report),
        Task::Arm { all } => arm::run(root, &mut report, all)?,
        Task::Ceph(options) => ceph::run(root, &mut report, &options),
        Task::Prometheus => prometheus::run(root, &mut report),
        Task::FioPlot => fio_plot::run(root, &mut report),
    }
    Ok(if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The stages that run the binary beside programs and kernels of others. Those of kernels have a
/// thread of their own: they wait for their guests, and those of programs for their timers.
fn beside(root: &Path, report: &mut Report, all: bool) {
    if all {
        report.announce("tests of the crates on Arm");
        if let Err(error) = arm::run(root, report, all) {
            report.add_failure(&format!("tests of the crates on Arm: {error:#}"));
        }
    }
    report.announce("1,000 hosts, 1,024 subsystems, 10,000 namespaces");
    scale::run(root, report);
    let [mut programs, mut kernels] = [report.beside(), report.beside()];
    std::thread::scope(|scope| {
        scope.spawn(|| run_programs(root, &mut programs, all));
        kernels.announce("real peers");
        let drivers = [Driver::Uring, Driver::Epoll];
        kernels::run(root, &mut kernels, if all { &drivers } else { &drivers[..1] }, None);
    });
    report.merge(programs);
    report.merge(kernels);
}

/// The stages that run the binary beside programs of others.
fn run_programs(root: &Path, report: &mut Report, all: bool) {
    report.announce("a Ceph cluster");
    ceph::test(root, report, all);
    report.announce("studies on several machines");
    machines::run(
        root,
        report,
        if all { machines::Selection::All } else { machines::Selection::Short },
    );
    report.announce("SPDK's own clients");
    spdk::run(root, report);
    report.announce("completions");
    completion::run(root, report);
    report.announce("keys and TLS");
    security::run(root, report);
    report.announce("Prometheus");
    prometheus::run(root, report);
    report.announce("a pair of targets");
    pair::run(root, report);
    report.announce("the report page in a browser");
    let arguments = if all { Vec::new() } else { vec!["--brief".to_owned()] };
    report_page::run(root, report, &arguments);
    if all {
        report.announce("fio-plot");
        fio_plot::run(root, report);
    }
}

fn guest_task(task: GuestTask) -> Result<ExitCode> {
    match task {
        GuestTask::Build { force } => {
            for kernel in [Kernel::Release, Kernel::Backports] {
                let image = Image::prepare(kernel, force)?;
                println!("Linux {} in {}", image.version, image.folder.display());
            }
            Ok(ExitCode::SUCCESS)
        }
        GuestTask::Siw => {
            println!(
                "{}",
                guest::siw::prepare(&Image::prepare(Kernel::Release, false)?)?.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        GuestTask::Shell { options } => {
            guest::machine::shell(&options.image()?, &options.options()?)?;
            Ok(ExitCode::SUCCESS)
        }
        GuestTask::Run { options, env, timeout, console, command } => {
            let image = options.image()?;
            let start = Instant::now();
            let mut guest = Guest::boot(&image, &options.options()?)?;
            guest::say(&format!("booted in {:.1} s", start.elapsed().as_secs_f32()));
            let script = environment(&env)? + &command.join(" ");
            let exit = guest.run(&script, Duration::from_secs(timeout), &mut |bytes| {
                let _ = std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush());
            })?;
            if let Some(path) = console {
                std::fs::write(path, guest.console())?;
            }
            Ok(match exit {
                Exit::Status(status) => ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)),
                Exit::TimedOut | Exit::Died => {
                    eprintln!("{}xtask: the guest has ended: {exit:?}", guest.console());
                    ExitCode::from(if exit == Exit::TimedOut { 124 } else { 125 })
                }
            })
        }
    }
}

/// Shell assignments for NAME=VALUE words.
fn environment(words: &[String]) -> Result<String> {
    let mut script = String::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else { bail!("--env NAME=VALUE: {word}") };
        script += &format!("export {name}='{}'\n", value.replace('\'', r"'\''"));
    }
    Ok(script)
}

fn port_pair(text: &str) -> Result<(u16, u16), String> {
    let pair = text.split_once(':').ok_or("OUTSIDE:INSIDE")?;
    let port = |text: &str| text.parse::<u16>().map_err(|error| error.to_string());
    Ok((port(pair.0)?, port(pair.1)?))
}
