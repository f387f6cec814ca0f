//! Checks the access states of ports and the groups of namespaces.

use crate::config::{AnaRule, Config, ConfigError, NSID_MAX, Subsystem};

impl Config {
    /// Checks the rules of ports.
    pub(in crate::config) fn check_ana_rules(&self) -> Result<(), ConfigError> {
        for (index, port) in self.ports.iter().enumerate() {
            for (number, rule) in port.ana.iter().enumerate() {
                self.check_ana_rule(&format!("port[{index}].ana[{number}]"), rule)?;
            }
        }
        Ok(())
    }

    /// Checks the groups of namespaces.
    pub(in crate::config) fn check_ana_groups(&self) -> Result<(), ConfigError> {
        for (index, subsystem) in self.subsystems.iter().enumerate() {
            self.check_ana_groups_of(&format!("subsystem[{index}]"), subsystem)?;
        }
        Ok(())
    }

    fn check_ana_rule(&self, at: &str, rule: &AnaRule) -> Result<(), ConfigError> {
        if let Some(group) = rule.group.filter(|group| *group == 0 || *group > NSID_MAX) {
            return Err(ConfigError::new(format!("{at}.group"), format!("{group} is no group"))
                .remedy(format!("give 1 to {NSID_MAX}, or leave it out for all")));
        }
        let Some(nqn) = &rule.subsystem else { return Ok(()) };
        let key = format!("{at}.subsystem");
        match self.subsystems.iter().find(|subsystem| subsystem.nqn == *nqn) {
            None => Err(ConfigError::new(key, format!("there is no subsystem {nqn:?}"))
                .remedy("name one that is configured, or leave the key out for all")),
            Some(subsystem) if !subsystem.ana_reporting => {
                Err(ConfigError::new(key, format!("{nqn:?} does not report access states"))
                    .remedy("give the subsystem `ana-reporting = true`"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks the group of one namespace of a subsystem.
    pub(in crate::config) fn check_ana_group_of(
        &self,
        at: &str,
        subsystem: &Subsystem,
        index: usize,
    ) -> Result<(), ConfigError> {
        let most = subsystem.most_namespaces(&self.limits);
        let group = subsystem.namespaces.get(index).and_then(|namespace| namespace.ana_group);
        let Some(group) = group else { return Ok(()) };
        let key = format!("{at}.namespace[{index}].ana-group");
        if group == 0 || group > most {
            return Err(ConfigError::new(key, format!("{group} is no group"))
                .remedy(format!("give 1 to {most}, the largest NSID, or leave it out")));
        }
        if subsystem.ana_reporting {
            return Ok(());
        }
        Err(ConfigError::new(key, "the subsystem does not report access states")
            .remedy("give it `ana-reporting = true`"))
    }

    /// Checks the groups of a subsystem.
    pub(in crate::config) fn check_ana_groups_of(
        &self,
        at: &str,
        subsystem: &Subsystem,
    ) -> Result<(), ConfigError> {
        for index in 0..subsystem.namespaces.len() {
            self.check_ana_group_of(at, subsystem, index)?;
        }
        let most = subsystem.most_namespaces(&self.limits);
        // A Linux host reads the whole log page with one command, and ignores ANA if it cannot.
        let page = 16 + 36 * u64::from(most);
        if subsystem.ana_reporting && u64::from(self.limits.transfer_bytes) < page {
            let what = format!("its log page may have {page} bytes, and one command moves fewer");
            return Err(ConfigError::new(format!("{at}.ana-reporting"), what)
                .remedy("raise `limits.transfer-size`, or lower `limits.namespaces`"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_nvme::log_page::AsymmetricNamespaceAccessState as WireState;

    use crate::config::toml;

    #[test]
    fn contradictions_are_found() {
        let read = |port: &str, subsystem: &str, namespace: &str| {
            toml::read(&format!(
                "limits = {{ namespaces = 8 }}\n\
                 [[port]]\nlisten = 'tcp://127.0.0.1:4420'\n{port}\n\
                 [[subsystem]]\nnqn = 'nqn.a'\n{subsystem}\n\
                 [[subsystem.namespace]]\nnull = '1MiB'\n{namespace}\n"
            ))
        };
        let told = |port, subsystem, namespace| {
            read(port, subsystem, namespace).expect_err("a contradiction").to_string()
        };
        let on = "ana-reporting = true";
        let rule = "ana = [{ subsystem = 'nqn.a', group = 3, state = 'inaccessible' }]";
        let config = read(rule, on, "ana-group = 3").expect("a configuration");
        let view = config.ana_view(&config.subsystems[0]).expect("reported");
        assert_eq!(view.state(1, 3), WireState::INACCESSIBLE);
        assert_eq!(config.subsystems[0].ana_groups(), [3]);
        assert!(told(rule, "", "").contains("does not report access states"));
        assert!(
            told("ana = [{ subsystem = 'nqn.b', state = 'change' }]", on, "").contains("nqn.b")
        );
        assert!(told("ana = [{ group = 0, state = 'change' }]", on, "").contains("no group"));
        assert!(told("", on, "ana-group = 9").contains("give 1 to 8"));
        assert!(told("", "", "ana-group = 1").contains("ana-reporting = true"));
        assert!(told("ana = [{ state = 'best' }]", on, "").contains("best"));
        let silent = read("", "", "").expect("a file");
        assert!(silent.ana_view(&silent.subsystems[0]).is_none());
    }
}
