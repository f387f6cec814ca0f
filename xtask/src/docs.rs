//! `cargo xtask docs`: the documents as a site (mdBook), which is read and searched without a
//! network.
//!
//! The sources are the pages of this repository as they are, in folders of the same names, and
//! whatever else they link to. docs/README.md, the map, makes the table of contents.

mod check;

use crate::cargo::{install, target_folder};
use crate::python::succeeded;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Where the site begins.
const START: &str = "README.md";

/// The map of the documents.
const MAP: &str = "docs/README.md";

/// A file of which there is a page, so that its keys are found.
const CONFIGURATION: &str = "config.toml";

/// The version of mdBook, which is built from its source once.
const MDBOOK: &str = "0.5.4";

const BOOK: &str = r#"[book]
title = "weft"
language = "en"
[output.html]
input-404 = ""
no-section-label = true
[output.html.print]
enable = false
[output.html.fold]
enable = true
"#;

/// Builds the site, checks it, and returns its folder.
pub fn build(root: &Path) -> Result<PathBuf> {
    let site = Site::read(root)?;
    let folder = target_folder(root).join("docs");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    site.write(root, &folder)?;
    succeeded(Command::new(mdbook(root)?).arg("build").arg(&folder))?;
    let built = folder.join("book");
    let faults = check::faults(&built)?;
    if faults.is_empty() { Ok(built) } else { bail!("{}", faults.join("\n")) }
}

/// The program, which cargo builds below `target/` if it is not there.
fn mdbook(root: &Path) -> Result<PathBuf> {
    install(root, "mdbook", MDBOOK, &["--no-default-features", "--features", "search"])
}

/// What the site is made of.
#[derive(Debug, Default)]
struct Site {
    /// Pages, by their paths in the repository.
    pages: BTreeMap<PathBuf, String>,
    /// Other files that they link to.
    files: BTreeSet<PathBuf>,
}

impl Site {
    /// Reads the README and every page to which links lead from there.
    fn read(root: &Path) -> Result<Self> {
        let mut site = Self::default();
        let mut next = vec![PathBuf::from(START)];
        while let Some(path) = next.pop() {
            if site.pages.contains_key(&path) {
                continue;
            }
            let text = page(root, &path)?;
            let folder = path.parent().unwrap_or(Path::new(""));
            let text = relinked(&text, |link| {
                let (name, _) = link.split_once('#').unwrap_or((link, ""));
                let target = joined(folder, name);
                let place = root.join(&target);
                ensure!(place.exists(), "{}: {link} leads nowhere", path.display());
                // A folder is a list of its files, unless it has a page that says more.
                let shown = match place.is_dir() {
                    true => "/README.md",
                    false if name.ends_with(CONFIGURATION) => ".md",
                    false => "",
                };
                let shown_at = PathBuf::from(format!("{}{shown}", target.display()));
                if shown_at.extension().is_some_and(|end| end == "md") {
                    next.push(shown_at);
                } else {
                    site.files.insert(shown_at);
                }
                Ok(link.replacen(name, &format!("{name}{shown}"), 1))
            })?;
            site.pages.insert(path, text);
        }
        for folder in ["docs", "docs/notebook"] {
            for entry in fs::read_dir(root.join(folder))? {
                let path = Path::new(folder).join(entry?.file_name());
                let is_page = path.extension().is_some_and(|end| end == "md");
                ensure!(
                    !is_page || site.pages.contains_key(&path),
                    "no page leads to {}",
                    path.display()
                );
            }
        }
        Ok(site)
    }

    /// The table of contents: what the map leads to in its order, below each page of a folder of
    /// its own the others of that folder, and at the end what is not of docs/.
    fn summary(&self) -> Result<String> {
        let map = self.pages.get(Path::new(MAP)).context("no map")?;
        let mut lines =
            vec![self.chapter("", Path::new(START))?, self.chapter("", Path::new(MAP))?];
        let mut listed = BTreeSet::from([PathBuf::from(START), PathBuf::from(MAP)]);
        for line in map.lines() {
            if let Some((part, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**"))
            {
                lines.push(format!("\n# {part}\n"));
            }
            for (_, link) in links(line) {
                let path = joined(Path::new("docs"), link.split('#').next().unwrap_or(link));
                if !self.pages.contains_key(&path) || !listed.insert(path.clone()) {
                    continue;
                }
                lines.push(self.chapter("- ", &path)?);
                let folder = path.parent().filter(|_| path.ends_with("README.md"));
                let others = self.pages.keys().filter(|one| one.parent() == folder);
                for other in others.filter(|one| listed.insert((*one).clone())) {
                    lines.push(self.chapter("    - ", other)?);
                }
            }
        }
        lines.push("\n---\n".to_owned());
        for rest in self.pages.keys().filter(|one| !listed.contains(*one)) {
            ensure!(!rest.starts_with("docs"), "{MAP} does not lead to {}", rest.display());
            lines.push(self.chapter("", rest)?);
        }
        Ok(lines.join("\n") + "\n")
    }

    /// A line of the table of contents.
    fn chapter(&self, before: &str, path: &Path) -> Result<String> {
        let first = self.pages.get(path).and_then(|text| text.lines().next());
        let title =
            first.and_then(|line| line.strip_prefix("# ")).map(|title| title.replace('`', ""));
        let title =
            title.with_context(|| format!("{} does not begin with a title", path.display()))?;
        Ok(format!("{before}[{title}]({})", path.display()))
    }

    /// Writes what mdBook reads.
    fn write(&self, root: &Path, folder: &Path) -> Result<()> {
        let src = folder.join("src");
        let place = |path: &Path| -> Result<PathBuf> {
            let at = src.join(path);
            fs::create_dir_all(at.parent().context("a folder")?)?;
            Ok(at)
        };
        for (path, text) in &self.pages {
            // mdBook calls the page of a folder so, and leaves the links to it as they are.
            let text = relinked(text, |link| Ok(link.replace("README.md", "index.md")))?;
            fs::write(place(path)?, text)?;
        }
        for path in &self.files {
            fs::copy(root.join(path), place(path)?)?;
        }
        fs::write(src.join("SUMMARY.md"), self.summary()?)?;
        Ok(fs::write(folder.join("book.toml"), BOOK)?)
    }
}

/// The text of a page, or what stands for one that is no text of Markdown here.
fn page(root: &Path, path: &Path) -> Result<String> {
    let place = root.join(path);
    if place.is_file() {
        return Ok(fs::read_to_string(place)?);
    }
    let name = path.display();
    if let Some(file) = path.to_str().and_then(|path| path.strip_suffix(".md"))
        && root.join(file).is_file()
    {
        let text = fs::read_to_string(root.join(file))?;
        return Ok(format!("# {CONFIGURATION}\n```toml\n{text}```\n"));
    }
    let folder = path.parent().context("a folder")?;
    let mut text = format!("# {}\n", folder.display());
    let mut files: Vec<_> = fs::read_dir(root.join(folder))
        .with_context(|| format!("{name} is no page"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    files.sort();
    files.iter().for_each(|file| text += &format!("- [{file}]({file})\n"));
    Ok(text)
}

/// A relative path, with the folders that it goes up.
pub(crate) fn joined(folder: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The links of a line to files of the repository, each with its place.
fn links(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let found = line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        Some((at + 2, &rest[..rest.find(')')?]))
    });
    found.filter(|(_, link)| !link.starts_with('#') && !link.contains("://"))
}

/// A text with other links to files of the repository.
fn relinked(text: &str, mut other: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let (mut written, mut is_code) = (String::new(), false);
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let mut done = 0;
        for (at, link) in links(line).filter(|_| !is_code) {
            written += &line[done..at];
            written += &other(link)?;
            done = at + link.len();
        }
        written += &line[done..];
        written.push('\n');
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_leads_to_a_file_and_the_map_to_each_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let site = Site::read(root).expect("pages");
        let summary = site.summary().expect("a table of contents");
        for path in site.pages.keys() {
            let line = format!("({})", path.display());
            assert_eq!(summary.matches(&line).count(), 1, "{line}: {summary}");
        }
        assert!(summary.contains("\n# Tasks\n\n- [Install weft](docs/install.md)\n"), "{summary}");
        assert!(summary.contains("- [config.toml](docs/config.toml.md)"), "{summary}");
        assert!(site.files.contains(Path::new("crates/host/examples/read.rs")), "{site:?}");
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        let text = "a [b](c.md#d), [e](https://example.org)\n```\n[f](g)\n```\n";
        let other = relinked(text, |link| Ok(link.to_uppercase())).expect("a text");
        assert_eq!(other, text.replace("c.md#d", "C.MD#D"));
        let mut site = Site::default();
        let pages =
            [(START, "# s\n"), (MAP, "# m\n**P**: [o](own.md)\n"), ("docs/own.md", "# o\n")];
        site.pages.extend(pages.map(|(path, text)| (path.into(), text.to_owned())));
        assert!(site.summary().expect("all").ends_with("\n# P\n\n- [o](docs/own.md)\n\n---\n\n"));
        site.pages.insert("docs/lost.md".into(), "# l\n".to_owned());
        let error = site.summary().expect_err("a page that is lost").to_string();
        assert_eq!(error, format!("{MAP} does not lead to docs/lost.md"));
    }
}
