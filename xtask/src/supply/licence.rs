//! Licence expressions of SPDX: licences joined by OR, AND and WITH, with parentheses.

/// Whether a package may be used under an expression, of whose licences these are allowed. An old
/// form has a slash for OR. What is no expression is not allowed.
pub(super) fn is_allowed(text: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let text = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let result = parser.any();
    result == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn next_is(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn any(&mut self) -> Option<bool> {
        let mut result = self.all()?;
        while self.next_is("OR") {
            result |= self.all()?;
        }
        Some(result)
    }

    fn all(&mut self) -> Option<bool> {
        let mut result = self.one()?;
        while self.next_is("AND") {
            result &= self.one()?;
        }
        Some(result)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_is("(") {
            let result = self.any()?;
            return self.next_is(")").then_some(result);
        }
        let licence = self.take().filter(|word| !matches!(*word, "OR" | "AND" | "WITH" | ")"))?;
        if self.next_is("WITH") {
            // An exception only permits more.
            self.take()?;
        }
        Some((self.allowed)(licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let allowed = |licence: &str| matches!(licence, "MIT" | "Apache-2.0" | "Unicode-3.0");
        for text in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND X OR MIT",
        ] {
            assert!(is_allowed(text, &allowed), "{text}");
        }
        for text in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND ISC",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "MIT MIT",
            "MIT WITH",
            "WITH",
        ] {
            assert!(!is_allowed(text, &allowed), "{text}");
        }
    }
}
