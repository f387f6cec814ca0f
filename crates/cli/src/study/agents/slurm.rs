//! The job of Slurm in which this program runs.

use std::process::Command;

/// Nodes that Slurm has granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    job: String,
    /// Each with the processors that are granted there.
    nodes: Vec<(String, u32)>,
}

impl Allocation {
    /// The job of this process, if it is in one.
    ///
    /// # Errors
    /// One sentence that says why its nodes are not known.
    pub(super) fn of_this_job() -> Result<Option<Self>, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (Some(job), Some(list)) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_NODELIST"))
        else {
            return Ok(None);
        };
        let fault = |why: &str| format!("the nodes of Slurm's job {job} are not known: {why}");
        let mut scontrol = Command::new("scontrol");
        let said = scontrol.args(["show", "hostnames", &list]).output();
        let said = said.map_err(|error| fault(&format!("cannot run scontrol ({error})")))?;
        if !said.status.success() {
            return Err(fault(String::from_utf8_lossy(&said.stderr).trim()));
        }
        let nodes = String::from_utf8_lossy(&said.stdout).into_owned();
        let nodes: Vec<String> = nodes.split_whitespace().map(str::to_owned).collect();
        let cpus = variable("SLURM_JOB_CPUS_PER_NODE").unwrap_or_default();
        let cpus = per_node(&cpus).filter(|cpus| cpus.len() == nodes.len());
        let cpus = cpus.ok_or_else(|| {
            fault("SLURM_JOB_CPUS_PER_NODE does not say how many processors each of them grants")
        })?;
        Ok(Some(Self { job, nodes: nodes.into_iter().zip(cpus).collect() }))
    }

    /// The nodes of a study that names no machines: the target's, and those of the loads. A job of
    /// one node has none.
    pub(super) fn places(&self) -> Option<(&str, Vec<&str>)> {
        let mut names = self.nodes.iter().map(|(name, _)| name.as_str());
        let target = names.next()?;
        let loads: Vec<&str> = names.collect();
        (!loads.is_empty()).then_some((target, loads))
    }

    /// The name of the job.
    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// The processors that are granted on a node.
    ///
    /// # Errors
    /// Half a sentence if it is not one of this job.
    pub(super) fn cpus(&self, node: &str) -> Result<u32, String> {
        let found = self.nodes.iter().find(|(name, _)| name == node);
        found.map(|(_, cpus)| *cpus).ok_or_else(|| {
            let names: Vec<&str> = self.nodes.iter().map(|(name, _)| name.as_str()).collect();
            format!("it is not a node of Slurm's job {}, which has {}", self.job, names.join(", "))
        })
    }
}

/// Reads how many processors each node has, like `16(x2),8`.
fn per_node(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (cpus, times) = match part.split_once("(x") {
            Some((cpus, times)) => (cpus, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        let cpus: u32 = cpus.parse().ok().filter(|cpus| *cpus > 0)?;
        // No cluster has more nodes.
        let times: usize = Some(times).filter(|times| (1..=1 << 16).contains(times))?;
        all.extend(std::iter::repeat_n(cpus, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(nodes: &[(&str, u32)]) -> Allocation {
        let nodes = nodes.iter().map(|(name, cpus)| ((*name).to_owned(), *cpus)).collect();
        Allocation { job: "7".to_owned(), nodes }
    }

    #[test]
    fn processors_of_nodes_are_read() {
        assert_eq!(per_node("16(x2),8"), Some(vec![16, 16, 8]));
        assert_eq!(per_node("4"), Some(vec![4]));
        for wrong in ["", "4(x)", "4(x2", "x", "0", "4(x0)", "4,,4", "4(x99999999999)"] {
            assert_eq!(per_node(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_first_node_has_the_target_and_the_others_the_loads() {
        let three = allocation(&[("n1", 2), ("n2", 4), ("n3", 4)]);
        assert_eq!(three.places(), Some(("n1", vec!["n2", "n3"])));
        assert_eq!(three.cpus("n2"), Ok(4));
        let why = three.cpus("n9").expect_err("another node");
        assert_eq!(why, "it is not a node of Slurm's job 7, which has n1, n2, n3");
        assert_eq!(allocation(&[("n1", 2)]).places(), None);
    }
}
