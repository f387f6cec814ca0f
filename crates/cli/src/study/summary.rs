//! A summary of results for the terminal.

use weft_lab::results::{Mark, Results};
use weft_lab::summary::{self, Line};

use crate::table::Table;

/// Longer tables are left to the report.
const ROWS_MAX: usize = 64;

/// How wide a table may be.
const COLUMNS: usize = 80;

/// A row for each cell, unless there are too many; below it what the letters of marks mean.
pub(super) fn table(results: &Results) -> Option<String> {
    let lines = summary::lines(results);
    if lines.is_empty() || lines.len() > ROWS_MAX { None } else { Some(text(&lines)) }
}

fn text(lines: &[Line]) -> String {
    let mut marks: Vec<Mark> = lines.iter().flat_map(|line| line.marks.iter().copied()).collect();
    marks.sort_unstable();
    marks.dedup();
    let lettered: Vec<(char, Mark)> = ('a'..='z').zip(marks).collect();
    let beside = table_of(lines, &lettered, true);
    let is_narrow = beside.lines().all(|line| line.chars().count() <= COLUMNS);
    let mut text = if is_narrow { beside } else { table_of(lines, &lettered, false) };
    for (letter, mark) in &lettered {
        text += &format!("{letter}: {}\n", mark.short());
    }
    text
}

/// The table; where names are too long for a column each has a line above its numbers.
fn table_of(lines: &[Line], lettered: &[(char, Mark)], named_beside: bool) -> String {
    let columns = ["CELL", ">IOPS", ">OF LOCAL", ">P50", ">P99", ">CPU/IO", "NOTE"];
    let mut table = Table::new(if named_beside { &columns } else { &columns[1..] });
    for line in lines {
        let has = |(_, mark): &&(char, Mark)| line.marks.contains(mark);
        let letters: Vec<String> =
            lettered.iter().filter(has).map(|(letter, _)| letter.to_string()).collect();
        let Line { label, iops, of_local, p50, p99, cpu, .. } = line.clone();
        let mut row = vec![iops, of_local, p50, p99, cpu, letters.join(" ")];
        if named_beside {
            row.insert(0, label);
        }
        table.row(row);
    }
    let text = table.text();
    if named_beside {
        return text;
    }
    let mut rows = text.lines();
    let head = format!("{}\n", rows.next().unwrap_or_default());
    let named = |(line, row): (&Line, &str)| format!("{}\n{row}\n", wrapped(&line.label));
    head + &lines.iter().zip(rows).map(named).collect::<String>()
}

/// A label in lines that fit, broken behind its commas and, where a part is longer, within it.
fn wrapped(label: &str) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for part in label.split_inclusive(", ") {
        let is_full = used + part.trim_end().chars().count() > COLUMNS;
        if used > 0 && is_full {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            used = 0;
        }
        for character in part.chars() {
            if used == COLUMNS && character != ' ' {
                lines.push('\n');
                used = 0;
            }
            lines.push(character);
            used += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str) -> Line {
        Line {
            label: label.to_owned(),
            iops: "1.23 M".to_owned(),
            of_local: "6.0 %".to_owned(),
            p50: "123.4 µs".to_owned(),
            p99: "123.45 ms".to_owned(),
            cpu: "12.34 µs".to_owned(),
            marks: vec![Mark::GeneratorFull, Mark::SharedCores],
        }
    }

    #[test]
    fn a_table_fits_80_columns() {
        let short = text(&[line("4 KiB, randread, tcp"), Line { marks: vec![], ..line("other") }]);
        assert_eq!(
            short,
            "CELL                    IOPS  OF LOCAL       P50        P99    CPU/IO  NOTE\n\
             4 KiB, randread, tcp  1.23 M     6.0 %  123.4 µs  123.45 ms  12.34 µs  a b\n\
             other                 1.23 M     6.0 %  123.4 µs  123.45 ms  12.34 µs\n\
             a: shared cores\n\
             b: generator saturated\n"
        );
        let long = text(&[line("4 KiB, randrw, 70 % reads, 2 target cores, tcp, depth 32")]);
        assert!(long.lines().all(|line| line.chars().count() <= COLUMNS), "{long}");
        let mut rows = long.lines().skip(1);
        assert!(rows.next().is_some_and(|name| name.ends_with("tcp, depth 32")), "{long}");
        assert!(rows.next().is_some_and(|row| row.trim_start().starts_with("1.23 M")), "{long}");
    }

    #[test]
    fn a_long_label_is_wrapped() {
        let address = format!("nvme-tcp://192.0.2.1:4420/nqn.2014-08.org.x:{}", "y".repeat(90));
        let long = text(&[line(&format!("4 KiB, randread, {address}, depth 32"))]);
        assert!(long.lines().all(|line| line.chars().count() <= COLUMNS), "{long}");
        let whole: String = long.lines().map(str::trim_end).collect();
        assert!(whole.contains(&address), "nothing is lost: {long}");
        assert_eq!(wrapped("tcp, depth 1"), "tcp, depth 1");
    }
}
