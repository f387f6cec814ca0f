//! What the documents say of defaults, beside the defaults.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use weft_backend::BLOCK_BYTES_DEFAULT;
use weft_host::Options;
use weft_lab::study::plan::Kind;
use weft_target::config::Limits;

use super::Arguments;

/// A page, what it says, and whether that is so.
type DefaultSentence = (&'static str, &'static str, bool);

/// The default of an option of a verb, as the definition of the command line has it.
fn option(verb: &str, name: &str) -> String {
    let command = Arguments::command();
    let verb = command.find_subcommand(verb).expect("a verb");
    let mut all = verb.get_arguments();
    let option = all.find(|option| option.get_long() == Some(name)).expect("an option");
    let values: Vec<_> = option.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
    values.join(",")
}

fn sentences() -> Vec<DefaultSentence> {
    let limits = Limits::default();
    let host = Options::new("nvme-tcp://a/nqn.a".parse().expect("an address"));
    let port = "nvme-tcp://a".parse::<weft_host::TransportId>().expect("an address").port();
    vec![
        (
            "docs/advise.md",
            "with five loads, for about two minutes (`--budget`)",
            option("advise", "budget") == "2min",
        ),
        (
            "docs/attach.md",
            "with memory for `--queue-depth` requests (128)",
            option("attach", "queue-depth") == "128",
        ),
        (
            "docs/attach.md",
            "one for each processor, at most 4 (`--nr-io-queues`)",
            crate::attach::QUEUES_DEFAULT == 4,
        ),
        (
            "docs/ceph.md",
            "by default 4096 if the size is a multiple of it",
            BLOCK_BYTES_DEFAULT == 4096,
        ),
        ("docs/config.toml", "512 or 4096; default 4096", BLOCK_BYTES_DEFAULT == 4096),
        (
            "docs/config.toml",
            "# A port for discovery only, at the default address of `nvme discover`. [[port]] \
             listen = \"tcp://0.0.0.0:8009\"",
            port == 8009,
        ),
        // `the_documented_example_is_read_in_full`
        (
            "docs/config.toml",
            "Keys that are commented out have no # default value; [limits] shows the defaults.",
            true,
        ),
        ("docs/conformance.md", "yes, 16 KiB by default", limits.in_capsule_bytes == 16 << 10),
        (
            "docs/control.md",
            "After `limits.drain-timeout` (30 s)",
            limits.drain_timeout.as_secs() == 30,
        ),
        (
            "docs/metrics.md",
            "over the control socket, by default over each second",
            option("top", "interval") == "1s",
        ),
        (
            "docs/metrics.md",
            "At most 1,000 pairs (`--metrics-pairs`)",
            option("target", "metrics-pairs") == "1000",
        ),
        (
            "docs/metrics.md",
            "its last 262,144 commands (`--commands`)",
            option("trace", "commands") == "262144",
        ),
        (
            "docs/operate.md",
            "`--iopolicy` is `numa` (the best path, the default)",
            host.iopolicy.to_string() == "numa",
        ),
        (
            "docs/performance.md",
            "SQ flow control is off, which is the default of weft's host",
            host.disable_sqflow,
        ),
        ("docs/results.md", "`kind` is `matrix` (the default)", Kind::default() == Kind::Matrix),
        ("docs/scale.md", "16,384 by default (`connections`)", limits.connections == 16_384),
    ]
}

/// The places at which a text speaks of a default: not in the name of something.
fn defaults(text: &str) -> impl Iterator<Item = usize> {
    let is_name = |one: Option<char>| one.is_some_and(|one| "_/`-".contains(one));
    text.match_indices("default").map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[*at..].chars().find(|one| !one.is_ascii_alphabetic());
        !is_name(before) && !is_name(after)
    })
}

#[test]
fn what_is_said_of_a_default_is_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sentences = sentences();
    let mut pages = vec!["README.md".to_owned(), "docs/config.toml".to_owned()];
    let entries = fs::read_dir(root.join("docs")).expect("a folder").flatten();
    let names = entries.map(|entry| format!("docs/{}", entry.file_name().display()));
    pages.extend(names.filter(|name| name.ends_with(".md")));
    for page in pages {
        let text = fs::read_to_string(root.join(&page)).expect("a page");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let of_page = sentences.iter().filter(|(of, ..)| *of == page);
        let places: Vec<_> = of_page
            .map(|(_, sentence, is_so)| {
                assert!(is_so, "{page}: {sentence}");
                let at = text.find(sentence).unwrap_or_else(|| panic!("{page} lacks: {sentence}"));
                at..at + sentence.len()
            })
            .collect();
        for at in defaults(&text) {
            let around: String = text[at..].chars().take(60).collect();
            // What is not weft's own.
            let is_of_others = around.starts_with("default; weft then uses epoll")
                || around.starts_with("default that affects the result")
                || around.starts_with("default][spdk-interrupt]")
                || around.starts_with("default): [isolation.md]");
            let is_held = places.iter().any(|place| place.contains(&at));
            assert!(is_held || is_of_others, "{page}: nothing holds {around:?} against the code");
        }
    }
}
