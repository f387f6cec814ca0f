//! Developers' tasks of this repository: `cargo xtask --help`.

mod agreement;
mod arm;
mod bench;
mod cargo;
mod ceph;
mod completion;
mod fio_plot;
mod fuzz;
mod guest;
mod instructions;
mod lines;
mod machines;
mod package;
mod packages;
mod pair;
mod peers;
mod prometheus;
mod python;
mod report;
mod report_page;
mod scale;
mod security;
mod spdk;
mod supply;
mod test;
mod tidy;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use guest::{Exit, Guest, Image, Kernel, Options};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developers' tasks of weft")]
enum Task {
    /// Run all tests; the first run downloads and prepares a Linux guest
    Test {
        /// Leave out tests with real peers, which boot guests, and tests in a browser
        #[arg(long)]
        quick: bool,
        /// Include the slower tests
        #[arg(long, conflicts_with = "quick")]
        all: bool,
    },
    /// Measure the target against plain TCP, row by row of docs/performance.md
    Bench(bench::Options),
    /// Check the load generator: its own cost, known delays, and agreement with fio
    Agreement(agreement::Options),
    /// Count the protocol's instructions and compare them with the record
    Instructions {
        /// Record them instead
        #[arg(long)]
        record: bool,
    },
    /// Check the rules that neither compiler nor clippy check
    Tidy,
    /// Count lines of code, of comments and of tests by crate
    Lines {
        /// And the code's at this commit
        #[arg(long, value_name = "COMMIT")]
        against: Option<String>,
    },
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
    /// Check licences and sources of what is linked (deny.toml)
    Supply,
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
    /// Build packages, serve from each of them, and write their SHA256SUMS
    Package(package::Options),
    /// Fuzz one target of fuzz/
    Fuzz {
        target: String,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no workspace")?;
    match task {
        Task::Guest(task) => guest_task(task),
        Task::Test { quick, all } => {
            let extent = match (quick, all) {
                (true, _) => test::Extent::Quick,
                (_, true) => test::Extent::All,
                _ => test::Extent::Normal,
            };
            Ok(code(test::run(root, extent)?))
        }
        Task::Bench(options) => Ok(code(bench::run(root, &options)?)),
        Task::Agreement(options) => Ok(code(agreement::run(root, &options)?)),
        Task::Instructions { record } => Ok(code(instructions::run(root, record)?)),
        Task::Tidy => {
            let faults = tidy::check(root)?;
            faults.iter().for_each(|fault| println!("{fault}"));
            println!("{} faults", faults.len());
            Ok(code(faults.is_empty()))
        }
        Task::Lines { against } => {
            lines::run(root, against.as_deref())?;
            Ok(code(true))
        }
        Task::Peers { filter, driver } => {
            let mut report = report::Report::new();
            let driver =
                if driver == "epoll" { peers::Driver::Epoll } else { peers::Driver::Uring };
            peers::run(root, &mut report, &[driver], filter.as_deref());
            Ok(code(report.finish()))
        }
        Task::Page { arguments } => {
            Ok(reported(|report| report_page::run(root, report, &arguments)))
        }
        Task::Spdk => Ok(reported(|report| spdk::run(root, report))),
        Task::Completion => Ok(reported(|report| completion::run(root, report))),
        Task::Security => Ok(reported(|report| security::run(root, report))),
        Task::Supply => Ok(reported(|report| supply::run(root, report))),
        Task::Machines { name } => {
            let which = name.as_deref().map_or(machines::Which::All, machines::Which::One);
            Ok(reported(|report| machines::run(root, report, which)))
        }
        Task::Pair => Ok(reported(|report| pair::run(root, report))),
        Task::Scale => Ok(reported(|report| scale::run(root, report))),
        Task::Arm { all } => {
            let mut report = report::Report::new();
            arm::run(root, &mut report, all)?;
            Ok(code(report.finish()))
        }
        Task::Ceph(options) => Ok(reported(|report| ceph::run(root, report, &options))),
        Task::Prometheus => Ok(reported(|report| prometheus::run(root, report))),
        Task::FioPlot => Ok(reported(|report| fio_plot::run(root, report))),
        Task::Package(options) if options.test => Ok(reported(|report| {
            package::test(root, report, true);
            package::test_static(root, report);
        })),
        Task::Package(options) => {
            package::run(root, &options)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Fuzz { target, seconds } => {
            fuzz::run(root, &target, seconds)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one stage of the tests.
fn reported(stage: impl FnOnce(&mut report::Report)) -> ExitCode {
    let mut report = report::Report::new();
    stage(&mut report);
    code(report.finish())
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
