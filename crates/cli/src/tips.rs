//! What to write in place of words that other programs have, or other places of this one.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// A subcommand, how a word of it begins that it does not have, and what to write.
const TIPS: [(&str, &[&str], &str); 8] = [
    (
        "target",
        &["--tls", "--psk", "--dhchap", "--rate", "--burst", "--host", "--qos", "--weight"],
        "TLS, keys, limits and classes are in --config FILE (docs/config.toml)",
    ),
    ("target", &["--port", "--addr", "--traddr", "--trsvcid"], "--listen tcp://ADDRESS:PORT"),
    ("target", &["--size", "size="], "a device has its size: --file PATH,size=SIZE"),
    ("bench", &["--iops"], "--rate-iops"),
    ("bench", &["--qd", "--queue-depth", "--depth"], "--iodepth"),
    (
        "ctl",
        &["--budget", "--latency-target", "--max-throughput-loss"],
        "--weight; the class latency always has half of a group's time (docs/isolation.md)",
    ),
    ("ctl", &["--nsid"], "the NSID stands behind the NQN, without a flag"),
    ("connect", &["connect"], "weft attach, or nvme connect of a Linux host"),
];

/// An error of the command line with the tip of this table, if it has one, in place of a guess.
pub(crate) fn with_tip(mut error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return error;
    }
    let word = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind).map(ToString::to_string))
        .unwrap_or_default();
    let verb = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    if let Some(tip) = tip(&verb, &word) {
        for guess in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
            error.remove(guess);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn tip(verb: &str, word: &str) -> Option<&'static str> {
    let fits = |(of, words, _): &&(&str, &[&str], &str)| {
        *of == verb && words.iter().any(|one| word.starts_with(one))
    };
    TIPS.iter().find(fits).map(|(.., tip)| *tip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// A tip is for a word that its subcommand does not have, and hides no guess of another one.
    #[test]
    fn each_tip_is_said_for_a_word_that_is_refused() {
        for (verb, words, expected) in TIPS {
            for word in words {
                let line =
                    if verb == *word { vec!["weft", verb] } else { vec!["weft", verb, *word] };
                let error = crate::arguments::Arguments::command().try_get_matches_from(line);
                let error = error.expect_err(word);
                let kind = error.kind();
                let kinds = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
                assert!(kinds.contains(&kind), "{verb} {word}: {error}");
                assert_eq!(tip(verb, word), Some(expected));
            }
        }
        assert_eq!(tip("bench", "--rate-iops"), None);
    }
}
