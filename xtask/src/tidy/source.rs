//! A Rust source file without comments and strings, and the positions of tests and functions.
//!
//! Not a parser: the rules need only words outside of comments and strings, and matching braces.

use std::path::Path;

/// A source file, line by line.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path below the repository, with slashes.
    pub(crate) path: String,
    /// The lines as they are.
    pub(crate) text: Vec<String>,
    /// The lines with comments, strings and character literals blanked out.
    pub(crate) code: Vec<String>,
    /// For each line, whether it belongs to tests.
    pub(crate) is_test: Vec<bool>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Index of the line with its `fn`.
    pub(crate) start: usize,
    /// Lines of its body that hold code.
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn parse(path: &Path, text: &str) -> Self {
        let path = path.to_string_lossy().replace('\\', "/");
        let blank = blank(text);
        let code: Vec<String> = blank.lines().map(str::to_owned).collect();
        let all = path.contains("/tests/") || path.ends_with("tests.rs");
        let mut is_test = vec![all; code.len()];
        let mut at = 0;
        while !all && at < code.len() {
            if code[at].trim_start().starts_with("#[cfg(test)]") {
                let end = end_of_item(&code, at);
                is_test[at..=end].fill(true);
                at = end;
            }
            at += 1;
        }
        Self { path, text: text.lines().map(str::to_owned).collect(), code, is_test }
    }

    /// All functions with bodies; a nested one counts for its parent, too.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (start, line) in self.code.iter().enumerate() {
            let Some(name) = function_name(line).map(str::to_owned) else { continue };
            let end = end_of_item(&self.code, start);
            if name.is_empty() || !self.code[end].contains('}') {
                continue; // a function pointer's type, or a declaration without a body
            }
            let open = (start..=end).find(|at| self.code[*at].contains('{')).unwrap_or(start);
            let body = self.code.get(open + 1..end).unwrap_or_default();
            let lines = body.iter().filter(|line| !line.trim().is_empty()).count();
            functions.push(Function { name, start, lines });
        }
        functions
    }

    /// The names of all functions, of those without a body as well.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.code.iter().filter_map(|line| function_name(line))
    }
}

/// The name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let rest = line[word_at(line, "fn")? + 2..].trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Whether `line` contains `word` as a word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    word_at(line, word).is_some()
}

fn word_at(line: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .map(|(at, _)| at)
        .find(|at| !line[..*at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// The last line of the item that starts at line `start`: where its braces close, or its
/// semicolon outside of all brackets.
fn end_of_item(code: &[String], start: usize) -> usize {
    let (mut braces, mut brackets) = (0_i32, 0_i32);
    for (at, line) in code.iter().enumerate().skip(start) {
        for c in line.chars() {
            match c {
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces <= 0 {
                        return at;
                    }
                }
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                ';' if braces == 0 && brackets == 0 => return at,
                _ => {}
            }
        }
    }
    code.len() - 1
}

/// The same text with comments, strings and character literals replaced by spaces.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = (!in_word).then(|| raw_string(rest)).flatten() {
            length
        } else if first == '"' {
            string(rest)
        } else if let Some(length) = character(rest) {
            length
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let (gone, after) = rest.split_at(length);
        out.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = after;
    }
    out
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a raw string (`r"…"`, `br#"…"#`) at the start of `text`.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let hashes = text[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let open = prefix.len() + hashes;
    text[open..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len());
    Some(end)
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal at the start of `text`; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        let after = inside.char_indices().skip(2).find(|(_, c)| *c == '\'')?.0;
        return Some(1 + after + 1);
    }
    inside[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked_and_lines_stay() {
        let text = "let a = \"fn { \\\" \"; // fn {\nlet b = '{'; /* { /* { */\n */ \
                    let c: &'a str;\nlet d = r#\"{ \" \"#; let e = b'\\''; let f = '\\u{7f}';\n";
        let out = blank(text);
        assert_eq!(out.lines().count(), text.lines().count());
        assert!(!out.contains('{') && !out.contains("fn"), "{out}");
        assert!(out.contains("let c: &'a str;"), "{out}");
        for name in ["let a", "let b", "let d", "let e", "let f"] {
            assert!(out.contains(name), "{name}: {out}");
        }
    }

    #[test]
    fn words_are_whole_words() {
        assert!(has_word("unsafe {", "unsafe") && has_word("x.Instant::now()", "Instant"));
        assert!(!has_word("not_unsafe(unsafe_code)", "unsafe"));
    }

    #[test]
    fn functions_are_counted_by_lines_of_code() {
        let text = "trait T {\n    fn declared(&self) -> [u8; 4];\n}\nfn long(\n    f: fn(u8),\n) \
                    -> u8\n{\n    // why\n\n    f(1);\n    2\n}\n";
        let source = Source::parse(Path::new("a.rs"), text);
        let found = source.functions();
        assert_eq!(found, [Function { name: "long".into(), start: 3, lines: 2 }]);
        assert_eq!(
            source.names().filter(|name| !name.is_empty()).collect::<Vec<_>>(),
            ["declared", "long"]
        );
    }

    #[test]
    fn tests_are_distinguished_from_other_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::parse(Path::new("a.rs"), text);
        assert_eq!(source.is_test, [false, true, true, true, true, false]);
        let outside = "#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(Source::parse(Path::new("a.rs"), outside).is_test, [true, true, false]);
        assert!(Source::parse(Path::new("crates/x/tests/y.rs"), text).is_test[0]);
    }
}
