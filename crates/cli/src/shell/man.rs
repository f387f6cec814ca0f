//! Man pages: what the definition of the command line says, with exit status, environment, files,
//! examples and what to read next.

mod tables;

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use tables::{ENVIRONMENT, EXAMPLES, EXIT_STATUS, FILES, FIRST_EXAMPLES, PageScope, SEE_ALSO};

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
    let codes = EXIT_STATUS.iter().filter(|(of, ..)| is_for(of, command));
    section("EXIT STATUS", codes.map(|(_, code, what)| (code.to_string(), *what)), &mut roff);
    for (title, things) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)] {
        let things = things.iter().filter(|(of, ..)| is_for(of, command));
        section(title, things.map(|(_, name, what)| ((*name).to_owned(), *what)), &mut roff);
    }
    roff.control("SH", ["EXAMPLES"]);
    for line in examples(command) {
        roff.control("PP", []).text([roman(line)]);
    }
    roff.control("SH", ["SEE ALSO"]).text([roman(see_also(command).join(", "))]);
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

/// Whether something is for the page of a command.
fn is_for(of: &PageScope, command: &Command) -> bool {
    match of {
        PageScope::All => true,
        PageScope::Pages(pages) => pages.contains(&name(command)),
        // The target's is where it listens.
        PageScope::Option("control") if name(command) == "weft-target" => false,
        PageScope::Option(option) => command
            .get_arguments()
            .any(|one| one.get_long() == Some(*option) && !one.is_required_set()),
    }
}

/// Examples of a command, and of the commands below it.
fn examples(command: &Command) -> impl Iterator<Item = &'static str> {
    let page = name(command).to_owned();
    let lines = if page == "weft" { FIRST_EXAMPLES } else { EXAMPLES };
    let is_own = move |line: &&&str| {
        let rest = own_words(line).replace(' ', "-");
        rest.strip_prefix(&page).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    lines.iter().filter(is_own).copied()
}

/// The words of an example that are of this program.
fn own_words(line: &str) -> &str {
    line.find("weft").map_or(line, |at| &line[at..])
}

/// The pages of the commands above, and others that have to do with it.
fn see_also(command: &Command) -> Vec<String> {
    let own = name(command);
    let above = own.match_indices('-').map(|(at, _)| &own[..at]);
    // Not each dash is between two words.
    let is_page = |page: &&str| {
        let mut all = EXAMPLES.iter().map(|line| own_words(line));
        all.any(|line| line.match_indices(' ').any(|(at, _)| line[..at].replace(' ', "-") == *page))
    };
    let above = above.filter(is_page);
    let above = above.map(|page| format!("{page}(1)"));
    let others = SEE_ALSO.iter().filter(|(of, _)| is_for(of, command));
    above.chain(others.map(|(_, what)| (*what).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    fn built() -> Command {
        let mut command = Arguments::command();
        command.build();
        command
    }

    fn built_pages() -> Vec<String> {
        let mut pages = Vec::new();
        let found = each(&built(), &mut |command: &Command| {
            pages.push(name(command).to_owned());
            Ok(())
        });
        found.map(|()| pages).expect("no file")
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
    fn each_page_has_each_section() {
        let pages = pages();
        assert!(pages.iter().any(|(name, _)| name == "weft-ctl-subsystem-create.1"), "{pages:?}");
        let titles = ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"];
        for (name, text) in &pages {
            for title in titles.into_iter().chain(["SEE ALSO", "VERSION"]) {
                let heading = |line: &str| line.strip_prefix(".SH ").map(|t| t.replace('"', ""));
                let mut found = text.lines().filter(|l| heading(l).is_some_and(|t| t == title));
                assert!(found.next().is_some() && found.next().is_none(), "{name}: {title}");
            }
            let sections = text.split("\n.SH ").map(|section| section.lines().count());
            assert!(
                sections.skip(1).all(|lines| lines > 1),
                "{name} has an empty section:\n{text}"
            );
        }
    }

    #[test]
    fn each_example_is_read_by_its_command() {
        for line in EXAMPLES.iter().chain(FIRST_EXAMPLES) {
            let words = own_words(line).split_whitespace();
            let read = Arguments::command().try_get_matches_from(words);
            assert!(read.is_ok(), "{line}: {}", read.expect_err("it is wrong"));
        }
    }

    #[test]
    fn what_pages_and_options_are_named_for_is_there() {
        let (pages, mut options) = (built_pages(), Vec::new());
        each(&built(), &mut |command: &Command| {
            let own = command.get_arguments().filter_map(|one| one.get_long());
            options.extend(own.map(str::to_owned));
            for page in see_also(command).iter().filter_map(|one| one.strip_suffix("(1)")) {
                assert!(pages.iter().any(|one| one == page), "{}: {page}", name(command));
            }
            Ok(())
        })
        .expect("no file");
        let all = EXIT_STATUS.iter().map(|(of, ..)| of).chain(SEE_ALSO.iter().map(|(of, _)| of));
        for of in all.chain(ENVIRONMENT.iter().chain(FILES).map(|(of, ..)| of)) {
            match of {
                PageScope::All => {}
                PageScope::Pages(of) => of.iter().for_each(|page| {
                    assert!(pages.iter().any(|one| one == page), "{page}");
                }),
                PageScope::Option(option) => {
                    assert!(options.iter().any(|one| one == option), "{option}")
                }
            }
        }
        let wrong = Arguments::command().try_get_matches_from(["weft", "--nothing"]);
        assert_eq!(wrong.expect_err("no such option").exit_code(), 2);
    }

    /// The code of all crates, without their tests.
    fn code() -> String {
        fn read(folder: &Path, text: &mut String) {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                let path = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if path.is_dir() {
                    read(&path, text);
                } else if name.ends_with(".rs") && !["tests.rs", "tables.rs"].contains(&&*name) {
                    let file = fs::read_to_string(path).expect("a text");
                    *text += file.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                }
            }
        }
        let mut text = String::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for one in fs::read_dir(crates).expect("crates").flatten() {
            read(&one.path().join("src"), &mut text);
        }
        text
    }

    /// What begins with `before` and has only these characters.
    fn after<'c>(code: &'c str, before: &'c str, of: fn(char) -> bool) -> BTreeSet<&'c str> {
        let rest = code.match_indices(before).map(|(at, _)| &code[at + before.len()..]);
        rest.map(|rest| rest.split(|c| !of(c)).next().unwrap_or_default()).collect()
    }

    #[test]
    fn pages_name_the_variables_and_the_exit_codes_of_the_code() {
        let code = code();
        for (_, name, _) in ENVIRONMENT {
            assert!(code.contains(name), "nothing reads {name}");
        }
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        for name in after(&code, "\"WEFT_", is_name) {
            let is_of_tests =
                name.starts_with("TEST_") || ["SEEDS", "TLS_KEY_BYTES"].contains(&name);
            let name = format!("WEFT_{name}");
            let is_named = ENVIRONMENT.iter().any(|(_, one, _)| *one == name);
            assert!(is_of_tests || is_named, "no page names {name}");
        }
        // Exit codes are constants, each in a row by its name.
        let rows = include_str!("man/tables.rs");
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        let codes = after(&code, "Failure::Exit(", is_path);
        assert!(codes.len() > 5, "{codes:?}");
        for path in codes.into_iter().filter(|path| !["_", "code", "u8"].contains(path)) {
            let constant = path.rsplit("::").next().expect("a name");
            assert!(rows.contains(&format!("::{constant},")), "no page has the exit code {path}");
        }
    }
}
