//! The page around the sections.

use base64::{Engine, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value as Json, json};

use super::{
    beside::{Beside, Row, Verdict},
    contest::Standing,
    figure::{Content, Figure, Grid},
    section::{Section, Tradeoffs},
    units,
};
use crate::{
    published::published,
    results::{Environment, Mark},
};

/// plotly.js with its licence line, compressed.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plotly.js.gz"));
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Nothing is fetched from anywhere, whatever a page might be made to hold.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data: blob:";

/// What has to be known beside every number about processors.
const CPU_CAVEAT: &str = "On loopback and between virtual ends on one machine the kernel does the \
    receiver's packet work on the sender's core: host and target cannot be told apart exactly. \
    Host + target together is the robust number, and softirqs stand for interrupts.";

/// The same in a line, where there is none but a column of such numbers.
const CPU_CAVEAT_SHORT: &str = "on one machine the kernel does the receiver's packet work on the \
    sender's core: read host + target together.";

/// Cells that are named at most where a list of them is told.
const NAMED_MAX: usize = 12;

/// The page.
pub(super) fn page(sections: &[Section]) -> String {
    let title = match sections {
        [one] => one.plan.title.clone(),
        many => format!("{} studies", many.len()),
    };
    let charts: Vec<&Json> = sections.iter().flat_map(Section::charts).collect();
    let mut chart = 0..charts.len();
    let several = sections.len() > 1;
    let body = html! {
        header {
            p .kicker { "weft · report" }
            h1 { (title) }
            div .theme role="group" aria-label="Colours" {
                @for (name, label) in [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")] {
                    button type="button" data-set-theme=(name) { (label) }
                }
            }
            @if several {
                nav aria-label="Studies" { ul {
                    @for (index, section) in sections.iter().enumerate() {
                        li { a href={ "#study-" (index) } { (section.plan.title) } }
                    }
                } }
            }
        }
        noscript { p .warning {
            "The charts need a script that is part of this page; every number stands in the tables \
             under them as well."
        } }
        p #library-fault .warning hidden {}
        main {
            @if several { (across(sections)) }
            @for (index, section) in sections.iter().enumerate() {
                (study(index, section, several, &mut chart))
            }
        }
        footer { p {
            "Made by weft from results alone; the same results give the same page. Charts: \
             plotly.js 3, © Plotly, Inc., MIT licence, embedded; this page loads nothing from \
             anywhere."
        } }
        script #charts type="application/json" { (embedded(&json!(charts))) }
        script #library type="application/octet-stream" { (PreEscaped(STANDARD.encode(LIBRARY))) }
        script { (PreEscaped(SCRIPT)) }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) " · weft" }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// JSON that cannot end its script element.
fn embedded(data: &Json) -> PreEscaped<String> {
    PreEscaped(data.to_string().replace('<', "\\u003c"))
}

fn study(
    index: usize,
    section: &Section,
    several: bool,
    chart: &mut std::ops::Range<usize>,
) -> Markup {
    let plan = &section.plan;
    let source = published().source.get(&plan.source.document);
    html! {
        section .study id={ "study-" (index) } {
            @if several { h2 { (plan.title) } }
            @if !plan.question.is_empty() { p .question { (plan.question) } }
            p .facts {
                "Study " code { (plan.name) }
                @if let Some(source) = source {
                    ", after " (plan.source.figure) " of “" (source.title) "”"
                }
                ". " (section.extent)
            }
            @for warning in &section.warnings { p .warning { (warning) } }
            @if let Some(fault) = &section.plan_fault {
                p .warning { "The plan beside the results cannot be read (" (fault) "); the \
                              figures follow from what varies." }
            }
            // A look says of itself what its note says.
            @if !plan.note.is_empty() && plan.name != "first-look" { p .note { (plan.note) } }
            h3 { "What was found" }
            p .found { (section.found.join(" ")) }
            @if section.about_cpu { p .caveat { (CPU_CAVEAT) } }
            div .figures {
                @for figure in &section.figures {
                    (picture(figure, chart, &section.environment))
                }
            }
            @if let Some(tradeoffs) = &section.tradeoffs { (tradeoff_table(tradeoffs)) }
            @if !section.beside.is_empty() {
                h3 { "Beside the paper" }
                @for (beside, summary) in &section.beside {
                    (beside_paper(beside, summary, &section.here))
                }
            }
            (not_measured(section))
            (link(section))
            (details(section))
        }
    }
}

fn picture(
    figure: &Figure,
    chart: &mut std::ops::Range<usize>,
    environment: &Environment,
) -> Markup {
    let wide = matches!(figure.content, Content::Table(_));
    html! {
        figure .wide[wide] {
            h4 {
                (figure.title)
                @if !figure.stands_for.is_empty() {
                    " " span .stands-for { "after " (figure.stands_for) }
                }
            }
            @match &figure.content {
                Content::Chart { numbers, .. } => {
                    @if let Some(number) = chart.next() {
                        div .chart data-chart=(number) role="img" aria-label=(figure.title) {}
                    }
                    details { summary { "Numbers" } (grid(numbers)) }
                },
                Content::Table(numbers) => (grid(numbers)),
            }
            figcaption {
                (figure.note)
                @if figure.about_cpu { " " span .caveat-mark { (CPU_CAVEAT) } }
                @if !environment.command_line.is_empty() {
                    " Made by: " code { (command_line(&environment.command_line)) }
                }
            }
        }
    }
}

/// A command line as a shell reads it.
fn command_line(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<String>>().join(" ")
}

fn grid(grid: &Grid) -> Markup {
    html! {
        div .scroll tabindex="0" { table {
            thead { tr { @for head in &grid.head { th scope="col" { (head) } } } }
            tbody {
                @for row in &grid.rows { tr {
                    @for (index, cell) in row.iter().enumerate() {
                        @let unresolved = cell == "unresolved";
                        @if index == 0 { th scope="row" { (cell) } }
                        @else { td .unresolved[unresolved] { (cell) } }
                    }
                } }
            }
        } }
    }
}

fn tradeoff_table(tradeoffs: &Tradeoffs) -> Markup {
    html! {
        h3 { "Tradeoffs" }
        div .scroll tabindex="0" { table .tradeoffs {
            thead { tr {
                th scope="col" { "at" }
                @for name in &tradeoffs.contenders { th scope="col" { (name) } }
            } }
            tbody {
                @for discipline in &tradeoffs.disciplines { tr {
                    th scope="row" { (discipline.name) }
                    @for (value, standing) in &discipline.entries {
                        (standing_cell(value, *standing))
                    }
                } }
            }
        } }
        p .note {
            "★ best, ✓ within 5 % of the best"
            @if tradeoffs.has_reference { "; local is what the others are read against" }
            ". Peaks are the best of all points, the others geometric means over the "
            (tradeoffs.points) " points that all have. " (CPU_CAVEAT)
        }
    }
}

fn standing_cell(value: &str, standing: Standing) -> Markup {
    let (class, sign) = match standing {
        Standing::Best => ("best", " ★"),
        Standing::Close => ("close", " ✓"),
        Standing::Behind => ("behind", ""),
        Standing::Reference => ("reference", ""),
        Standing::None => ("none", ""),
    };
    html! { td class=(class) { (value) (sign) } }
}

/// Over several studies: how often each contender is best or close to it.
fn across(sections: &[Section]) -> Markup {
    let with: Vec<&Tradeoffs> = sections.iter().filter_map(|s| s.tradeoffs.as_ref()).collect();
    let mut names: Vec<&String> = Vec::new();
    let mut disciplines: Vec<&'static str> = Vec::new();
    for tradeoffs in &with {
        for name in &tradeoffs.contenders {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for discipline in &tradeoffs.disciplines {
            if !disciplines.contains(&discipline.name) {
                disciplines.push(discipline.name);
            }
        }
    }
    let count = |name: &String, wanted: &str| {
        let mut good = 0;
        let mut all = 0;
        for tradeoffs in &with {
            let found = tradeoffs.disciplines.iter().find(|known| known.name == wanted);
            let index = tradeoffs.contenders.iter().position(|known| known == name);
            let entry = found.zip(index).and_then(|(found, index)| found.entries.get(index));
            match entry {
                Some((_, Standing::Best | Standing::Close)) => (good, all) = (good + 1, all + 1),
                Some((_, Standing::Behind)) => all += 1,
                _ => {}
            }
        }
        (good, all)
    };
    html! {
        @if with.len() > 1 {
            section .study {
                h2 { "Across the studies" }
                div .scroll tabindex="0" { table .tradeoffs {
                    thead { tr {
                        th scope="col" { "best, or within 5 % of it, at" }
                        @for name in &names { th scope="col" { (name) } }
                    } }
                    tbody { @for discipline in &disciplines { tr {
                        th scope="row" { (discipline) }
                        @for name in &names {
                            @let (good, all) = count(name, discipline);
                            td .best[all > 0 && good == all] {
                                @if all == 0 { "–" } @else { (good) " of " (all) " studies" }
                            }
                        }
                    } } }
                } }
            }
        }
    }
}

fn beside_paper(beside: &Beside, summary: &str, here: &str) -> Markup {
    html! {
        div .beside {
            p { "“" (beside.document) "”. " (summary) }
            dl .hardware {
                dt { "Theirs" } dd { (beside.testbed) ". " (beside.method) "." }
                dt { "Ours" } dd { (here) }
            }
            details open[beside.rows.len() <= 8] {
                summary { (beside.rows.len()) " published numbers" }
                div .scroll tabindex="0" { table .papers {
                    thead { tr {
                        @for (head, words) in [
                            ("", true), ("what", true), ("theirs", false), ("ours", false),
                            ("shape", true), ("", true),
                        ] { th scope="col" .text[words] { (head) } }
                    } }
                    tbody { @for row in &beside.rows { (beside_row(row)) } }
                } }
            }
        }
    }
}

fn beside_row(row: &Row) -> Markup {
    let (class, text) = match &row.verdict {
        Verdict::Alike => ("alike", "same shape".to_owned()),
        Verdict::Differs(how) => ("differs", format!("disagrees: {how}")),
        Verdict::Ratio(text) => ("ratio", text.clone()),
        Verdict::Missing(why) => ("missing", format!("not had here: {why}")),
    };
    html! {
        tr {
            th scope="row" { (row.figure) }
            td .text { (row.what) }
            td { (row.theirs) }
            td { (row.ours) }
            td .text { (row.shape) }
            td .text .(class) {
                (text)
                @if !row.differences.is_empty() { " (" (row.differences) ")" }
            }
        }
    }
}

fn names(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    match names.len() - shown.len() {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

fn not_measured(section: &Section) -> Markup {
    html! {
        @if !section.missing.is_empty() {
            h3 { "Cells without a result" }
            ul .reasons { @for (what, reason, cells) in &section.missing {
                li {
                    span class={ "status " (what) } { (what) } " " (reason) ": " (names(cells)) "."
                }
            } }
        }
        @if !section.marks.is_empty() {
            h3 { "Marks" }
            ul .reasons { @for (mark, cells) in &section.marks {
                li { (mark_text(*mark)) ": "
                    @if cells.len() > NAMED_MAX { (cells.len()) " cells." }
                    @else { (names(cells)) "." }
                }
            } }
        }
    }
}

fn mark_text(mark: Mark) -> Markup {
    html! { span .status .mark { (mark.explained()) } }
}

fn link(section: &Section) -> Markup {
    html! {
        @if let Some(link) = &section.link {
            h3 { "The raw link" }
            p .note {
                "TCP alone between the same two ends, without storage, with the messages of a \
                 4 KiB read and as a stream. " (section.link_shares.join(" "))
            }
            (grid(link))
        }
    }
}

fn details(section: &Section) -> Markup {
    html! {
        details {
            summary { "All cells" }
            (grid(&section.all))
            p .note { "CPU: " (CPU_CAVEAT_SHORT) }
        }
        @if !section.commands.is_empty() {
            details {
                summary { "Commands that measure a cell again" }
                dl .commands { @for (cell, command) in &section.commands {
                    dt { (cell) } dd { code { (command) } }
                } }
            }
        }
        details {
            summary { "Environment" }
            (environment(&section.environment))
        }
    }
}

fn environment(environment: &Environment) -> Markup {
    let processor = &environment.processor;
    let plain: [(&str, String); 12] = [
        ("command", command_line(&environment.command_line)),
        ("weft", environment.weft_version.clone()),
        ("seed", environment.seed.to_string()),
        ("machine", environment.machine.clone()),
        ("kernel", environment.kernel.clone()),
        ("processor", format!("{}, {} cores", processor.model, processor.cores)),
        ("governor", processor.governor.clone()),
        ("memory", units::bytes_text(environment.memory_bytes)),
        ("driver", environment.driver.clone()),
        ("local device", environment.local.clone()),
        ("started", date(environment.started_at_ms)),
        ("ended", date(environment.ended_at_ms)),
    ];
    html! {
        dl .environment {
            @for (name, value) in plain.iter().filter(|(_, value)| !value.is_empty()) {
                dt { (name) } dd { (value) }
            }
            @for target in &environment.targets {
                dt { "target" }
                dd { (target.address) " " (target.device) " " (target.identity)
                     @if !target.statistics { " (tells no statistics)" } }
            }
            @for interface in &environment.interfaces {
                dt { "interface" }
                dd { (interface.name) " " (interface.driver) ", MTU " (interface.mtu)
                     @if let Some(speed) = interface.speed_mbit_per_s { ", " (speed) " Mb/s" } }
            }
            @for (name, value) in &environment.sysctls { dt { (name) } dd { (value) } }
            @for note in &environment.notes { dt { "note" } dd { (note) } }
        }
    }
}

/// A time of day in UTC, from ms since 1970.
fn date(at_ms: u64) -> String {
    if at_ms == 0 {
        return String::new();
    }
    let (days, seconds) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    // Days to a date by counting eras of 400 years from 0000-03-01.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read_off_the_count_of_milliseconds() {
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_735_689_599_999), "2024-12-31 23:59:59 UTC");
        assert_eq!(date(0), "");
    }

    #[test]
    fn data_cannot_end_its_script() {
        let text = embedded(&json!(["</script><b>"])).0;
        assert!(!text.contains('<'), "{text}");
        assert_eq!(serde_json::from_str::<Json>(&text).expect("JSON"), json!(["</script><b>"]));
    }

    #[test]
    fn command_lines_are_quoted_where_a_shell_needs_it() {
        let words = ["weft", "study", "run", "a b", "it's"].map(str::to_owned);
        assert_eq!(command_line(&words), r"weft study run 'a b' 'it'\''s'");
    }

    #[test]
    fn the_library_is_there_and_compressed() {
        assert!(LIBRARY.starts_with(&[0x1f, 0x8b]));
        assert!((500_000..2_000_000).contains(&LIBRARY.len()));
    }
}
