//! Looks at report pages in a browser: `report-page --weft PATH [--screenshots FOLDER]`.
//!
//! Results are made up, `weft report` makes pages from them, and Chromium opens these. Each check
//! says PASS or FAIL in a line of its own; the exit code is 0 if all passed.

mod browser;
mod checks;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use report_page::made_up::{self, Machine};

use crate::browser::Browser;

/// Pages that are looked at: each kind of figure and of study, and one of several studies.
const PAGES: &[(&str, &[&str])] = &[
    ("first-look", &["first-look"]),
    ("size-sweep", &["size-sweep"]),
    ("latency-cdf", &["latency-cdf"]),
    ("latency-vs-load", &["latency-vs-load"]),
    ("host-cpu", &["host-cpu"]),
    ("target-interference", &["target-interference"]),
    ("studies", &["concurrency", "latency-at-peak", "target-idle-poll", "tradeoffs", "saturation"]),
];

/// Those that are enough for every check: a study of cells, one of tenants, and several studies.
const BRIEF: [&str; 3] = ["first-look", "target-interference", "studies"];

/// Looks at report pages in a browser
#[derive(Debug, Parser)]
struct Options {
    /// The binary that makes the pages
    #[arg(long)]
    weft: PathBuf,
    /// Keep pictures of the pages here: phone and desktop, light and dark
    #[arg(long)]
    screenshots: Option<PathBuf>,
    /// Keep a picture of each figure here, as a desktop shows it
    #[arg(long)]
    figures: Option<PathBuf>,
    /// Look at the report on these results instead of made-up ones
    #[arg(long = "results")]
    results: Vec<PathBuf>,
    /// Leave out pages whose figures are drawn as those of others are
    #[arg(long)]
    brief: bool,
    /// Only pages whose name contains this
    filter: Option<String>,
}

/// A page, and the results that it is made of.
#[derive(Debug)]
struct Page {
    name: String,
    path: PathBuf,
    results: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct Tally {
    failed: usize,
}

impl Tally {
    async fn check(&mut self, name: &str, check: impl Future<Output = Result<()>>) {
        match check.await {
            Ok(()) => println!("PASS {name}"),
            Err(error) => {
                println!("{error:#}");
                println!("FAIL {name}");
                self.failed += 1;
            }
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looked = runtime.context("no runtime").and_then(|runtime| runtime.block_on(look(&options)));
    match looked {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            println!("{failed} checks failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("FAIL report page: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn look(options: &Options) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let pages = pages(options, folder.path())?;
    let mut tally = Tally::default();
    let browser = Browser::start().await?;
    for page in &pages {
        look_at(&browser, page, &mut tally).await;
        let Page { name, path: page, .. } = page;
        if let Some(folder) = &options.screenshots {
            std::fs::create_dir_all(folder)?;
            let path = folder.join(name);
            tally.check(&format!("{name}: pictures"), pictures(&browser, page, &path)).await;
        }
        if let Some(folder) = &options.figures {
            std::fs::create_dir_all(folder)?;
            let path = folder.join(name);
            tally.check(&format!("{name}: figures"), figures(&browser, page, &path)).await;
        }
    }
    browser.close().await?;
    Ok(tally.failed)
}

async fn look_at(browser: &Browser, page: &Page, tally: &mut Tally) {
    let Page { name, path: page, results } = page;
    let named = |what: &str| format!("{name}: {what}");
    tally.check(&named("opens"), browser.open(page, 1280)).await;
    tally.check(&named("each chart has its series"), checks::charts(browser)).await;
    if ["first-look", "size-sweep", "target-interference"].contains(&name.as_str()) {
        tally.check(&named("the legend switches series"), checks::legend(browser)).await;
        tally.check(&named("hover shows the cell"), checks::hover(browser)).await;
        tally.check(&named("light and dark"), checks::theme(browser)).await;
        tally.check(&named("paper"), checks::print(browser)).await;
        tally.check(&named("a chart is saved"), checks::saving(browser)).await;
        tally.check(&named("a table is sorted"), checks::sorting(browser)).await;
        tally.check(&named("numbers by keyboard"), checks::numbers(browser)).await;
    }
    if name == "first-look" {
        tally.check(&named("six sheets of paper"), checks::sheets(browser, 6)).await;
    }
    tally.check(&named("the answer in tables"), checks::claims(browser, results)).await;
    tally.check(&named("each point has a number"), checks::every_point(browser)).await;
    tally.check(&named("links"), checks::links(browser)).await;
    tally.check(&named("fits every width"), checks::widths(browser)).await;
    tally.check(&named("tables of every width"), checks::tables(browser)).await;
    // A phone that opens it, not a desktop that becomes one.
    tally.check(&named("opens on a phone"), browser.open(page, 390)).await;
    tally.check(&named("each chart has its series on a phone"), checks::charts(browser)).await;
    tally.check(&named("console and network are silent"), checks::console(browser)).await;
}

/// The whole page, phone and desktop, light and dark.
async fn pictures(browser: &Browser, page: &Path, name: &Path) -> Result<()> {
    for (kind, width) in [("phone", 390), ("desktop", 1280)] {
        for scheme in ["light", "dark"] {
            checks::system_is(browser, scheme).await?;
            browser.open(page, width).await?;
            checks::draw_all(browser).await?;
            let name = format!("{}-{kind}-{scheme}.png", name.display());
            browser.screenshot(Path::new(&name)).await?;
        }
    }
    checks::system_is(browser, "light").await
}

/// Each figure by itself.
async fn figures(browser: &Browser, page: &Path, name: &Path) -> Result<()> {
    browser.open(page, 1000).await?;
    checks::draw_all(browser).await?;
    // Buttons are of no use in a picture.
    let hide = "document.querySelectorAll('.tools').forEach((tools) => tools.remove());";
    browser.script(hide, Vec::new()).await?;
    let boxes = browser
        .script(
            r#"return [...document.querySelectorAll("figure")].map((figure) => {
                const box = figure.getBoundingClientRect();
                return [box.x + scrollX, box.y + scrollY, box.width, box.height];
            });"#,
            Vec::new(),
        )
        .await?;
    let boxes: Vec<[f64; 4]> = serde_json::from_value(boxes)?;
    for (index, at) in boxes.into_iter().enumerate() {
        let path = format!("{}-{}.png", name.display(), index + 1);
        browser.picture(at, Path::new(&path)).await?;
    }
    Ok(())
}

/// Makes the pages.
fn pages(options: &Options, folder: &Path) -> Result<Vec<Page>> {
    if !options.results.is_empty() {
        return options.results.iter().map(|results| page_of(options, results, folder)).collect();
    }
    let mut pages = Vec::new();
    let wanted = |name: &str| {
        let named = options.filter.as_ref().is_none_or(|filter| name.contains(filter));
        named && (!options.brief || BRIEF.contains(&name))
    };
    for (name, studies) in PAGES.iter().filter(|(name, _)| wanted(name)) {
        let mut results = Vec::new();
        for study in *studies {
            let directory = folder.join(study);
            made_up::write(study, &Machine::default(), &directory)?;
            results.push(directory);
        }
        let path = folder.join(format!("{name}.html"));
        report(&options.weft, &results, &path)?;
        pages.push(Page { name: (*name).to_owned(), path, results });
    }
    if pages.is_empty() {
        bail!("no page is called so");
    }
    Ok(pages)
}

/// The page of one directory of results, called as that is.
fn page_of(options: &Options, results: &Path, folder: &Path) -> Result<Page> {
    let name = results.file_name().context("results are in a directory")?;
    let name = name.to_string_lossy().into_owned();
    let path = folder.join(format!("{name}.html"));
    let results = vec![results.to_owned()];
    report(&options.weft, &results, &path)?;
    Ok(Page { name, path, results })
}

fn report(weft: &Path, results: &[PathBuf], page: &Path) -> Result<()> {
    let mut command = Command::new(weft);
    command.arg("report").args(results).arg("--out").arg(page);
    let output = command.output().with_context(|| format!("cannot run {}", weft.display()))?;
    if !output.status.success() {
        bail!("weft report: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
