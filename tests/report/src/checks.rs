//! Checks of a page in a browser.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::browser::Browser;

/// Common widths of windows: a phone, a tablet, two desktops.
pub(crate) const WIDTHS: [u32; 4] = [390, 820, 1280, 1920];

/// The console has no errors or warnings, and nothing was loaded.
pub(crate) async fn console(browser: &Browser) -> Result<()> {
    let entries = browser.log("browser").await?;
    let bad = |entry: &&Value| ["SEVERE", "WARNING"].iter().any(|level| entry["level"] == *level);
    if let Some(entry) = entries.iter().find(bad) {
        bail!("the console reports: {}", entry["message"]);
    }
    for entry in browser.log("performance").await? {
        let message: Value =
            serde_json::from_str(entry["message"].as_str().context("an entry has a message")?)?;
        let parameters = &message["message"]["params"];
        // The browser's own pages load things, too.
        let ours = parameters["documentURL"].as_str().is_some_and(|page| page.starts_with("file:"));
        if let (true, Some(url)) = (ours, parameters["request"]["url"].as_str()) {
            let local = ["file:", "data:", "blob:"].iter().any(|scheme| url.starts_with(scheme));
            ensure!(local, "the page loads {url}");
        }
    }
    Ok(())
}

/// Every chart has all its series, each drawn and in the legend.
pub(crate) async fn charts(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    let charts = browser
        .script(
            r#"const wanted = JSON.parse(document.getElementById("charts").textContent);
            return [...document.querySelectorAll("[data-chart]")].map((place) => ({
                title: place.getAttribute("aria-label"),
                wanted: wanted[Number(place.dataset.chart)].traces.map((trace) => trace.name),
                has: (place.data || []).map((trace) => trace.name),
                drawn: place.querySelectorAll(".scatterlayer .trace, .barlayer .trace").length,
                marks: [...place.querySelectorAll(".scatterlayer .trace, .barlayer .trace")]
                    .map((trace) => trace.querySelectorAll("path").length),
                legend: [...place.querySelectorAll(".legendtext")].map((text) => text.textContent),
                height: place.querySelector(".main-svg")?.getBoundingClientRect().height ?? 0,
            }));"#,
            Vec::new(),
        )
        .await?;
    let charts = charts.as_array().context("a list of charts")?;
    let wanted = "JSON.parse(document.getElementById('charts').textContent).length";
    let wanted = browser.value(wanted).await?.as_u64().context("a count")?;
    ensure!(wanted == charts.len() as u64, "{} charts of {wanted} are there", charts.len());
    // A study may have tables only, but at least one figure.
    let figures = browser.value("document.querySelectorAll('figure').length").await?;
    ensure!(figures.as_u64().is_some_and(|count| count > 0), "the page has no figure");
    for chart in charts {
        let title = &chart["title"];
        let count = chart["wanted"].as_array().map_or(0, Vec::len);
        ensure!(count > 0, "{title} wants no series");
        ensure!(
            chart["wanted"] == chart["has"],
            "{title}: {} not {}",
            chart["has"],
            chart["wanted"]
        );
        ensure!(chart["drawn"] == count, "{title}: {} of {count} series drawn", chart["drawn"]);
        let marks = chart["marks"].as_array().context("a list")?;
        ensure!(
            marks.iter().all(|marks| *marks != 0),
            "{title}: a series shows nothing: {marks:?}"
        );
        let legend = chart["legend"].as_array().context("a list")?;
        let wanted = chart["wanted"].as_array().context("a list")?;
        let unnamed = wanted.iter().find(|name| count > 1 && !legend.contains(name));
        ensure!(unnamed.is_none(), "{title}: {unnamed:?} is not in the legend {legend:?}");
        ensure!(chart["height"].as_f64().is_some_and(|height| height > 150.0), "{title} is flat");
    }
    Ok(())
}

pub(crate) async fn draw_all(browser: &Browser) -> Result<()> {
    browser
        .script("window.weftReport.drawAll().then(() => { window.allDrawn = true; });", vec![])
        .await?;
    browser.wait("window.allDrawn === true").await
}

/// The middle of something in the window, scrolled to.
async fn place_of(browser: &Browser, expression: &str) -> Result<(f64, f64)> {
    let script = format!(
        r#"const found = {expression};
        if (!found) {{ return null; }}
        found.scrollIntoView({{ block: "center" }});
        const box = found.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];"#
    );
    let place = browser.script(&script, Vec::new()).await?;
    match (place[0].as_f64(), place[1].as_f64()) {
        (Some(x), Some(y)) => Ok((x, y)),
        _ => bail!("the page has no {expression}"),
    }
}

/// The chart that legend and hover are tried on: the first with several lines.
const CHART: &str = "[...document.querySelectorAll('[data-chart]')].find((place) => \
                     place.data.length > 1 && place.querySelector('.scatterlayer .point'))";

/// A click on a legend's entry takes a series away, another one brings it back.
pub(crate) async fn legend(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    let entry = format!("{CHART}.querySelector('.legendtoggle')");
    let shown = format!("{CHART}.querySelectorAll('.scatterlayer .trace').length");
    let all = browser.value(&shown).await?.as_u64().context("a count")?;
    let (x, y) = place_of(browser, &entry).await?;
    browser.click(x, y).await?;
    browser.wait(&format!("{CHART}.data[0].visible === 'legendonly'")).await?;
    browser.wait(&format!("{shown} === {}", all - 1)).await?;
    // It stays away in other colours.
    theme_is(browser, "dark", true).await?;
    browser.wait(&format!("{shown} === {}", all - 1)).await?;
    theme_is(browser, "auto", false).await?;
    let (x, y) = place_of(browser, &entry).await?;
    browser.click(x, y).await?;
    browser.wait(&format!("{shown} === {all}")).await
}

/// Pointing at a point shows its cell.
pub(crate) async fn hover(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    let point = format!("{CHART}.querySelector('.scatterlayer .point')");
    let (x, y) = place_of(browser, &point).await?;
    browser.point_at(x + 40.0, y + 40.0).await?;
    browser.point_at(x, y).await?;
    let text = format!("({CHART}.querySelector('.hoverlayer .hovertext')?.textContent ?? '')");
    browser.wait(&format!("{text} !== ''")).await?;
    let text = browser.value(&text).await?;
    let text = text.as_str().context("a text")?;
    for part in ["IOPS", "n = ", "p99"] {
        ensure!(text.contains(part), "pointing at a point says {text:?}, nothing of {part:?}");
    }
    // Another series may have a point in the same place, and lie above.
    let first = "data.map((series) => (series.hovertext ?? [''])[0].split('<br>')[0])";
    let cells = browser.value(&format!("{CHART}.{first}")).await?;
    let cells: Vec<&str> =
        cells.as_array().context("a list")?.iter().filter_map(Value::as_str).collect();
    let told = cells.iter().any(|cell| !cell.is_empty() && text.contains(cell));
    ensure!(told, "pointing at one of {cells:?} says {text:?}");
    Ok(())
}

async fn theme_is(browser: &Browser, wish: &str, dark: bool) -> Result<()> {
    let script = "document.querySelector(`[data-set-theme=${arguments[0]}]`).click();";
    browser.script(script, vec![json!(wish)]).await?;
    browser.wait(&format!("document.documentElement.hasAttribute('data-dark') === {dark}")).await
}

/// Light and dark follow the system and the buttons, the charts as well.
pub(crate) async fn theme(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    let look = |name: &'static str| async move {
        let look = browser
            .script(
                r#"const style = getComputedStyle(document.body);
                const text = document.querySelector("[data-chart] .xtitle, [data-chart] .ytitle");
                const light = (colour) => {
                    const [r, g, b] = colour.match(/\d+(\.\d+)?/g).map(Number);
                    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
                };
                return [light(style.backgroundColor), light(style.color),
                    light(getComputedStyle(text).fill)];"#,
                Vec::new(),
            )
            .await?;
        let number = |index: usize| look[index].as_f64().with_context(|| format!("{name}: {look}"));
        Ok::<_, anyhow::Error>((number(0)?, number(1)?, number(2)?))
    };
    let check = |(ground, text, chart): (f64, f64, f64), dark: bool| {
        let apart = if dark { text - ground } else { ground - text };
        let chart = if dark { chart - ground } else { ground - chart };
        ensure!(apart > 0.5 && chart > 0.5, "ground {ground}, text {text}, chart {chart}");
        Ok(())
    };
    for (wish, dark) in [("dark", true), ("light", false)] {
        theme_is(browser, wish, dark).await?;
        check(look("button").await?, dark)?;
    }
    theme_is(browser, "auto", false).await?;
    for (system, dark) in [("dark", true), ("light", false)] {
        system_is(browser, system).await?;
        let wanted = format!("document.documentElement.hasAttribute('data-dark') === {dark}");
        browser.wait(&wanted).await?;
        check(look("system").await?, dark)?;
    }
    Ok(())
}

/// What the system prefers.
pub(crate) async fn system_is(browser: &Browser, scheme: &str) -> Result<()> {
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    browser.cdp("Emulation.setEmulatedMedia", features).await?;
    Ok(())
}

/// At no width does anything stand out to the side, and charts fill their frames.
pub(crate) async fn widths(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    for width in WIDTHS {
        browser.resize(width).await?;
        browser.wait(&format!("window.innerWidth === {width}")).await?;
        // Charts follow a moment later.
        let fits = "[...document.querySelectorAll('[data-chart]')].every((place) => \
                    Math.abs(place.querySelector('.main-svg').getBoundingClientRect().width \
                    - place.clientWidth) <= 1)";
        browser.wait(fits).await.with_context(|| format!("charts at {width} px"))?;
        let wide = browser
            .script(
                r#"const room = document.documentElement.clientWidth;
                const inside = (element) => element.closest(".scroll, svg, .chart") === null;
                const wide = [...document.body.querySelectorAll("*")].filter((element) =>
                    inside(element) && element.getBoundingClientRect().right > room + 1);
                return {
                    scroll: document.documentElement.scrollWidth, room,
                    wide: wide.slice(0, 3).map((element) => element.outerHTML.slice(0, 120)),
                };"#,
                Vec::new(),
            )
            .await?;
        ensure!(
            wide["scroll"].as_u64() <= wide["room"].as_u64() && wide["wide"] == json!([]),
            "at {width} px the page is {} px wide: {}",
            wide["scroll"],
            wide["wide"]
        );
    }
    Ok(())
}

/// Widths at which tables are looked into.
const TABLE_WIDTHS: [u32; 3] = [390, 1280, 1920];

/// Looks into each table: its frame is within the page; a table that is wider than its frame
/// scrolls there to its end; no text reaches out of its cell; words are in several lines.
const TABLES: &str = r#"
    const room = document.documentElement.clientWidth;
    const seen = { tables: 0, scrolled: 0, marks: 0, faults: [] };
    for (const table of document.querySelectorAll("table")) {
        const frame = table.closest(".scroll");
        const name = frame?.getAttribute("aria-label") ?? table.outerHTML.slice(0, 80);
        const say = (what) => seen.faults.push(`${name}: ${what}`);
        seen.tables += 1;
        if (!frame) { say("nothing scrolls it"); continue; }
        const around = () => frame.getBoundingClientRect();
        const inner = () => table.getBoundingClientRect();
        if (inner().width === 0) { say("it is not shown"); }
        const columns = [...(table.tHead?.rows[0].cells ?? [])];
        const far = columns.find((head) => head.textContent === "p99.99");
        if (far && room >= 1200 && far.getBoundingClientRect().right > around().right + 1) {
            say("p99.99 is out of sight");
        }
        if (around().left < -1 || around().right > room + 1) { say("its frame is cut"); }
        if (inner().width > frame.clientWidth + 1) {
            seen.scrolled += 1;
            const way = getComputedStyle(frame).overflowX;
            if (way !== "auto" && way !== "scroll") { say(`it is cut: overflow is ${way}`); }
            frame.scrollLeft = frame.scrollWidth;
            if (inner().right > around().right + 1) { say("its end is out of reach"); }
            frame.scrollLeft = 0;
            if (inner().left < around().left - 1) { say("its beginning is out of reach"); }
        }
        const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
        const marks = heads.indexOf("marks");
        if (marks >= 0) {
            seen.marks += 1;
            const isText = (row) => row.cells[marks].classList.contains("text");
            if (![...table.tBodies[0].rows].every(isText)) { say("its marks are no text"); }
        }
        for (const cell of table.querySelectorAll("th, td")) {
            const box = cell.getBoundingClientRect();
            const range = document.createRange();
            range.selectNodeContents(cell);
            const isOut = (line) => line.width > 0
                && (line.left < box.left - 1 || line.right > box.right + 1
                    || line.top < box.top - 1 || line.bottom > box.bottom + 1);
            const style = getComputedStyle(cell);
            const isHidden = style.overflowX === "hidden" || style.textOverflow === "ellipsis";
            const isLine = cell.matches("td.text") && style.whiteSpace !== "normal";
            const told = cell.textContent;
            if ([...range.getClientRects()].some(isOut)) { say(`${told} reaches out of its cell`); }
            if (isHidden) { say(`${told} is cut`); }
            if (isLine) { say(`${told} is one line`); }
        }
    }
    seen.faults = seen.faults.slice(0, 5);
    return seen;"#;

/// At no width is a text of a table cut or out of reach, however wide the table is.
pub(crate) async fn tables(browser: &Browser) -> Result<()> {
    let open = "document.querySelectorAll('details').forEach((one) => { one.open = true; });";
    browser.script(open, Vec::new()).await?;
    for width in TABLE_WIDTHS {
        browser.resize(width).await?;
        browser.wait(&format!("window.innerWidth === {width}")).await?;
        let seen = browser.script(TABLES, Vec::new()).await?;
        ensure!(seen["faults"] == json!([]), "at {width} px: {}", seen["faults"]);
        let has = |what: &str| seen[what].as_u64().is_some_and(|count| count > 0);
        ensure!(has("tables") && has("marks"), "at {width} px there are no tables: {seen}");
        // Otherwise nothing was tried.
        ensure!(width > 390 || has("scrolled"), "at {width} px no table is wider: {seen}");
    }
    Ok(())
}

/// Each claim of an answer is a table with a row for each contender, and says what `answer.json`
/// says.
pub(crate) async fn claims(browser: &Browser, results: &[PathBuf]) -> Result<()> {
    for (study, directory) in results.iter().enumerate() {
        let text = fs::read_to_string(directory.join("answer.json"))
            .with_context(|| format!("{}/answer.json", directory.display()))?;
        let answer: Value = serde_json::from_str(&text)?;
        let shown = browser
            .script(
                r#"const study = document.getElementById(`study-${arguments[0]}`);
                const text = (element) => element?.textContent ?? "";
                const box = study.querySelector(".answer");
                return {
                    sentence: text(box.querySelector(".sentence")),
                    tables: [...box.querySelectorAll("table.claim")].map((table) => ({
                        area: table.clientWidth * table.clientHeight,
                        rows: [...table.tBodies[0].rows].map((row) => [...row.cells].map(text)),
                    })),
                };"#,
                vec![json!(study)],
            )
            .await?;
        let name = &answer["study"];
        let (told, sentence) = (&shown["sentence"], &answer["sentence"]);
        ensure!(told == sentence, "{name}: the page says {told}, answer.json {sentence}");
        let tables = shown["tables"].as_array().context("tables")?;
        let claims = answer["claims"].as_array().context("claims")?;
        ensure!(tables.len() == claims.len(), "{name}: {} tables", tables.len());
        for (table, claim) in tables.iter().zip(claims) {
            ensure!(table["area"].as_f64().is_some_and(|area| area > 0.0), "{name}: not seen");
            let (shown, rows) = (table["rows"].as_array(), claim["rows"].as_array());
            let (shown, rows) = shown.zip(rows).context("rows")?;
            ensure!(shown.len() == rows.len(), "{name}: {} rows", shown.len());
            for (cells, row) in shown.iter().zip(rows) {
                is_row_of(cells, row).with_context(|| format!("{name}: {cells} of {row}"))?;
            }
        }
    }
    Ok(())
}

fn is_row_of(cells: &Value, row: &Value) -> Result<()> {
    let sign = match row["verdict"].as_str() {
        Some("yes") => "✓",
        Some("no") => "✗",
        Some("cannot-tell") => "?",
        _ => "",
    };
    ensure!(cells[0] == sign && cells[1] == row["contender"], "another contender or verdict");
    let is_number = |at: usize, number: &Value| -> Result<()> {
        if number.is_null() {
            return Ok(());
        }
        let unit = number["unit"].as_str().context("a unit")?;
        let is_same = |text: &str, value: &Value| -> Result<()> {
            let ((told, last_place), value) =
                number_of(text, unit).zip(value.as_f64()).context("no number")?;
            ensure!((told - value).abs() <= 0.51 * last_place, "{text} is not {value} {unit}");
            Ok(())
        };
        is_same(cells[at].as_str().context("a text")?, &number["value"])?;
        let interval = cells[at + 1].as_str().context("an interval")?;
        let interval = interval.trim_end_matches(", both repeats");
        match (interval.split_once(" to "), &number["interval"]) {
            (None, Value::Null) => Ok(()),
            (Some((low, high)), ends) => {
                is_same(low, &ends["low"])?;
                is_same(high, &ends["high"])
            }
            (None, ends) => bail!("{interval:?} is not {ends}"),
        }
    };
    is_number(2, &row["value"])?;
    is_number(4, &row["beside"])
}

/// The number of a text such as `12.3 K IOPS`, in a unit of `answer.json`, and what one of its last
/// digit is worth.
fn number_of(text: &str, unit: &str) -> Option<(f64, f64)> {
    let (sign, text) = match text.strip_prefix(['−', '-']) {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = text.split_at(end);
    let factor = match (unit, name.trim()) {
        ("IOPS", "" | "IOPS") | ("ns", "ns") | ("bytes/s", "B/s") | ("1/s", "/s") => 1.0,
        ("ratio", "×") | ("cores", "cores") | ("% of a core", "%") => 1.0,
        ("% of a core per Gb/s", "%/Gb/s") => 1.0,
        ("IOPS", "K" | "K IOPS") | ("1/s", "K/s") | ("ns", "µs") => 1e3,
        ("IOPS", "M" | "M IOPS") | ("1/s", "M/s") | ("ns", "ms") => 1e6,
        ("ns", "s") => 1e9,
        ("ratio", "%") => 0.01,
        ("bytes/s", "KiB/s") => 1024.0,
        ("bytes/s", "MiB/s") => 1024.0 * 1024.0,
        ("bytes/s", "GiB/s") => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let last_place = factor * 0.1_f64.powi(i32::try_from(decimals).ok()?);
    Some((sign * factor * number.parse::<f64>().ok()?, last_place))
}

/// On paper everything is drawn, and light, whatever the screen is.
pub(crate) async fn print(browser: &Browser) -> Result<()> {
    theme_is(browser, "dark", true).await?;
    let script = r#"window.dispatchEvent(new Event("beforeprint"));"#;
    browser.script(script, Vec::new()).await?;
    let drawn = "[...document.querySelectorAll('[data-chart]')].every((place) => \
                 place.querySelector('.main-svg') !== null)";
    browser.wait(drawn).await?;
    browser.wait("!document.documentElement.hasAttribute('data-dark')").await?;
    let script = r#"window.dispatchEvent(new Event("afterprint"));"#;
    browser.script(script, Vec::new()).await?;
    browser.wait("document.documentElement.hasAttribute('data-dark')").await?;
    let script = r#"window.dispatchEvent(new Event("beforeprint"));"#;
    browser.script(script, Vec::new()).await?;
    let fits = "[...document.querySelectorAll('[data-chart]')].every((place) => \
                place.querySelector('.main-svg').getBoundingClientRect().width \
                <= place.clientWidth + 1 && place.clientWidth < 700)";
    browser.wait(fits).await.context("charts as wide as paper")?;
    browser.script(r#"window.dispatchEvent(new Event("afterprint"));"#, Vec::new()).await?;
    let pdf = browser.cdp("Page.printToPDF", json!({ "printBackground": true })).await?;
    ensure!(pdf["data"].as_str().is_some_and(|data| data.len() > 20_000), "nothing was printed");
    Ok(())
}

/// A page fits this many sheets of paper (ISO A4, in inches).
pub(crate) async fn sheets(browser: &Browser, most: u32) -> Result<()> {
    draw_all(browser).await?;
    let sheet = |number: u32| {
        let range = number.to_string();
        json!({ "paperWidth": 8.27, "paperHeight": 11.69, "pageRanges": range })
    };
    browser.cdp("Page.printToPDF", sheet(1)).await?;
    // The browser refuses a page that there is not.
    let more = browser.cdp("Page.printToPDF", sheet(most + 1)).await;
    ensure!(more.is_err(), "the page takes more than {most} sheets of paper");
    Ok(())
}

/// What a button gives to be saved.
async fn saved(browser: &Browser, button: &str) -> Result<Value> {
    let keep = r#"if (!window.kept) {
            window.kept = [];
            const make = URL.createObjectURL.bind(URL);
            URL.createObjectURL = (blob) => { window.kept.push(blob); return make(blob); };
        }
        window.kept.length = 0;
        document.querySelector(arguments[0]).click();"#;
    browser.script(keep, vec![json!(button)]).await?;
    browser.wait("window.kept.length > 0").await?;
    browser
        .script("window.kept[0].text().then((text) => { window.text = text; });", vec![])
        .await?;
    browser.wait("window.text !== undefined").await?;
    let saved = "{ const saved = { type: window.kept.at(-1).type, size: window.kept.at(-1).size, \
                 text: window.text }; delete window.text; return saved; }";
    browser.script(saved, Vec::new()).await
}

/// A chart's data is saved as CSV, with the numbers that are drawn, and the chart as a picture.
pub(crate) async fn saving(browser: &Browser) -> Result<()> {
    draw_all(browser).await?;
    let csv = saved(browser, "figure:has([data-chart]) .tools button:nth-child(1)").await?;
    ensure!(csv["type"] == "text/csv", "CSV is {}", csv["type"]);
    let text = csv["text"].as_str().context("a text")?;
    let drawn = browser
        .script(
            r#"const chart = JSON.parse(document.getElementById("charts").textContent)[0];
            const points = (trace) => trace.x.map((x, index) => [x, trace.y[index]]);
            return chart.traces.flatMap(points);"#,
            Vec::new(),
        )
        .await?;
    let drawn = drawn.as_array().context("points")?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines[0].starts_with("series,"), "the first line is {:?}", lines[0]);
    ensure!(lines.len() == drawn.len() + 1, "{} lines of {} points", lines.len(), drawn.len());
    for (line, point) in lines[1..].iter().zip(drawn) {
        let told = line.rsplit(',').nth(2).and_then(|y| y.parse::<f64>().ok());
        let drawn = point[1].as_f64().context("a number")?;
        let is_same = told.is_some_and(|told| (told - drawn).abs() <= 1e-9 * drawn.abs());
        ensure!(is_same, "{line:?} is not {point}");
    }
    saved(browser, "figure:has([data-chart]) .tools button:nth-child(2)").await?;
    let is_picture = "window.kept.some((blob) => blob.type === 'image/png' && blob.size > 5000)";
    browser.wait(is_picture).await.context("a picture")
}

/// A table is sorted by the column whose head is activated, and the other way round by the next.
pub(crate) async fn sorting(browser: &Browser) -> Result<()> {
    // The last column of a chart over time has words.
    let table = "[...document.querySelectorAll('.figures:not(.small) figure table.grid')].at(-1)";
    let column = format!(
        "[...{table}.tBodies[0].rows].map((row) => [...row.cells].at(-1).textContent.trim())"
    );
    let head = format!("{table}.tHead.rows[0].cells[{table}.tHead.rows[0].cells.length - 1]");
    browser.script(&format!("{table}.scrollIntoView();"), Vec::new()).await?;
    let mut seen = Vec::new();
    for wanted in ["ascending", "descending"] {
        // The keyboard's way: what has the focus is activated.
        let act = format!(
            "const button = {head}.querySelector('button'); button.focus(); button.click();"
        );
        browser.script(&act, Vec::new()).await?;
        let is = browser.value(&format!("{head}.getAttribute('aria-sort')")).await?;
        ensure!(is == wanted, "the column is {is}, not {wanted}");
        seen.push(browser.value(&column).await?);
    }
    let numbers = |of: &Value| -> Vec<f64> {
        let texts = of.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.filter_map(|text| text.split(' ').next()?.parse().ok()).collect()
    };
    let (up, down) = (numbers(&seen[0]), numbers(&seen[1]));
    ensure!(up.len() > 1 && up.is_sorted(), "ascending: {}", seen[0]);
    ensure!(down.iter().rev().is_sorted(), "descending: {}", seen[1]);
    Ok(())
}

/// The keyboard opens the numbers of a chart and reaches them, and a screen reader gets their name.
pub(crate) async fn numbers(browser: &Browser) -> Result<()> {
    let details = "document.querySelector('figure:has([data-chart]) details')";
    browser.script(&format!("{details}.querySelector('summary').focus();"), Vec::new()).await?;
    browser.press("Enter", 13, "\r").await?;
    browser.wait(&format!("{details}.open")).await.context("Enter opens the numbers")?;
    browser.press("Tab", 9, "").await?;
    browser.wait(&format!("{details}.contains(document.activeElement)")).await?;
    let names = browser
        .script(
            "const figure = document.querySelector('figure:has([data-chart])');
            return [figure.querySelector('h4').dataset.title, document.activeElement.ariaLabel];",
            Vec::new(),
        )
        .await?;
    ensure!(names[0] == names[1], "the numbers of {} are called {}", names[0], names[1]);
    let title = names[0].as_str().context("a title")?;
    let tree = browser.cdp("Accessibility.getFullAXTree", json!({})).await?;
    let nodes = tree["nodes"].as_array().context("nodes")?;
    let summary = format!("Numbers of “{title}”");
    for (role, name) in [("region", title), ("DisclosureTriangle", &summary), ("image", title)] {
        let is = |node: &&Value| node["role"]["value"] == role && node["name"]["value"] == name;
        ensure!(nodes.iter().any(|node| is(&node)), "a screen reader finds no {role} {name:?}");
    }
    browser.script(&format!("{details}.open = false;"), Vec::new()).await?;
    Ok(())
}

/// Every point that is drawn has a number in the table of its figure. Distributions have their
/// percentiles, one row each.
pub(crate) async fn every_point(browser: &Browser) -> Result<()> {
    let lost = browser
        .script(
            r#"const charts = JSON.parse(document.getElementById("charts").textContent);
            const text = (cell) => cell.textContent.trim();
            return [...document.querySelectorAll("[data-chart]")].flatMap((place) => {
                const table = place.closest("figure").querySelector("details table");
                const heads = [...table.tHead.rows[0].cells].map(text);
                const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map(text));
                const has = (trace) => {
                    const column = heads.indexOf(trace.name);
                    if (column > 0) {
                        const told = rows.filter((row) => /\d|unresolved/.test(row[column]));
                        return told.length >= trace.x.length;
                    }
                    const row = rows.find((row) => row[0] === trace.name);
                    return row ? /\d/.test(row[1]) : rows.length >= trace.x.length;
                };
                const traces = charts[Number(place.dataset.chart)].traces;
                return traces.filter((trace) => !trace.meta.rings && !has(trace))
                    .map((trace) => `${place.getAttribute("aria-label")}: ${trace.name}`);
            });"#,
            Vec::new(),
        )
        .await?;
    ensure!(lost == json!([]), "not all points have numbers: {lost}");
    Ok(())
}

/// Each link within the page leads to a part of it, and each figure has one.
pub(crate) async fn links(browser: &Browser) -> Result<()> {
    let lost = "[...document.querySelectorAll('a[href^=\"#\"]')].filter((link) => \
                document.querySelectorAll(`[id=\"${link.hash.slice(1)}\"]`).length !== 1)\
                .map((link) => link.outerHTML)";
    let lost = browser.value(lost).await?;
    ensure!(lost == json!([]), "these links lead nowhere, or to several places: {lost}");
    let figures = "[...document.querySelectorAll('figure')].every((figure) => \
                   figure.id !== '' && document.querySelector(`nav a[href=\"#${figure.id}\"]`))";
    ensure!(browser.value(figures).await? == true, "a figure has no link in the contents");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_says_something_else_is_found() {
        let row = json!({
            "contender": "tcp@lo", "verdict": "cannot-tell", "beside": null,
            "value": {
                "value": 12_340.0, "unit": "ns", "interval": { "low": 12_000.0, "high": 12_680.0 },
            },
        });
        let cells = json!(["?", "tcp@lo", "12.34 µs", "12.00 µs to 12.68 µs", "", ""]);
        assert!(is_row_of(&cells, &row).is_ok());
        for (at, wrong) in ["✓", "rdma@lo", "12.43 µs", "12.00 µs to 12.86 µs"].iter().enumerate()
        {
            let mut other = cells.clone();
            other[at] = json!(wrong);
            assert!(is_row_of(&other, &row).is_err(), "{wrong}");
        }
        let mut one = row.clone();
        one["value"]["interval"] = Value::Null;
        assert!(is_row_of(&cells, &one).is_err(), "an interval that the data does not have");
    }

    #[test]
    fn texts_are_numbers_of_their_unit() {
        for (text, unit, value) in [
            ("12.3 K IOPS", "IOPS", 12_300.0),
            ("987 IOPS", "IOPS", 987.0),
            ("−1.50 µs", "ns", -1_500.0),
            ("25.0 %", "ratio", 0.25),
            ("3.00 ×", "ratio", 3.0),
            ("1.50 GiB/s", "bytes/s", 1.5 * 1_073_741_824.0),
            ("2.50 cores", "cores", 2.5),
        ] {
            let (told, _) = number_of(text, unit).expect(text);
            assert!((told - value).abs() < 1e-9 * value.abs(), "{text}: {told}");
        }
        assert_eq!(number_of("12.3 furlongs", "ns"), None);
    }
}
