//! How well cells that were left out are predicted from the others, beside simpler ways to do it.
//!
//! ```text
//! cargo run -p weft-advise --example held_out -- [--fit DEPTHxCORES,…] TABLE…
//! ```
//!
//! A table has a line for each cell: way, depth, cores of host and target, offered rate (0: a
//! closed loop), rate, mean latency in µs without other programs and as measured, part of the
//! requests that others made late, what each core lost to others and in pieces of how many µs, and
//! quantiles `PART:µs`.
//!
//! Each cell is predicted from the others of its way. With --fit, those with these depths (of each
//! core) and numbers of host cores are the ones that all others are predicted from.

#[path = "held_out/simpler.rs"]
mod simpler;

use std::collections::BTreeMap;
use std::process::ExitCode;

use simpler::{METHODS, Point};
use weft_advise::network::Interruptions;
use weft_advise::{Arrivals, Cell, Fit, Prediction};

/// The highest part of the most that was measured with these cores which is below the knee.
const KNEE: f64 = 0.85;

/// Errors of a method, as natural logarithms without their signs: p99, mean and rate.
#[derive(Default, Clone)]
struct Errors([Vec<f64>; 3]);

impl Errors {
    fn add(&mut self, of: usize, predicted: f64, measured: f64) {
        self.0[of].push((predicted / measured).ln().abs());
    }

    fn line(&self) -> String {
        let median = |errors: &Vec<f64>| {
            let mut errors = errors.clone();
            errors.sort_by(f64::total_cmp);
            errors.get(errors.len() / 2).map_or("–".to_owned(), |error| format!("{error:.3}"))
        };
        let columns: Vec<String> = self.0.iter().map(median).collect();
        columns.join(" | ")
    }
}

/// What becomes of one group of ways.
#[derive(Default)]
struct Table {
    /// Ours first.
    errors: Vec<Errors>,
    cells: usize,
    refused: usize,
    /// Cells whose p99, and whose mean, is in its interval.
    within: [usize; 2],
    /// The middle width of the interval of p99.
    widths: Vec<f64>,
}

fn cell_of(line: &str) -> Option<(String, Cell)> {
    let mut words = line.split_whitespace();
    let way = words.next()?.to_owned();
    let mut numbers = [0.0; 10];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    let [depth, host, target, offered, iops, quiet_us, mean_us, late, share, lost_us] = numbers;
    let quantile = |word: &str| {
        let (part, us) = word.split_once(':')?;
        Some((part.parse().ok()?, us.parse::<f64>().ok()? * 1000.0))
    };
    let whole = |number: f64| format!("{number:.0}").parse().unwrap_or(0);
    let cell = Cell {
        arrivals: if offered > 0.0 { Arrivals::Poisson(offered) } else { Arrivals::Closed },
        depth: whole(depth),
        host_cores: whole(host),
        target_cores: whole(target),
        iops,
        mean_ns: [quiet_us * 1000.0, mean_us * 1000.0],
        quantiles: words.map(quantile).collect::<Option<_>>()?,
        late,
        interruptions: Interruptions { share, mean_ns: lost_us * 1000.0 },
        ran: [None; 2],
    };
    Some((way, cell))
}

/// Which cells are predicted together, from all others.
fn folds(cells: &[Cell], fitted: &[[usize; 2]]) -> Vec<Vec<usize>> {
    if fitted.is_empty() {
        return (0..cells.len()).map(|at| vec![at]).collect();
    }
    let is_fitted = |cell: &Cell| {
        let cores = cell.host_cores.max(1);
        fitted.contains(&[cell.depth / cores, cores])
    };
    vec![(0..cells.len()).filter(|at| !is_fitted(&cells[*at])).collect()]
}

fn is_below_knee(cell: &Cell, cells: &[Cell]) -> bool {
    let alike = cells.iter().filter(|one| one.host_cores == cell.host_cores);
    let most = alike.map(|one| one.iops).fold(0.0, f64::max);
    cell.is_served() && cell.iops <= KNEE * most
}

fn predicted(fit: &Fit, cell: &Cell) -> Option<Prediction> {
    let cores = [cell.host_cores, cell.target_cores];
    match cell.arrivals {
        Arrivals::Poisson(rate) => fit.predict(rate, cell.depth, cores, 1).ok(),
        Arrivals::Closed => Some(fit.closed(cell.depth, cores, 1)),
    }
}

fn judge(tables: &mut [Table; 2], way: &str, cells: &[Cell], held: &[usize], all: &[Point]) {
    let rest = cells.iter().enumerate().filter(|(at, _)| !held.contains(at));
    let rest: Vec<Cell> = rest.map(|(_, cell)| cell.clone()).collect();
    let fit = Fit::new(&rest, 1);
    for cell in held.iter().map(|at| &cells[*at]).filter(|cell| is_below_knee(cell, cells)) {
        let Some(p99) = cell.quantile(0.99) else { continue };
        let table = &mut tables[usize::from(cell.arrivals == Arrivals::Closed)];
        table.cells += 1;
        let Some(found) = fit.as_ref().and_then(|fit| predicted(fit, cell)) else {
            table.refused += 1;
            continue;
        };
        let [_, own, _] = *found.quantiles_ns;
        let mean = found.mean_ns;
        let is_in = |low: f64, high: f64, of: f64| usize::from(low <= of && of <= high);
        table.within[0] += is_in(own.low, own.high, p99);
        table.within[1] += is_in(mean.low, mean.high, cell.mean_ns[1]);
        table.widths.push((own.high / own.low).ln());
        table.errors.resize(METHODS.len() + 1, Errors::default());
        let mut add = |method: usize, numbers: [f64; 3]| {
            for (of, measured) in [p99, cell.mean_ns[1], cell.iops].into_iter().enumerate() {
                table.errors[method].add(of, numbers[of], measured);
            }
        };
        add(0, [own.value, mean.value, found.iops]);
        let asked = Point::of(way, cell);
        let rest: Vec<Point> = rest.iter().map(|cell| Point::of(way, cell)).collect();
        for (at, (_, method)) in METHODS.iter().enumerate() {
            add(at + 1, method(&asked, &rest, all));
        }
        if std::env::var_os("VERBOSE").is_some() {
            let us = [p99, own.value, own.low, own.high].map(|ns| ns / 1000.0);
            println!("{way} {:?} {} {us:.1?}", cell.arrivals, cell.depth);
        }
    }
}

fn print(name: &str, table: &Table) {
    if table.cells == 0 {
        return;
    }
    let part = |count: usize| 100.0 * count as f64 / (table.cells - table.refused).max(1) as f64;
    println!("\n{name}: {} cells, {} of them refused", table.cells, table.refused);
    println!("| method | p99 | mean | IOPS |\n|---|---|---|---|");
    let names = ["weft advise"].into_iter().chain(METHODS.iter().map(|one| one.0));
    for (name, errors) in names.zip(&table.errors) {
        println!("| {name} | {} |", errors.line());
    }
    let mut widths = table.widths.clone();
    widths.sort_by(f64::total_cmp);
    let width = widths.get(widths.len() / 2).map_or(f64::NAN, |width| width.exp());
    let [p99, mean] = table.within.map(part);
    println!("in the interval: {p99:.0} % of p99, {mean:.0} % of means; width: {width:.2} times");
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut fitted = Vec::new();
    if arguments.first().is_some_and(|one| one == "--fit") && arguments.len() > 1 {
        let pair = |word: &str| {
            let (depth, cores) = word.split_once('x')?;
            Some([depth.parse().ok()?, cores.parse().ok()?])
        };
        let list: Option<Vec<[usize; 2]>> = arguments[1].split(',').map(pair).collect();
        let Some(list) = list else {
            eprintln!("--fit: expected DEPTHxCORES,…");
            return ExitCode::FAILURE;
        };
        fitted = list;
        arguments.drain(..2);
    }
    for path in arguments {
        let mut ways: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((way, cell)) = cell_of(line) else {
                eprintln!("{path}: not a cell: {line}");
                return ExitCode::FAILURE;
            };
            ways.entry(way).or_default().push(cell);
        }
        let of = |(way, cells): (&String, &Vec<Cell>)| -> Vec<Point> {
            let is_known = |at: &usize| folds(cells, &fitted).iter().any(|held| !held.contains(at));
            let known = (0..cells.len()).filter(is_known);
            known.map(|at| Point::of(way, &cells[at])).collect()
        };
        let all: Vec<Point> = ways.iter().flat_map(of).collect();
        let mut tables = <[Table; 2]>::default();
        for (way, cells) in &ways {
            for held in folds(cells, &fitted) {
                judge(&mut tables, way, cells, &held, &all);
            }
        }
        for (kind, table) in ["random arrivals", "closed loops"].iter().zip(&tables) {
            print(&format!("{path}, {kind}"), table);
        }
    }
    ExitCode::SUCCESS
}
