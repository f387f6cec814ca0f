//! Man pages: what the definition of the command line says, with exit status, files and examples.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{compare, doctor, signals};

/// Exit codes, and the pages that have them; no page: all.
const EXIT_STATUS: &[(&[&str], u8, &str)] = &[
    (
        &[],
        0,
        "What was asked is done, or the reader of the output has ended early \
         (weft list | head -1).",
    ),
    (&[], 1, "It could not be done: a line on standard error says why."),
    (&[], 2, "The words of the command line are wrong."),
    (
        &["weft-study-compare", "weft-study-run"],
        compare::SLOWER,
        "Of two sets of results that were compared, the second is slower by more than the margin, \
         with confidence.",
    ),
    (
        &["weft-study-compare", "weft-study-run"],
        compare::INCOMPLETE,
        "Nothing is slower, but cells of the first set have no result in the second.",
    ),
    (
        &["weft-study-compare", "weft-study-run"],
        compare::UNDECIDED,
        "Undecided: something may be slower by more than one would mind.",
    ),
    (&["weft-doctor"], doctor::WARNED, "There is a warning, and no fault."),
    (&["weft-doctor"], doctor::FAULTY, "There is a fault: it does not work, or loses data."),
    (
        &["weft-target"],
        weft_target::EXIT_CODE_OF_A_FAILED_GROUP,
        "A poll group has failed: it is a fault of weft.",
    ),
    (
        &["weft-bench", "weft-first-look", "weft-study-run"],
        signals::INTERRUPTED,
        "SIGINT or SIGTERM has interrupted it; what was measured until then stays.",
    ),
];

/// Files that are read, and the option or page that has to do with them; neither: all.
const FILES: &[(Of, &str, &str)] = &[
    (
        Of::Page("weft-target"),
        "/etc/weft/target.toml",
        "The configuration that weft.service serves; docs/config.toml shows every key.",
    ),
    (Of::Page("weft-target"), "/var/lib/weft", "The working folder of weft.service."),
    (
        Of::Page("weft-target"),
        "/run/weft/control.sock",
        "The control socket of weft.service, for weft ctl, top and trace.",
    ),
    (
        Of::Page("weft-target"),
        "/etc/machine-id",
        "The name of a subsystem that has none is made of it.",
    ),
    (
        Of::Option("rbd"),
        "/etc/ceph/ceph.conf",
        "The Ceph cluster, and where its keyring is, unless conf= names another one.",
    ),
    (Of::Option("hostnqn"), weft_host::HOST_NQN_FILE, "The NQN of this host."),
    (
        Of::Option("hostnqn"),
        weft_host::HOST_ID_FILE,
        "The Host Identifier of this host; without both files each process makes its own.",
    ),
    (
        Of::Option("site"),
        "weft-site.toml",
        "Machines and links: in this folder, in weft of $XDG_CONFIG_HOME or ~/.config, or in \
         /etc/weft.",
    ),
    (Of::All, "/usr/share/doc/weft/docs", "What is named docs/NAME here and in messages."),
];

/// Which pages something is for.
#[derive(Debug, PartialEq)]
enum Of {
    /// All of them.
    All,
    /// The one of this name.
    Page(&'static str),
    /// Those of commands that have this option and do not need it.
    Option(&'static str),
}

/// Commands, by the page that shows them.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "weft",
        &[
            "weft first-look",
            "weft target --memory 1GiB",
            "weft discover tcp://127.0.0.1:4420",
            "weft bench nvme-tcp://127.0.0.1:4420/NQN --rw randread --bs 4k --iodepth 32",
        ],
    ),
    (
        "weft-target",
        &[
            "weft target --listen tcp://0.0.0.0:4420 --file /var/lib/disk.img,size=10GiB",
            "weft target --config /etc/weft/target.toml --control unix:/run/weft/control.sock",
            "weft target --check --config /etc/weft/target.toml",
        ],
    ),
    (
        "weft-ctl",
        &[
            "weft ctl --control unix:/run/weft/control.sock subsystem list",
            "weft ctl --control unix:/run/weft/control.sock reload",
        ],
    ),
    ("weft-top", &["weft top --control unix:/run/weft/control.sock"]),
    ("weft-trace", &["weft trace --control unix:/run/weft/control.sock --seconds 2"]),
    ("weft-convert", &["weft convert /etc/nvmet/config.json"]),
    (
        "weft-doctor",
        &[
            "weft doctor",
            "weft doctor --control unix:/run/weft/control.sock nvme-tcp://192.0.2.1:4420/NQN",
        ],
    ),
    ("weft-discover", &["weft discover tcp://192.0.2.1:4420", "weft discover --mdns"]),
    (
        "weft-identify",
        &[
            "weft identify nvme-tcp://192.0.2.1:4420/NQN",
            "weft identify ns nvme-tcp://192.0.2.1:4420/NQN --namespace-id 1",
        ],
    ),
    ("weft-list", &["weft list tcp://192.0.2.1:4420"]),
    ("weft-read", &["weft read nvme-tcp://192.0.2.1:4420/NQN --block-count 8 --data blocks"]),
    ("weft-write", &["weft write nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --data blocks"]),
    ("weft-flush", &["weft flush nvme-tcp://192.0.2.1:4420/NQN"]),
    ("weft-copy", &["weft copy nvme-tcp://192.0.2.1:4420/NQN --slbs 0 --blocks 8 --sdlba 1024"]),
    ("weft-compare", &["weft compare nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --data blocks"]),
    (
        "weft-write-zeroes",
        &["weft write-zeroes nvme-tcp://192.0.2.1:4420/NQN --start-block 8 --block-count 8"],
    ),
    ("weft-dsm", &["weft dsm nvme-tcp://192.0.2.1:4420/NQN --ad --slbs 0,64 --blocks 8,8"]),
    ("weft-get-feature", &["weft get-feature nvme-tcp://192.0.2.1:4420/NQN --feature-id 7"]),
    (
        "weft-set-feature",
        &["weft set-feature nvme-tcp://192.0.2.1:4420/NQN --feature-id 0x84 --nsid 1 --value 1"],
    ),
    (
        "weft-namespace",
        &[
            "weft namespace create nvme-tcp://192.0.2.1:4420/NQN --nsze 262144 --flbas 1",
            "weft namespace attach nvme-tcp://192.0.2.1:4420/NQN --nsid 2",
            "weft namespace delete nvme-tcp://192.0.2.1:4420/NQN --nsid 2",
        ],
    ),
    (
        "weft-reservation",
        &[
            "weft reservation register nvme-tcp://192.0.2.1:4420/NQN --nrkey 0xa",
            "weft reservation acquire nvme-tcp://192.0.2.1:4420/NQN --crkey 0xa --rtype 1",
            "weft reservation report nvme-tcp://192.0.2.1:4420/NQN",
        ],
    ),
    (
        "weft-attach",
        &[
            "weft attach nvme-tcp://192.0.2.1:4420/NQN",
            "weft attach nvme-tcp://192.0.2.1:4420/NQN --recover 0",
        ],
    ),
    ("weft-detach", &["weft detach /dev/ublkb0"]),
    ("weft-log", &["weft log smart nvme-tcp://192.0.2.1:4420/NQN"]),
    (
        "weft-bench",
        &[
            "weft bench nvme-tcp://192.0.2.1:4420/NQN --rw randread --bs 4k --runtime 10 \
             --time_based",
            "weft bench nvme-tcp://192.0.2.1:4420/NQN job.fio",
        ],
    ),
    ("weft-floor", &["weft floor"]),
    (
        "weft-study",
        &[
            "weft study list",
            "weft study run concurrency --quick",
            "weft study compare before after",
        ],
    ),
    ("weft-site", &["weft site check --site weft-site.toml"]),
    ("weft-agent", &["ssh server weft agent"]),
    ("weft-key", &["weft key generate tls key", "weft key check key"]),
    ("weft-rdma", &["weft rdma devices"]),
    ("weft-report", &["weft report results", "weft report --verify results"]),
    (
        "weft-advise",
        &[
            "weft advise --p99 300us --iops 200k",
            "weft advise --p99 300us --iops 200k --from results",
            "weft advise --p99 300us --iops 200k --from results --what-if link=25Gb/s,rtt=30us",
            "weft advise jobs.fio --p99 300us --cost prices.toml",
        ],
    ),
    ("weft-first-look", &["weft first-look"]),
    ("weft-completion", &["weft completion bash"]),
];

/// Writes a page for a command and for each of its subcommands.
pub(super) fn write(command: Command, folder: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    each(&command, &mut |command: &Command| {
        let page = Man::new(command.clone());
        fs::write(folder.join(page.get_filename()), rendered(&page, command)?)
    })
}

/// Does something for a command and for each of its subcommands that are shown.
fn each(command: &Command, action: &mut impl FnMut(&Command) -> io::Result<()>) -> io::Result<()> {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        each(one, action)?;
    }
    action(command)
}

fn rendered(page: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    page.render_title(&mut bytes)?;
    page.render_name_section(&mut bytes)?;
    page.render_synopsis_section(&mut bytes)?;
    page.render_description_section(&mut bytes)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        page.render_options_section(&mut bytes)?;
    }
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        page.render_subcommands_section(&mut bytes)?;
    }
    if command.get_after_long_help().or(command.get_after_help()).is_some() {
        page.render_extra_section(&mut bytes)?;
    }
    let mut roff = Roff::new();
    let codes = exit_status(command).map(|(code, what)| (code.to_string(), what));
    section("EXIT STATUS", codes, &mut roff);
    let files = files(command).map(|(path, what)| (path.to_owned(), what));
    section("FILES", files, &mut roff);
    let mut lines = examples(command).peekable();
    if lines.peek().is_some() {
        roff.control("SH", ["EXAMPLES"]);
        for line in lines {
            roff.control("PP", []).text([roman(line)]);
        }
    }
    roff.to_writer(&mut bytes)?;
    page.render_version_section(&mut bytes)?;
    Ok(bytes)
}

/// A section of things and what each is.
fn section<'a>(title: &str, things: impl Iterator<Item = (String, &'a str)>, roff: &mut Roff) {
    roff.control("SH", [title]);
    for (thing, what) in things {
        roff.control("TP", []).text([bold(thing)]).text([roman(what)]);
    }
}

/// The name of a command's page.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn exit_status(command: &Command) -> impl Iterator<Item = (u8, &'static str)> {
    let page = name(command).to_owned();
    let all = EXIT_STATUS.iter();
    all.filter(move |(pages, ..)| pages.is_empty() || pages.contains(&page.as_str()))
        .map(|(_, code, what)| (*code, *what))
}

fn files(command: &Command) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_for = |of: &Of| match of {
        Of::All => true,
        Of::Page(page) => name(command) == *page,
        Of::Option(option) => command
            .get_arguments()
            .any(|one| one.get_long() == Some(*option) && !one.is_required_set()),
    };
    FILES.iter().filter(move |(of, ..)| is_for(of)).map(|(_, path, what)| (*path, *what))
}

fn examples(command: &Command) -> impl Iterator<Item = &'static str> {
    let page = name(command).to_owned();
    let own = EXAMPLES.iter().find(|(of, _)| *of == page);
    own.map(|(_, lines)| lines.iter().copied()).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    fn built() -> Command {
        let mut command = Arguments::command();
        command.build();
        command
    }

    /// Each page's name and text.
    fn pages() -> Vec<(String, String)> {
        let folder = tempfile::tempdir().expect("a folder");
        write(Arguments::command(), folder.path()).expect("pages");
        let all = fs::read_dir(folder.path()).expect("pages").flatten();
        let page = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).expect("a page");
            (entry.file_name().to_string_lossy().into_owned(), text)
        };
        all.map(page).collect()
    }

    #[test]
    fn each_page_has_the_exit_status_and_files() {
        let pages = pages();
        assert!(pages.iter().any(|(name, _)| name == "weft-ctl-subsystem-create.1"), "{pages:?}");
        for (name, text) in &pages {
            for title in ["NAME", "SYNOPSIS", "EXIT STATUS", "FILES", "VERSION"] {
                let heading = |line: &str| line.strip_prefix(".SH ").map(|t| t.replace('"', ""));
                let count = text.lines().filter(|l| heading(l).is_some_and(|t| t == title)).count();
                assert_eq!(count, 1, "{name} has {title} {count} times:\n{text}");
            }
        }
    }

    /// What is an example of one subcommand is read by it; and each has one.
    #[test]
    fn each_command_has_examples_that_it_can_read() {
        let verbs = built();
        let verbs = verbs.get_subcommands().filter(|one| !one.is_hide_set());
        for verb in verbs.filter(|verb| verb.get_name() != "help") {
            assert!(examples(verb).next().is_some(), "{} has no example", name(verb));
        }
        for (page, lines) in EXAMPLES {
            for line in *lines {
                let own = line.find("weft").map_or(*line, |at| &line[at..]);
                assert!(own.replace(' ', "-").starts_with(page), "{page}: {line}");
                let words = own.split_whitespace();
                let read = Arguments::command().try_get_matches_from(words);
                assert!(read.is_ok(), "{line}: {}", read.expect_err("it is wrong"));
            }
        }
    }

    #[test]
    fn what_pages_and_options_are_named_for_is_there() {
        let (mut pages, mut options) = (Vec::new(), Vec::new());
        each(&built(), &mut |command: &Command| {
            pages.push(name(command).to_owned());
            let own = command.get_arguments().filter_map(|one| one.get_long());
            options.extend(own.map(str::to_owned));
            Ok(())
        })
        .expect("no file");
        let known = |page: &str| assert!(pages.iter().any(|one| one == page), "{page}");
        EXIT_STATUS.iter().flat_map(|(pages, ..)| *pages).for_each(|page| known(page));
        EXAMPLES.iter().for_each(|(page, _)| known(page));
        for (of, ..) in FILES {
            match of {
                Of::All => {}
                Of::Page(page) => known(page),
                Of::Option(option) => assert!(options.iter().any(|one| one == option), "{option}"),
            }
        }
        let wrong = Arguments::command().try_get_matches_from(["weft", "--nothing"]);
        assert_eq!(wrong.expect_err("no such option").exit_code(), 2);
    }
}
