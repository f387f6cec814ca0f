//! Which file of a crate uses which, by `use` and by the paths in its code, without tests.
//!
//! Not a compiler: a path begins with `crate`, `super` or `self`, with a module of the file, or
//! with a name that the file imports. A name that a module has from another file leads there.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A module by the names that lead to it from the root of its crate, or what is in one.
type Names = Vec<String>;

/// The files of one crate.
pub(crate) struct Files<'a> {
    modules: BTreeMap<Names, Module<'a>>,
}

/// One file.
struct Module<'a> {
    source: &'a Source,
    imports: Vec<Import>,
    /// Paths in its code, each with the index of its line.
    paths: Vec<(usize, Names)>,
}

/// A name that a file has from elsewhere.
struct Import {
    line: usize,
    /// `*` for all of a module.
    name: String,
    path: Names,
    /// Whether others may have it from here, and the file does not use it itself.
    is_for_others: bool,
}

/// That a file uses another one.
#[derive(Debug)]
pub(crate) struct Arrow<'a> {
    pub(crate) from: &'a Source,
    /// The index of a line that says so.
    pub(crate) line: usize,
    pub(crate) to: &'a Source,
    /// Only for others: the file does not need it.
    pub(crate) is_for_others: bool,
}

impl<'a> Files<'a> {
    /// The files in the folder `src` of a crate, with a slash at its end.
    pub(crate) fn of(src: &str, sources: &'a [Source]) -> Self {
        let found = sources.iter().filter_map(|source| Some((module_of(src, source)?, source)));
        let mut found: BTreeMap<Names, &Source> = found.collect();
        let tests: Vec<Names> =
            found.iter().flat_map(|(module, source)| test_modules(module, source)).collect();
        found.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let exists = |module: &[String]| found.contains_key(module);
        let read = |(module, source): (&Names, &&'a Source)| {
            (module.clone(), Reader::read(module, source, &exists))
        };
        Self { modules: found.iter().map(read).collect() }
    }

    /// Each use of another file.
    pub(crate) fn arrows(&self) -> Vec<Arrow<'a>> {
        let mut arrows = Vec::new();
        for (from, module) in &self.modules {
            let imports = module.imports.iter().map(|one| (one.line, &one.path, one.is_for_others));
            let paths = module.paths.iter().map(|(line, path)| (*line, path, false));
            for (line, path, is_for_others) in imports.chain(paths) {
                let Some(to) = self.find(path, 0).filter(|to| *to != from.as_slice()) else {
                    continue;
                };
                let to = self.modules[to].source;
                arrows.push(Arrow { from: module.source, line, to, is_for_others });
            }
        }
        arrows
    }

    /// The module of the file that a path leads to.
    fn find<'p>(&'p self, path: &'p [String], steps: usize) -> Option<&'p [String]> {
        let ends = (0..=path.len()).rev();
        let (module, rest) = ends
            .map(|end| path.split_at(end))
            .find(|(module, _)| self.modules.contains_key(*module))?;
        let (module, here) = self.modules.get_key_value(module)?;
        let import =
            rest.first().and_then(|name| here.imports.iter().find(|one| one.name == *name));
        // A name that a file has from itself leads nowhere else.
        let further = import.filter(|_| steps < 8).and_then(|one| self.find(&one.path, steps + 1));
        Some(further.unwrap_or(module))
    }

    /// The circles of files, each in order: those of which each one leads to every other.
    pub(crate) fn circles(&self) -> Vec<Vec<&'a str>> {
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for arrow in self.arrows().into_iter().filter(|arrow| !arrow.is_for_others) {
            uses.entry(&arrow.from.path).or_default().insert(&arrow.to.path);
        }
        let reach = |from: &'a str| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(file) = next.pop() {
                let new = uses.get(file).into_iter().flatten().filter(|to| reached.insert(**to));
                next.extend(new.copied().collect::<Vec<_>>());
            }
            reached
        };
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            uses.keys().map(|from| (*from, reach(from))).collect();
        let circle = |from: &str| -> Vec<&str> {
            let back = |to: &&str| reached.get(to).is_some_and(|its| its.contains(from));
            reached[from].iter().copied().filter(back).collect()
        };
        let circles: BTreeSet<Vec<&str>> = reached.keys().map(|from| circle(from)).collect();
        circles.into_iter().filter(|files| files.len() > 1).collect()
    }
}

/// The module of a file, if it is in this folder.
fn module_of(src: &str, source: &Source) -> Option<Names> {
    let path = source.path.strip_prefix(src)?.strip_suffix(".rs")?;
    let mut names: Names = path.split('/').map(str::to_owned).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    Some(names)
}

/// The modules that a file has for tests only.
fn test_modules(module: &[String], source: &Source) -> Vec<Names> {
    let all = source.is_test.iter().all(|is_test| *is_test) && !source.is_test.is_empty();
    let lines = source.code.iter().zip(&source.is_test).filter(|(_, is_test)| **is_test);
    let declared = lines.filter_map(|(line, _)| line.trim().strip_suffix(';')?.rsplit_once("mod "));
    let declared = declared.map(|(_, name)| [module, &[name.to_owned()]].concat());
    declared.chain(all.then(|| module.to_vec())).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    /// `::`
    Colons,
    Other(char),
}

/// Reads the imports and the paths of a file.
struct Reader<'r> {
    module: &'r [String],
    /// Whether there is a file for this module.
    exists: &'r dyn Fn(&[String]) -> bool,
    tokens: Vec<(usize, Token)>,
    at: usize,
    /// How deep in braces the modules are that are open within the file.
    within: Vec<usize>,
    imports: Vec<Import>,
    paths: Vec<(usize, Names)>,
}

impl<'r> Reader<'r> {
    fn read<'a>(
        module: &'r [String],
        source: &'a Source,
        exists: &'r dyn Fn(&[String]) -> bool,
    ) -> Module<'a> {
        let tokens = tokens(source);
        let (imports, paths) = (Vec::new(), Vec::new());
        let mut reader = Self { module, exists, tokens, at: 0, within: Vec::new(), imports, paths };
        let used = reader.read_all();
        let Self { mut imports, paths, .. } = reader;
        for import in imports.iter_mut().filter(|import| import.is_for_others) {
            import.is_for_others = !used.contains(&import.name);
        }
        Module { source, imports, paths }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn take(&mut self) -> Option<(usize, Token)> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    /// Reads the file; the names that its code has.
    fn read_all(&mut self) -> BTreeSet<String> {
        let (mut names, mut depth, mut begins) = (BTreeSet::new(), 0_usize, Vec::new());
        while let Some((line, token)) = self.take() {
            match token {
                Token::Other('{') => depth += 1,
                Token::Other('}') => {
                    self.within.pop_if(|open| *open == depth);
                    depth = depth.saturating_sub(1);
                }
                Token::Name(word) if word == "pub" && self.peek() == Some(&Token::Other('(')) => {
                    while !matches!(self.take(), None | Some((_, Token::Other(')')))) {}
                }
                Token::Name(word) if word == "use" && self.peek() != Some(&Token::Other('<')) => {
                    let is_public = self.follows_pub();
                    self.read_use(&[], is_public);
                }
                Token::Name(word) if word == "mod" => {
                    let _ = self.take();
                    if self.peek() == Some(&Token::Other('{')) {
                        self.within.push(depth + 1);
                    }
                }
                Token::Name(word) => {
                    let is_first = !matches!(
                        self.at.checked_sub(2).and_then(|before| self.tokens.get(before)),
                        Some((_, Token::Colons | Token::Other('.')))
                    );
                    names.insert(word.clone());
                    if is_first {
                        begins.push((line, self.read_path(word), self.within.len()));
                    }
                }
                _ => {}
            }
        }
        for (line, path, within) in begins {
            let imported = self.imports.iter().find(|import| import.name == path[0]);
            let path = match imported {
                Some(import) => Some([&import.path, &path[1..]].concat()),
                None => self.absolute(path, within),
            };
            self.paths.extend(path.map(|path| (line, path)));
        }
        names
    }

    /// Whether the `use` that was just taken is public to somebody.
    fn follows_pub(&self) -> bool {
        let is_end = |token: &Token| matches!(token, Token::Other(';' | '{' | '}'));
        let before = self.tokens[..self.at - 1].iter().rev().map(|(_, token)| token);
        let mut before = before.take_while(|token| !is_end(token));
        before.any(|token| *token == Token::Name("pub".to_owned()))
    }

    /// The rest of a path whose first name was taken.
    fn read_path(&mut self, first: String) -> Names {
        let mut path = vec![first];
        while self.peek() == Some(&Token::Colons) {
            let Some((_, Token::Name(name))) = self.tokens.get(self.at + 1) else { break };
            path.push(name.clone());
            self.at += 2;
        }
        path
    }

    /// Reads what follows `use`, or what is in its braces.
    fn read_use(&mut self, before: &[String], is_for_others: bool) {
        let mut path = before.to_vec();
        let mut name = None;
        while let Some((line, token)) = self.take() {
            match token {
                Token::Name(word) if word == "as" => match self.take() {
                    Some((_, Token::Name(other))) => name = Some(other),
                    _ => return,
                },
                // The module itself.
                Token::Name(word) if word == "self" && !path.is_empty() => {
                    name = path.last().cloned();
                }
                Token::Name(word) => path.push(word),
                Token::Other('*') => name = Some("*".to_owned()),
                Token::Other('{') => {
                    loop {
                        self.read_use(&path, is_for_others);
                        match self.tokens.get(self.at - 1) {
                            Some((_, Token::Other(','))) => {}
                            _ => break,
                        }
                    }
                    let _ = self.take();
                    return;
                }
                Token::Other(',' | '}' | ';') => {
                    // After the last comma of a list there is nothing.
                    let last = path.last().filter(|_| path.len() > before.len());
                    let name = name.or_else(|| last.cloned());
                    let path = self.absolute(path, self.within.len());
                    if let (Some(name), Some(path)) = (name, path) {
                        self.imports.push(Import { line, name, path, is_for_others });
                    }
                    return;
                }
                _ => {}
            }
        }
    }

    /// A path of this file from the root of its crate; none if it leads out of that.
    fn absolute(&self, path: Names, within: usize) -> Option<Names> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([self.module, &path[1..]].concat()),
            "super" => {
                let up = self.module.len().checked_sub(supers.saturating_sub(within))?;
                Some([&self.module[..up], &path[supers..]].concat())
            }
            _ => {
                let inside = [self.module, &path].concat();
                let is_of_child = path.len() > 1 && (self.exists)(&inside[..=self.module.len()]);
                is_of_child.then_some(inside)
            }
        }
    }
}

/// The words and marks of a file without its tests.
fn tokens(source: &Source) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (at, line) in source.code.iter().enumerate().filter(|(at, _)| !source.is_test[*at]) {
        let mut rest = line.as_str();
        while let Some(first) = rest.chars().next() {
            let part = |c: char| c.is_alphanumeric() || c == '_';
            let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
            let (token, length) = if length > 0 {
                (Some(Token::Name(rest[..length].to_owned())), length)
            } else if rest.starts_with("::") {
                (Some(Token::Colons), 2)
            } else {
                ((!first.is_whitespace()).then_some(Token::Other(first)), first.len_utf8())
            };
            tokens.extend(token.map(|token| (at, token)));
            rest = &rest[length..];
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const SRC: &str = "crates/x/src/";

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        let parse =
            |(path, text): &(&str, &str)| Source::parse(Path::new(&format!("{SRC}{path}")), text);
        files.iter().map(parse).collect()
    }

    /// What `a.rs` with this text uses, in a crate with other files.
    fn used(text: &str) -> Vec<String> {
        let others = [
            ("lib.rs", "mod a;\nmod b;\npub use b::c::Deep;\n"),
            ("b.rs", "pub mod c;\nmod d;\npub use d::{E, F as G};\n"),
            ("b/c.rs", ""),
            ("b/d/mod.rs", ""),
            ("a/own.rs", ""),
        ];
        let sources = sources(&[&others[..], &[("a.rs", text)]].concat());
        let files = Files::of(SRC, &sources);
        let arrows = files.arrows().into_iter().filter(|arrow| arrow.from.path.ends_with("/a.rs"));
        let used: BTreeSet<_> = arrows.map(|arrow| arrow.to.path.replace(SRC, "")).collect();
        used.into_iter().collect()
    }

    #[test]
    fn paths_lead_to_files() {
        assert_eq!(used("use crate::b::c::{\n    X,\n    Y,\n};\n"), ["b/c.rs"]);
        assert_eq!(used("use crate::b::{self, c::X};\n"), ["b.rs", "b/c.rs"]);
        assert_eq!(used("use super::b as other;\nfn f() { other::c::g() }\n"), ["b.rs", "b/c.rs"]);
        assert_eq!(used("fn f(x: crate::b::X) -> self::own::Y {}\n"), ["a/own.rs", "b.rs"]);
        assert_eq!(used("mod own;\nuse own::X;\nmod m { use super::own::Y; }\n"), ["a/own.rs"]);
        // Names that another file has from elsewhere.
        assert_eq!(used("use crate::Deep;\n"), ["b/c.rs"]);
        assert_eq!(used("use crate::b::{E, G};\n"), ["b/d/mod.rs"]);
        // Not of this crate, no paths, or of tests.
        let nothing =
            "use b::X;\npub(in crate::b) fn f<T: std::b::C>(own: b::X) { y.own::<u8>() }\n";
        assert_eq!(used(nothing), [""; 0]);
        assert_eq!(used("mod own;\nfn f(own: u8) -> u8 { own }\n"), [""; 0]);
        assert_eq!(used("#[cfg(test)]\nmod tests {\n    use crate::b::X;\n}\n"), [""; 0]);
        assert_eq!(used("#[cfg(test)]\nmod own;\n// crate::b::X\n"), [""; 0]);
    }

    #[test]
    fn circles_are_found() {
        let with = |root: &str, c: &str| {
            let sources = sources(&[
                ("lib.rs", root),
                ("a.rs", "use crate::b::B;\n"),
                ("b.rs", "pub use crate::c::C;\nuse super::d;\n"),
                ("c.rs", c),
                ("d.rs", "fn f(c: crate::b::C) {}\n"),
            ]);
            let circles = Files::of(SRC, &sources).circles();
            circles.iter().map(|files| files.join(" ").replace(SRC, "")).collect::<Vec<_>>()
        };
        assert_eq!(with("mod a;\npub use a::A;\n", "struct C;\n"), [""; 0]);
        assert_eq!(with("", "use crate::a;\n"), ["a.rs b.rs c.rs d.rs"]);
        // What a crate shows to others is no use of it, but what it does with it is.
        assert_eq!(with("pub use a::A;\n", "use crate::R;\n"), [""; 0]);
        let circle = "a.rs b.rs c.rs d.rs lib.rs";
        assert_eq!(with("pub use a::A;\nstruct R(A);\n", "use crate::R;\n"), [circle]);
    }
}
