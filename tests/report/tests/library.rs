//! The charting library that pages carry is the one in its Rust crate.

use std::fs::{self, File};
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/lab/src/html/plotly.js.gz");

/// With this variable the library is written there.
const WRITE: &str = "WEFT_WRITE_LIBRARY";

#[test]
fn the_library_of_pages_is_that_of_its_crate() {
    let scripts = plotly::Plot::offline_js_sources();
    // The first script is the library; the other one, for formulas, is not needed.
    let library = scripts
        .split_once("<script type=\"text/javascript\">")
        .and_then(|(_, rest)| rest.split_once("</script>\n"))
        .map(|(library, _)| library)
        .filter(|library| library.contains("plotly.js v"))
        .expect("the plotly crate holds its library where it used to");
    if std::env::var_os(WRITE).is_some() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(library.as_bytes()).expect("memory");
        fs::write(KEPT, encoder.finish().expect("memory")).expect(KEPT);
    }
    let mut kept = String::new();
    GzDecoder::new(File::open(KEPT).expect(KEPT)).read_to_string(&mut kept).expect(KEPT);
    assert!(kept == library, "{KEPT} is of another version: run this test with {WRITE}=1");
}
