//! The subcommands.

use clap::{Parser, Subcommand};

/// NVMe over Fabrics target and host in user space, with a load generator and benchmark studies.
#[derive(Debug, Parser)]
#[command(name = "weft", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "What is named docs/NAME is in share/doc/weft where weft is installed.")]
pub(crate) struct Arguments {
    /// Log more; twice: much more.
    #[arg(short, long, global = true, help_heading = "Common", action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Form of log lines; by default journal where journald reads them, else text.
    #[arg(long, global = true, help_heading = "Common", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<crate::logging::LogFormat>,

    /// Allow core dumps, and debuggers of the same user, although there are keys in memory.
    #[arg(long, global = true, help_heading = "Common")]
    pub(crate) core_dumps: bool,

    /// The subcommand.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve namespaces to hosts.
    Target(Box<crate::serve::Options>),
    /// Print the JSON that nvmetcli writes as a configuration for weft target --config.
    Convert(crate::convert::Options),
    /// Change and show a target that runs (weft target --control).
    Ctl(Box<crate::ctl::Options>),
    /// Show live what a target does: its hosts, namespaces and poll groups.
    Top(crate::top::Options),
    /// Record what each command of a target goes through, for ui.perfetto.dev.
    Trace(crate::trace::Options),
    /// Look at this machine, and at targets, as an experienced operator would, and say what to do.
    Doctor(Box<crate::doctor::Options>),
    /// Show the subsystems that a discovery controller reports.
    Discover(crate::discover::Options),
    /// Show the Identify data of a controller or a namespace.
    Identify(crate::identify::Options),
    /// List the namespaces of a subsystem, or of all subsystems of a discovery controller.
    List(crate::list::Options),
    /// Read blocks of a namespace.
    Read(crate::transfer::Options),
    /// Write blocks of a namespace.
    Write(crate::transfer::Options),
    /// Flush a namespace: make its completed writes durable.
    Flush(crate::flush::Options),
    /// Copy blocks within a namespace, or from others of its subsystem; the controller moves them.
    Copy(crate::copy::Options),
    /// Compare blocks of a namespace with data; the controller compares.
    Compare(crate::transfer::Options),
    /// Make blocks of a namespace read as zeroes, without sending any.
    WriteZeroes(crate::blocks::ZeroesOptions),
    /// Deallocate blocks of a namespace (Dataset Management).
    Dsm(crate::blocks::DsmOptions),
    /// Show a feature of a controller or of a namespace.
    GetFeature(crate::feature::GetOptions),
    /// Set a feature of a controller or of a namespace.
    SetFeature(crate::feature::SetOptions),
    /// Make, attach, detach and delete namespaces, where a subsystem lets hosts do it.
    Namespace(Box<crate::namespace::Options>),
    /// Register keys, acquire and release reservations of a namespace, and report them.
    Reservation(Box<crate::reservation::Options>),
    /// Make a namespace a block device of this machine, /dev/ublkbN, which this process serves.
    Attach(Box<crate::attach::Options>),
    /// End a block device of weft attach.
    Detach(crate::detach::Options),
    /// Show a log page of a controller.
    Log(crate::log_page::Options),
    /// Generate load and measure it, with fio's options.
    Bench(Box<crate::bench::Options>),
    /// Measure plain TCP on this machine: the lower bound for NVMe over TCP.
    Floor(crate::floor::Options),
    /// List, show and run studies: experiments defined as data.
    Study(crate::study::Options),
    /// Look at the machines and links of a site file, or put back what was left changed there.
    Site(crate::study::site::Options),
    /// Run a part of a study for another machine's weft study run (--target-on, --load-on).
    Agent(crate::agent::Options),
    /// Make and check keys of TLS and DH-HMAC-CHAP.
    Key(crate::key::Options),
    /// Show the RDMA devices of this machine.
    Rdma(crate::rdma::Options),
    /// Measure, and say which transport meets a p99 latency at a rate of IOPS, and how many
    /// processors that takes.
    Advise(Box<crate::advise::Options>),
    /// Write an HTML report of results.
    Report(crate::report::Options),
    /// Compare a memory device over TCP on this machine with the same device locally: a study of
    /// about a minute, and its report.
    FirstLook(Box<crate::study::FirstLook>),
    /// Print the completion script of a shell: for bash, source <(weft completion bash).
    Completion(crate::shell::CompletionOptions),
    /// Write the man pages into a directory: for packages.
    #[command(hide = true)]
    Man(crate::shell::ManOptions),
}

#[cfg(test)]
mod defaults;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Verbs without `-o json`, and why.
    const WITHOUT_JSON: [(&str, &str); 4] = [
        ("trace", "-o names its file, which is JSON"),
        ("agent", "it speaks to another weft, in a protocol of its own"),
        ("completion", "it prints a script of a shell"),
        ("man", "it writes man pages"),
    ];

    #[test]
    fn every_verb_prints_json_or_says_why_not() {
        let mut command = Arguments::command();
        command.build();
        let mut count = 0;
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let name = verb.get_name();
            let mut open = vec![verb];
            while let Some(verb) = open.pop() {
                let verbs = || verb.get_subcommands().filter(|one| one.get_name() != "help");
                open.extend(verbs());
                if verbs().next().is_some() {
                    continue;
                }
                let format =
                    verb.get_arguments().find(|one| one.get_long() == Some("output-format"));
                let values = format.map(|format| format.get_possible_values()).unwrap_or_default();
                let has = values.iter().any(|value| value.get_name() == "json")
                    && format.is_some_and(|format| format.get_short() == Some('o'));
                let is_excepted = WITHOUT_JSON.iter().any(|(without, _)| *without == name);
                assert_ne!(has, is_excepted, "weft {name}: {}", verb.get_name());
                count += 1;
            }
        }
        assert!(count > 60, "{count} verbs");
    }

    #[test]
    fn the_command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
