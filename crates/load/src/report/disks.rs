//! What the disks below the devices did meanwhile: fio's `disk_util`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

/// The fields of a disk's `stat` (Documentation/block/stat.rst of Linux) that are reported, with
/// their places there.
const FIELDS: [(&str, usize); 9] = [
    ("read_ios", 0),
    ("write_ios", 4),
    ("read_merges", 1),
    ("write_merges", 5),
    ("read_sectors", 2),
    ("write_sectors", 6),
    ("read_ticks", 3),
    ("write_ticks", 7),
    ("in_queue", 10),
];
const IO_TICKS: usize = 9;

/// The disks that files and block devices are on, and their counters at a time.
#[derive(Debug, Default)]
pub struct Disks {
    disks: Vec<(PathBuf, Vec<u64>)>,
    since: Duration,
}

impl Disks {
    /// Of what is at these paths; what is on no disk (memory, another machine) has none.
    #[must_use]
    pub fn below<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut disks: Vec<(PathBuf, Vec<u64>)> = Vec::new();
        for disk in paths.into_iter().filter_map(disk) {
            if let Some(counters) = counters(&disk).filter(|_| disks.iter().all(|d| d.0 != disk)) {
                disks.push((disk, counters));
            }
        }
        Self { disks, since: weft_reactor::monotonic_time() }
    }

    /// What they have done since then, or none without a disk.
    #[must_use]
    pub fn used(&self) -> Option<Value> {
        let millis = (weft_reactor::monotonic_time() - self.since).as_secs_f64() * 1e3;
        let used = self.disks.iter().filter_map(|(disk, before)| {
            let now = counters(disk)?;
            let since = |place: usize| {
                let of = |counters: &[u64]| counters.get(place).copied().unwrap_or(0);
                of(&now).saturating_sub(of(before))
            };
            let mut used = json!({ "name": disk.file_name()?.to_string_lossy() });
            for (name, place) in FIELDS {
                used[name] = json!(since(place));
            }
            let util = 100.0 * since(IO_TICKS) as f64 / millis.max(1.0);
            used["util"] = json!(util.min(100.0));
            Some(used)
        });
        Some(Value::Array(used.collect())).filter(|_| !self.disks.is_empty())
    }
}

/// The folder in sysfs of the disk that a file or block device is on; of a partition its whole.
fn disk(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    let is_node = metadata.file_type().is_block_device();
    let device = if is_node { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let found = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if found.join("partition").exists() { found.parent().map(PathBuf::from) } else { Some(found) }
}

fn counters(disk: &Path) -> Option<Vec<u64>> {
    let text = fs::read_to_string(disk.join("stat")).ok()?;
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}
