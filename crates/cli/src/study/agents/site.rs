//! The site file: which one it is, and which places it gives to a run.

use std::path::PathBuf;

use weft_backend::files::read_text;
use weft_lab::study::site::Site;

use super::place::AgentPlace;
use super::{AgentPlaces, Agents, SiteFile};
use crate::failure::Failure;
use crate::output;

/// Its name in each of the folders where it is looked for.
const FILE: &str = "weft-site.toml";

/// Where it is, if there is one: in this folder, the user's configuration folder or /etc/weft.
fn find() -> Option<PathBuf> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut files = candidates(path("XDG_CONFIG_HOME"), path("HOME")).into_iter();
    files.find(|path| path.is_file())
}

/// Where it may be, of which the first counts.
fn candidates(configuration: Option<PathBuf>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let of_home = || home.map(|home| home.join(".config"));
    let user = configuration.filter(|path| path.is_absolute()).or_else(of_home);
    let user = user.map(|folder| folder.join("weft"));
    let folders = [Some(PathBuf::new()), user, Some(PathBuf::from("/etc/weft"))];
    folders.into_iter().flatten().map(|folder| folder.join(FILE)).collect()
}

/// The site of a file: the given one, or else the one that is found.
pub(in crate::study) fn read(given: Option<&PathBuf>) -> Result<Option<(PathBuf, Site)>, Failure> {
    let Some(path) = given.cloned().or_else(find) else { return Ok(None) };
    let text = read_text(&path).map_err(|error| Failure::io("read", &path.display(), &error))?;
    let fault = |error: String| Failure::Because(format!("{}: {error}", path.display()));
    let site: Site = text.parse().map_err(fault)?;
    for (name, machine) in &site.machines {
        let place = machine.place.parse::<AgentPlace>();
        place.map_err(|error| fault(format!("machines.{name}.place: {error}")))?;
    }
    Ok(Some((path, site)))
}

impl Agents {
    /// The same with what a site file gives; such a file is looked for only with `search`.
    pub(in crate::study) fn on_site(&self, search: bool, quiet: bool) -> Result<Self, Failure> {
        if self.no_site || self.site.is_none() && !search && self.target_on.is_none() {
            return self.complete();
        }
        let Some((path, site)) = read(self.site.as_ref())? else { return self.complete() };
        let fault = |what: String| Err(Failure::Because(format!("{}: {what}", path.display())));
        let mut own = self.clone();
        if own.target_on.is_none() {
            if site.target.is_empty() {
                // One that was not asked for may be for others.
                return match self.site {
                    None => self.complete(),
                    Some(_) => fault(
                        "it names no target and no loads: give them there, or by --target-on \
                         and --load-on"
                            .to_owned(),
                    ),
                };
            }
            own.target_on = Some(AgentPlace::Ssh(site.target.clone()));
            let loads = site.loads.iter().map(|name| AgentPlace::Ssh(name.clone()));
            own.load_on = vec![AgentPlaces(loads.collect())];
            own.found.places = true;
            if self.site.is_none() && !quiet {
                output::print_error(&format!(
                    "weft study: on the machines of {} (--no-site: on this one)",
                    path.display()
                ));
            }
        }
        let placed = |place: &AgentPlace| match site.machine(&place.to_string()) {
            Some((_, machine)) => machine.place.parse(),
            None => Ok(place.clone()),
        };
        let target = own.target_on.as_ref().map(placed).transpose();
        own.target_on = target.map_err(Failure::Because)?;
        let loads = own.loads().map(placed).collect::<Result<Vec<AgentPlace>, String>>();
        own.load_on = vec![AgentPlaces(loads.map_err(Failure::Because)?)];
        let target = own.target_on.as_ref().map(ToString::to_string).unwrap_or_default();
        let loads: Vec<String> = own.loads().map(ToString::to_string).collect();
        let loads: Vec<&str> = loads.iter().map(String::as_str).collect();
        let tools = site.machines.values().filter(|machine| !machine.spdk.is_empty());
        let spdk = tools.map(|machine| (machine.place.clone(), machine.spdk.clone())).collect();
        own.found = SiteFile { links: site.links(&target, &loads), spdk, ..own.found };
        if own.agent_program.is_none() && !site.program.is_empty() {
            own.agent_program = Some(site.program.clone());
        }
        own.site = Some(path);
        Ok(own)
    }

    /// Without a site, options that belong to machines need them.
    fn complete(&self) -> Result<Self, Failure> {
        let given = [("--agent-program", self.agent_program.is_some()), ("--deploy", self.deploy)];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) if self.target_on.is_none() => {
                Err(Failure::Because(format!("{flag} belongs to --target-on or --site")))
            }
            _ => Ok(self.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn agents(words: &[&str]) -> Agents {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            agents: Agents,
            /// What only one machine has.
            #[arg(long)]
            target: bool,
            #[arg(long)]
            control: bool,
            #[arg(long)]
            against: bool,
            #[arg(long)]
            precondition: bool,
        }
        let words = std::iter::once(&"weft").chain(words);
        let line: Line = clap::Parser::try_parse_from(words).expect("options");
        line.agents
    }

    fn places(of: &Agents) -> Vec<String> {
        of.target_on.iter().chain(of.loads()).map(ToString::to_string).collect()
    }

    #[test]
    fn a_site_gives_places_and_links_or_one_names_its_machines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("site.toml");
        let text = r#"
            target = "server"
            loads = ["client"]
            program = "/opt/weft"
            [machines.server]
            place = "root@server.example"
            links = { roce100 = "198.51.100.1" }
            [machines.client]
            place = "exec:ip netns exec c weft agent"
            links = { roce100 = "198.51.100.2" }
            [machines.other]
            place = "here"
        "#;
        fs::write(&path, text).expect("a file");
        let site = path.to_str().expect("a text");
        let found = agents(&["--site", site]).on_site(false, true).expect("a site");
        let client = "exec:ip netns exec c weft agent";
        assert_eq!(places(&found), ["root@server.example", client]);
        assert_eq!(found.found.links["roce100"].loads.len(), 1);
        let expected = [["--site", site], ["--agent-program", "/opt/weft"]];
        assert_eq!(found.words(), expected.concat());
        let words = ["--site", site, "--target-on", "client", "--load-on", "other,elsewhere"];
        let found = agents(&words).on_site(false, true).expect("a site");
        assert_eq!(places(&found), [client, "here", "elsewhere"]);
        assert!(found.found.links.is_empty() && found.words().len() == 10, "{:?}", found.words());
        let again = [&["--site", site, "--target-on", "root@server.example"][..]];
        let again = [&again.concat()[..], &["--load-on", client]].concat();
        let again = agents(&again).on_site(false, true).expect("a site");
        assert_eq!(again.found.links.len(), 1, "a machine by its place");
    }

    #[test]
    fn a_site_is_looked_for_in_the_folder_then_the_users_then_etc() {
        let paths = |configuration: Option<&str>, home: Option<&str>| -> Vec<String> {
            let all = candidates(configuration.map(PathBuf::from), home.map(PathBuf::from));
            all.iter().map(|path| path.display().to_string()).collect()
        };
        let (here, etc) = ("weft-site.toml", "/etc/weft/weft-site.toml");
        let of_home = "/home/u/.config/weft/weft-site.toml";
        let given = paths(Some("/c"), Some("/home/u"));
        assert_eq!(given, [here, "/c/weft/weft-site.toml", etc]);
        assert_eq!(paths(None, Some("/home/u")), [here, of_home, etc]);
        assert_eq!(paths(Some("relative"), Some("/home/u")), [here, of_home, etc]);
        assert_eq!(paths(None, None), [here, etc]);
    }

    #[test]
    fn faults_of_a_site_file_name_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("site.toml");
        let site = path.to_str().expect("a text");
        let why = |text: &str| {
            fs::write(&path, text).expect("a file");
            match agents(&["--site", site]).on_site(false, true) {
                Err(Failure::Because(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        let machine = "[machines.a]\nplace = \"a b\"\n";
        let said = why(machine);
        assert!(said.starts_with(site) && said.contains("machines.a.place: "), "{said}");
        let said = why(&machine.replace("a b", "a"));
        assert!(said.contains("names no target and no loads"), "{said}");
        assert!(agents(&["--site", "/nowhere/x.toml"]).on_site(false, true).is_err());
        assert!(agents(&["--agent-program", "x", "--no-site"]).on_site(true, true).is_err());
    }
}
