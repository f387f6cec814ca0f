//! The table of docs/performance.md: the figures that have a limit, of one build, one machine and
//! one day.

use super::results::TableLine;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/performance.md";

/// What is between these lines of the page is written anew.
const BEGIN: &str = "<!-- written by `cargo xtask bench --page` -->\n";
const END: &str = "<!-- end -->\n";

/// Writes the table into the page.
pub(super) fn write(root: &Path, rows: &[TableLine], about: &str) -> Result<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path)?;
    let page = with(&page, &format!("{about}\n\n{}", table(rows))).context(PAGE)?;
    Ok(fs::write(path, page)?)
}

/// The page with this text in place of what was there.
fn with(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{text}{END}{after}"))
}

/// When, where and of what the figures are; `rounds` are those that do not count, and all.
pub(super) fn about(environment: &Value, date: &str, rounds: (usize, usize)) -> String {
    let text = |key: &str| environment[key].as_str().unwrap_or_default();
    let commit = &text("commit")[..text("commit").len().min(12)];
    let changed = if environment["changed"] == true { ", changed" } else { "" };
    let (unsteady, judged) = rounds;
    format!(
        "`{}` measured commit {commit}{changed} on {date}.\nThe machine had {} processors ({}) and \
         Linux {}; {unsteady} of {judged} rounds\nwere dropped as unsteady.",
        text("command"),
        environment["processors"],
        text("processor"),
        text("kernel"),
    )
}

/// In Markdown; what missed its limit is marked.
fn table(rows: &[TableLine]) -> String {
    let mut text = "| row | measured / beside | figure | limit |\n|---|---|---|---|\n".to_owned();
    let is_shown = |row: &&TableLine| {
        let counts = row.bar != "–" || row.what.ends_with("reno") || row.verdict == "skipped";
        counts && !row.what.contains("flow control on")
    };
    for row in rows.iter().filter(is_shown) {
        let TableLine { row, what, absolute, value, bar, verdict } = row;
        // weft's host goes without flow control unless it is asked for it.
        let what = what.split(", ").filter(|part| *part != "flow control off");
        let what: String =
            what.filter(|part| !part.is_empty()).map(|part| format!(", {part}")).collect();
        let missed = if *verdict == "MISSED" { ", **missed**" } else { "" };
        text += &format!("| {row}{what} | {absolute} | {value} | {bar}{missed} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(what: &str, bar: &str, verdict: &'static str) -> TableLine {
        let [row, absolute, value] = ["reads", "60.0 / 100 iops", "0.60 [0.50 to 0.70]"];
        let [row, what, absolute, value, bar] =
            [row, what, absolute, value, bar].map(str::to_owned);
        TableLine { row, what, absolute, value, bar, verdict }
    }

    #[test]
    fn what_has_a_limit_or_equal_terms_is_shown_without_flow_control() {
        let rows = [
            line("flow control on", "≥ 0.55", "reached"),
            line("flow control off", "≥ 0.55", "reached"),
            line("flow control off, beside raw with reno", "–", ""),
            line("p99, flow control off", "≤ 1.3", "MISSED"),
            line("median, flow control off", "–", ""),
            line("it needs 4 processors, and 2 are here", "", "skipped"),
        ];
        let text = table(&rows);
        let shown: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(shown[0], "| reads | 60.0 / 100 iops | 0.60 [0.50 to 0.70] | ≥ 0.55 |");
        assert!(shown[1].starts_with("| reads, beside raw with reno |"), "{text}");
        assert!(shown[2].starts_with("| reads, p99 |"), "{text}");
        assert!(shown[2].ends_with("| ≤ 1.3, **missed** |"), "{text}");
        assert!(shown[3].starts_with("| reads, it needs 4"), "{text}");
        assert_eq!(shown.len(), 4);
    }

    #[test]
    fn the_page_has_a_place_for_it_and_says_of_what_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let page = fs::read_to_string(root.join(PAGE)).expect("the page");
        let written = with(&page, "figures\n").expect("a place");
        assert!(written.contains(&format!("{BEGIN}figures\n{END}")));
        assert_eq!(with(&written, "figures\n").as_deref(), Some(&written[..]), "again");
        let environment = json!({ "commit": "0123456789abcdef", "changed": false, "kernel": "6.18",
            "processor": "EPYC", "processors": 2, "command": "cargo xtask bench --page" });
        let about = about(&environment, "2026-11-30", (3, 20));
        assert!(about.contains("commit 0123456789ab on 2026-11-30"), "{about}");
        assert!(about.contains("2 processors (EPYC)") && about.contains("3 of 20"), "{about}");
    }
}
