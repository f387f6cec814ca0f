//! Where the agents of a study are, and how they are started.

mod deploy;
mod place;
mod process;
pub(in crate::study) mod site;
mod slurm;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{fs, io};

use clap::Args;
use weft_lab::study::agent::{Connector, Fleet, Places, Streams, Survey};
use weft_lab::study::plan::Run;
use weft_lab::study::site::{Link, SiteMachine, SpdkTools};

use self::place::AgentPlace;
use self::slurm::Allocation;
use crate::failure::Failure;
use crate::output;

/// Options that place a study on several machines.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Agents {
    /// Where the target is started: a destination of ssh with weft in its PATH, exec:COMMAND (which
    /// has to start `weft agent`, such as exec:ip netns exec NAME weft agent), slurm:NODE, or here.
    #[arg(long, value_name = "PLACE", requires = "load_on", conflicts_with_all = ELSEWHERE)]
    target_on: Option<AgentPlace>,
    /// Where the loads run, each of them the whole load of a cell: PLACE,PLACE. May be repeated; a
    /// place with exec: has an option of its own.
    #[arg(long, value_name = "PLACES", requires = "target_on", value_parser = several)]
    load_on: Vec<AgentPlaces>,
    /// The address of the target's machine for the loads; by default the first that all of their
    /// machines reach.
    #[arg(long, value_name = "ADDRESS", requires = "target_on")]
    target_address: Option<IpAddr>,
    /// The path of weft on these machines, if their shells do not find it.
    #[arg(long, value_name = "PATH")]
    agent_program: Option<String>,
    /// The machines and links of a site; --target-on and --load-on may name its machines, or be
    /// left out if it names them itself. By default weft-site.toml in this folder, in the user's
    /// configuration folder or in /etc/weft.
    #[arg(long, value_name = "FILE", conflicts_with_all = ELSEWHERE)]
    site: Option<PathBuf>,
    /// Run on this machine even if there is a site file, or a job of Slurm with several nodes.
    #[arg(long, conflicts_with = "site")]
    no_site: bool,
    /// Copy this program to machines that do not have this build of it (into ~/.cache/weft), over
    /// ssh or by Slurm, and run that.
    #[arg(long, conflicts_with = "agent_program")]
    deploy: bool,
    /// What that file has given.
    #[arg(skip)]
    found: SiteFile,
}

/// What a site file has given to a run.
#[derive(Clone, Debug, Default)]
struct SiteFile {
    /// The links between its machines.
    links: BTreeMap<String, Link>,
    /// Where SPDK's programs are, by places.
    spdk: BTreeMap<String, SpdkTools>,
    /// Whether it named the machines.
    places: bool,
}

/// What belongs to this machine alone.
const ELSEWHERE: [&str; 3] = ["target", "control", "against"];

/// Several places; a type of its own, since clap would take several values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AgentPlaces(Vec<AgentPlace>);

fn several(text: &str) -> Result<AgentPlaces, String> {
    // A command may have commas in it.
    let places: Vec<&str> = match text.trim_start().starts_with("exec:") {
        true => vec![text],
        false => text.split(',').filter(|place| !place.trim().is_empty()).collect(),
    };
    let places = places.into_iter().map(str::parse).collect::<Result<Vec<_>, String>>()?;
    if places.is_empty() { Err("it names no place".to_owned()) } else { Ok(AgentPlaces(places)) }
}

impl Agents {
    /// Those with which a run began.
    pub(super) fn of(run: &Run) -> Result<Self, Failure> {
        if run.target_on.is_empty() {
            return Ok(Self::default());
        }
        let read = |text: &String| text.parse::<AgentPlace>().map_err(Failure::Because);
        let loads = run.load_on.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        let address = Some(&run.target_address).filter(|text| !text.is_empty());
        Ok(Self {
            target_on: Some(read(&run.target_on)?),
            load_on: vec![AgentPlaces(loads)],
            target_address: address
                .map(|text| text.parse().map_err(|error| Failure::Because(format!("{error}"))))
                .transpose()?,
            agent_program: Some(run.agent_program.clone()).filter(|path| !path.is_empty()),
            deploy: run.deploy,
            found: SiteFile { links: run.links.clone(), spdk: run.spdk.clone(), places: false },
            ..Self::default()
        })
    }

    /// Writes them into the plan of a run.
    pub(super) fn keep(&self, run: &mut Run) {
        run.target_on = self.target_on.as_ref().map(ToString::to_string).unwrap_or_default();
        run.load_on = self.loads().map(ToString::to_string).collect();
        run.target_address =
            self.target_address.as_ref().map(ToString::to_string).unwrap_or_default();
        run.agent_program = self.agent_program.clone().unwrap_or_default();
        run.links.clone_from(&self.found.links);
        run.spdk.clone_from(&self.found.spdk);
        run.deploy = self.deploy;
    }

    /// The options, as they are given again.
    pub(super) fn words(&self) -> Vec<String> {
        let word = |flag: &str, value: String| [flag.to_owned(), value];
        let site = self.site.iter().map(|path| word("--site", path.display().to_string()));
        let target = self.target_on.iter().map(|place| word("--target-on", place.to_string()));
        let loads = self.loads().map(|place| word("--load-on", place.to_string()));
        let places = target.chain(loads).filter(|_| !self.found.places);
        let address = self.target_address.iter();
        let address = address.map(|address| word("--target-address", address.to_string()));
        let program = self.agent_program.iter();
        let program = program.map(|path| word("--agent-program", path.clone()));
        let deploy = self.deploy.then(|| "--deploy".to_owned());
        let all = site.chain(places).chain(address).chain(program);
        all.flatten().chain(deploy).collect()
    }

    /// These places, or the nodes of the job of Slurm in which this program runs, if neither they
    /// nor a given site name any.
    pub(super) fn or_of_this_job(&self, quiet: bool) -> Result<Self, Failure> {
        if self.target_on.is_some() || self.site.is_some() || self.no_site {
            return Ok(self.clone());
        }
        let allocation = Allocation::of_this_job().map_err(Failure::Because)?;
        let places = allocation.as_ref().and_then(|job| Some((job.job(), job.places()?)));
        let Some((job, (target, loads))) = places else { return Ok(self.clone()) };
        if !quiet {
            output::print_error(&format!(
                "Slurm's job {job}: the target runs on {target}, the load on {} (--no-site: on \
                 this machine)",
                loads.join(", ")
            ));
        }
        let of = |node: &str| AgentPlace::Slurm(node.to_owned());
        Ok(Self {
            target_on: Some(of(target)),
            load_on: vec![AgentPlaces(loads.into_iter().map(of).collect())],
            ..self.clone()
        })
    }

    fn loads(&self) -> impl Iterator<Item = &AgentPlace> {
        self.load_on.iter().flat_map(|AgentPlaces(places)| places)
    }

    /// Starts the agents, if there are any.
    pub(super) fn gather(&self) -> Result<Option<Fleet>, Failure> {
        let Some(target) = &self.target_on else { return Ok(None) };
        let build = super::here::this_build()?;
        let program = self.agent_program.clone();
        let deployed = self.deploy.then(|| build.id.clone());
        let common = Common::of(self.loads().chain([target]), program, deployed)?;
        let way = |place: &AgentPlace| -> Box<dyn Connector> {
            Box::new(Way { place: place.clone(), common: Arc::clone(&common) })
        };
        let places = Places {
            target: way(target),
            loads: self.loads().map(way).collect(),
            address: self.target_address,
            links: self.found.links.clone(),
            spdk: self.found.spdk.clone(),
            build,
        };
        Fleet::gather(places).map(Some).map_err(Failure::Because)
    }
}

/// The machines of a site: the given one, or else the one that is found.
pub(super) fn survey(given: Option<&PathBuf>) -> Result<Survey, Failure> {
    let Some((_, site)) = site::read(given)? else {
        return Err(Failure::because(
            "there is no weft-site.toml in this folder, in the user's configuration folder or in \
             /etc/weft: give one with --site",
        ));
    };
    let program = Some(site.program.clone()).filter(|path| !path.is_empty());
    let places = site.machines.values().map(|machine| machine.place.parse());
    let places = places.collect::<Result<Vec<AgentPlace>, String>>().map_err(Failure::Because)?;
    let common = Common::of(places.iter(), program, None)?;
    let connect = |machine: &SiteMachine| {
        Way { place: machine.place.parse()?, common: Arc::clone(&common) }.connect()
    };
    Ok(Survey::gather(site, &connect, &super::here::this_build()?))
}

/// A directory for the sockets by which several sessions of ssh share a connection.
#[derive(Debug)]
struct Sockets(PathBuf);

impl Sockets {
    fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            // Not under TMPDIR, which may be too long for the name of a socket.
            let path = PathBuf::from(format!("/tmp/weft-ssh-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // ssh has removed its sockets, or does so.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the ways to all places have in common.
#[derive(Debug)]
struct Common {
    /// The path of weft there, if one is given.
    program: Option<String>,
    /// The build that is copied to machines without it.
    deployed: Option<String>,
    sockets: Sockets,
    allocation: Option<Allocation>,
}

impl Common {
    fn of<'a>(
        mut places: impl Iterator<Item = &'a AgentPlace>,
        program: Option<String>,
        deployed: Option<String>,
    ) -> Result<Arc<Self>, Failure> {
        let sockets = Sockets::new().map_err(|e| Failure::io("write to", &"/tmp", &e))?;
        let allocation = match places.any(|place| matches!(place, AgentPlace::Slurm(_))) {
            true => Allocation::of_this_job().map_err(Failure::Because)?,
            false => None,
        };
        Ok(Arc::new(Self { program, deployed, sockets, allocation }))
    }
}

/// How the agent of a place is started.
#[derive(Debug)]
struct Way {
    place: AgentPlace,
    common: Arc<Common>,
}

impl Way {
    /// The command that starts the agent.
    fn command(&self) -> Result<Command, String> {
        if let (Some(build), true) = (&self.common.deployed, self.has_shell()) {
            return self.shell(&deploy::agent(build));
        }
        let here = || {
            let program = std::env::current_exe();
            program.map_err(|error| format!("where this program is: {error}"))
        };
        let program = self.common.program.as_deref();
        let mut command = match &self.place {
            AgentPlace::Here => Command::new(here()?),
            AgentPlace::Exec(words) => {
                let (program, words) = words.split_first().ok_or("it names no command")?;
                let mut command = Command::new(program);
                command.args(words);
                return Ok(command);
            }
            AgentPlace::Ssh(destination) => {
                let program = program.unwrap_or("weft").replace('\'', r"'\''");
                return Ok(self.ssh(destination, &format!("'{program}' agent")));
            }
            AgentPlace::Slurm(node) => {
                let mut command = self.srun(node)?;
                // Nodes of a cluster share files, as a rule.
                command.arg(program.map_or_else(here, |path| Ok(PathBuf::from(path)))?);
                command
            }
        };
        command.arg("agent");
        Ok(command)
    }

    /// Whether a shell is reached there.
    const fn has_shell(&self) -> bool {
        matches!(self.place, AgentPlace::Ssh(_) | AgentPlace::Slurm(_))
    }

    /// The command that runs a script there, in which there is no quotation mark.
    fn shell(&self, script: &str) -> Result<Command, String> {
        match &self.place {
            AgentPlace::Ssh(destination) => Ok(self.ssh(destination, &format!("sh -c '{script}'"))),
            AgentPlace::Slurm(node) => {
                let mut command = self.srun(node)?;
                command.args(["sh", "-c", script]);
                Ok(command)
            }
            AgentPlace::Here | AgentPlace::Exec(_) => Err("no shell is reached there".to_owned()),
        }
    }

    /// `command` is taken apart by the shell there.
    fn ssh(&self, destination: &str, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        let socket = self.common.sockets.path().join("%C");
        ssh.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            .args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"])
            .args(["-o", "ControlMaster=auto", "-o", "ControlPersist=no"])
            .args(["-o", &format!("ControlPath={}", socket.display())])
            .args(["--", destination, command]);
        ssh
    }

    /// A step with all that the job has on a node, beside other steps.
    fn srun(&self, node: &str) -> Result<Command, String> {
        let allocation = self.common.allocation.as_ref();
        let allocation = allocation.ok_or(
            "it is reached within a job of Slurm only: start the study in a script of sbatch, or \
             after salloc",
        )?;
        let mut srun = Command::new("srun");
        srun.args(["--overlap", "-N1", "-n1", "-c", &allocation.cpus(node)?.to_string()]).args([
            "--cpu-bind=none",
            "--mem=0",
            "--unbuffered",
            "-w",
            node,
        ]);
        Ok(srun)
    }
}

impl Connector for Way {
    fn place(&self) -> String {
        self.place.to_string()
    }

    fn connect(&self) -> Result<Streams, String> {
        if let (Some(build), true) = (&self.common.deployed, self.has_shell()) {
            deploy::copy(self, build)?;
        }
        process::start(self.command()?, &self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        let exec = |words: &[&str]| {
            AgentPlace::Exec(words.iter().map(|word| (*word).to_owned()).collect())
        };
        for (text, place) in [
            ("here", AgentPlace::Here),
            ("user@host.example", AgentPlace::Ssh("user@host.example".to_owned())),
            ("ssh://user@[2001:db8::1]:22", AgentPlace::Ssh("ssh://user@[2001:db8::1]:22".into())),
            ("slurm:n12", AgentPlace::Slurm("n12".to_owned())),
            (
                "exec:docker exec -i a weft agent",
                exec(&["docker", "exec", "-i", "a", "weft", "agent"]),
            ),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string(), text);
        }
    }

    #[test]
    fn no_place_is_an_option_or_a_command_of_a_shell() {
        for text in [
            "",
            " ",
            "-oProxyCommand=x",
            "user@-oProxyCommand=x",
            "ssh://-oProxyCommand=x",
            "host;reboot",
            "$(reboot)",
            "`reboot`@host",
            "two words",
            "host\nhost",
            "exec:",
            "exec: -oProxyCommand=x",
            "slurm:",
            "slurm:-w",
            "slurm:a b",
        ] {
            assert!(text.parse::<AgentPlace>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn several_places_are_separated_by_commas_except_a_command() {
        let of = |text| several(text).map(|AgentPlaces(places)| places.len());
        assert_eq!(of("a,b, c"), Ok(3));
        assert_eq!(of("exec:sh -c a,b"), Ok(1));
        assert!(of("a,-b").is_err() && of(",").is_err());
    }

    #[test]
    fn a_run_that_is_resumed_has_the_same_places() {
        let place = |text: &str| text.parse::<AgentPlace>().expect(text);
        let agents = Agents {
            target_on: Some(place("server")),
            load_on: vec![
                AgentPlaces(vec![place("a"), place("b")]),
                several("exec:c d").expect("one"),
            ],
            target_address: Some("10.0.0.1".parse().expect("an address")),
            agent_program: None,
            deploy: true,
            ..Agents::default()
        };
        let mut run = Run::default();
        agents.keep(&mut run);
        let again = Agents::of(&run).unwrap_or_default();
        assert_eq!(again.words(), agents.words());
        assert_eq!(agents.words().len(), 11);
        assert!(Agents::of(&Run::default()).is_ok_and(|none| none.words().is_empty()));
    }

    #[test]
    fn ssh_gets_the_place_behind_its_options() {
        let way = way("host", Some("/opt/it's/weft"), None);
        let words = words(&way);
        assert_eq!(words[words.len() - 3..], ["--", "host", r"'/opt/it'\''s/weft' agent"]);
        assert!(words.iter().any(|word| word == "BatchMode=yes"));
        let way = self::way("host", None, Some("b1"));
        let deployed = "sh -c 'cd && exec .cache/weft/b1/weft agent'";
        assert_eq!(self::words(&way).last().map(String::as_str), Some(deployed));
    }

    #[test]
    fn a_node_of_slurm_is_reached_within_a_job_only() {
        let way = way("slurm:n1", None, None);
        let why = way.connect().expect_err("no job");
        assert!(why.contains("sbatch"), "{why}");
    }

    fn way(place: &str, program: Option<&str>, deployed: Option<&str>) -> Way {
        let common = Common {
            program: program.map(str::to_owned),
            deployed: deployed.map(str::to_owned),
            sockets: Sockets::new().expect("a directory"),
            allocation: None,
        };
        Way { place: place.parse().expect(place), common: Arc::new(common) }
    }

    fn words(way: &Way) -> Vec<String> {
        let command = way.command().expect("a command");
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}
