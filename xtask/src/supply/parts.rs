//! The list of parts of a package (SBOM) in the form of CycloneDX: what is linked into the binary
//! for a platform, with versions, licences and checksums, and what needs what.
//!
//! It has no time and no number of its own, so that it is the same for the same sources.

use super::{FEATURES, metadata};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Version of the form.
const SPECIFICATION: &str = "1.5";

/// The list for a target of the compiler.
pub fn parts(root: &Path, target: &str) -> Result<String> {
    let manifest = root.join("crates/cli/Cargo.toml");
    let manifest = manifest.to_str().context("a path of text")?;
    let words = [&["--manifest-path", manifest], &FEATURES[..]].concat();
    let all = metadata(root, &words, Some(target))?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let list = of(&all, &checksums(&lock)?)?;
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// The checksums of what comes from a registry, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Value = toml::from_str(lock)?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let entry = |package: &toml::Value| {
        let text = |field: &str| Some(package.get(field)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(entry).collect())
}

fn of(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .filter_map(|package| Some((package["id"].as_str()?.to_owned(), package)))
        .collect();
    let root = metadata["resolve"]["root"].as_str().context("no root")?;
    let mut needs = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let linked = list(&node["deps"]).into_iter().filter(is_linked);
        let linked: BTreeSet<String> =
            linked.filter_map(|one| Some(one["pkg"].as_str()?.to_owned())).collect();
        needs.insert(node["id"].as_str().context("no identifier")?.to_owned(), linked);
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(id) = next.pop() {
        if found.insert(id.clone()) {
            next.extend(needs.get(&id).into_iter().flatten().cloned());
        }
    }
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &found {
        let package = packages.get(id).with_context(|| format!("{id} is not described"))?;
        if id != root {
            components.push(component(package, checksums));
        }
        let of = needs.get(id).into_iter().flatten();
        let of: Vec<String> = of.filter_map(|id| packages.get(id)).map(reference).collect();
        dependencies.push(json!({ "ref": reference(package), "dependsOn": of }));
    }
    let package = packages.get(root).context("the binary is not described")?;
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": reference(package),
            "name": "weft",
            "version": package["version"],
            "licenses": licences(package),
        } },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Whether one package needs another in what is built of it, rather than to build it or to test it.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn reference(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    format!("{}@{}", text("name"), text("version"))
}

fn licences(package: &Value) -> Value {
    match package["license"].as_str() {
        Some(text) => json!([{ "expression": text.replace('/', " OR ") }]),
        None => json!([]),
    }
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "licenses": licences(package),
    });
    // What is in the repository is nowhere else.
    if !package["source"].is_null() {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let package = |id: &str, source: Option<&str>| -> Value {
            json!({ "id": id, "name": id, "version": "1.0", "license": "MIT/X", "source": source })
        };
        let kinds = |id: &str, kind: Option<&str>| -> Value {
            json!({ "pkg": id, "dep_kinds": [{ "kind": kind, "target": null }] })
        };
        let metadata = json!({
            "packages": [package("own", None), package("a", Some("registry")),
                         package("b", Some("registry")), package("tests", Some("registry"))],
            "resolve": { "root": "own", "nodes": [
                { "id": "own", "deps": [kinds("a", None), kinds("tests", Some("dev"))] },
                { "id": "a", "deps": [kinds("b", None), kinds("tests", Some("build"))] },
                { "id": "b", "deps": [] },
                { "id": "tests", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0\"\nchecksum = \"ff\"\n";
        let list = of(&metadata, &checksums(lock).expect("a lock")).expect("a list");
        let names = |field: &str| -> Vec<&str> {
            let all = list["components"].as_array().expect("a list");
            all.iter().filter_map(|one| one[field].as_str()).collect()
        };
        assert_eq!(names("name"), ["a", "b"]);
        assert_eq!(names("purl"), ["pkg:cargo/a@1.0", "pkg:cargo/b@1.0"]);
        assert_eq!(list["components"][0]["hashes"][0]["content"], "ff");
        assert_eq!(list["components"][0]["licenses"][0]["expression"], "MIT OR X");
        assert_eq!(list["metadata"]["component"]["name"], "weft");
        let of_own = json!({ "ref": "own@1.0", "dependsOn": ["a@1.0"] });
        assert!(list["dependencies"].as_array().is_some_and(|all| all.contains(&of_own)));
    }
}
