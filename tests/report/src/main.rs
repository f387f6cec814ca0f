//! placeholder
fn main() {
    let out = std::env::args().nth(1).expect("a folder");
    let out = std::path::Path::new(&out);
    let studies: Vec<String> = std::env::args().skip(2).collect();
    let mut dirs = Vec::new();
    for study in &studies {
        let dir = out.join(study);
        report_page::made_up::write(study, &Default::default(), &dir).expect("results");
        weft_lab::html::write_report(&[&dir], &out.join(format!("{study}.html"))).expect("a page");
        dirs.push(dir);
    }
    let dirs: Vec<&std::path::Path> = dirs.iter().map(|d| d.as_path()).collect();
    weft_lab::html::write_report(&dirs, &out.join("all.html")).expect("a page");
}
