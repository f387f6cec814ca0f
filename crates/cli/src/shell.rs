//! What a shell and `man` show of the command line, made from its definition.

mod man;

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output;

/// Options of `weft completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `weft man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// An existing directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Bash splits words at colons and equals signs, which NQNs, addresses and `--control=` have: puts
/// them together before the program is asked, and takes from its answers what bash has already.
const BASH_WHOLE_WORDS: &str = r#"
_weft_whole_words() {
    local rest=$COMP_LINE part index=-1 words=()
    for part in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ $index -lt 0 || $rest == [[:space:]]* ]]; then
            index=$((index + 1))
            rest=${rest#"${rest%%[![:space:]]*}"}
        fi
        words[index]+=$part
        rest=${rest#"$part"}
    done
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$index word=${words[index]}
    _clap_complete_weft "$1" "$word" "${words[index - 1]}"
    local had=${word%"${word##*[:=]}"}
    if [[ $COMP_WORDBREAKS != *:* && $had == *: ]]; then had=; fi
    COMPREPLY=("${COMPREPLY[@]#"$had"}")
}
complete -o nospace -o bashdefault -F _weft_whole_words weft
"#;

/// Zsh loads a completion from a file when it is first wanted, and wants its answer as well.
const ZSH_FIRST_TIME: &str = r#"
if [[ $funcstack[1] == _weft ]]; then _clap_dynamic_completer_weft "$@"; fi
"#;

/// A script that has the shell ask this program for each completion, since names of a target that
/// runs are completed as well.
pub(crate) fn completion(options: &CompletionOptions) -> Result<(), Failure> {
    let name = options.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&name).ok_or_else(|| Failure::because("it is not known"))?;
    let mut script = Vec::new();
    shell
        .write_registration("COMPLETE", "weft", "weft", "weft", &mut script)
        .map_err(|error| Failure::io("write", &"the script", &error))?;
    let more = match options.shell {
        Shell::Bash => BASH_WHOLE_WORDS,
        Shell::Zsh => ZSH_FIRST_TIME,
        _ => "",
    };
    script.extend_from_slice(more.as_bytes());
    output::print_bytes(&script)
}

pub(crate) fn man(options: &ManOptions) -> Result<(), Failure> {
    let written = man::write(Arguments::command(), &options.directory);
    written.map_err(|error| Failure::io("write", &options.directory.display(), &error))
}
