//! The kernel modules of the guest: those named, and their dependencies.
//!
//! A Debian kernel package has no dependency list (`depmod` writes it at installation), but every
//! module lists its dependencies in its `.modinfo` section.

use super::image::Tools;
use anyhow::{Context, Result};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module, decompressed.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its name with underscores, as the kernel lists it.
    pub(crate) name: String,
    /// Its path below `/lib/modules/VERSION`, without the compression's suffix.
    pub(crate) path: PathBuf,
    /// The ELF object.
    pub(crate) content: Vec<u8>,
}

/// The modules of one kernel.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    by_name: HashMap<String, PathBuf>,
}

impl Tree {
    /// Lists the modules below `root` (`/lib/modules/VERSION`).
    pub(crate) fn scan(root: &Path) -> Result<Self> {
        let mut tree = Self { root: root.to_owned(), by_name: HashMap::new() };
        let mut folders = vec![root.join("kernel")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if let Some((stem, _)) =
                    entry.file_name().to_string_lossy().split_once(".ko")
                {
                    tree.by_name.insert(stem.replace('-', "_"), entry.path());
                }
            }
        }
        Ok(tree)
    }

    /// The modules `names` and their dependencies, dependencies first. A name that ends in a
    /// slash is a folder of modules. Built-in modules are left out.
    pub(crate) fn closure(&self, names: &[&str], tools: &Tools) -> Result<Vec<Module>> {
        let mut wanted: Vec<String> = Vec::new();
        for name in names {
            if name.ends_with('/') {
                let folder = self.root.join("kernel").join(name);
                let inside = self.by_name.iter().filter(|(_, path)| path.starts_with(&folder));
                wanted.extend(inside.map(|(name, _)| name.clone()));
            } else {
                wanted.push(name.replace('-', "_"));
            }
        }
        let mut modules = Vec::new();
        let mut seen = HashSet::new();
        for name in wanted {
            self.add(&name, tools, &mut seen, &mut modules)?;
        }
        Ok(modules)
    }

    fn add(
        &self,
        name: &str,
        tools: &Tools,
        seen: &mut HashSet<String>,
        modules: &mut Vec<Module>,
    ) -> Result<()> {
        let Some(path) = self.by_name.get(name) else { return Ok(()) };
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let content = tools.decompress(path)?;
        for dependency in dependencies(&content) {
            self.add(&dependency, tools, seen, modules)?;
        }
        let inside = path.strip_prefix(&self.root).context("outside the tree")?;
        let inside = match inside.extension().is_some_and(|extension| extension != "ko") {
            true => inside.with_extension(""),
            false => inside.to_owned(),
        };
        modules.push(Module { name: name.to_owned(), path: inside, content });
        Ok(())
    }
}

/// The value of `depends=` in a module's `.modinfo`, a list of NUL-terminated words.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        let module = b"\x7fELF..\0license=GPL\0depends=nvme-fabrics,nvme-core\0retpoline=Y\0";
        assert_eq!(dependencies(module), ["nvme_fabrics", "nvme_core"]);
        assert_eq!(dependencies(b"\x7fELF\0license=GPL\0depends=\0name=x\0"), [""; 0]);
        assert_eq!(dependencies(b"\x7fELF"), [""; 0]);
    }
}
