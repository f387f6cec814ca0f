//! SPDK's methods for block devices.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::DeviceSpec;
use weft_backend::bytes::exact;
use weft_backend::rbd::CephSpec;
use weft_rpc::{Code, ErrorObject, Methods};
use weft_statistics::ns;
use weft_target::config::{Bdev, BdevKind, BdevLimits, HexId, identity};
use weft_target::steps::Step;
use weft_target::{DeviceTimes, StatisticsReader};

use super::error::{invalid, no_device};
use super::found::{NamedBdev, bdevs};
use super::method::method;
use super::operator::Operator;
use super::parameters::Params;

/// Ticks of time, as SPDK calls them: here they are ns.
pub(super) const TICK_RATE: u64 = 1_000_000_000;

type Answer = Result<Value, ErrorObject>;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    type Handler = fn(&Operator, Value) -> Answer;
    let all: [(&'static str, Handler); 21] = [
        ("bdev_malloc_create", |operator, params| create_sized(operator, params, BdevKind::Malloc)),
        ("bdev_malloc_delete", |operator, params| delete(operator, params, BdevKind::Malloc)),
        ("bdev_null_create", |operator, params| create_sized(operator, params, BdevKind::Null)),
        ("bdev_null_delete", |operator, params| delete(operator, params, BdevKind::Null)),
        ("bdev_null_resize", |operator, params| resize_mebibytes(operator, params, BdevKind::Null)),
        ("bdev_aio_create", |operator, params| create_stored(operator, params, BdevKind::Aio)),
        ("bdev_aio_delete", |operator, params| delete(operator, params, BdevKind::Aio)),
        ("bdev_aio_rescan", rescan),
        ("bdev_uring_create", |operator, params| create_stored(operator, params, BdevKind::Uring)),
        ("bdev_uring_delete", |operator, params| delete(operator, params, BdevKind::Uring)),
        ("bdev_uring_rescan", rescan),
        ("bdev_delay_create", create_delay),
        ("bdev_delay_delete", |operator, params| delete(operator, params, BdevKind::Delay)),
        ("bdev_device_create", create_device),
        ("bdev_device_delete", |operator, params| delete(operator, params, BdevKind::Device)),
        ("bdev_delete", |operator, params| delete(operator, params, None)),
        ("bdev_resize", resize),
        ("bdev_set_qos_limit", set_qos_limit),
        ("bdev_get_bdevs", get_bdevs),
        ("bdev_get_iostat", get_iostat),
        ("bdev_wait_for_examine", |_, params| {
            Params::of(params)?.end()?;
            // Nothing is created on its own account.
            Ok(true.into())
        }),
    ];
    all.into_iter()
        .fold(methods, |methods, (name, handler)| method(methods, operator, name, handler))
}

/// Creates a block device with the name and UUID that are asked for.
pub(super) fn create(
    operator: &Operator,
    kind: BdevKind,
    name: Option<String>,
    device: DeviceSpec,
    uuid: Option<HexId<16>>,
) -> Answer {
    let name = match name {
        Some(name) => name,
        None => unused_name(operator, kind)?,
    };
    let uuid = match (uuid, device.path()) {
        (Some(uuid), _) => uuid.0,
        (None, Some(path)) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            identity::bdev(&path.display().to_string())
        }
        (None, None) => match device.stored_name() {
            Some(name) => identity::bdev(&name),
            None => Uuid::new_v4().into_bytes(),
        },
    };
    let bdev = Bdev { name: name.clone(), kind, device, base: None, uuid };
    operator.bdev_step(&Step::CreateBdev(bdev))?;
    Ok(name.into())
}

/// The parameters of a delay: the average and the 99th percentile of reads and of writes, in µs.
const LATENCIES: [(&str, &str); 2] =
    [("avg_read_latency", "p99_read_latency"), ("avg_write_latency", "p99_write_latency")];

/// A block device that is another one with a delay, as which it is the only one to be used.
fn create_delay(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let (name, base): (String, String) = (params.need("name")?, params.need("base_bdev_name")?);
    let mut delays = [Duration::ZERO; 2];
    for (delay, (average, p99)) in delays.iter_mut().zip(LATENCIES) {
        let us: u64 = params.need(average)?;
        if params.take::<u64>(p99)?.is_some_and(|p99| p99 != us) {
            let what = format_args!("{p99} is {average} here, since each request waits as long");
            return Err(params.error(what));
        }
        *delay = Duration::from_micros(us);
    }
    let uuid: Option<HexId<16>> = params.parse("uuid")?;
    params.end()?;
    let [read, write] = delays;
    let block_bytes = weft_backend::BLOCK_BYTES_DEFAULT;
    let inner = Box::new(DeviceSpec::Null { bytes: block_bytes.into(), block_bytes });
    let bdev = Bdev {
        name: name.clone(),
        kind: BdevKind::Delay,
        // The step knows the device of the other one.
        device: DeviceSpec::Delay { read, write, inner },
        base: Some(base),
        uuid: uuid.map_or_else(|| Uuid::new_v4().into_bytes(), |id| id.0),
    };
    operator.bdev_step(&Step::CreateBdev(bdev))?;
    Ok(name.into())
}

/// The parameters that make the delay of a block device.
pub(super) fn delay_params(bdev: &NamedBdev) -> Value {
    let mut params = json!({ "name": bdev.name, "base_bdev_name": bdev.base });
    if let DeviceSpec::Delay { read, write, .. } = &bdev.device {
        for (delay, (average, p99)) in [read, write].into_iter().zip(LATENCIES) {
            let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            (params[average], params[p99]) = (us.into(), us.into());
        }
    }
    params
}

/// `Malloc0`, `Ceph0` and so on, as SPDK names devices without a name.
fn unused_name(operator: &Operator, kind: BdevKind) -> Result<String, ErrorObject> {
    let stem = match kind {
        BdevKind::Malloc => "Malloc",
        BdevKind::Rbd => "Ceph",
        _ => "Null",
    };
    operator.with(|target| {
        let config = target.config();
        let mut names = (0..).map(|number| format!("{stem}{number}"));
        names.find(|name| config.bdev(name).is_none()).unwrap_or_default()
    })
}

fn create_sized(operator: &Operator, params: Value, kind: BdevKind) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let (blocks, block_bytes): (u64, u32) =
        (params.need("num_blocks")?, params.need("block_size")?);
    let name = match kind {
        BdevKind::Malloc => params.take("name")?,
        _ => Some(params.need("name")?),
    };
    let uuid = params.parse("uuid")?;
    // Hints to applications on the same machine.
    params.ignore(&["physical_block_size", "optimal_io_boundary", "numa_id"]);
    params.ignore(&["preferred_write_granularity", "preferred_write_alignment"]);
    params.ignore(&["preferred_unmap_granularity", "preferred_unmap_alignment"]);
    params.ignore(&["optimal_write_size"]);
    params.refuse(&["md_size", "md_interleave", "dif_type", "dif_pi_format"])?;
    params.refuse(&["dif_is_head_of_md"])?;
    let bytes = blocks.checked_mul(block_bytes.into()).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| params.error("num_blocks: no such size is possible"))?;
    params.end()?;
    let device = match kind {
        BdevKind::Malloc => DeviceSpec::Memory { bytes, block_bytes },
        _ => DeviceSpec::Null { bytes, block_bytes },
    };
    create(operator, kind, name, device, uuid)
}

fn create_stored(operator: &Operator, params: Value, kind: BdevKind) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let (name, path): (String, PathBuf) = (params.need("name")?, params.need("filename")?);
    let block_bytes: Option<u32> = params.take("block_size")?.filter(|bytes| *bytes > 0);
    let read_only = params.take("readonly")?.unwrap_or(false);
    let uuid = params.parse("uuid")?;
    // Whether a request may wait in the kernel, which no request does here.
    params.ignore(&["nowait"]);
    params.refuse(&["fallocate"])?;
    params.end()?;
    let found = path.metadata().map_err(|error| {
        let code = Code(-i64::from(error.raw_os_error().unwrap_or(5)));
        ErrorObject::new(code, format!("{}: {error}", path.display()))
    })?;
    let device = if found.file_type().is_block_device() {
        DeviceSpec::Block { path, read_only, shared: false, polled: false }
    } else {
        let (create_bytes, direct, shared) = (None, None, false);
        DeviceSpec::File { path, create_bytes, block_bytes, direct, read_only, shared }
    };
    create(operator, kind, Some(name), device, uuid)
}

/// Any device that the command line can write, which SPDK does not have.
fn create_device(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: String = params.need("name")?;
    let device: Option<DeviceSpec> = params.parse("device")?;
    let device = device.ok_or_else(|| params.error("device is missing, like memory:1GiB"))?;
    let uuid = params.parse("uuid")?;
    params.end()?;
    create(operator, BdevKind::Device, Some(name), device, uuid)
}

pub(super) fn delete(
    operator: &Operator,
    params: Value,
    kind: impl Into<Option<BdevKind>>,
) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name = params.need("name")?;
    params.end()?;
    operator.bdev_step(&Step::DeleteBdev { name, kind: kind.into() })?;
    Ok(true.into())
}

pub(super) fn resize_mebibytes(operator: &Operator, params: Value, kind: BdevKind) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let (name, mebibytes): (String, u64) = (params.need("name")?, params.need("new_size")?);
    params.end()?;
    let bytes = mebibytes.checked_mul(1 << 20).ok_or_else(|| invalid("new_size is too large"))?;
    make_size(operator, name, Some(kind), bytes)
}

/// A size in bytes for a device of any kind, which SPDK does not have.
fn resize(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let (name, bytes) = (params.need("name")?, params.need("size")?);
    params.end()?;
    make_size(operator, name, None, bytes)
}

/// Gives a block device another size. Files and images only grow: what lies behind a smaller size
/// would be lost.
fn make_size(operator: &Operator, name: String, kind: Option<BdevKind>, bytes: u64) -> Answer {
    let found =
        operator.with(|target| bdevs(target).into_iter().find(|one| one.is_called(&name)))?;
    let grows =
        |one: &NamedBdev| matches!(one.device, DeviceSpec::File { .. } | DeviceSpec::Rbd(_));
    if let Some(found) = found.filter(grows) {
        let present = found.blocks.saturating_mul(found.block_bytes.into());
        if bytes < present {
            let present = exact(present);
            let what = format!("{name} has {present}, and a file or image is not made smaller");
            return Err(ErrorObject::new(Code(-22), format!("Invalid argument: {what}")));
        }
    }
    operator.bdev_step(&Step::ResizeBdev { name, kind, bytes })?;
    Ok(true.into())
}

fn rescan(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name = params.need("name")?;
    params.end()?;
    operator.bdev_step(&Step::RescanBdev { name })?;
    Ok(true.into())
}

/// Sets the limits that are given; the others stay. 0 lifts a limit.
fn set_qos_limit(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: String = params.need("name")?;
    let given = LIMITS.map(|word| params.take::<u64>(word));
    params.end()?;
    let mut limits = operator.with(|target| {
        let all = bdevs(target);
        let found = all.iter().find(|bdev| bdev.is_called(&name));
        found.map(|bdev| (bdev.name.clone(), bdev.limits))
    })?;
    let Some((name, limits)) = &mut limits else {
        return Err(no_device(format_args!("there is no {name}")));
    };
    let mut any = false;
    for (place, value) in places(limits).into_iter().zip(given) {
        // The largest number stands for a limit that is not given.
        if let Some(value) = value?.filter(|value| *value != u64::MAX) {
            *place = value;
            any = true;
        }
    }
    if !any {
        let what = format!("No rate limits specified: give {}", LIMITS.join(", "));
        return Err(ErrorObject::new(Code(-22), what));
    }
    operator.bdev_step(&Step::LimitBdev { name: name.clone(), limits: *limits })?;
    let warning = operator.with(|target| limits.warning(name, &target.config().limits))?;
    warning.iter().for_each(|what| log::warn!("{what}"));
    Ok(true.into())
}

/// SPDK's words for the limits of a block device.
const LIMITS: [&str; 4] =
    ["rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec"];

/// The limits, in the order of their words.
const fn places(limits: &mut BdevLimits) -> [&mut u64; 4] {
    let BdevLimits { rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec, w_mbytes_per_sec } =
        limits;
    [rw_ios_per_sec, rw_mbytes_per_sec, r_mbytes_per_sec, w_mbytes_per_sec]
}

fn get_bdevs(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let name: Option<String> = params.take("name")?;
    // How long to wait for a device that is not there yet: nothing here makes one by itself.
    params.ignore(&["timeout"]);
    params.end()?;
    let (all, clusters) =
        operator.with(|target| (bdevs(target), target.config().operated.ceph_clusters.clone()))?;
    let wanted: Vec<&NamedBdev> =
        all.iter().filter(|bdev| name.as_ref().is_none_or(|name| bdev.is_called(name))).collect();
    match name {
        Some(name) if wanted.is_empty() => Err(no_device(format_args!("there is no {name}"))),
        _ => Ok(wanted.into_iter().map(|bdev| as_json(bdev, &clusters)).collect()),
    }
}

impl NamedBdev {
    /// Whether this is its name, or its UUID, which is an alias.
    fn is_called(&self, name: &str) -> bool {
        self.name == name || Uuid::from_bytes(self.uuid).to_string() == name
    }
}

fn as_json(bdev: &NamedBdev, clusters: &BTreeMap<String, CephSpec>) -> Value {
    let uuid = Uuid::from_bytes(bdev.uuid).to_string();
    let product = match bdev.kind {
        BdevKind::Malloc => "Malloc disk",
        BdevKind::Null => "Null disk",
        BdevKind::Aio => "AIO disk",
        BdevKind::Uring => "URING bdev",
        BdevKind::Rbd => "Ceph Rbd Disk",
        BdevKind::Delay => "delay",
        BdevKind::Device => "weft device",
    };
    let path = bdev.device.path().map(|path| path.display().to_string());
    let writable = !bdev.device.is_read_only();
    let is_claimed = bdev.user.is_some() || bdev.is_base;
    let specific = match &bdev.device {
        DeviceSpec::File { .. } | DeviceSpec::Block { .. } => {
            let word = bdev.kind.word();
            json!({ word: { "filename": path, "readonly": !writable } })
        }
        DeviceSpec::Rbd(spec) => {
            let mut params = super::rbd::create_params(spec, bdev.block_bytes, clusters);
            params.as_object_mut().map(|params| params.remove("block_size"));
            json!({ "rbd": params })
        }
        _ if bdev.kind == BdevKind::Delay => json!({ "delay": delay_params(bdev) }),
        device if bdev.kind == BdevKind::Device => {
            json!({ "device": { "device": device.to_string() } })
        }
        _ => json!({}),
    };
    let mut json = json!({
        "name": bdev.name,
        "aliases": [uuid],
        "product_name": product,
        "block_size": bdev.block_bytes,
        "num_blocks": bdev.blocks,
        "uuid": uuid,
        "assigned_rate_limits": bdev.limits,
        "claimed": is_claimed,
        "zoned": false,
        "supported_io_types": {
            "read": true,
            "write": writable,
            "unmap": writable,
            "flush": true,
            "write_zeroes": writable,
            "compare": true,
            "compare_and_write": writable,
        },
        "driver_specific": specific,
    });
    if is_claimed {
        json["claim_type"] = "exclusive_write".into();
    }
    json
}

fn get_iostat(operator: &Operator, params: Value) -> Answer {
    let mut params = Params::of_bdev(params)?;
    let mut names: Vec<String> = params.take("names")?.unwrap_or_default();
    names.extend(params.take::<String>("name")?);
    params.refuse(&["per_channel"])?;
    let mode: Option<String> = params.take("reset_mode")?;
    if mode.is_some_and(|mode| mode != "none") {
        return Err(
            params.error("reset_mode: counters count from the start, only none is possible")
        );
    }
    params.end()?;
    let all = operator.with(|target| bdevs(target))?;
    let missing = names.iter().find(|name| !all.iter().any(|bdev| bdev.is_called(name)));
    if let Some(name) = missing {
        return Err(no_device(format_args!("there is no {name}")));
    }
    let now = weft_reactor::monotonic_time();
    let watch = operator.watch();
    let wanted = all
        .iter()
        .filter(|bdev| names.is_empty() || names.iter().any(|name| bdev.is_called(name)))
        .map(|bdev| iostat(bdev, watch));
    Ok(json!({
        "tick_rate": TICK_RATE,
        "ticks": ns(now),
        "bdevs": wanted.collect::<Vec<Value>>(),
    }))
}

/// The counters of a device: those of the namespace that uses it now.
fn iostat(bdev: &NamedBdev, watch: &StatisticsReader) -> Value {
    let of = bdev.user.as_ref().map(|(nqn, nsid)| watch.device(nqn, *nsid)).unwrap_or_default();
    let done = of.totals;
    let mut json = json!({
        "name": bdev.name,
        "bytes_read": done.read_bytes,
        "num_read_ops": done.reads,
        "bytes_written": done.written_bytes,
        "num_write_ops": done.writes,
        "bytes_unmapped": done.deallocated_bytes,
        "num_unmap_ops": done.deallocates,
        // A Copy command comes to a device as reads and writes, and is counted as those.
        "bytes_copied": 0,
        "num_copy_ops": 0,
    });
    let kinds = [
        ("read", of.read_times),
        ("write", of.write_times),
        ("unmap", of.deallocate_times),
        ("copy", DeviceTimes::default()),
    ];
    for (kind, times) in kinds.into_iter().filter(|_| watch.measures_io()) {
        json[format!("{kind}_latency_ticks")] = times.total_ns.into();
        json[format!("max_{kind}_latency_ticks")] = times.max_ns.into();
        json[format!("min_{kind}_latency_ticks")] = times.min_ns.into();
    }
    let errors = [("miscompare", done.mismatches), ("failed", done.failures)];
    let errors = errors.into_iter().filter(|(_, count)| *count > 0);
    json["io_error"] = errors.map(|(name, count)| (name.to_owned(), json!(count))).collect();
    json
}
