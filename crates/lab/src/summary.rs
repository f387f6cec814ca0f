//! The cells of a study, for a table on a terminal.

use crate::cells::gate::{Rule, Sentence, gate, rule};
use crate::cells::{Cell, Cells, Metric};
use crate::results::{Mark, Results};
use crate::units;

/// A cell that has a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The settings that distinguish it.
    pub label: String,
    /// Its IOPS.
    pub iops: String,
    /// They as a share of those of the local cell with the same settings; of that itself `local`,
    /// and `?` where marks forbid it.
    pub of_local: String,
    /// Percentiles of the latency; one that is not resolved is `-`.
    pub p50: String,
    /// The same.
    pub p99: String,
    /// CPU time of host and target for each request, or `?`.
    pub cpu: String,
    /// Remarks, but for those that most cells have; also those that forbid to compare with local.
    pub marks: Vec<Mark>,
}

/// All of them, in the order of their settings.
#[must_use]
pub fn lines(results: &Results) -> Vec<Line> {
    let cells = Cells::of(&results.records, &results.environment);
    cells.cells.iter().filter(|cell| cell.is_measured()).map(|cell| line(&cells, cell)).collect()
}

fn line(cells: &Cells, cell: &Cell) -> Line {
    let read = |name: &str| Some(Metric::named(name)?.read(cells, cell).estimate()?.mean);
    let shown = |name: &str, show: fn(f64) -> String| read(name).map_or("-".to_owned(), show);
    let local = cells.local(cell);
    let is_local = local.is_some_and(|local| std::ptr::eq(local, cell));
    let is_forbidden = |sentence: Sentence, name: &str, of: &[&Cell]| {
        Metric::named(name).is_some_and(|metric| gate(sentence, &metric, of).refusal().is_some())
    };
    let forbidden = || "?".to_owned();
    let of_local = match local {
        Some(_) if is_local => "local".to_owned(),
        Some(local) if is_forbidden(Sentence::Comparison, "share-of-local", &[cell, local]) => {
            forbidden()
        }
        _ => shown("share-of-local", units::percent),
    };
    let cpu = match is_forbidden(Sentence::Value, "cpu-per-io", &[cell]) {
        true => forbidden(),
        false => shown("cpu-per-io", units::time),
    };
    // Marks of every cell are left to the report. Those of the local one are told where they forbid
    // to compare it.
    let silent = [Mark::Loopback, Mark::NotAwaited];
    let forbids = |mark: &Mark| rule(*mark, Sentence::Comparison) == Rule::Forbidden;
    let of_local_marks = local.filter(|_| !is_local).into_iter().flat_map(|local| &local.marks);
    let own = cell.marks.iter().filter(|mark| !silent.contains(mark));
    let mut marks: Vec<Mark> = own.chain(of_local_marks.filter(|m| forbids(m))).copied().collect();
    marks.sort_unstable();
    marks.dedup();
    Line {
        label: cell.label.clone(),
        iops: shown("iops", units::count),
        of_local,
        p50: shown("p50", units::time),
        p99: shown("p99", units::time),
        cpu,
        marks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Environment, Role, key};
    use crate::testing::{record, repeated};

    #[test]
    fn a_line_says_how_much_of_local_a_cell_reaches() {
        let of = |transport: &str, depth: u64, iops, us| {
            let settings = [(key::TRANSPORT, transport.into()), (key::DEPTH, depth.into())];
            record(Role::Plain, &settings, iops, us)
        };
        let mut all = vec![
            of("local", 1, 80_000.0, 10),
            of("tcp", 1, 20_000.0, 40),
            of("local", 32, 1e6, 30),
            of("tcp", 32, 60_000.0, 500),
            of("tcp", 64, 60_000.0, 900),
        ];
        all[1].marks = vec![Mark::Loopback, Mark::GeneratorFull];
        let results = Results {
            directory: "somewhere".into(),
            environment: Environment::default(),
            plan: String::new(),
            records: repeated(&all),
        };
        let found = lines(&results);
        let told: Vec<[&str; 4]> = found
            .iter()
            .map(|line| [&line.label, &line.iops, &line.of_local, &line.p99].map(String::as_str))
            .collect();
        assert_eq!(found.len(), 5);
        let has = |one: [&str; 4]| assert!(told.contains(&one), "{one:?} is not in {told:?}");
        has(["local, depth 1", "80.0 K", "local", "10.00 µs"]);
        // The generator was full: a share of local would be that of its processor.
        has(["tcp, depth 1", "20.0 K", "?", "40.00 µs"]);
        has(["tcp, depth 32", "60.0 K", "6.0 %", "500.0 µs"]);
        has(["tcp, depth 64", "60.0 K", "-", "900.0 µs"]);
        let marked: Vec<&Vec<Mark>> = found.iter().map(|line| &line.marks).collect();
        assert_eq!(marked.iter().filter(|marks| ***marks == [Mark::GeneratorFull]).count(), 1);
        assert_eq!(marked.iter().filter(|marks| marks.is_empty()).count(), 4);
    }
}
