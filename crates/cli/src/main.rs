//! `weft`: the only binary. Each subcommand is a module; this file parses the command line and
//! reports errors.
//!
//! It contains nothing that another program could use as a library. A subcommand turns options
//! into a call of `weft-target`, `weft-host` or `weft-lab`, and the result into text or JSON.
//!
//! Invariants:
//! - Results go to standard output, everything else to standard error.
//! - An error is one sentence, and the exit code is not 0.
//! - A reader that closes the output early (`weft list | head -1`) is not an error.

#![allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    reason = "the comments of options are the text of --help"
)]

mod advise;
mod agent;
mod arguments;
mod attach;
mod bench;
mod blocks;
mod compare;
mod connection;
mod convert;
mod copy;
mod ctl;
mod destroy;
mod detach;
mod discover;
mod doctor;
mod driven;
mod failure;
mod feature;
mod fields;
mod floor;
mod flush;
mod identify;
mod key;
mod limits;
mod list;
mod log_page;
mod logging;
mod mdns;
mod names;
mod namespace;
mod output;
mod place;
mod rdma;
mod report;
mod reservation;
mod serve;
mod service_manager;
mod shell;
mod signals;
mod study;
mod table;
mod tips;
mod top;
mod trace;
mod transfer;
mod values;
mod within;
mod words;

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use clap_complete::CompleteEnv;

use crate::arguments::{Arguments, Verb};
use crate::failure::Failure;

/// Time at the end for Ceph images to be closed.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    // A shell that completes a command line sets a variable and gets the words instead.
    CompleteEnv::with_factory(Arguments::command).complete();
    let parsed = Arguments::command().try_get_matches().and_then(|matches| {
        Arguments::from_arg_matches(&matches).map(|arguments| (arguments, matches))
    });
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return explained(&tips::with_tip(error)),
    };
    let target = matches!(arguments.verb, Verb::Target(_));
    logging::start(arguments.verbose, target, arguments.log_format);
    if arguments.core_dumps {
        weft_target::key_file::allow_core_dumps();
    }
    let verb = matches.subcommand_name().unwrap_or_default();
    let outcome = run(&arguments, &matches);
    weft_backend::rbd::wait_until_closed(CLOSING_TIMEOUT);
    ended(&format!("weft {verb}"), outcome)
}

fn ended(who: &str, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Exit(code)) => ExitCode::from(code),
        Err(Failure::Because(what)) => {
            output::print_error(&format!("{who}: {what}"));
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong with the words of the command line, or what was asked of them.
fn explained(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(output) if !error.use_stderr() => ended("weft", Err(Failure::output(&output))),
        _ => u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

fn run(arguments: &Arguments, matches: &clap::ArgMatches) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Target(options) => match matches.subcommand() {
            Some((_, matches)) => serve::run(options, matches),
            None => Err(Failure::because("no options")),
        },
        Verb::Convert(options) => convert::run(options),
        Verb::Ctl(options) => ctl::run(options),
        Verb::Top(options) => top::run(options),
        Verb::Trace(options) => trace::run(options),
        Verb::Doctor(options) => doctor::run(options),
        Verb::Discover(options) => discover::run(options),
        Verb::Identify(options) => identify::run(options),
        Verb::List(options) => list::run(options),
        Verb::Read(options) => transfer::read(options),
        Verb::Write(options) => transfer::write(options),
        Verb::Attach(options) => attach::run(options),
        Verb::Detach(options) => detach::run(options),
        Verb::Flush(options) => flush::run(options),
        Verb::Copy(options) => copy::run(options),
        Verb::Compare(options) => transfer::compare(options),
        Verb::WriteZeroes(options) => blocks::write_zeroes(options),
        Verb::Dsm(options) => blocks::dsm(options),
        Verb::GetFeature(options) => feature::get(options),
        Verb::SetFeature(options) => feature::set(options),
        Verb::Namespace(options) => namespace::run(options),
        Verb::Reservation(options) => reservation::run(options),
        Verb::Log(options) => log_page::run(options),
        Verb::Bench(options) => bench::run(options),
        Verb::Floor(options) => floor::run(options),
        Verb::Key(options) => key::run(options),
        Verb::Rdma(options) => rdma::run(options),
        Verb::Study(options) => study::run(options),
        Verb::Site(options) => study::site::run(options),
        Verb::Agent(options) => agent::run(options),
        Verb::Advise(options) => advise::run(options),
        Verb::Report(options) => report::run(options),
        Verb::FirstLook(options) => study::first_look(options),
        Verb::Completion(options) => shell::completion(options),
        Verb::Man(options) => shell::man(options),
    }
}
