//! The rules of this repository that neither the compiler nor clippy can enforce.
//!
//! [`source`] is a Rust source file without comments and strings, [`files`] says which file uses
//! which; the rules are here: dependencies between crates and between the target's planes, circles
//! of files, `unsafe`, clocks, sizes, names of types, leftovers, the length of the documents, and
//! that every test exists that the conformance matrix and the table of promises name.

mod documents;
mod files;
mod matrix;
mod source;

use anyhow::{Context, Result, ensure};
use files::Files;
use serde_json::Value;
use source::{Function, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page whose tables say what each crate may depend on, and what the files of each plane of the
/// target may use. Development dependencies may join what the product keeps apart, but they may not
/// include `load`, `lab` and `cli`.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const CRATES: &str = "| crate | contents | may depend on |";
const PLANES: &str = "| plane of the target | contents | may use |";

/// Where the planes of the target are.
const TARGET: &str = "crates/subsystem/src/";

/// Files of a crate that may need each other.
const CIRCLE_MAX: usize = 3;

/// The top packages, on which nothing may depend, not even for tests.
const TOP: &[&str] = &["load", "lab", "nvmeof"];

/// Where `unsafe` is allowed: the reactor (in its manifest) and the bindings of C libraries.
const UNSAFE: &[&str] = &[
    "crates/reactor/",
    "crates/transport/src/rdma/verbs",
    "crates/transport/src/tls/engine.rs",
    "crates/backend/src/rbd/librbd",
];

/// Where clocks may be read. The binary and these tasks do not measure the protocol's time.
const CLOCKS: &[&str] = &["crates/reactor/", "crates/cli/", "tests/", "xtask/"];

/// What may carry text of a peer to a terminal, and where it is allowed: all else goes through
/// `output::print`, `output::print_error` and the log, which leave nothing that a terminal obeys.
const PEERS_TEXT: &[(&[&str], &[&str])] = &[
    (
        &["raw_text("],
        &[
            "crates/nvme/src/wire.rs",
            // Addresses, which are parsed.
            "crates/nvmf/src/host/discovery.rs",
            "crates/cli/src/serve/registered.rs",
        ],
    ),
    (
        &["print_bytes("],
        &[
            "crates/cli/src/output.rs",
            "crates/cli/src/shell.rs",
            "crates/cli/src/top/view.rs",
            "crates/cli/src/transfer.rs",
        ],
    ),
    (
        &["io::stdout()", "io::stderr()", "println!", "print!"],
        &[
            "crates/cli/src/output.rs",
            // Whether it is a terminal or the journal.
            "crates/cli/src/bench/reports.rs",
            "crates/cli/src/logging.rs",
            "crates/cli/src/study/progress.rs",
            "crates/cli/src/transfer.rs",
            // JSON-RPC of an agent.
            "crates/cli/src/agent.rs",
            // What tests say.
            "crates/load/src/beside_fio.rs",
            "crates/sim/src/seeds.rs",
        ],
    ),
];

/// The page that says why the ordering of each atomic is enough.
const ORDERING: &str = "docs/memory-ordering.md";

/// The feature that fuzz harnesses are behind, and the modules that hold them.
const FUZZING: &str = "fuzzing";

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Leftovers, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "remove it"),
    ("#[ignore", "remove it: a test has to run"),
    ("allow(dead_code", "remove what is not used"),
    ("allow(unused", "remove what is not used"),
];

/// Names that are no types: a type is called by a noun, not by what became of it or what it does.
const NO_NOUNS: &str = "Added Announced Answering Asked Asker Asks Beneath Between Called Changed \
    Completed Compared Connected Connecting Copying Counted Described Done Drawn Ended Ending \
    Examined Expected Filled Found Gathered Goes HandedOver Has Heard Held Hot How Interrupted \
    IsBusy Issued Judged Known Lacks Landed Leaving Listed Loaded Locked Logged Long Made Measured \
    Metered Needed Needs Next Of Only Opened Opening Operated Outside Pieced Placed Plain Posted \
    Prepared Protecting Queued Ran Reached Received Recorded Refused Registered Renamed Renewed \
    Reserving Resized Restored Running Said Saved Scheduled Sealed Seen Served Settled Several \
    Shown Simulated Sought Started Stored Submitted Told Touched Truncated Unconnected Unique \
    Unread Unusable Via Visible Waited Waiting Wanted Watched Which Whole Why Wish Written";

/// Checks the repository at `root` and returns one sentence for each thing that is wrong.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = layering(&metadata(root)?, &layers(root, CRATES)?);
    let files = rust_files(root)?;
    let mut sources = Vec::new();
    for path in &files {
        let text = fs::read_to_string(root.join(path))?;
        sources.push(Source::parse(path, &text));
    }
    for source in &sources {
        check_source(source, &mut faults);
    }
    faults.extend(planes(&sources, &layers(root, PLANES)?));
    faults.extend(circles(&sources));
    let tests = matrix::Tests::of(root, &sources);
    faults.extend(matrix::check(&tests)?);
    faults.extend(documents::check(root, &tests)?);
    let listed = fs::read_to_string(root.join(ORDERING))?;
    faults.extend(sources.iter().filter_map(|source| unlisted_atomic(source, &listed)));
    faults.sort();
    Ok(faults)
}

/// The workspace as cargo sees it.
fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let text = crate::python::succeeded(
        Command::new(cargo)
            .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
            .current_dir(root),
    )?;
    serde_json::from_str(&text).context("cargo metadata is not JSON")
}

/// What each crate or plane may depend on: a row for each of the table with this heading, with its
/// name and, last, those that it may use.
fn layers(root: &Path, heading: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let page = fs::read_to_string(root.join(ARCHITECTURE)).context(ARCHITECTURE)?;
    let rows = page.lines().skip_while(|line| *line != heading).skip(2);
    let mut layers = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(name), Some(may)) = (cells.first(), cells.last()) else { continue };
        let may = match *may {
            "–" => Vec::new(),
            "all" => layers.keys().cloned().collect(),
            names => names.split(", ").map(str::to_owned).collect(),
        };
        layers.insert(name.trim_matches('`').to_owned(), may);
    }
    ensure!(!layers.is_empty(), "{ARCHITECTURE} has no table that begins with {heading}");
    Ok(layers)
}

/// Checks the dependencies between the packages against the [`layers`].
fn layering(metadata: &Value, layers: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    let ours = |value: &Value| -> Option<String> {
        Some(value["name"].as_str()?.strip_prefix("weft-")?.to_owned())
    };
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let Some(name) = ours(package) else { continue };
        let Some(allowed) = layers.get(&name) else {
            faults.push(format!("{name}: a new package needs a row in {ARCHITECTURE}"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(to) = ours(dependency) else { continue };
            let for_tests = dependency["kind"] == "dev" && !TOP.contains(&to.as_str());
            if !allowed.contains(&to) && !for_tests {
                faults.push(format!("{name}: may not depend on {to}"));
            }
            let mut features = dependency["features"].as_array().into_iter().flatten();
            if dependency["kind"] != "dev" && features.any(|feature| feature == FUZZING) {
                faults.push(format!("{name}: its product has the fuzz harnesses of {to}"));
            }
        }
    }
    faults
}

/// Checks the paths in the files of the target's planes against the [`layers`].
fn planes(sources: &[Source], layers: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let plane = |source: &'_ Source| -> Option<String> {
        let inside = source.path.strip_prefix(TARGET)?.split(['/', '.']).next()?;
        (inside != "lib").then(|| inside.to_owned())
    };
    let mut faults = BTreeSet::new();
    for source in sources {
        if let Some(plane) = plane(source).filter(|plane| !layers.contains_key(plane)) {
            faults.insert(format!("{}: {plane} has no row in {ARCHITECTURE}", source.path));
        }
    }
    for arrow in Files::of(TARGET, sources).arrows() {
        let (Some(from), Some(to)) = (plane(arrow.from), plane(arrow.to)) else { continue };
        let may = layers.get(&from).is_some_and(|may| may.contains(&to));
        if from != to && !may {
            let (path, line) = (&arrow.from.path, arrow.line + 1);
            faults.insert(format!("{path}:{line}: {from} may not use {to} ({})", arrow.to.path));
        }
    }
    faults.into_iter().collect()
}

/// Circles of more than [`CIRCLE_MAX`] files.
fn circles(sources: &[Source]) -> Vec<String> {
    let folder = |source: &Source| Some(source.path.split_once("/src/")?.0.to_owned());
    let folders: BTreeSet<String> = sources.iter().filter_map(folder).collect();
    let mut faults = Vec::new();
    for folder in folders {
        let src = format!("{folder}/src/");
        let mut circles = Files::of(&src, sources).circles();
        circles.retain(|files| files.len() > CIRCLE_MAX);
        for files in circles {
            let names = files.join(" ").replace(&src, "");
            faults.push(format!("{folder}: a circle of {} files: {names}", files.len()));
        }
    }
    faults
}

/// All Rust files of the repository, as paths below `root`.
pub(crate) fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["crates", "xtask", "fuzz", "tests"].iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else { continue };
        for entry in entries {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            // A build folder has a marker file.
            let is_build = root.join(&path).join("CACHEDIR.TAG").exists();
            if entry.file_type()?.is_dir() && !is_build {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The name of the type that this line declares, if that is no noun.
fn no_noun(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    words.next().filter(|name| NO_NOUNS.split_whitespace().any(|refused| refused == *name))
}

fn check_source(source: &Source, faults: &mut Vec<String>) {
    let within = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
    let mut fault = |line: usize, what: String| {
        faults.push(format!("{}:{}: {what}", source.path, line + 1));
    };
    if let Some(folder) = source.path.strip_suffix("/mod.rs") {
        // What is at the top of `tests` would be a test of its own.
        if folder.rsplit('/').nth(1).is_none_or(|above| above != "tests") {
            fault(0, format!("a module with files of its own is {folder}.rs"));
        }
    }
    if source.path.split('/').any(|part| part == "target") {
        fault(0, "many tools leave out folders of the name target".into());
    }
    for (at, line) in source.code.iter().enumerate() {
        if !within(UNSAFE) && source::has_word(line, "unsafe") {
            fault(at, "`unsafe` is allowed only in the reactor and the bindings".into());
        }
        let reads_clock = ["Instant", "SystemTime"].iter().any(|w| source::has_word(line, w));
        if reads_clock && !within(CLOCKS) && !source.is_test[at] {
            fault(at, "clocks may be read only in the reactor: take `now` as an argument".into());
        }
        for (words, places) in PEERS_TEXT {
            let is_concerned =
                within(&["crates/"]) && source.path.contains("/src/") && !source.is_test[at];
            let found = words.iter().find(|word| is_concerned && line.contains(*word));
            if let Some(word) = found.filter(|_| !within(places)) {
                fault(at, format!("{word}: what a peer has sent is shown through `output::print`"));
            }
        }
        if let Some(name) = no_noun(line) {
            fault(at, format!("{name}: a type is called by a noun"));
        }
        for (text, instead) in FORBIDDEN {
            if line.contains(text) {
                fault(at, format!("{text}: {instead}"));
            }
        }
    }
    for (at, line) in source.code.iter().enumerate().filter(|(_, line)| is_harness(line)) {
        let attribute = at.checked_sub(1).and_then(|before| source.text.get(before));
        let behind = |text: &String| text.contains(&format!("feature = \"{FUZZING}\""));
        if !attribute.is_some_and(behind) {
            fault(at, format!("{}: behind the feature {FUZZING}", line.trim()));
        }
    }
    for (at, line) in source.text.iter().enumerate() {
        if line.chars().count() > COLUMNS_MAX {
            fault(at, format!("more than {COLUMNS_MAX} columns"));
        }
    }
    let length = source.is_test.iter().filter(|is_test| !**is_test).count();
    if length > FILE_LINES_MAX {
        fault(0, format!("{length} lines without tests; the limit of a file is {FILE_LINES_MAX}"));
    }
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX && !source.is_test[function.start] {
            let Function { name, lines, .. } = &function;
            fault(
                function.start,
                format!("{name} has {lines} lines of code, more than {FUNCTION_LINES_MAX}"),
            );
        }
    }
    for at in nested_uses(&source.code) {
        fault(at, "one `use` for each module, without braces within braces".into());
    }
    check_crate_root(source, faults);
}

/// The first lines of statements of `use` with braces within braces.
fn nested_uses(code: &[String]) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut begun, mut depth) = (None, 0_usize);
    for (at, line) in code.iter().enumerate() {
        let words = line.trim_start();
        let is_use =
            words.starts_with("use ") || words.starts_with("pub") && words.contains(" use ");
        begun = begun.or(is_use.then_some(at));
        let Some(first) = begun else { continue };
        for character in line.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ';' => begun = None,
                _ => {}
            }
            if depth > 1 && found.last() != Some(&first) {
                found.push(first);
            }
        }
        if begun.is_none() {
            depth = 0;
        }
    }
    found
}

/// A fault if a crate's file has an atomic outside tests and is not on the page of them.
fn unlisted_atomic(source: &Source, listed: &str) -> Option<String> {
    let path = source.path.strip_prefix("crates/").filter(|path| path.contains("/src/"))?;
    let kinds = ["Bool", "U8", "U16", "U32", "U64", "Usize", "I32", "I64", "Ptr"];
    let is_atomic =
        |line: &String| kinds.iter().any(|kind| source::has_word(line, &format!("Atomic{kind}")));
    let code = source.code.iter().zip(&source.is_test).filter(|(_, is_test)| !**is_test);
    let has = code.map(|(line, _)| line).any(is_atomic);
    let fault = || format!("{}: it has an atomic that {ORDERING} does not explain", source.path);
    (has && !listed.contains(&format!("`{path}`"))).then(fault)
}

/// Whether this line declares a module of fuzz harnesses.
fn is_harness(line: &str) -> bool {
    source::has_word(line, "mod") && source::has_word(line, FUZZING)
}

/// A crate root has a module comment, and the wire types are no_std.
fn check_crate_root(source: &Source, faults: &mut Vec<String>) {
    if !source.path.starts_with("crates/") || !source.path.ends_with("/src/lib.rs") {
        return;
    }
    if !source.text.first().is_some_and(|line| line.starts_with("//!")) {
        faults.push(format!("{}: needs a comment (//!) that describes the crate", source.path));
    }
    let no_std = source.code.iter().any(|line| line.contains("no_std"));
    if source.path == "crates/nvme/src/lib.rs" && !no_std {
        faults.push(format!("{}: must be no_std", source.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "packages": [{ "name": name, "dependencies": dependencies }] })
    }

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    /// By this repository's own table.
    fn faults_in(metadata: &Value) -> Vec<String> {
        layering(metadata, &layers(root(), CRATES).expect("a table"))
    }

    #[test]
    fn a_dependency_against_the_layers_is_found() {
        let fine = workspace("weft-nvmf", &[("weft-nvme", None), ("zerocopy", None)]);
        assert_eq!(faults_in(&fine), [""; 0]);
        let up = workspace("weft-nvmf", &[("weft-target", None)]);
        assert_eq!(faults_in(&up), ["nvmf: may not depend on target"]);
        let side = workspace("weft-lab", &[("weft-target", None)]);
        assert_eq!(faults_in(&side), ["lab: may not depend on target"]);
        let unknown = workspace("weft-new", &[]);
        assert_eq!(faults_in(&unknown).len(), 1);
    }

    #[test]
    fn tests_may_use_target_and_host_but_not_lab() {
        let tests = workspace("weft-target", &[("weft-host", Some("dev"))]);
        assert_eq!(faults_in(&tests), [""; 0]);
        let up = workspace("weft-target", &[("weft-lab", Some("dev"))]);
        assert_eq!(faults_in(&up), ["target: may not depend on lab"]);
    }

    #[test]
    fn a_use_with_braces_within_braces_is_found() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<String>>();
        let flat = "use std::io;\npub(crate) use std::{\n    fmt,\n    io,\n};\nfn f() { { } }";
        assert_eq!(nested_uses(&lines(flat)), [0; 0]);
        let nested = "use a::b;\npub use std::{\n    fmt::{self, Write},\n    io,\n};";
        assert_eq!(nested_uses(&lines(nested)), [1]);
        assert_eq!(nested_uses(&lines("    use a::{b::{c, d}, e::{f, g}};")), [0]);
    }

    #[test]
    fn a_path_against_the_planes_is_found() {
        let layers = layers(root(), PLANES).expect("a table");
        let faults = |path: &str, text: &str| {
            let parse = |(path, text): (&str, &str)| {
                Source::parse(Path::new(&format!("{TARGET}{path}")), text)
            };
            let root = ("lib.rs", "pub use control::target::Target;\n");
            let others = [root, ("control.rs", ""), ("control/target.rs", "")];
            let sources: Vec<_> = others.into_iter().chain([(path, text)]).map(parse).collect();
            planes(&sources, &layers)
        };
        let up = "\nuse crate::control::target::Target;\n";
        let fault = "shared may not use control (crates/subsystem/src/control/target.rs)";
        let path = "crates/subsystem/src/shared/round.rs";
        assert_eq!(faults("shared/round.rs", up), [format!("{path}:2: {fault}")]);
        let hidden = "fn f() { crate::Target::start() }\n";
        assert_eq!(faults("shared/round.rs", hidden), [format!("{path}:1: {fault}")]);
        assert_eq!(faults("control/local.rs", up), [""; 0]);
        assert_eq!(faults("other.rs", "").len(), 1, "a plane without a row");
    }

    /// Those that tidy looks at are there: the groups use what they share with control.
    #[test]
    fn the_planes_have_paths_to_check() {
        let read = |path: &PathBuf| {
            Source::parse(path, &fs::read_to_string(root().join(path)).expect("a file"))
        };
        let sources: Vec<_> = rust_files(root()).expect("files").iter().map(read).collect();
        let arrows = Files::of(TARGET, &sources).arrows().into_iter().filter(|arrow| {
            let of = |source: &Source, plane| source.path.starts_with(&format!("{TARGET}{plane}/"));
            of(arrow.from, "group") && of(arrow.to, "shared")
        });
        assert!(arrows.count() > 20);
    }

    #[test]
    fn no_product_has_the_fuzz_harnesses() {
        let with = |kind: Option<&str>| {
            let dependency = json!({ "name": "weft-nvmf", "kind": kind, "features": ["fuzzing"] });
            json!({ "packages": [{ "name": "weft-target", "dependencies": [dependency] }] })
        };
        assert_eq!(faults_in(&with(Some("dev"))), [""; 0]);
        assert_eq!(faults_in(&with(None)), ["target: its product has the fuzz harnesses of nvmf"]);
        let module = "pub mod fuzzing;\n";
        assert_eq!(faults_of("crates/nvmf/src/a.rs", module).len(), 1);
        let behind = format!("#[cfg(any(test, feature = \"fuzzing\"))]\n{module}");
        assert_eq!(faults_of("crates/nvmf/src/a.rs", &behind), [""; 0]);
    }

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_source(&Source::parse(Path::new(path), text), &mut faults);
        faults
    }

    #[test]
    fn unsafe_and_clocks_are_found_outside_their_places() {
        let code = "fn f() { unsafe { g() } let t = Instant::now(); }\n";
        assert_eq!(faults_of("crates/host/src/a.rs", code).len(), 2);
        assert_eq!(faults_of("crates/reactor/src/a.rs", code).len(), 0);
        assert_eq!(faults_of("crates/cli/src/a.rs", code).len(), 1);
        let words = "// unsafe Instant\nfn f() { log(\"unsafe SystemTime\"); not_unsafe() }\n";
        assert_eq!(faults_of("crates/host/src/a.rs", words).len(), 0);
    }

    #[test]
    fn a_type_that_is_called_by_a_participle_is_found() {
        for wrong in ["pub(crate) struct Asked<'a> {", "enum Next {", "    type Said = ();"] {
            assert_eq!(faults_of("crates/host/src/a.rs", wrong).len(), 1, "{wrong}");
        }
        let fine = "struct Question {}\nimpl Asked {}\n// struct Asked\nfn f() { Asked }\n";
        assert_eq!(faults_of("crates/host/src/a.rs", fine), [""; 0]);
    }

    #[test]
    fn a_module_file_is_beside_its_folder() {
        for fine in ["crates/host/src/a.rs", "crates/host/tests/support/mod.rs"] {
            assert_eq!(faults_of(fine, ""), [""; 0]);
        }
        for path in ["crates/host/src/a/mod.rs", "crates/host/tests/serve/support/mod.rs"] {
            assert_eq!(faults_of(path, "").len(), 1, "{path}");
        }
    }

    #[test]
    fn text_of_peers_that_is_shown_as_it_is_is_found() {
        for code in
            ["entry.address.raw_text()", "println!()", "std::io::stderr()", "print_bytes(b)"]
        {
            let code = format!("fn f() {{ {code}; }}\n");
            assert_eq!(faults_of("crates/cli/src/a.rs", &code).len(), 1, "{code}");
            assert_eq!(faults_of("crates/cli/tests/a.rs", &code), [""; 0]);
        }
        let parsed = "fn f() { entry.address.raw_text().parse(); }\n";
        assert_eq!(faults_of("crates/cli/src/serve/registered.rs", parsed), [""; 0]);
    }

    #[test]
    fn an_atomic_without_an_explanation_is_found() {
        let fault = |path: &str, text: &str, listed: &str| {
            unlisted_atomic(&Source::parse(Path::new(path), text), listed)
        };
        let (path, code) = ("crates/host/src/a.rs", "struct S(AtomicU64);\n");
        assert!(fault(path, code, "| `host/src/b.rs` |").is_some());
        assert_eq!(fault(path, code, "| `host/src/a.rs` |"), None);
        assert_eq!(fault(path, "// AtomicU64\n", ""), None);
        assert_eq!(fault(path, &format!("#[cfg(test)]\nmod tests {{\n{code}}}\n"), ""), None);
    }

    #[test]
    fn a_folder_of_the_name_target_is_found() {
        assert_eq!(faults_of("crates/host/src/target/a.rs", "").len(), 1);
        assert_eq!(faults_of("crates/host/src/target.rs", ""), [""; 0]);
    }

    #[test]
    fn leftovers_are_found_even_in_tests() {
        let code = "#[cfg(test)]\nmod tests {\n    #[ignore]\n    fn f() { todo!() }\n}\n";
        assert_eq!(faults_of("crates/host/src/a.rs", code).len(), 2);
    }

    #[test]
    fn long_functions_and_files_are_found_without_tests() {
        let function = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(71));
        assert_eq!(faults_of("crates/host/src/a.rs", &function).len(), 1);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{function}{}}}\n", "// x\n".repeat(900));
        assert_eq!(faults_of("crates/host/src/a.rs", &tests), [""; 0]);
        assert_eq!(faults_of("crates/host/src/a.rs", &"// x\n".repeat(801)).len(), 1);
    }

    #[test]
    fn this_repository_satisfies_the_layers() {
        assert_eq!(faults_in(&metadata(root()).expect("metadata")), [""; 0]);
    }
}
