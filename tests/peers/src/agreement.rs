//! `cargo xtask agreement`: checks the load generator.
//!
//! Three checks: the cost of the generator itself (with a device that does nothing), a known
//! delay that a wrapper adds, and the agreement with fio on a file. Runs of weft and fio alternate,
//! and each pair has a second run of fio: the difference of the two is the machine's variation.

mod fio;
mod judge;

use anyhow::{Context, Result, bail};
use clap::Args;
use fio::Program;
use judge::{ComparedPair, Verdict};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use xtask::cargo::{cargo, target_folder};

/// Least IOPS of one processor with a device that does nothing.
const IOPS_MIN: f64 = 3e6;

/// Delays to be measured, in microseconds.
const DELAYS_US: [u32; 3] = [50, 200, 2000];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Pairs of runs of weft and fio, at each depth
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Measured time of each run
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Queue depths
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32])]
    depths: Vec<u32>,
    /// The processor of all runs
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// The file to read; it is created if it does not exist
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Size of a created file, in MiB
    #[arg(long, default_value_t = 1024)]
    mebibytes: usize,
    /// Another binary than this tree's
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Only the comparison with fio
    #[arg(long)]
    fio_only: bool,
}

/// Runs the checks; false if one fails.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let program = Program::new(binary(root, options)?, options.cpu);
    program.check()?;
    let mut verdicts = Vec::new();
    if !options.fio_only {
        verdicts.push(cost(&program, options)?);
        verdicts.extend(delays(&program)?);
    }
    let file = file(root, options)?;
    for depth in &options.depths {
        println!("==> compared with fio, depth {depth}: {} pairs", options.pairs);
        verdicts.extend(beside_fio(&program, options, &file, *depth)?);
    }
    println!();
    verdicts.iter().for_each(|verdict| println!("{verdict}"));
    Ok(verdicts.iter().all(Verdict::holds))
}

/// The rate of the generator with a device that does nothing.
fn cost(program: &Program, options: &Options) -> Result<Verdict> {
    let seconds = options.seconds;
    let measured = program.ours("null:1TiB", 32, "spin", seconds)?;
    println!("==> null device, depth 32: {:.0} IOPS", measured.iops);
    Ok(Verdict::at_least("IOPS of one processor, null device", measured.iops, IOPS_MIN))
}

/// Whether a known delay is measured: no percentile is shorter, and the median not much longer
/// (it includes the lateness of a timer).
fn delays(program: &Program) -> Result<Vec<Verdict>> {
    let of = |delay_us: &u32| {
        let device = format!("delay:read={delay_us}us:memory:64MiB");
        // Long enough for p99 to be resolved.
        let seconds = if *delay_us < 1000 { 1 } else { 4 };
        let measured = program.ours(&device, 1, "spin", seconds)?;
        let delay_us = f64::from(*delay_us);
        println!(
            "==> delay of {delay_us} µs: min {:.1}, p50 {:.1}, p99 {:.1} µs",
            measured.least_us, measured.p50_us, measured.p99_us
        );
        Ok(Verdict::delay(delay_us, &measured))
    };
    DELAYS_US.iter().map(of).collect()
}

fn beside_fio(
    program: &Program,
    options: &Options,
    file: &Path,
    depth: u32,
) -> Result<Vec<Verdict>> {
    let path = file.to_str().context("the file's name is no text")?;
    let ours = || program.ours(&format!("file:{path},direct=on"), depth, "sleep", options.seconds);
    let fio = || program.fio(path, depth, options.seconds);
    // So that the first run after a pause has no advantage.
    fio()?;
    let mut pairs = Vec::new();
    for round in 0..options.pairs {
        // fio, weft and fio in turn; every other round begins with weft.
        let pair = if round % 2 == 0 {
            let (fio, ours, again) = (fio()?, ours()?, fio()?);
            ComparedPair { ours, fio, again }
        } else {
            let (ours, fio, again) = (ours()?, fio()?, fio()?);
            ComparedPair { ours, fio, again }
        };
        println!("  {round:>2} {pair}");
        pairs.push(pair);
    }
    Ok(judge::pairs(depth, &pairs))
}

fn binary(root: &Path, options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.binary {
        return Ok(path.canonicalize()?);
    }
    cargo(root, &["build", "--profile", "dist", "--package", "weft-nvmeof"])?;
    Ok(target_folder(root).join("dist/weft"))
}

/// The file, written from end to end, since the disk does not read holes.
fn file(root: &Path, options: &Options) -> Result<PathBuf> {
    let path = options.file.clone().unwrap_or_else(|| target_folder(root).join("agreement.img"));
    let bytes = options.mebibytes << 20;
    if let Ok(metadata) = path.metadata() {
        let made_here = options.file.is_none();
        if !made_here || metadata.len() == bytes as u64 {
            return Ok(path);
        }
    }
    if bytes == 0 {
        bail!("--mebibytes must be at least 1");
    }
    let mut file = File::create(&path).with_context(|| path.display().to_string())?;
    let block: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0] ^ 0x5a).collect();
    for _ in 0..options.mebibytes {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(path)
}
