//! The site as it was built: each link resolves, and nothing comes from a network.

use super::joined;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is wrong with the pages below a folder.
pub(super) fn faults(folder: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read(folder, Path::new(""), &mut pages)?;
    let mut faults = Vec::new();
    for (path, text) in &pages {
        for (tag, link) in references(text) {
            let mut fault = |why: &str| faults.push(format!("{}: {link} {why}", path.display()));
            let (name, fragment) = link.split_once('#').unwrap_or((&link, ""));
            if link.contains("://") || link.starts_with("mailto:") {
                if tag != "a" {
                    fault("is loaded from a network");
                }
                continue;
            }
            let target = match name {
                "" => path.clone(),
                name => joined(path.parent().context("a folder")?, name),
            };
            if !folder.join(&target).is_file() {
                fault("leads nowhere");
            } else if !fragment.is_empty()
                && let Some(page) = pages.get(&target)
                && !page.contains(&format!("id=\"{fragment}\""))
            {
                fault("leads to no heading");
            }
        }
    }
    Ok(faults)
}

/// Reads the pages below a folder.
fn read(folder: &Path, path: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(folder.join(path))? {
        let path = path.join(entry?.file_name());
        if folder.join(&path).is_dir() {
            read(folder, &path, pages)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            let text = fs::read_to_string(folder.join(&path))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// What a page refers to, with the name of the tag.
fn references(page: &str) -> impl Iterator<Item = (&str, String)> {
    page.split('<').skip(1).filter_map(|tag| {
        let tag = tag.split('>').next()?;
        let name = tag.split_whitespace().next()?;
        let mut attributes = ["href=\"", "src=\""].into_iter();
        let (_, value) =
            attributes.find_map(|attribute| tag.split_once(&format!(" {attribute}")))?;
        Some((name, value.split('"').next()?.replace("&amp;", "&")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_their_headings() {
        let folder = std::env::temp_dir().join(format!("weft-docs-{}", std::process::id()));
        fs::create_dir_all(folder.join("a")).expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a page");
        write("index.html", "<h1 id=\"top\">T</h1><a class=\"x\" href=\"a/b.html#c\">b</a>");
        write("a/b.html", "<h2 id=\"c\">C</h2><a href=\"../index.html\"></a><a href=\"#c\"></a>");
        assert_eq!(faults(&folder).expect("pages"), [""; 0]);
        for (text, fault) in [
            ("<a href=\"../index.html#no\">", "a/b.html: ../index.html#no leads to no heading"),
            ("<a href=\"no.html\">", "a/b.html: no.html leads nowhere"),
            ("<img src=\"no.png\">", "a/b.html: no.png leads nowhere"),
            (
                "<script src=\"https://example.org/x.js\">",
                "a/b.html: https://example.org/x.js is loaded",
            ),
        ] {
            write("a/b.html", &format!("<h2 id=\"c\">C</h2>{text}"));
            let found = faults(&folder).expect("pages");
            assert!(found.len() == 1 && found[0].starts_with(fault), "{found:?}");
        }
        fs::remove_dir_all(&folder).expect("a folder");
    }
}
