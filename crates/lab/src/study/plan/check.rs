//! Checks a plan.

use weft_load::Pattern;

use super::{AnswerKind, Kind, METRICS, Plan, PlanError, Plot, PlotKind};
use crate::cells::Metric;
use crate::results::{Configuration, Value, key, number};
use crate::study::launch::Tls;
use crate::study::site;

/// A setting, and its allowed values.
struct Setting {
    key: &'static str,
    allowed: Allowed,
}

enum Allowed {
    /// A whole number within these bounds.
    Whole(u64, u64),
    /// A whole number within these bounds, or one of these words.
    WholeOr(u64, u64, &'static [&'static str]),
    /// A number above 0.
    Positive,
    /// A percentage.
    Percent,
    /// One of these.
    Words(&'static [&'static str]),
    /// Any text.
    AnyWord,
    /// fio's pattern.
    Pattern,
    /// A transport, or a protocol over a link.
    Transport,
}

const ON_OFF: &[&str] = &["on", "off"];

const SETTINGS: &[Setting] = &[
    Setting { key: key::TRANSPORT, allowed: Allowed::Transport },
    Setting { key: key::PATTERN, allowed: Allowed::Pattern },
    Setting { key: key::READ_PERCENT, allowed: Allowed::Whole(0, 100) },
    Setting {
        key: key::BLOCK_BYTES,
        allowed: Allowed::Whole(512, weft_load::limits::BLOCK_BYTES_MAX as u64),
    },
    Setting { key: key::DEPTH, allowed: Allowed::Whole(1, weft_load::limits::DEPTH_MAX as u64) },
    Setting {
        key: key::JOBS,
        allowed: Allowed::WholeOr(1, weft_load::limits::COPIES_MAX as u64, &["per-core"]),
    },
    Setting { key: key::CORES, allowed: Allowed::WholeOr(1, 4096, &["all"]) },
    Setting { key: key::HOST_CORES, allowed: Allowed::WholeOr(1, 4096, &["all"]) },
    Setting { key: key::TARGET_CORES, allowed: Allowed::WholeOr(1, 4096, &["all"]) },
    Setting { key: key::HOST_POLLING, allowed: Allowed::Words(&["adaptive", "spin", "sleep"]) },
    Setting { key: key::TARGET_IDLE_POLL_US, allowed: Allowed::Whole(0, 1_000_000) },
    Setting { key: key::TARGET_EXPRESS, allowed: Allowed::Words(&["on", "off"]) },
    Setting { key: key::PLACEMENT, allowed: Allowed::Words(&["same-core", "other-core"]) },
    Setting { key: key::DEVICE, allowed: Allowed::AnyWord },
    Setting { key: key::DEVICE_BYTES, allowed: Allowed::Whole(1 << 20, 1 << 50) },
    Setting { key: key::FOREGROUND, allowed: Allowed::AnyWord },
    Setting { key: key::BACKGROUND, allowed: Allowed::Words(&["storage", "network"]) },
    Setting { key: key::NEIGHBOUR, allowed: Allowed::AnyWord },
    Setting { key: key::LOAD_PERCENT, allowed: Allowed::Whole(1, 1000) },
    Setting { key: key::SHARED, allowed: Allowed::Words(&["host", "target"]) },
    Setting { key: key::RATE_IOPS, allowed: Allowed::Positive },
    Setting { key: key::RATE_PROCESS, allowed: Allowed::Words(&["fixed", "poisson"]) },
    Setting { key: key::THINKTIME_US, allowed: Allowed::Whole(1, 60_000_000) },
    Setting { key: key::THINKTIME_BLOCKS, allowed: Allowed::Whole(1, u32::MAX as u64) },
    Setting { key: key::HOSTS, allowed: Allowed::Whole(1, 1024) },
    Setting { key: key::SUBSYSTEMS, allowed: Allowed::Whole(1, 1024) },
    Setting { key: key::MTU, allowed: Allowed::Whole(576, 65_535) },
    Setting { key: key::TSO, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::GRO, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::LRO, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::CHECKSUM, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::RX_USECS, allowed: Allowed::Whole(0, 1_000_000) },
    Setting { key: key::ADAPTIVE_RX, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::RPS, allowed: Allowed::Words(&["off", "all"]) },
    Setting { key: key::IRQ_CPUS, allowed: Allowed::AnyWord },
    Setting { key: key::ARFS, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::LOSS_PERCENT, allowed: Allowed::Percent },
    Setting { key: key::REORDER_PERCENT, allowed: Allowed::Percent },
    Setting { key: key::CONGESTION_CONTROL, allowed: Allowed::AnyWord },
    Setting { key: key::GOVERNOR, allowed: Allowed::AnyWord },
    Setting { key: key::IDLE_STATES, allowed: Allowed::Words(&["all", "shallow"]) },
    Setting { key: key::TLS, allowed: Allowed::Words(&Tls::NAMES) },
    Setting { key: key::HOST_SOFTWARE, allowed: Allowed::Words(&["weft", "linux", "spdk"]) },
    Setting { key: key::TARGET_SOFTWARE, allowed: Allowed::Words(&["weft", "linux", "spdk"]) },
    Setting { key: key::NR_IO_QUEUES, allowed: Allowed::Whole(1, 1024) },
    Setting { key: key::NR_WRITE_QUEUES, allowed: Allowed::Whole(1, 1024) },
    Setting { key: key::NR_POLL_QUEUES, allowed: Allowed::Whole(0, 1024) },
    Setting { key: key::QUEUE_SIZE, allowed: Allowed::Whole(16, 1024) },
    Setting { key: key::TOS, allowed: Allowed::Whole(0, 255) },
    Setting { key: key::SO_PRIORITY, allowed: Allowed::Whole(0, i32::MAX as u64) },
    Setting { key: key::HIPRI, allowed: Allowed::Words(ON_OFF) },
    Setting { key: key::HDR_DIGEST, allowed: Allowed::Words(&["on", "off"]) },
    Setting { key: key::DATA_DIGEST, allowed: Allowed::Words(&["on", "off"]) },
    Setting { key: key::KEEP_ALIVE_TMO, allowed: Allowed::Whole(0, 65_535) },
    Setting { key: key::CTRL_LOSS_TMO, allowed: Allowed::Whole(0, 65_535) },
    Setting { key: key::SCHEDULER, allowed: Allowed::AnyWord },
];

/// Limits that only a mistake exceeds: values of an axis, cells of a study.
const VALUES_MAX: usize = 64;
const CELLS_MAX: usize = 4096;

impl Plan {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(word) {
            return fault(format!("the name {:?} must consist of a-z, 0-9 and dashes", self.name));
        }
        if self.title.is_empty() || self.question.is_empty() {
            return fault("title and question must not be empty");
        }
        if self.source.document.is_empty() || self.source.figure.is_empty() {
            return fault("source must name document and figure; `weft` and `none` are allowed");
        }
        for axes in [&self.axes, &self.quick.axes, &self.rdma.axes] {
            for (key, values) in axes {
                check_axis(key, values)?;
            }
        }
        if let Some(key) = self.axes.keys().find(|key| self.fixed.contains_key(*key)) {
            return fault(format!("{key} is both an axis and fixed"));
        }
        for (section, axes) in [("quick", &self.quick.axes), ("rdma", &self.rdma.axes)] {
            if let Some(key) = axes.keys().find(|key| !self.axes.contains_key(*key)) {
                return fault(format!("{section}.axes has {key}, which is not an axis"));
            }
        }
        check_values(&self.fixed)?;
        let cells: usize = self.axes.values().map(Vec::len).product();
        if cells > CELLS_MAX {
            return fault(format!("{cells} cells are more than the limit of {CELLS_MAX}"));
        }
        self.check_measure()?;
        self.check_kind()?;
        self.check_answer()?;
        self.check_plots()
    }

    fn check_measure(&self) -> Result<(), PlanError> {
        let measure = &self.measure;
        if measure.runtime.is_zero() || self.quick.runtime.is_zero() {
            return fault("runtime must be greater than 0");
        }
        if measure.repeats == 0 || self.quick.repeats == 0 {
            return fault("repeats must be at least 1");
        }
        if measure.repeats_max < measure.repeats {
            return fault("repeats_max must be at least repeats");
        }
        if !measure.judged_by.is_empty() && !crate::cells::is_of_a_repeat(&measure.judged_by) {
            return fault(format!(
                "judged_by is {:?}; it may be iops, bandwidth, mean or a percentile such as p99",
                measure.judged_by
            ));
        }
        let criteria =
            [measure.confidence_percent, measure.slope_percent_per_s, measure.deviation_percent];
        if !criteria.iter().all(|criterion| criterion.is_finite() && *criterion > 0.0) {
            return fault("confidence, slope and deviation must be percentages above 0");
        }
        Ok(())
    }

    fn check_kind(&self) -> Result<(), PlanError> {
        match (self.kind, &self.interference) {
            (Kind::Interference, None) => fault("an interference study needs [interference]"),
            (Kind::Interference, Some(interference)) => {
                check_values(&interference.background)?;
                let (mut loads, mut others) =
                    (interference.foreground.values(), interference.neighbour.values());
                loads.try_for_each(check_values)?;
                others.try_for_each(check_values)?;
                for key in [key::FOREGROUND, key::LOAD_PERCENT] {
                    if !self.axes.contains_key(key) {
                        return fault(format!("an interference study needs the axis {key}"));
                    }
                }
                let tenants = self.axes.get(key::FOREGROUND).into_iter().flatten();
                for tenant in tenants {
                    if !interference.foreground.contains_key(&tenant.to_string()) {
                        return fault(format!("interference.foreground does not define {tenant}"));
                    }
                }
                for neighbour in self.axes.get(key::NEIGHBOUR).into_iter().flatten() {
                    if !interference.neighbour.contains_key(&neighbour.to_string()) {
                        return fault(format!(
                            "interference.neighbour does not define {neighbour}"
                        ));
                    }
                }
                self.check_network(&interference.background)
            }
            _ if self.values(key::BACKGROUND).next().is_some()
                || self.axes.contains_key(key::NEIGHBOUR) =>
            {
                fault("only an interference study has a background")
            }
            (Kind::Load, None) if !self.axes.contains_key(key::LOAD_PERCENT) => {
                fault("a load study needs the axis load_percent")
            }
            (_, Some(_)) => fault("only an interference study may have a section interference"),
            (Kind::Saturation, None) if !self.axes.contains_key(key::SHARED) => {
                fault("a saturation study needs the axis shared")
            }
            (_, None) => Ok(()),
        }
    }

    /// Without storage a background reads, and its end polls as the target does.
    fn check_network(&self, background: &Configuration) -> Result<(), PlanError> {
        if !self.has(key::BACKGROUND, "network") {
            return Ok(());
        }
        let patterns = self.axes.get(key::PATTERN).into_iter().flatten();
        let patterns = patterns.chain(self.fixed.get(key::PATTERN));
        let mut patterns = patterns.chain(background.get(key::PATTERN)).filter_map(Value::as_text);
        let is_read =
            |text: &str| text.parse().is_ok_and(|own: Pattern| own.reads() && !own.writes());
        if !patterns.all(is_read) {
            return fault(
                "background network: its bytes are those of reads, so pattern must be too",
            );
        }
        if self.values(key::TARGET_IDLE_POLL_US).next().is_none() {
            return fault("background network needs target_idle_poll_us, which holds for its end");
        }
        Ok(())
    }

    fn check_answer(&self) -> Result<(), PlanError> {
        let Some(answer) = &self.answer else { return Ok(()) };
        let numbers = || answer.number.iter().chain(&answer.given);
        let metrics = numbers().map(|number| &number.metric);
        let metrics = metrics.chain(Some(&answer.metric).filter(|name| !name.is_empty()));
        if let Some(name) = metrics.into_iter().find(|name| Metric::named(name).is_none()) {
            return fault(format!("answer: {name} is not a metric"));
        }
        if answer.repeats.is_some_and(|repeats| repeats < self.measure.repeats) {
            return fault("answer: repeats must be at least those of [measure]");
        }
        let counted = answer.kind == AnswerKind::Values;
        if counted != (1..=3).contains(&answer.number.len()) {
            return fault("answer: one to three [[answer.number]] belong to kind = \"values\"");
        }
        if answer.given.len() > if counted { 3 } else { 0 } {
            return fault("answer: at most three [[answer.given]] belong to kind = \"values\"");
        }
        let over = match answer.kind {
            AnswerKind::Beats => vec![("over", &answer.over), ("along", &answer.along)],
            AnswerKind::Best | AnswerKind::Reach | AnswerKind::Parity => {
                vec![("over", &answer.over)]
            }
            AnswerKind::Values if !answer.over.is_empty() => vec![("over", &answer.over)],
            _ => Vec::new(),
        };
        if let Some((word, key)) = over.iter().find(|(_, key)| !self.axes.contains_key(*key)) {
            return fault(format!("answer: {word} {key:?} is not an axis"));
        }
        let all = numbers().map(|number| &number.at).chain(Some(&answer.at));
        all.into_iter().try_for_each(check_values)
    }

    fn check_plots(&self) -> Result<(), PlanError> {
        let known = |key: &String| self.axes.contains_key(key) || self.fixed.contains_key(key);
        for plot in &self.plots {
            let title = &plot.title;
            let named = plot.series.iter().chain(&plot.split).chain(plot.only.keys());
            let named = named.chain(Some(&plot.x).filter(|x| !x.is_empty()));
            // Every study has these two.
            let offered = |key: &str| self.kind == Kind::Load && key == number::OFFERED_IOPS;
            let given = |key: &str| ["role", key::TARGET].contains(&key) || offered(key);
            if let Some(key) = named.into_iter().find(|key| !known(key) && !given(key)) {
                return fault(format!("plot {title:?}: {key} is neither an axis nor fixed"));
            }
            self.check_best_over(plot)?;
            if let Some(y) = plot.y.iter().find(|y| !METRICS.iter().any(|(metric, _)| metric == y))
            {
                return fault(format!("plot {title:?}: {y} is not a metric"));
            }
            let needs_x = matches!(plot.kind, PlotKind::Line | PlotKind::Bar | PlotKind::Stack);
            if needs_x && plot.x.is_empty() {
                return fault(format!("plot {title:?} needs x"));
            }
            if plot.kind != PlotKind::Cdf && plot.y.is_empty() {
                return fault(format!("plot {title:?} needs y"));
            }
        }
        Ok(())
    }
}

impl Plan {
    fn check_best_over(&self, plot: &Plot) -> Result<(), PlanError> {
        let (title, key) = (&plot.title, &plot.best_over);
        if key.is_empty() {
            return Ok(());
        }
        if !self.axes.contains_key(key) {
            let axes: Vec<&str> = self.axes.keys().map(String::as_str).collect();
            return fault(format!(
                "plot {title:?}: best_over {key:?} is not an axis; there are {}",
                axes.join(", ")
            ));
        }
        let shown = plot.series.iter().chain(&plot.split).chain(plot.only.keys());
        if shown.chain([&plot.x]).any(|shown| shown == key) {
            return fault(format!(
                "plot {title:?}: {key} is shown, so no best value of it can be: take it out of \
                 best_over, or out of x, series, split and only"
            ));
        }
        if !matches!(plot.kind, PlotKind::Line | PlotKind::Bar) {
            return fault(format!("plot {title:?}: best_over belongs to kind line or bar"));
        }
        Ok(())
    }
}

fn fault<T>(what: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError(what.into()))
}

fn check_axis(key: &str, values: &[Value]) -> Result<(), PlanError> {
    if values.is_empty() || values.len() > VALUES_MAX {
        return fault(format!("axis {key} has {} values, not 1 to {VALUES_MAX}", values.len()));
    }
    for (index, value) in values.iter().enumerate() {
        check_value(key, value)?;
        if values.iter().take(index).any(|earlier| earlier == value) {
            return fault(format!("axis {key} has the value {value} twice"));
        }
    }
    Ok(())
}

fn check_values(configuration: &Configuration) -> Result<(), PlanError> {
    configuration.iter().try_for_each(|(key, value)| check_value(key, value))
}

pub(crate) fn is_setting(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key == key)
}

/// What is said of a key that is no setting.
pub(crate) fn no_setting(key: &str) -> String {
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    match weft_backend::nearest(key, known.iter().copied()) {
        Some(near) => format!("{key} is not a setting, did you mean {near}?"),
        None => format!("{key} is not a setting; there are {}", known.join(", ")),
    }
}

fn check_value(key: &str, value: &Value) -> Result<(), PlanError> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
        return fault(no_setting(key));
    };
    let whole = |low, high| value.as_integer().is_some_and(|value| (low..=high).contains(&value));
    let among = |words: &[&str]| value.as_text().is_some_and(|text| words.contains(&text));
    let (good, what) = match setting.allowed {
        Allowed::Whole(low, high) => (whole(low, high), format!("a number from {low} to {high}")),
        Allowed::WholeOr(low, high, words) => (
            whole(low, high) || among(words),
            format!("a number from {low} to {high}, or {}", words.join(" or ")),
        ),
        Allowed::Positive => (
            value.as_number().is_some_and(|number| number.is_finite() && number > 0.0),
            "a number above 0".to_owned(),
        ),
        Allowed::Percent => (
            value.as_number().is_some_and(|number| (0.0..=100.0).contains(&number)),
            "a number from 0 to 100".to_owned(),
        ),
        Allowed::Words(words) => (among(words), words.join(" or ")),
        Allowed::AnyWord => (value.as_text().is_some(), "a text".to_owned()),
        Allowed::Pattern => (
            value.as_text().is_some_and(|text| text.parse::<Pattern>().is_ok()),
            "read, write, randread, randwrite, rw or randrw".to_owned(),
        ),
        Allowed::Transport => (
            value.as_text().is_some_and(is_transport),
            "local, tcp, tcp-link, rdma, loopback, or tcp@NAME or rdma@NAME for a link of the site"
                .to_owned(),
        ),
    };
    if good { Ok(()) } else { fault(format!("{key} {value}: expected {what}")) }
}

fn is_transport(text: &str) -> bool {
    match site::named(text) {
        Some(("tcp", link)) => site::is_link(link),
        // The loopback interface has no RDMA.
        Some(("rdma", link)) => site::is_link(link) && link != site::LOOPBACK,
        Some(_) => false,
        None => ["local", "tcp", "tcp-link", "rdma", "loopback"].contains(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "mine"
        title = "Mine"
        question = "What then?"
        source = { document = "weft", figure = "none" }
        [axes]
        transport = ["local", "tcp"]
        block_bytes = ["4KiB", 8192]
        [fixed]
        depth = 4
        pattern = "randread"
        [measure]
        runtime = "1s"
        [quick.axes]
        block_bytes = ["4k"]
        [rdma.axes]
        transport = ["local", "tcp", "rdma"]
        [[plot]]
        title = "IOPS"
        kind = "line"
        x = "block_bytes"
        y = ["iops", "p99"]
        series = ["transport"]
    "#;

    #[test]
    fn a_plan_is_written_and_parsed_back() {
        let plan: Plan = GOOD.parse().expect("a plan");
        assert_eq!(plan.axes["block_bytes"], [Value::Integer(4096), Value::Integer(8192)]);
        let text = plan.to_text().expect("a text");
        assert_eq!(text.parse::<Plan>().expect("a plan"), plan);
    }

    #[test]
    fn a_quick_run_replaces_axes_and_times() {
        let mut plan: Plan = GOOD.parse().expect("a plan");
        plan.quicken();
        assert_eq!(plan.axes["block_bytes"], [Value::Integer(4096)]);
        assert_eq!(plan.axes["transport"].len(), 2);
        assert_eq!((plan.measure.repeats, plan.measure.repeats_max), (3, 3));
        assert!(plan.measure.settle.is_zero());
    }

    #[test]
    fn a_machine_with_rdma_replaces_axes() {
        let mut plan: Plan = GOOD.parse().expect("a plan");
        plan.with_rdma();
        assert_eq!(plan.axes["transport"], ["local", "tcp", "rdma"].map(Value::from));
        assert_eq!(plan.axes["block_bytes"].len(), 2);
    }

    #[test]
    fn a_control_without_storage_is_one_of_reads_whose_end_waits_as_a_target() {
        let control = r#"
            name = "mine"
            title = "Mine"
            question = "What then?"
            kind = "interference"
            source = { document = "weft", figure = "none" }
            [axes]
            background = ["storage", "network"]
            foreground = ["l-app"]
            load_percent = [50]
            [fixed]
            target_idle_poll_us = 0
            [interference]
            shared = "target"
            background = { depth = 64 }
            foreground = { l-app = { depth = 1 } }
        "#;
        control.parse::<Plan>().expect("a plan");
        for (from, to, part) in [
            ("target_idle_poll_us = 0", "", "needs target_idle_poll_us"),
            ("depth = 64", "depth = 64, pattern = \"randrw\"", "those of reads"),
            ("[fixed]", "[fixed]\npattern = \"write\"", "those of reads"),
            ("\"network\"]", "\"iperf\"]", "expected storage or network"),
        ] {
            let error = control.replacen(from, to, 1).parse::<Plan>().expect_err(to).to_string();
            assert!(error.contains(part), "{to}: {error}");
        }
    }

    #[test]
    fn invalid_plans_are_refused() {
        for (from, to, part) in [
            ("name = \"mine\"", "name = \"Mine\"", "a-z"),
            ("name = \"mine\"", "name = \"mine\"\nspeed = 1", "line 3: unknown field"),
            ("title = \"Mine\"", "title = \"\"", "not be empty"),
            ("\"tcp\"]", "\"smb\"]", "transport smb: expected"),
            ("\"tcp\"]", "\"tcp@\"]", "or tcp@NAME or rdma@NAME"),
            ("\"tcp\"]", "\"rdma@lo\"]", "transport rdma@lo: expected"),
            ("\"tcp\"]", "\"smb@roce\"]", "transport smb@roce: expected"),
            ("\"tcp\"]", "\"tcp@Two Words\"]", "expected"),
            ("\"tcp\"]", "\"local\"]", "twice"),
            ("8192]", "\"8 apples\"]", "block_bytes"),
            ("8192]", "100]", "block_bytes 100"),
            ("depth = 4", "depth = 0", "depth 0"),
            ("depth = 4", "block_bytes = 512", "both an axis and fixed"),
            ("depth = 4", "depht = 4", "depht is not a setting"),
            ("depth = 4", "mtu = 100", "mtu 100: expected a number from 576"),
            ("depth = 4", "tso = \"maybe\"", "tso maybe: expected on or off"),
            ("runtime = \"1s\"", "runtime = \"0s\"", "runtime"),
            ("runtime = \"1s\"", "repeats = 9\nrepeats_max = 2", "repeats_max"),
            ("runtime = \"1s\"", "confidence_percent = -1.0", "percentages"),
            ("y = [\"iops\", \"p99\"]", "y = [\"speed\"]", "speed is not a metric"),
            ("x = \"block_bytes\"", "x = \"jobs\"", "neither an axis nor fixed"),
            ("x = \"block_bytes\"", "", "needs x"),
            (
                "series = [\"transport\"]",
                "best_over = \"depht\"",
                "best_over \"depht\" is not an axis; there are block_bytes, transport",
            ),
            ("series = [\"transport\"]", "best_over = \"block_bytes\"", "block_bytes is shown"),
            (
                "kind = \"line\"",
                "kind = \"table\"\nbest_over = \"transport\"",
                "transport is shown",
            ),
            (
                "series = [\"transport\"]",
                "best_over = \"transport\"\n[[plot]]\ntitle = \"All\"\nkind = \"table\"\n\
                 x = \"block_bytes\"\ny = [\"iops\"]\nbest_over = \"transport\"",
                "belongs to kind line or bar",
            ),
            (
                "[fixed]",
                "[interference]\nshared = \"host\"\nbackground = {}\nforeground = {}\n[fixed]",
                "only an",
            ),
            ("depth = 4", "background = \"network\"", "only an interference study"),
            ("name = \"mine\"", "name = \"mine\"\nkind = \"saturation\"", "axis shared"),
            ("name = \"mine\"", "name = \"mine\"\nkind = \"interference\"", "needs [interference]"),
            ("block_bytes = [\"4k\"]", "depth = [1]", "quick.axes has depth"),
            ("\"tcp\", \"rdma\"]", "\"tcp\", \"smb\"]", "transport smb: expected"),
            ("[rdma.axes]", "[rdma.axes]\ndepth = [1]", "rdma.axes has depth"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let error = text.parse::<Plan>().expect_err(to).to_string();
            assert!(error.contains(part), "{to}: {error}");
        }
    }
}
