//! What of an open loop's latency is that of the bare sockets.

use weft_advise::predict::is_served;

use super::figure::{Content, Figure, Grid};
use super::units;
use crate::cells::gate::{Sentence, gate};
use crate::cells::{Cell, Cells, Metric, Unit};
use crate::results::number;

/// Each open loop with its bare sockets, if any were measured.
pub(super) fn figure(cells: &Cells) -> Option<Figure> {
    let both = cells.cells.iter().filter_map(|cell| Some((cell, cells.bare_socket(cell)?)));
    let rows: Vec<Vec<String>> = both.map(|(cell, bare)| row(cells, cell, bare)).collect();
    let head = ["cell", "each queue", "p50", "of which the bare socket", "p99"];
    let more = ["of which the bare socket ", "share of p99"];
    let head = head.into_iter().chain(more).map(str::to_owned).collect();
    (!rows.is_empty()).then(|| Figure {
        title: "Open loops beside the bare socket".to_owned(),
        stands_for: String::new(),
        note: "The bare socket has messages of the same size at the rate and with the arrivals of \
               one queue, one in flight, between two threads that block: what is above it is the \
               protocol, the target and the host, and requests that wait for each other."
            .to_owned(),
        about_cpu: false,
        content: Content::Table(Grid { head, rows }),
    })
}

fn row(cells: &Cells, cell: &Cell, bare: &Cell) -> Vec<String> {
    let offered = |repeat: &crate::cells::Repeat| repeat.values.get(number::OFFERED_IOPS).copied();
    let rate = bare.repeats.first().and_then(offered);
    let is_behind = bare
        .repeats
        .iter()
        .any(|repeat| offered(repeat).is_some_and(|offered| !is_served(offered, repeat.iops)));
    let mut row = vec![
        cell.label.clone(),
        rate.map_or_else(|| "–".to_owned(), |rate| units::quantity(Unit::Iops, rate)),
    ];
    let mut share = "?".to_owned();
    for name in ["p50", "p99"] {
        let Some(metric) = Metric::named(name) else { continue };
        let shown = |of: &Cell| units::show_reading(metric.unit, &metric.read(cells, of));
        row.push(shown(cell));
        row.push(if is_behind { "does not keep the rate".to_owned() } else { shown(bare) });
        let gate = gate(Sentence::ShareOfLink, &metric, &[bare, cell]);
        if !is_behind
            && gate.refusal().is_none()
            && let Some(of) = metric.quotient(cells, bare, cell)
        {
            share = units::show(Unit::Share, of.mean);
        }
    }
    row.push(share);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Environment, Mark, Role, Value, key};
    use crate::testing::{record, repeated};

    /// The rows of an open loop with a p99 of 80 µs, whose bare socket has this one.
    fn rows(served: f64, us: u64, mark: Option<Mark>) -> Vec<Vec<String>> {
        let settings = [(key::TRANSPORT, Value::from("tcp")), (key::LOAD_PERCENT, 50u64.into())];
        let mut open = record(Role::Plain, &settings, 1e4, 80);
        open.cell = "load_percent=50 transport=tcp".to_owned();
        let mut bare = record(Role::Link, &settings, served * 1e4, us);
        bare.cell = format!("role=link {}", open.cell);
        for record in [&mut open, &mut bare] {
            record.values.insert(number::OFFERED_IOPS.to_owned(), 1e4);
        }
        mark.into_iter().for_each(|mark| open.mark(mark));
        let cells = Cells::of(&repeated(&[open, bare]), &Environment::default());
        let figure = figure(&cells);
        match figure.map(|figure| figure.content) {
            Some(Content::Table(grid)) => grid.rows,
            _ => Vec::new(),
        }
    }

    #[test]
    fn an_open_loop_is_beside_its_bare_socket() {
        let told = rows(1.0, 20, None);
        let [row] = &told[..] else { panic!("{told:?}") };
        assert_eq!(row[1], "10.0 K IOPS");
        assert!(row[4].starts_with("80.00 µs") && row[5].starts_with("20.00 µs"), "{row:?}");
        assert_eq!(row[6], "25.0 %");
        let behind = rows(0.9, 20, None);
        assert_eq!((&*behind[0][5], &*behind[0][6]), ("does not keep the rate", "?"));
        assert_eq!(rows(1.0, 20, Some(Mark::AboveFloor))[0][6], "?");
        let cells = Cells::of(&[], &Environment::default());
        assert!(super::figure(&cells).is_none());
    }
}
