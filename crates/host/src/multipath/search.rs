//! Paths that discovery controllers list, now and later.
//!
//! A thread reads their log pages whenever one has changed, or can be read again. A port that is
//! new becomes a path. One that is listed no longer is disconnected as soon as another path that is
//! listed can be used: a discovery controller that has just started, and lists nothing yet, takes
//! no path away.

use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use weft_nvmf::host::TransportId;

use super::Group;
use super::sources::Sources;
use crate::error::Error;
use crate::limits;
use crate::options::Options;

/// A search that goes on until it is dropped.
#[derive(Debug)]
pub(super) struct Search {
    /// The thread ends once it is gone.
    goes_on: Option<Arc<()>>,
    thread: Thread,
}

/// The ports of the subsystem, with those who list them.
fn first(options: &Options) -> Result<(Vec<TransportId>, Sources), Error> {
    options.check()?;
    let sources = Sources::connect(options)?;
    let ports = sources.ports();
    if ports.is_empty() {
        let name = options.address.subnqn.as_ref().map_or("", |nqn| nqn.as_str());
        let at = TransportId { subnqn: None, nsid: None, ..options.address.clone() };
        return Err(Error::Invalid(format!("{at} lists no port of {name} for this host")));
    }
    Ok((ports, sources))
}

/// The ports that are listed now.
pub(crate) fn ports(options: &Options) -> Result<Vec<TransportId>, Error> {
    first(options).map(|(ports, _)| ports)
}

/// The ports of all NVM subsystems that the discovery controller at this address lists for this
/// host, and those that it refers to: each is asked, if it can be.
pub fn discover_ports(options: &Options) -> Result<Vec<TransportId>, Error> {
    let address = TransportId { subnqn: None, ..options.address.clone() };
    // Short connections need no Keep Alive.
    let options = Options { address, keep_alive_tmo: Duration::ZERO, ..options.clone() };
    Sources::connect(&options).map(|sources| sources.ports())
}

impl Search {
    /// Makes paths of the ports that are listed, and of those that will be.
    pub(super) fn start(options: &Options, group: &Arc<Group>) -> Result<Self, Error> {
        let (ports, sources) = first(options)?;
        group.add(&ports)?;
        let goes_on = Arc::new(());
        let (group, seen) = (Arc::clone(group), Arc::downgrade(&goes_on));
        let run = move || search(sources, &group, &seen);
        let thread = std::thread::Builder::new().name("weft-paths".into()).spawn(run);
        let thread = thread
            .map_err(|error| Error::Invalid(format!("cannot start a thread: {error}")))?
            .thread()
            .clone();
        Ok(Self { goes_on: Some(goes_on), thread })
    }
}

impl Drop for Search {
    /// The thread ends by itself, and with it a path that it has added meanwhile. It is not waited
    /// for: it may be reading a log page.
    fn drop(&mut self) {
        drop(self.goes_on.take());
        self.thread.unpark();
    }
}

fn search(mut sources: Sources, group: &Group, goes_on: &Weak<()>) {
    sources.wake(std::thread::current());
    loop {
        let are_new = sources.ask();
        if goes_on.strong_count() == 0 {
            return;
        }
        let ports = sources.ports();
        if are_new && let Err(error) = group.add(&ports) {
            log::warn!("a path cannot be added: {error}");
        }
        let is_known = !ports.is_empty() && !sources.is_pending();
        let mut patience = sources.patience();
        if is_known && !group.end_others(&ports) {
            patience = patience.min(limits::UNLISTED_POLL);
        }
        std::thread::park_timeout(patience);
    }
}
