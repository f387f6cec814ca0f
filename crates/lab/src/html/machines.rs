//! What each machine did of a load.

use super::figure::{Content, Figure, Grid};
use super::units;
use crate::cells::{Cell, Cells, Estimate, Scale, Unit};
use crate::results::{LoadPart, number};

/// Machines that have columns of their own.
const COLUMNS_MAX: usize = 4;

/// The load of each machine in each cell, if there were several.
pub(super) fn loads(cells: &Cells) -> Option<Figure> {
    let rows: Vec<(&Cell, Vec<Load>)> = cells
        .cells
        .iter()
        .map(|cell| (cell, loads_of(cell)))
        .filter(|(_, loads)| loads.len() > 1)
        .collect();
    let most = rows.iter().map(|(_, loads)| loads.len()).max()?;
    let each = most <= COLUMNS_MAX;
    let mut head = vec!["cell".to_owned()];
    if each {
        let longest = rows.iter().find(|(_, loads)| loads.len() == most);
        for load in longest.iter().flat_map(|(_, loads)| loads) {
            head.extend([format!("{} IOPS", load.place), format!("{} p99", load.place)]);
        }
    } else {
        head.extend(["least IOPS", "of", "most IOPS", "of", "highest p99", "of"].map(String::from));
    }
    head.extend(["all IOPS", "fairness"].map(String::from));
    let row = |(cell, loads): &(&Cell, Vec<Load>)| {
        let mut row = vec![cell.label.clone()];
        row.extend(if each { columns(loads, most) } else { extremes(loads) });
        let all = loads.iter().map(|load| load.iops).sum();
        row.push(units::show(Unit::Iops, all));
        row.push(fairness_of(cell).map_or_else(unknown, |index| format!("{index:.3}")));
        row
    };
    Some(Figure {
        title: "The load of each machine".to_owned(),
        stands_for: String::new(),
        note:
            "Means of all repeats. Fairness is Jain's index of the machines' IOPS: 1 if all have \
               the same, 1 ÷ n if one of n has all."
                .to_owned(),
        about_cpu: false,
        content: Content::Table(Grid { head, rows: rows.iter().map(row).collect() }),
    })
}

/// What a machine did in a cell.
struct Load {
    place: String,
    iops: f64,
    /// None if too few requests were counted for it.
    p99_ns: Option<f64>,
}

fn loads_of(cell: &Cell) -> Vec<Load> {
    let of = |index: usize, first: &LoadPart| {
        let parts = || cell.repeats.iter().filter_map(|repeat| repeat.parts.get(index));
        let iops: Vec<f64> = parts().map(LoadPart::iops).collect();
        let p99: Option<Vec<f64>> = parts().map(|part| part.p99_ns.map(|ns| ns as f64)).collect();
        let mean =
            |values: &[f64]| Estimate::of(values, Scale::Plain).map(|estimate| estimate.mean);
        Load {
            place: first.place.clone(),
            iops: mean(&iops).unwrap_or_default(),
            p99_ns: p99.and_then(|values| mean(&values)),
        }
    };
    let first = cell.repeats.first().map(|repeat| &repeat.parts[..]).unwrap_or_default();
    first.iter().enumerate().map(|(index, first)| of(index, first)).collect()
}

fn columns(loads: &[Load], most: usize) -> Vec<String> {
    let mut columns: Vec<String> =
        loads.iter().flat_map(|load| [units::show(Unit::Iops, load.iops), p99(load)]).collect();
    columns.resize_with(2 * most, unknown);
    columns
}

fn extremes(loads: &[Load]) -> Vec<String> {
    let by_iops = |one: &&Load, other: &&Load| one.iops.total_cmp(&other.iops);
    let of = |load: Option<&Load>, what: fn(&Load) -> String| {
        let place = |load: &Load| load.place.clone();
        [load.map_or_else(unknown, what), load.map_or_else(unknown, place)]
    };
    let iops = |load: &Load| units::show(Unit::Iops, load.iops);
    let slowest = loads.iter().filter(|load| load.p99_ns.is_some());
    let slowest = slowest.max_by(|one, other| {
        one.p99_ns.unwrap_or_default().total_cmp(&other.p99_ns.unwrap_or_default())
    });
    [
        of(loads.iter().min_by(by_iops), iops),
        of(loads.iter().max_by(by_iops), iops),
        of(slowest, p99),
    ]
    .concat()
}

fn p99(load: &Load) -> String {
    load.p99_ns.map_or_else(|| "unresolved".to_owned(), |ns| units::show(Unit::Time, ns))
}

fn fairness_of(cell: &Cell) -> Option<f64> {
    let known = cell.repeats.iter().filter_map(|repeat| repeat.values.get(number::FAIRNESS));
    let known: Vec<f64> = known.copied().collect();
    Estimate::of(&known, Scale::Plain).map(|estimate| estimate.mean)
}

fn unknown() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Environment, Role, fairness};
    use crate::testing::record;

    fn figure(requests: &[u64]) -> Option<Figure> {
        let mut one = record(Role::Plain, &[], 1e3, 50);
        one.parts = (1..)
            .zip(requests)
            .map(|(number, requests)| LoadPart {
                place: format!("n{number}"),
                requests: *requests,
                p99_ns: Some(1_000 * number),
                seconds: 2.0,
                ..LoadPart::default()
            })
            .collect();
        let iops: Vec<f64> = one.parts.iter().map(LoadPart::iops).collect();
        if let Some(index) = fairness(&iops) {
            one.values.insert(number::FAIRNESS.to_owned(), index);
        }
        let mut other = one.clone();
        other.repeat = 2;
        loads(&Cells::of(&[one, other], &Environment::default()))
    }

    fn rows(requests: &[u64]) -> (Vec<String>, Vec<Vec<String>>) {
        let Content::Table(Grid { head, rows }) = figure(requests).expect("a figure").content
        else {
            panic!("a table")
        };
        (head, rows)
    }

    #[test]
    fn each_machine_has_columns_and_all_have_a_sum() {
        let (head, rows) = rows(&[200, 600]);
        let expected = ["cell", "n1 IOPS", "n1 p99", "n2 IOPS", "n2 p99", "all IOPS", "fairness"];
        assert_eq!(head, expected);
        assert_eq!(rows[0][1..], ["100", "1.00 µs", "300", "2.00 µs", "400", "0.800"]);
    }

    #[test]
    fn of_many_machines_the_extremes_are_named() {
        let (head, rows) = rows(&[200, 200, 400, 200, 100]);
        assert_eq!(head.len(), rows[0].len());
        let expected = ["50.0", "n5", "200", "n3", "5.00 µs", "n5", "550", "0.834"];
        assert_eq!(rows[0][1..], expected);
    }

    #[test]
    fn one_machine_needs_no_table() {
        assert!(figure(&[200]).is_none() && figure(&[]).is_none());
    }
}
