//! Checks what two targets of a pair serve.

use weft_backend::DeviceSpec;

use crate::config::{Arbiter, ConfigError, Namespace, Pair, Subsystem};

impl Pair {
    /// What two members cannot have together.
    fn refusal(&self, spec: &DeviceSpec) -> Option<(&'static str, &'static str)> {
        match spec {
            DeviceSpec::Delay { inner, .. } | DeviceSpec::Fault { inner, .. } => {
                return self.refusal(inner);
            }
            _ => {}
        }
        if let Arbiter::RbdLock(lock) = &self.arbiter {
            let fenced = matches!(spec, DeviceSpec::Rbd(image) if image.ceph == lock.ceph);
            if !fenced {
                return Some((
                    "nothing fences there a member that has lost the lock of the image",
                    "give images of the cluster of `rbd-lock`, with the same conf, user and others",
                ));
            }
            if matches!(spec, DeviceSpec::Rbd(image) if image.name() == lock.name()) {
                return Some((
                    "its lock says who is primary, and cannot move to who writes",
                    "give `rbd-lock` an image of its own: 1 MiB is enough",
                ));
            }
        }
        match spec {
            DeviceSpec::Memory { .. } | DeviceSpec::Null { .. } => {
                Some(("it is in the memory of one process", "give a file, block device or image"))
            }
            DeviceSpec::File { direct: Some(false), .. }
                if matches!(self.arbiter, Arbiter::Etcd(_)) =>
            {
                Some((
                    "what is in the page cache of one machine is lost with it",
                    "remove direct=off",
                ))
            }
            DeviceSpec::Rbd(image) if image.exclusive => Some((
                "the member that opens it first keeps its lock",
                "remove `exclusive`: the lock moves to the member that writes",
            )),
            DeviceSpec::Uncorrectable { .. } => Some((
                "each member has marks of its own, which the other does not know",
                "remove `uncorrectable:`",
            )),
            _ => None,
        }
    }

    pub(in crate::config) fn check_subsystem(
        &self,
        at: &str,
        subsystem: &Subsystem,
    ) -> Result<(), ConfigError> {
        if subsystem.host_namespaces.is_some() {
            let what = "the other member would not know what hosts make here";
            return Err(
                ConfigError::new(format!("{at}.host-namespaces"), what).remedy("leave it out")
            );
        }
        if !subsystem.ana_reporting {
            let what = "hosts of a pair need the access states";
            return Err(ConfigError::new(format!("{at}.ana-reporting"), what)
                .remedy("set it to true, or leave it out"));
        }
        for (index, namespace) in subsystem.namespaces.iter().enumerate() {
            self.check_namespace(&format!("{at}.namespace[{index}]"), namespace)?;
        }
        Ok(())
    }

    pub(in crate::config) fn check_namespace(
        &self,
        at: &str,
        namespace: &Namespace,
    ) -> Result<(), ConfigError> {
        let Some((what, remedy)) = self.refusal(&namespace.device) else { return Ok(()) };
        let what = format!("two targets cannot share {}: {what}", namespace.device);
        Err(ConfigError::new(at, what).remedy(remedy))
    }
}
