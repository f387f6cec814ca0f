//! `weft study run`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use weft_backend::DeviceSpec;
use weft_host::{Provider, TransportId};
use weft_lab::results::file::{ANSWER, ENVIRONMENT, PLAN, RECORDS, TABLE};
use weft_lab::results::{self, Environment, Store, Value, key};
use weft_lab::study::agent::Fleet;
use weft_lab::study::capabilities::Capabilities;
use weft_lab::study::capabilities::KnownTarget;
use weft_lab::study::deployment::DEVICE_BYTES;
use weft_lab::study::given::protocol_name;
use weft_lab::study::launch::{GivenTarget, Launcher};
use weft_lab::study::matrix::expand;
use weft_lab::study::plan::{Kind, Plan, Run};
use weft_lab::study::runner::{self, Outcome, Settings};
use weft_lab::study::software::Software;
use weft_lab::{claims, environment, html, whole};
use weft_load::random::split_mix;
use weft_reactor::DriverKind;

mod advice_run;
mod quiet;
mod words;

pub(crate) use self::advice_run::{AdviceRun, AdviceSettings};
use self::words::{FixedValues, only};
use super::against::Turns;
use super::agents::Agents;
use super::child::Children;
use super::progress::StatusLine;
use super::{against, summary};
use crate::bench::time_of_day;
use crate::connection::HostProof;
use crate::ctl::session;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::place::Location;
use crate::values::{Driver, time};
use crate::{agent, destroy, signals};

/// Default parent directory of results.
const RESULTS: &str = "weft-results";

/// Name of the report beside the results.
pub(crate) const REPORT: &str = "report.html";

/// The exit code of a run that waited in vain for a quiet machine.
pub(crate) const NOT_QUIET: u8 = 6;

/// Options of `weft study run`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Name of a study, or a file: PLAN.toml.
    #[arg(value_name = "NAME|PLAN.toml", required_unless_present = "resume")]
    study: Option<String>,
    /// Resume the run or the comparison (--against) in this directory, which was stopped or failed:
    /// with the same plan and seed, only what is missing is measured.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["study", "Setup", "Agents"])]
    resume: Option<PathBuf>,
    #[command(flatten)]
    how: RunOptions,
}

/// How a study is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    setup: Setup,
    /// The token file of these targets (their --control-token-file).
    #[arg(long, value_name = "FILE")]
    control_token_file: Option<PathBuf>,
    #[command(flatten)]
    host: HostProof,
    #[command(flatten)]
    agents: Agents,
    /// Wait until other programs use no more than 10 % of the time of the processors, on this
    /// machine or those of agents, for so long at most: like 5m. A run that gives up has measured
    /// nothing, and its exit code is 6.
    #[arg(long, value_name = "TIME", value_parser = time)]
    wait_for_quiet: Option<Duration>,
    /// Kernel interface for load and targets.
    #[arg(long, value_enum, default_value_t)]
    pub(super) driver: Driver,
    /// Precondition the device of --local before the first cell.
    #[arg(long)]
    precondition: bool,
    /// Longest time of preconditioning.
    #[arg(long, value_name = "TIME", default_value = "30min", value_parser = time)]
    precondition_limit: Duration,
    /// Allow overwriting a given device or target, by its name.
    #[arg(long, value_name = "PATH|URL")]
    pub(super) yes_destroy: Vec<String>,
    /// Write fio's JSON for each repeat, too.
    #[arg(long)]
    pub(super) fio_json: bool,
    /// Of --against: compare the two builds although other programs disturbed them; of weft advise:
    /// measure although they use more than 10 % of the processors.
    #[arg(long)]
    pub(super) accept_disturbed: bool,
    /// Write no report.
    #[arg(long)]
    pub(crate) no_report: bool,
    /// Show no progress.
    #[arg(long)]
    pub(super) quiet: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output_format: Format,
    /// Whether its results are told by who asked for the run.
    #[arg(skip)]
    told_elsewhere: bool,
}

/// What a run that is resumed has from the one that began it.
#[derive(Clone, Debug, Args)]
struct Setup {
    /// A target to be measured, like nvme-tcp://HOST:4420/NQN?nsid=1; may be repeated. By default
    /// targets are started on this machine.
    #[arg(long, value_name = "URL", value_parser = target)]
    target: Vec<TransportId>,
    /// Control address of each --target, in the same order, for the CPU use of a weft target.
    #[arg(long, value_name = "URL", value_parser = control)]
    control: Vec<weft_rpc::Address>,
    /// Device to be driven locally and served by started targets: memory, null, a path, or any
    /// device specification such as memory:1GiB.
    #[arg(long, value_name = "DEVICE", value_parser = local)]
    local: Option<DeviceSpec>,
    /// What the host is: weft, linux (the kernel's, through nvme connect and its block device,
    /// which needs root where the load runs), or spdk (its spdk_nvme_perf); of several values
    /// (weft,linux) each is measured.
    #[arg(long, value_name = "SOFTWARE", value_delimiter = ',')]
    host_software: Vec<Software>,
    /// What the targets are that the study starts: weft, linux (nvmet, which needs root), or
    /// spdk (an nvmf_tgt that runs there, or that the site file names); of several values each is
    /// measured.
    #[arg(long, value_name = "SOFTWARE", value_delimiter = ',')]
    target_software: Vec<Software>,
    /// Measured time of each repeat of a cell.
    #[arg(long, value_name = "TIME", value_parser = time)]
    runtime: Option<Duration>,
    /// Time it runs before that.
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = time)]
    ramp_time: Option<Duration>,
    /// Number of repeats of each cell.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Short cells, few repeats, fewer values of long axes, no waiting for steady state.
    #[arg(long)]
    quick: bool,
    /// Only cells with these values: KEY=VALUE,KEY=VALUE (a comma in a value is written twice).
    #[arg(long, value_name = "VALUES", value_parser = only)]
    only: Option<FixedValues>,
    /// A setting in place of the plan's: KEY=VALUE for all cells, KEY=VALUE,VALUE as an axis (a
    /// comma in a value is written twice); may be repeated.
    #[arg(long, value_name = "KEY=VALUES", value_parser = words::setting)]
    set: Vec<words::Setting>,
    /// Seed of the order of cells and of all random numbers.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Directory of results; by default a new one under weft-results.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Let another build measure the study, too, in turns with this one, and compare: is this
    /// build slower? Each has a directory of its own under --out (`other` and `this`).
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    match (&options.resume, &options.study) {
        (Some(directory), _) => resume(directory, &options.how),
        (None, Some(study)) => begin(study, &options.how, true),
        (None, None) => Err(Failure::because("no study given: `weft study list` shows them")),
    }
}

pub(super) fn first_look(how: &RunOptions) -> Result<(), Failure> {
    // It is about this machine, unless it is told otherwise.
    begin("first-look", how, false)
}

fn begin(study: &str, how: &RunOptions, search: bool) -> Result<(), Failure> {
    let is_here = !how.setup.target.is_empty() || how.setup.against.is_some();
    let search = search && !is_here;
    let agents = match search {
        true => how.agents.or_of_this_job(how.quiet)?,
        false => how.agents.clone(),
    };
    let agents = agents.on_site(search, how.quiet)?;
    let fleet = agents.gather()?;
    let elsewhere = !how.setup.target.is_empty() || fleet.is_some();
    let mut plan =
        if elsewhere { super::here::plan(study)? } else { super::here::plan_here(study)? };
    if plan.run.take().is_some_and(|run| run.quick) {
        return Err(Failure::because("this plan belongs to a run: use --resume DIR"));
    }
    if fleet.as_ref().is_some_and(Fleet::has_rdma) {
        plan.with_rdma();
    }
    how.amend(&mut plan, &agents)?;
    if let Some(fleet) = &fleet {
        let checked = fleet.check_links(&plan).and_then(|()| fleet.check_knobs(&plan));
        checked.map_err(Failure::Because)?;
        fleet
            .restored()
            .iter()
            .for_each(|what| output::print_error(&format!("weft study: {what}")));
    }
    let directory = how.setup.out.clone().unwrap_or_else(|| fresh_directory(&plan.name));
    if let Some(other) = &how.setup.against {
        let words = how.words_of_a_turn(study, &plan);
        let turns = Turns { how, directory };
        return turns.begin(other, words, &plan, &how.capabilities(&plan)?);
    }
    let written = [RECORDS, ENVIRONMENT, PLAN, TABLE, ANSWER, REPORT];
    if let Some(there) = written.iter().find(|name| directory.join(name).exists()) {
        return Err(Failure::Because(format!(
            "{} holds results already, or a file with the name of one ({there}): use --resume to \
             continue a run, or another --out",
            directory.display()
        )));
    }
    let rerun_command = how.rerun_command(study, &plan, &agents);
    let mut environment = environment::this_machine();
    environment.machines = fleet.as_ref().map(Fleet::machines).unwrap_or_default();
    let driver = how.driver.into();
    Session { plan, how, driver, directory, rerun_command, environment, fleet }.run()
}

/// Connects to a given target once: a wrong name is told before anything is measured.
fn reach(options: &weft_host::Options) -> Result<(), Failure> {
    let mut options = options.clone();
    options.ctrl_loss_tmo = Some(Duration::ZERO);
    let reached = weft_host::connect(&options).and_then(|controller| controller.disconnect());
    reached.map_err(|error| Failure::Because(format!("--target {error}")))
}

fn resume(directory: &Path, how: &RunOptions) -> Result<(), Failure> {
    if against::is_comparison(directory) {
        return Turns { how, directory: directory.to_owned() }.resume();
    }
    let before = results::load(directory).map_err(Failure::because)?;
    let plan: Plan = before
        .plan
        .parse()
        .map_err(|error| Failure::Because(format!("{}: {error}", directory.display())))?;
    let rerun_command = format!("weft study run --resume {}", directory.display());
    let begun_with = plan.run.as_ref().map(|run| run.driver.as_str()).unwrap_or_default();
    let driver = how.driver_of("run", begun_with)?;
    // Machine and link are those of the earlier records.
    let mut environment = before.environment;
    let changes = whole::keep_changes(directory, &mut environment);
    if !changes.is_empty() {
        output::print_error(&format!(
            "weft study: {} is not what a run left, and stays not valid: {}",
            directory.display(),
            changes.join("; ")
        ));
    }
    let directory = directory.to_owned();
    let fleet = Agents::of(plan.run.as_ref().unwrap_or(&Run::default()))?.gather()?;
    Session { plan, how, driver, directory, rerun_command, environment, fleet }.run()
}

impl RunOptions {
    /// The number of repeats that was asked for.
    pub(super) const fn repeats(&self) -> Option<u32> {
        self.setup.repeats
    }

    /// Applies the options of the command line to the plan that is written beside the results.
    fn amend(&self, plan: &mut Plan, agents: &Agents) -> Result<(), Failure> {
        if self.setup.quick {
            plan.quicken();
        }
        if let Some(repeats) = self.setup.repeats {
            plan.set_repeats(repeats);
        }
        let measure = &mut plan.measure;
        // An advice is of the cells alone, and within a budget.
        measure.bare_socket &= !self.told_elsewhere;
        if let Some(runtime) = self.setup.runtime {
            measure.runtime = runtime;
        }
        if let Some(ramp) = self.setup.ramp_time {
            measure.ramp = ramp;
        }
        if measure.runtime.is_zero() {
            return Err(Failure::because("--runtime must be greater than 0"));
        }
        if self.setup.control.len() > self.setup.target.len() {
            return Err(Failure::because("there are more --control than --target options"));
        }
        let mut targets = self.setup.target.iter().enumerate();
        if let Some((_, twice)) = targets.find(|(at, one)| self.setup.target[..*at].contains(one)) {
            return Err(Failure::Because(format!("--target {twice} is given twice")));
        }
        if self.setup.target.len() > 1 {
            tell_apart(plan, self.setup.target.len())?;
        }
        for (key, software) in self.softwares() {
            plan.set(key, software.iter().map(|one| Value::from(one.name())).collect());
        }
        for words::Setting { key, values } in &self.setup.set {
            plan.set(key, values.clone());
        }
        if !self.setup.set.is_empty() {
            // Its checks are those of a file.
            let text = plan.to_text().map_err(Failure::because)?;
            *plan = text.parse().map_err(|error| Failure::Because(format!("--set: {error}")))?;
        }
        let fresh = || {
            let time = u64::try_from(time_of_day().as_nanos()).unwrap_or(0);
            // Short enough to type, and within TOML's range.
            split_mix(time) >> 32
        };
        let mut run = Run {
            seed: self.setup.seed.unwrap_or_else(fresh),
            quick: self.setup.quick,
            targets: self.setup.target.iter().map(ToString::to_string).collect(),
            controls: self.setup.control.iter().map(ToString::to_string).collect(),
            local: self.setup.local.as_ref().map(ToString::to_string).unwrap_or_default(),
            driver: DriverKind::from(self.driver).name().to_owned(),
            only: self.setup.only.clone().unwrap_or_default().0,
            ..Run::default()
        };
        agents.keep(&mut run);
        plan.run = Some(run);
        Ok(())
    }

    /// What hosts and targets are, where that was given.
    fn softwares(&self) -> impl Iterator<Item = (&'static str, &[Software])> {
        let all = [
            (key::HOST_SOFTWARE, &self.setup.host_software),
            (key::TARGET_SOFTWARE, &self.setup.target_software),
        ];
        all.into_iter().map(|(key, all)| (key, &all[..])).filter(|(_, all)| !all.is_empty())
    }

    /// The command that runs this study, without a selection of cells.
    fn rerun_command(&self, study: &str, plan: &Plan, agents: &Agents) -> String {
        let mut words = self.words(study, plan, agents);
        if let Some(repeats) = self.setup.repeats {
            words.extend(["--repeats".to_owned(), repeats.to_string()]);
        }
        if self.driver != Driver::default() {
            words.extend(option("--driver", DriverKind::from(self.driver).name()));
        }
        words.extend(self.yes_destroy.iter().flat_map(|name| option("--yes-destroy", name)));
        let quoted = words.iter().map(|word| match word.contains(|c: char| !is_plain(c)) {
            true => format!("'{}'", word.replace('\'', r"'\''")),
            false => word.clone(),
        });
        format!("weft study run {}", quoted.collect::<Vec<_>>().join(" "))
    }

    /// The arguments of another process that runs this study, without repeats and permissions.
    fn words(&self, study: &str, plan: &Plan, agents: &Agents) -> Vec<String> {
        let mut words = vec![study.to_owned()];
        if self.setup.quick {
            words.push("--quick".to_owned());
        }
        let exact = weft_backend::duration::exact;
        let mut add = |flag: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| option(flag, &value)));
        };
        add("--runtime", self.setup.runtime.map(exact));
        add("--ramp-time", self.setup.ramp_time.map(exact));
        add("--local", self.setup.local.as_ref().map(ToString::to_string));
        self.setup.target.iter().for_each(|target| add("--target", Some(target.to_string())));
        self.setup.control.iter().for_each(|control| add("--control", Some(control.to_string())));
        for (key, all) in self.softwares() {
            let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
            add(&format!("--{}", key.replace('_', "-")), Some(names.join(",")));
        }
        self.setup.set.iter().for_each(|set| add("--set", Some(set.to_string())));
        let file = self.control_token_file.as_ref();
        add("--control-token-file", file.map(|path| path.display().to_string()));
        add("--seed", plan.run.as_ref().map(|run| run.seed.to_string()));
        words.extend(self.host.words());
        words.extend(agents.words());
        words
    }

    /// The same of a turn's first repeat, with the selection of cells.
    fn words_of_a_turn(&self, study: &str, plan: &Plan) -> Vec<String> {
        let mut words = self.words(study, plan, &self.agents);
        if let Some(FixedValues(values)) = &self.setup.only {
            let pairs: Vec<String> =
                values.iter().map(|(key, value)| format!("{key}={}", value.as_word())).collect();
            words.extend(option("--only", &pairs.join(",")));
        }
        if self.precondition {
            let limit = weft_backend::duration::exact(self.precondition_limit);
            words.push("--precondition".to_owned());
            words.extend(option("--precondition-limit", &limit));
        }
        words
    }

    /// The driver of a run or a comparison that is resumed: the one that it began with.
    pub(super) fn driver_of(&self, what: &str, begun_with: &str) -> Result<DriverKind, Failure> {
        let given = DriverKind::from(self.driver);
        match DriverKind::named(begun_with) {
            Some(begun) if self.driver == Driver::default() || given == begun => Ok(begun),
            Some(begun) => Err(Failure::Because(format!(
                "the {what} began with --driver {}, and another driver would change what it \
                 measures: resume it without --driver",
                begun.name()
            ))),
            None => Ok(given),
        }
    }

    /// What is available with the targets of a plan.
    fn capabilities(&self, plan: &Plan) -> Result<Capabilities, Failure> {
        devices(plan, &self.host).map(|(_, given)| capabilities(&given))
    }
}

/// Whether a shell leaves a character as it is.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-_./:=,+%@".contains(c)
}

/// A flag and its value.
fn option(flag: &str, value: &str) -> [String; 2] {
    [flag.to_owned(), value.to_owned()]
}

/// A run from start to report.
struct Session<'a> {
    plan: Plan,
    how: &'a RunOptions,
    driver: DriverKind,
    directory: PathBuf,
    rerun_command: String,
    environment: Environment,
    /// The agents, if the study has several machines.
    fleet: Option<Fleet>,
}

impl Session<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let (local, mut given) = devices(&self.plan, &self.how.host)?;
        let token = self.how.control_token_file.as_deref().map(session::token).transpose()?;
        given.iter_mut().for_each(|target| target.token.clone_from(&token));
        let capabilities = match &self.fleet {
            Some(fleet) => fleet.capabilities(local.is_some()),
            None => capabilities(&given),
        };
        let only = self.plan.run.as_ref().map(|run| run.only.clone()).unwrap_or_default();
        let precondition = self.precondition(local.is_some());
        if expand(&self.plan, &capabilities, &only).steps().any(|step| step.missing().is_none()) {
            let mut at_risk = destroy::at_risk(&self.plan, precondition, local.as_ref(), &given);
            if self.fleet.is_some() {
                at_risk.extend(destroy::at_risk_there(&self.plan, local.as_ref()));
                at_risk.dedup();
            }
            destroy::allow("study", &at_risk, &self.how.yes_destroy)?;
        }
        let is_refused = weft_lab::study::given::refusal(&self.plan, &capabilities).is_some();
        if self.fleet.is_none() && !is_refused {
            given.iter().try_for_each(|target| reach(&target.options))?;
        }
        let stop = signals::stop_flag().map_err(|e| Failure::io("listen to", &"signals", &e))?;
        self.how.await_quiet(self.fleet.as_ref(), &stop)?;
        let mut store = Store::open(&self.directory)
            .map_err(|error| Failure::io("write", &self.directory.display(), &error))?;
        self.complete_environment()?;
        let linux = agent::linux();
        for what in linux.restore_left() {
            log::warn!("left by an earlier run: {what}");
        }
        let settings = Settings {
            plan: &self.plan,
            capabilities: &capabilities,
            local,
            given,
            fleet: self.fleet.as_ref(),
            linux: Some(Arc::clone(&linux)),
            rdma: Provider::System,
            driver: self.driver,
            precondition: precondition.then_some(self.how.precondition_limit),
            fio: self.how.fio_json,
            rerun_command: self.rerun_command.clone(),
            wall_ms: &wall_ms,
            environment: self.environment.clone(),
        };
        let mut shown = StatusLine::new(self.how.quiet);
        let children = Children::new(&linux);
        let launcher: &dyn Launcher = self.fleet.as_ref().map_or(&children, |fleet| fleet);
        let outcome = runner::run(&settings, &mut store, Some(launcher), &mut shown, &stop);
        shown.clear();
        let outcome = outcome.map_err(Failure::because)?;
        self.report(&outcome)
    }

    /// Whether the device is preconditioned first.
    fn precondition(&self, local: bool) -> bool {
        self.how.precondition || self.plan.precondition && local
    }

    fn complete_environment(&mut self) -> Result<(), Failure> {
        let environment = &mut self.environment;
        let build = super::here::this_build()?.id;
        if !environment.builds.contains(&build) {
            environment.builds.push(build);
        }
        environment.study.clone_from(&self.plan.name);
        environment.command_line = command_line();
        environment.weft_version = env!("CARGO_PKG_VERSION").to_owned();
        environment.seed = self.plan.run.as_ref().map_or(0, |run| run.seed);
        if environment.started_at_ms == 0 {
            environment.started_at_ms = wall_ms();
        }
        environment.ended_at_ms = 0;
        environment.interrupted = false;
        Ok(())
    }

    fn report(&self, outcome: &Outcome) -> Result<(), Failure> {
        let report = self.directory.join(REPORT);
        let written = if self.how.no_report || outcome.measured == 0 {
            Ok(None)
        } else {
            html::write_report(&[&self.directory], &report)
                .map(|()| Some(std::path::absolute(&report).unwrap_or(report)))
        };
        // The outcome is printed even if the report cannot be written.
        let (written, unwritten) = match written {
            Ok(written) => (written, None),
            Err(error) => (None, Some(Failure::because(error))),
        };
        match self.how.output_format {
            _ if self.how.told_elsewhere => {}
            Format::Human => self.say(outcome, written.as_deref())?,
            Format::Json => output::print_json(&json!({
                "directory": self.directory,
                "report": written,
                "measured": outcome.measured,
                "skipped": outcome.skipped,
                "void": outcome.void,
                "failed": outcome.failed,
                "missing": outcome.missing,
                "interrupted": outcome.interrupted,
                "trouble": outcome.error,
                "answer": results::load(&self.directory).ok().and_then(|r| claims::answer(&r)),
            }))?,
        }
        if outcome.interrupted || outcome.error.is_some() || !outcome.missing.is_empty() {
            self.print_problems(outcome);
            return Err(unwritten.unwrap_or(match outcome.interrupted {
                true => Failure::Exit(signals::INTERRUPTED),
                false => Failure::Told,
            }));
        }
        unwritten.map_or(Ok(()), Err)
    }

    fn say(&self, outcome: &Outcome, report: Option<&Path>) -> Result<(), Failure> {
        let results = results::load(&self.directory).map_err(Failure::because)?;
        if let Some(table) = summary::table(&results) {
            output::print(&table)?;
        }
        let mut counts = vec![format!("{} measured", several(outcome.measured, "repeat"))];
        for (count, one, what) in [
            (outcome.skipped, "cell", "cannot run here"),
            (outcome.void, "repeat", "void"),
            (outcome.failed, "repeat", "failed"),
        ] {
            if count > 0 {
                counts.push(format!("{} {what}", several(count, one)));
            }
        }
        output::print(&format!("{}\n", counts.join(", ")))?;
        output::print(&format!("results: {}\n", self.directory.display()))?;
        if let Some(report) = report {
            output::print(&format!("report:  {}\n", report.display()))?;
        }
        let answer = claims::answer(&results);
        let banner = match &answer {
            Some(answer) => answer.banner.clone(),
            None => results.environment.banner(),
        };
        if let Some(banner) = banner {
            output::print(&format!("\n{banner}\n"))?;
        }
        match answer.filter(|_| outcome.measured > 0) {
            Some(answer) => output::print(&format!("\n{}\n{}\n", answer.text(), answer.sentence)),
            None => Ok(()),
        }
    }

    fn print_problems(&self, outcome: &Outcome) {
        if let Some(error) = &outcome.error {
            output::print_error(&format!("weft study: {error}"));
        }
        if outcome.interrupted {
            output::print_error("weft study: stopped; the measured repeats are kept");
        }
        if !outcome.missing.is_empty() {
            let count = outcome.missing.len();
            let are = if count == 1 { "is" } else { "are" };
            output::print_error(&format!("weft study: {} {are} missing:", several(count, "cell")));
            for missing in outcome.missing.iter().take(20) {
                output::print_error(&format!("  {missing}"));
            }
            if outcome.missing.len() > 20 {
                output::print_error(&format!("  and {} more", outcome.missing.len() - 20));
            }
            let directory = self.directory.display();
            output::print_error(&format!("to continue: weft study run --resume {directory}"));
        }
    }
}

/// Adds several targets to a plan, each as a series.
fn tell_apart(plan: &mut Plan, targets: usize) -> Result<(), Failure> {
    match plan.kind {
        Kind::Interference if targets > 2 => {
            Err(Failure::because("an interference study takes at most two targets"))
        }
        Kind::Interference | Kind::Link => Ok(()),
        Kind::Matrix | Kind::Saturation | Kind::Load => {
            for plot in &mut plan.plots {
                plot.series.push(key::TARGET.to_owned());
            }
            Ok(())
        }
    }
}

/// The devices and targets of a run.
fn devices(
    plan: &Plan,
    host: &HostProof,
) -> Result<(Option<DeviceSpec>, Vec<GivenTarget>), Failure> {
    let run = plan.run.clone().unwrap_or_default();
    let device = Some(run.local).filter(|text| !text.is_empty());
    let device = device.map(|text| local(&text)).transpose().map_err(Failure::Because)?;
    let mut controls = run.controls.iter();
    let mut given = Vec::new();
    for text in &run.targets {
        let address = target(text).map_err(Failure::Because)?;
        let mut options = weft_host::Options::new(address);
        host.apply(&mut options)?;
        options.check()?;
        let control = controls.next().map(|text| control(text)).transpose();
        let control = control.map_err(Failure::Because)?;
        given.push(GivenTarget { options, control, token: None });
    }
    Ok((device, given))
}

/// What is available for a study with these given targets.
fn capabilities(given: &[GivenTarget]) -> Capabilities {
    let known = |(given, name): (&GivenTarget, String)| KnownTarget {
        name,
        transport: given.options.address.transport,
        elsewhere: !environment::is_here(&given.options.address.traddr),
    };
    let targets = given.iter().zip(names(given)).map(known).collect();
    Capabilities { targets, ..super::here::capabilities() }
}

/// A name for each target: its host and port, and of several there what else tells them apart.
fn names(given: &[GivenTarget]) -> Vec<String> {
    let all: Vec<&TransportId> = given.iter().map(|given| &given.options.address).collect();
    let named = |own: &&TransportId| {
        let there = all.iter().copied().filter(|other| host_and_port(other) == host_and_port(own));
        name_among(own, &there.collect::<Vec<&TransportId>>())
    };
    let names: Vec<String> = all.iter().map(named).collect();
    let alone = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let whole = |(address, name): (&&TransportId, &String)| {
        if alone(name) { name.clone() } else { address.to_string() }
    };
    all.iter().zip(&names).map(whole).collect()
}

fn host_and_port(address: &TransportId) -> String {
    match address.trsvcid {
        Some(port) => format!("{}:{port}", address.traddr),
        None => address.traddr.clone(),
    }
}

/// The name of a target among all at its host and port.
fn name_among(own: &TransportId, there: &[&TransportId]) -> String {
    let nqn = |of: &TransportId| of.subnqn.as_ref().map(ToString::to_string).unwrap_or_default();
    let nqns: Vec<String> = there.iter().copied().map(nqn).collect();
    let mut name = host_and_port(own);
    if there.iter().any(|other| other.transport != own.transport) {
        name = format!("{}://{name}", protocol_name(own.transport));
    }
    let own_nqn = nqn(own);
    if nqns.iter().any(|other| *other != own_nqn) {
        name += &format!("/{}", without_common_start(&own_nqn, &nqns));
    }
    match own.nsid {
        Some(nsid) if there.iter().any(|other| other.nsid != own.nsid) => {
            format!("{name}?nsid={nsid}")
        }
        _ => name,
    }
}

/// A name without the words at its start that all of them have.
fn without_common_start<'a>(own: &'a str, all: &[String]) -> &'a str {
    let ends = own.char_indices().filter(|(_, c)| ":.-_".contains(*c)).map(|(at, _)| at + 1);
    let is_common = |end: &usize| all.iter().all(|other| other.get(..*end) == own.get(..*end));
    let rest = ends.take_while(is_common).last().and_then(|end| own.get(end..));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(own)
}

/// The command line, with the program's name only.
fn command_line() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = Path::new(&*program).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

/// `1 cell`, `2 cells`.
pub(super) fn several(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn wall_ms() -> u64 {
    u64::try_from(time_of_day().as_millis()).unwrap_or(u64::MAX)
}

/// A directory that does not exist yet.
fn fresh_directory(name: &str) -> PathBuf {
    let under = Path::new(RESULTS);
    let numbered = (2u32..).map(|number| under.join(format!("{name}-{number}")));
    let mut candidates = std::iter::once(under.join(name)).chain(numbered);
    candidates.find(|path| !path.exists()).unwrap_or_else(|| under.join(name))
}

fn target(text: &str) -> Result<TransportId, String> {
    match text.parse::<Location>()? {
        Location::Remote(id) if id.is_discovery() => {
            Err(format!("{text} names no subsystem (example: nvme-tcp://HOST:4420/NQN)"))
        }
        Location::Remote(id) if id.is_multipath() => {
            Err(format!("{text} has several endpoints: a study measures one path"))
        }
        Location::Remote(id) => Ok(*id),
        Location::Local(_) => Err(format!("{text} is a local device: use --local {text}")),
    }
}

fn control(text: &str) -> Result<weft_rpc::Address, String> {
    text.parse().map_err(|error: weft_rpc::ParseAddressError| error.to_string())
}

fn local(text: &str) -> Result<DeviceSpec, String> {
    let block_bytes = weft_backend::BLOCK_BYTES_DEFAULT;
    match text {
        "memory" => Ok(DeviceSpec::Memory { bytes: DEVICE_BYTES, block_bytes }),
        "null" => Ok(DeviceSpec::Null { bytes: DEVICE_BYTES, block_bytes }),
        text => match text.parse::<Location>()? {
            Location::Local(spec) => Ok(spec),
            Location::Remote(_) => Err(format!("{text} is a remote address: use --target {text}")),
        },
    }
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use weft_host::Transport;

    use super::*;

    /// Whatever the run has that began it, in all groups of options.
    #[test]
    fn what_the_first_run_has_set_is_not_given_again() {
        let parse = |words: &[&str]| {
            let resume = ["weft", "study", "run", "--resume", "results"];
            crate::arguments::Arguments::try_parse_from(resume.iter().chain(words))
        };
        assert!(parse(&[]).is_ok() && parse(&["--quiet", "--no-report"]).is_ok());
        let command = crate::arguments::Arguments::command();
        let run = command.find_subcommand("study").and_then(|study| study.find_subcommand("run"));
        let run = run.expect("a subcommand");
        let members = |id: &str| {
            let group = run.get_groups().find(|group| group.get_id() == id).expect("a group");
            group.get_args().count()
        };
        assert!(members("Setup") >= 14 && members("Agents") >= 7);
        for words in [
            ["--seed", "1"],
            ["--out", "elsewhere"],
            ["--set", "depth=1"],
            ["--target", "nvme-tcp://127.0.0.1:4420/nqn"],
            ["--site", "site.toml"],
        ] {
            let kind = parse(&words).map(|_| ()).map_err(|error| error.kind());
            assert_eq!(kind, Err(clap::error::ErrorKind::ArgumentConflict), "{words:?}");
        }
    }

    #[test]
    fn a_cell_is_measured_again_as_it_was() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            how: RunOptions,
        }
        let command = |words: &[&str]| {
            let line: Line = clap::Parser::try_parse_from([&["weft"], words].concat()).expect("it");
            let mut plan = super::super::here::plan("first-look").expect("a plan");
            line.how.amend(&mut plan, &line.how.agents).expect("a run");
            line.how.rerun_command("first-look", &plan, &line.how.agents)
        };
        let given = ["--seed", "7", "--quick", "--driver", "epoll", "--repeats", "2"];
        let expected = "weft study run first-look --quick --seed 7 --repeats 2 --driver epoll";
        assert_eq!(command(&given), expected);
        assert_eq!(command(&["--seed", "7"]), "weft study run first-look --seed 7");
        let set = ["--seed", "7", "--set", "depth=1,4", "--set", "block_bytes=4KiB"];
        let expected = "weft study run first-look --set depth=1,4 --set block_bytes=4096 --seed 7";
        assert_eq!(command(&set), expected);
    }

    #[test]
    fn devices_and_targets_are_distinguished() {
        assert_eq!(local("memory").expect("a device").to_string(), "memory:256MiB");
        assert_eq!(local("null:1TiB").expect("a device").to_string(), "null:1TiB");
        let url = "nvme-tcp://192.0.2.1:4420/nqn.2014-08.org.x:y?nsid=2";
        assert_eq!(target(url).expect("a target").nsid, Some(2));
        assert!(local(url).is_err_and(|error| error.contains("--target")));
        assert!(target("memory:1GiB").is_err_and(|error| error.contains("--local")));
        let given = |url: &str| GivenTarget {
            options: weft_host::Options::new(target(url).expect(url)),
            control: None,
            token: None,
        };
        assert!(capabilities(&[given(url)]).target_elsewhere());
        let here = capabilities(&[given("nvme-rdma://127.0.0.1:4420/nqn.2014-08.org.x:y")]);
        let known = &here.targets[0];
        assert_eq!((known.name.as_str(), known.transport), ("127.0.0.1:4420", Transport::Rdma));
        assert!(!here.target_elsewhere());
        assert!(capabilities(&[]).targets.is_empty());
        let two =
            [given("nvme-tcp://192.0.2.1:4420/nqn.x"), given("nvme-tcp://192.0.2.1:4421/nqn.x")];
        assert_eq!(names(&two), ["192.0.2.1:4420", "192.0.2.1:4421"]);
    }

    #[test]
    fn targets_at_one_address_are_called_by_what_differs() {
        let names = |urls: &[&str]| {
            let given = |url: &&str| GivenTarget {
                options: weft_host::Options::new(target(url).expect(url)),
                control: None,
                token: None,
            };
            names(&urls.iter().map(given).collect::<Vec<_>>())
        };
        let disk = |end: &str| format!("nvme-tcp://192.0.2.1:4420/nqn.2024-01.io.example:{end}");
        let (fast, slow) = (disk("disks:fast"), disk("disks:slow"));
        let other = "nvme-tcp://192.0.2.2:4420/nqn.2024-01.io.example:disks:fast";
        let found = names(&[&fast, other, &slow]);
        assert_eq!(found, ["192.0.2.1:4420/fast", "192.0.2.2:4420", "192.0.2.1:4420/slow"]);
        let found = names(&[&disk("disk"), &disk("disk:more")]);
        assert_eq!(found, ["192.0.2.1:4420/disk", "192.0.2.1:4420/disk:more"]);
        let found = names(&[&disk("x?nsid=1"), &disk("x?nsid=2")]);
        assert_eq!(found, ["192.0.2.1:4420?nsid=1", "192.0.2.1:4420?nsid=2"]);
        let over_rdma = disk("x").replace("tcp", "rdma");
        let found = names(&[&disk("x"), &over_rdma]);
        assert_eq!(found, ["tcp://192.0.2.1:4420", "rdma://192.0.2.1:4420"]);
        let found = names(&[&disk("x?nsid=1"), &disk("x")]);
        assert_eq!(found, ["192.0.2.1:4420?nsid=1", "192.0.2.1:4420"]);
    }
}
