//! fio-plot, from PyPI, reads what `weft bench` writes: the JSON report and the logs.

use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;
use xtask::cargo;
use xtask::python::{self, succeeded};
use xtask::report::Report;

/// The version that the files are tested with.
const PACKAGE: &str = "fio-plot==1.1.21";

/// fio-plot finds files by these names.
const JOB: &str = "\
[global]
ioengine=io_uring
rw=randread
bs=4k
iodepth=4
time_based
runtime=3
filename=data
[job]
write_bw_log=randread-iodepth-4-numjobs-1
write_lat_log=randread-iodepth-4-numjobs-1
write_iops_log=randread-iodepth-4-numjobs-1
log_avg_msec=250
";

/// What is drawn, from the logs and from the report.
const DRAWINGS: &[&[&str]] =
    &[&["-g", "-t", "iops", "lat", "bw"], &["-l"], &["-L", "-t", "iops"], &["-H"]];

/// Draws a result of each kind.
pub(crate) fn run(root: &Path, report: &mut Report) {
    report.check("fio-plot draws reports and logs", || {
        let programs = python::install(root, PACKAGE, "fio-plot")?;
        let folder = cargo::target_folder(root).join("fio-plot");
        std::fs::create_dir_all(&folder)?;
        std::fs::File::create(folder.join("data"))?.set_len(16 << 20)?;
        std::fs::write(folder.join("job.fio"), JOB)?;
        let words = ["bench", "job.fio", "--quiet", "-o", "json", "--output", "randread-4-1.json"];
        let weft = cargo::build_binary(root)?;
        succeeded(Command::new(weft).args(words).current_dir(&folder))?;
        for drawing in DRAWINGS {
            let picture = folder.join(format!("drawn{}.png", drawing[0]));
            let _ = std::fs::remove_file(&picture);
            let mut command = Command::new(programs.join("fio-plot"));
            command.args(["-i", ".", "-T", "weft", "-r", "randread", "-d", "4", "-n", "1", "-o"]);
            let said = succeeded(command.arg(&picture).args(*drawing).current_dir(&folder))?;
            let bytes = std::fs::metadata(&picture).context(said)?.len();
            ensure!(bytes > 20_000, "{}: {bytes} bytes", picture.display());
        }
        Ok(())
    });
}
