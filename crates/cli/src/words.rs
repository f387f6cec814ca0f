//! fio's words on the command line: those of job files, from the same table.

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use weft_load::jobfile::words::WORDS;
use weft_load::jobfile::{self, Section};

/// The words that were given, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(Vec<(&'static str, Option<String>)>);

impl Words {
    /// The job that they describe.
    pub(crate) fn section(&self) -> Result<Section, String> {
        let words = self.0.iter().map(|(name, value)| (*name, value.as_deref()));
        jobfile::of_command_line(words)
    }

    /// The first of them, if there is any.
    pub(crate) fn first(&self) -> Option<&'static str> {
        self.0.first().map(|(name, _)| *name)
    }
}

impl FromArgMatches for Words {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut words = Self::default();
        words.update_from_arg_matches(matches)?;
        Ok(words)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let mut found = Vec::new();
        for word in WORDS {
            let places = matches.indices_of(word.name).into_iter().flatten();
            let values = matches.get_many::<String>(word.name).into_iter().flatten();
            for (place, value) in places.zip(values) {
                let value = Some(value.clone()).filter(|value| !value.is_empty());
                found.push((place, word.name, value));
            }
        }
        found.sort_by_key(|(place, ..)| *place);
        self.0 = found.into_iter().map(|(_, name, value)| (name, value)).collect();
        Ok(())
    }
}

impl Args for Words {
    fn augment_args(command: Command) -> Command {
        WORDS.iter().fold(command, |command, word| {
            let dashed = |name: &str| name.replace('_', "-");
            let mut argument = Arg::new(word.name)
                .long(dashed(word.name))
                .help(word.help)
                .help_heading("Load, in fio's words")
                .hide(word.help.is_empty())
                .action(ArgAction::Append)
                .value_name("VALUE")
                .allow_hyphen_values(true);
            argument = if word.is_flag {
                argument.num_args(0..=1).require_equals(true).default_missing_value("")
            } else {
                argument.num_args(1)
            };
            let names = std::iter::once(&word.name).chain(word.aliases);
            for name in names.clone().filter(|name| name.contains('_')) {
                argument = argument.alias(*name);
            }
            for name in names.skip(1) {
                argument = argument.alias(dashed(name));
            }
            command.arg(argument)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::Duration;
    use weft_load::pacer::Process;
    use weft_load::{Extent, Job, Pattern, Polling, Rate};
    use weft_reactor::DriverKind;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        words: Words,
    }

    pub(super) fn job(words: &str) -> Result<Job, String> {
        let words = std::iter::once("weft").chain(words.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.words.section().map(|section| section.job)
    }

    #[test]
    fn fios_words_make_a_job() {
        let words = "--name x --rw randrw --rwmixread 70 --bs 128k --iodepth 32 --numjobs 4 \
                     --runtime 30 --ramp-time 500ms --size 1GiB --offset 1M --io-size 2G \
                     --rate-iops 10000 --rate-process poisson --cpus 0-1,3 --verify crc32c \
                     --seed 7 --polling spin --driver epoll --fua --time_based --group_reporting \
                     --norandommap";
        let expected = Job {
            name: "x".to_owned(),
            pattern: Pattern::RandRw,
            // Each direction has the rate, as in fio, and so they are as many.
            read_percent: 50.0,
            block_bytes: 131_072,
            depth: 32,
            copies: 4,
            offset: Extent::Bytes(1 << 20),
            size: Some(Extent::Bytes(1 << 30)),
            io_size: Some(Extent::Bytes(2 << 30)),
            runtime: Some(Duration::from_secs(30)),
            time_based: true,
            random_map: false,
            ramp: Duration::from_millis(500),
            rate: Some(Rate { iops: 20_000.0, process: Process::Poisson }),
            cpus: vec![0, 1, 3],
            seed: 7,
            verify: true,
            polling: Polling::Spin,
            driver: DriverKind::Epoll,
            durable: true,
            ..Job::default()
        };
        assert_eq!(job(words), Ok(expected));
    }

    #[test]
    fn nothing_said_is_the_default_job() {
        assert_eq!(job(""), Ok(Job::default()));
    }

    #[test]
    fn fios_underscores_are_taken_and_the_last_word_counts() {
        let words = "--ramp_time 1 --io_size 4k --rate_iops 5 --rate_process=linear \
                     --readwrite rw --rw=read --randseed 9 --cpus_allowed 1 --blocksize=8k";
        let job = job(words).expect("a job");
        assert_eq!(job.ramp, Duration::from_secs(1));
        assert_eq!(job.io_size, Some(Extent::Bytes(4096)));
        assert_eq!(job.rate, Some(Rate { iops: 5.0, process: Process::Fixed }));
        assert_eq!((job.pattern, job.seed, job.block_bytes), (Pattern::Read, 9, 8192));
        assert_eq!(job.cpus, [1]);
    }

    #[test]
    fn bad_words_are_told_with_what_there_is() {
        for (words, part) in [
            ("--rw sideways", "randread"),
            ("--bs 4x", "--bs: \"4x\" is not a size"),
            ("--bs 8G", "too large"),
            ("--runtime soon", "span of time"),
            ("--rate-iops fast", "not a number"),
            ("--number-ios 20k", "give the number itself"),
            ("--cpus 3-1", "list of processors"),
            ("--verify none-such", "crc32c"),
            ("--driver kqueue", "epoll"),
            ("--iodepth many", "many"),
            ("--ioengine=rbd", "drives no block device"),
            ("--flow=2", "rate_iops"),
            ("--zonemode=zbd", "zoned devices"),
        ] {
            let error = job(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
        assert!(job("--zonemode=none --nrfiles=1").is_ok());
    }
}
