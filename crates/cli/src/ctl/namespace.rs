//! Namespaces and the block devices that they stand on.

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;
use weft_backend::bytes;

use super::Device;
use super::session::{
    Session, Setting, as_map, as_text, is_stored, list, setting, stands_on, text,
};
use crate::failure::Failure;
use crate::table::Table;
use crate::{destroy, output};

/// What is said of a namespace that is added.
#[derive(Debug, Args, Serialize)]
pub(super) struct AddOptions {
    /// Its number; by default the first that is free.
    #[arg(long)]
    nsid: Option<u32>,
    /// Its UUID.
    #[serde(serialize_with = "as_text")]
    #[arg(long)]
    uuid: Option<Uuid>,
    /// Only hosts that are added to it see it.
    #[arg(long)]
    no_auto_visible: bool,
    /// Another parameter of `nvmf_subsystem_add_ns` (docs/control.md), such as read_only=true.
    #[serde(flatten, serialize_with = "as_map")]
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<Setting>,
}

/// How the names begin of block devices without a file that nobody named.
const UNNAMED: &str = "unnamed-";

impl Session {
    /// The names of the block devices of a subsystem, or of one of its namespaces.
    pub(super) fn devices(&mut self, nqn: &str, nsid: Option<u32>) -> Result<Vec<String>, Failure> {
        let subsystem = self.subsystems(Some(nqn))?;
        let namespaces = subsystem.iter().flat_map(|one| list(&one["namespaces"]));
        let wanted = namespaces.filter(|one| nsid.is_none_or(|nsid| one["nsid"] == nsid));
        Ok(wanted.map(|one| text(&one["bdev_name"])).collect())
    }

    /// Those of them that have the name that [`Self::add_namespace`] gives.
    pub(super) fn unnamed_devices(
        &mut self,
        nqn: &str,
        nsid: Option<u32>,
    ) -> Result<Vec<String>, Failure> {
        let all = self.call("bdev_get_bdevs", Value::Null)?;
        let mut names = self.devices(nqn, nsid)?;
        names.retain(|name| {
            let mut all = list(&all).iter();
            all.any(|one| one["name"] == name.as_str() && has_given_name(one))
        });
        Ok(names)
    }

    pub(super) fn delete_devices(&mut self, names: Vec<String>) -> Result<(), Failure> {
        let delete = |name| self.call("bdev_delete", json!({ "name": name })).map(drop);
        names.into_iter().try_for_each(delete)
    }

    pub(super) fn add_namespace(
        &mut self,
        nqn: &str,
        device: &Device,
        namespace: &AddOptions,
    ) -> Result<(), Failure> {
        let (name, made) = match device.spec()? {
            None => (device.bdev.clone().unwrap_or_default(), false),
            Some(spec) => {
                let name = match spec.path() {
                    Some(path) => path.display().to_string(),
                    None => format!("{UNNAMED}{}", Uuid::new_v4()),
                };
                let params = json!({ "name": name, "device": spec.to_string() });
                self.call("bdev_device_create", params)?;
                (name, true)
            }
        };
        let mut namespace = serde_json::to_value(namespace).map_err(Failure::because)?;
        namespace["bdev_name"] = name.as_str().into();
        let params = json!({ "nqn": nqn, "namespace": namespace });
        match self.call("nvmf_subsystem_add_ns", params) {
            Ok(nsid) if self.json => output::print_json(&nsid),
            Ok(nsid) => output::print(&format!("namespace {nsid}\n")),
            Err(error) => {
                if made {
                    self.call("bdev_delete", json!({ "name": name }))?;
                }
                Err(error)
            }
        }
    }

    /// Gives a namespace another size; a smaller one only if it was named.
    pub(super) fn resize_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        size: u64,
        named: &[String],
    ) -> Result<(), Failure> {
        let bdev = self.devices(nqn, Some(nsid))?.pop();
        let bdev =
            bdev.ok_or_else(|| Failure::Because(format!("{nqn} has no namespace {nsid}")))?;
        let all = self.call("bdev_get_bdevs", json!({ "name": bdev }))?;
        let one = list(&all).first().unwrap_or(&Value::Null);
        let before = one["block_size"].as_u64().zip(one["num_blocks"].as_u64());
        let before = before.map_or(0, |(block, blocks)| block.saturating_mul(blocks));
        // The target makes no file and no image smaller.
        if size < before && !is_stored(one) {
            let does = format!(
                "resize takes {} of {} from namespace {nsid} of {nqn}, with what is there",
                bytes::exact(before - size),
                bytes::exact(before)
            );
            destroy::confirm(&does, &format!("{nqn}:{nsid}"), named)?;
        }
        self.change("bdev_resize", json!({ "name": bdev, "size": size }))
    }

    /// Whether a block device may go: no namespace uses it, or it was named.
    pub(super) fn confirm_unused(&mut self, name: &str, named: &[String]) -> Result<(), Failure> {
        let subsystems = self.subsystems(None)?;
        for subsystem in &subsystems {
            let namespaces = list(&subsystem["namespaces"]).iter();
            for used in namespaces.filter(|one| one["bdev_name"] == name) {
                let (nsid, nqn) = (&used["nsid"], text(&subsystem["nqn"]));
                let does = format!("delete takes namespace {nsid} of {nqn} from its hosts");
                destroy::confirm(&does, name, named)?;
            }
        }
        Ok(())
    }

    pub(super) fn namespaces(&mut self, nqn: Option<&str>) -> Result<(), Failure> {
        let (subsystems, bdevs) =
            (self.subsystems(nqn)?, self.call("bdev_get_bdevs", Value::Null)?);
        let head = ["subsystem", ">nsid", ">size", ">block", "uuid", "bdev", "device", "hosts"];
        let mut table = Table::new(&head);
        let mut all = Vec::new();
        for subsystem in &subsystems {
            for namespace in list(&subsystem["namespaces"]) {
                let bdev = list(&bdevs).iter().find(|one| one["name"] == namespace["bdev_name"]);
                let number = |key: &str| bdev.and_then(|one| one[key].as_u64()).unwrap_or(0);
                let (block, blocks) = (number("block_size"), number("num_blocks"));
                table.row(vec![
                    text(&subsystem["nqn"]),
                    text(&namespace["nsid"]),
                    bytes::exact(block.saturating_mul(blocks)),
                    block.to_string(),
                    text(&namespace["uuid"]),
                    text(&namespace["bdev_name"]),
                    bdev.map(stands_on).unwrap_or_default(),
                    seen_by(namespace),
                ]);
                let mut one = namespace.clone();
                one["device"] = bdev.map(stands_on).into();
                one["subsystem"] = subsystem["nqn"].clone();
                one["block_size"] = block.into();
                one["num_blocks"] = blocks.into();
                all.push(one);
            }
        }
        self.show(&all.into(), &table.text())
    }
}

/// The hosts that see a namespace.
fn seen_by(namespace: &Value) -> String {
    if namespace["no_auto_visible"] != true {
        return "all".to_owned();
    }
    let hosts: Vec<String> =
        list(&namespace["hosts"]).iter().map(|one| text(&one["nqn"])).collect();
    if hosts.is_empty() { "none".to_owned() } else { hosts.join(" ") }
}

/// Whether nobody named a block device: it is called like its file, or has a name of ours.
fn has_given_name(bdev: &Value) -> bool {
    let name = text(&bdev["name"]);
    bdev["product_name"] == "weft device" && (stands_on(bdev) == name || name.starts_with(UNNAMED))
}
