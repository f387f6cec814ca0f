//! Packs the charting library for the pages that the program writes.
//!
//! plotly.js comes with its own Rust crate, so that neither the repository nor a build has to fetch
//! it from elsewhere. It is taken out of there at build time and compressed (4.6 MB to 1.4 MB): the
//! binary carries only that, and a page carries the same bytes and lets the browser inflate them.

use std::io::Write;
use std::path::PathBuf;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let scripts = plotly::Plot::offline_js_sources();
    // The first script is the library; the other one, for formulas, is not needed.
    let library = scripts
        .split_once("<script type=\"text/javascript\">")
        .and_then(|(_, rest)| rest.split_once("</script>\n"))
        .map(|(library, _)| library)
        .filter(|library| library.contains("plotly.js v"))
        .ok_or("the plotly crate does not hold its library where it used to")?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(library.as_bytes())?;
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo tells no OUT_DIR")?);
    fs::write(folder.join("plotly.js.gz"), encoder.finish()?)?;
    Ok(())
}
