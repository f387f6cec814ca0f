//! The verbs.

use clap::{Parser, Subcommand};

/// NVMe over Fabrics in user space, and the laboratory that measures it.
#[derive(Debug, Parser)]
#[command(name = "weft", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Say more about what happens; twice for much more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// A verb.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Serve namespaces to hosts.
    Target(Box<crate::target::Options>),
    /// Ask a discovery controller which subsystems there are.
    Discover(crate::discover::Options),
    /// Show what a controller or a namespace says about itself.
    Identify(crate::identify::Options),
    /// List the namespaces of a subsystem, or of all that a discovery controller knows.
    List(crate::list::Options),
    /// Read blocks of a namespace.
    Read(crate::transfer::Options),
    /// Write blocks of a namespace.
    Write(crate::transfer::Options),
    /// Make a namespace's completed writes durable.
    Flush(crate::flush::Options),
    /// Show a log page of a controller.
    Log(crate::log_page::Options),
    /// Drive load and measure it, in fio's words.
    Bench(Box<crate::bench::Options>),
    /// Measure what TCP on this machine costs by itself.
    Floor(crate::floor::Options),
    /// List, show and run studies: experiments as data.
    Study(crate::study::Options),
    /// Show what this machine has for RDMA.
    Rdma(crate::rdma::Options),
    /// Make a page to look at from results.
    Report(crate::report::Options),
    /// What a memory device costs over TCP here, beside the same device locally: a study of a
    /// minute, and its report.
    FirstLook(Box<crate::study::FirstLook>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
