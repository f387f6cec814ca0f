//! The target's control socket: its statistics, reloading, and SPDK's methods.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use weft_lab::study::inside;
use weft_rpc::{Address, Caller, Code, ErrorObject, Listening, Method, Methods, Server, Token};
use weft_statistics::{GetStatistics, Reload};

use super::operate::error::invalid;
use super::operate::operator::Operator;
use super::operate::parameters::Params;
use super::operate::{self};
use crate::failure::Failure;
use crate::limits::RELOAD_TIMEOUT;
use crate::signals::ServerRequest;

/// The callers of `reload` that wait for its outcome.
type ReloadCallers = Arc<Mutex<Vec<Sender<Result<Vec<String>, String>>>>>;

/// A control socket.
#[derive(Debug)]
pub(super) struct Control {
    server: Server,
    waiting: ReloadCallers,
}

impl Control {
    /// Listens at an address, answers for the target, and sends reloads to `wish`. With `loads`
    /// callers may run loads inside the target.
    pub(super) fn start(
        at: &Listening,
        token: Option<Token>,
        operator: &Arc<Operator>,
        wish: Sender<ServerRequest>,
        loads: bool,
    ) -> Result<Self, Failure> {
        let waiting: ReloadCallers = Arc::default();
        let asked = Arc::clone(&waiting);
        let watch = operator.watch().clone();
        let methods = if loads { with_loads(operator) } else { Methods::new() };
        let methods = methods
            .with::<GetStatistics>(move |()| Ok(watch.statistics()))
            .with_named("spdk_kill_instance", kill(wish.clone()))
            .with_named(Reload::NAME, move |caller, _| {
                let who = format!("control: {caller}");
                let outcome = wait_for_reload(ServerRequest::Reload(who), &wish, &asked);
                let lines = outcome.map_err(|what| ErrorObject::new(Code::FAILED, what))?;
                Ok(lines.into())
            });
        let server = Server::start(at.clone(), operate::methods(methods, operator), token);
        Ok(Self { server: server.map_err(|error| cannot_listen(at, &error))?, waiting })
    }

    /// Whether [`Self::start`] can listen there.
    pub(super) fn can_listen(at: &Listening) -> Result<(), Failure> {
        Server::can_listen(at).map_err(|error| cannot_listen(at, &error))
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> &Address {
        self.server.address()
    }

    /// Sends the outcome of a reload to its callers.
    pub(super) fn reloaded(&self, outcome: &Result<Vec<String>, String>) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for caller in waiting {
            // A caller whose wait has timed out has dropped its receiver.
            let _ = caller.send(outcome.clone());
        }
    }
}

fn cannot_listen(at: &Listening, error: &std::io::Error) -> Failure {
    Failure::io("listen for control on", at.address(), error)
}

/// SPDK's method that sends a signal to the process: those that it has a meaning for here.
fn kill(
    wish: Sender<ServerRequest>,
) -> impl Fn(&Caller, Value) -> Result<Value, ErrorObject> + Send + Sync + 'static {
    move |caller, params| {
        let mut params = Params::of(params)?;
        let signal: Value = params.need("sig_name")?;
        params.end()?;
        let who = format!("control: {caller}");
        let name = signal.as_str().map_or_else(|| signal.to_string(), str::to_uppercase);
        let wanted = match name.trim_start_matches("SIG") {
            "INT" | "2" | "TERM" | "15" => ServerRequest::Stop(who),
            "HUP" | "1" => ServerRequest::Reload(who),
            _ => return Err(invalid("sig_name: give SIGINT, SIGTERM or SIGHUP")),
        };
        wish.send(wanted).map_err(|_| ErrorObject::new(Code(-1), "the target stops"))?;
        Ok(true.into())
    }
}

/// Has the configuration read again, and waits for the outcome.
fn wait_for_reload(
    wanted: ServerRequest,
    wish: &Sender<ServerRequest>,
    waiting: &ReloadCallers,
) -> Result<Vec<String>, String> {
    let (answer, answered) = channel();
    waiting.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    wish.send(wanted).map_err(|_| "the target stops".to_owned())?;
    let outcome = answered.recv_timeout(RELOAD_TIMEOUT);
    outcome.unwrap_or_else(|_| Err("it takes long, or the target stops".to_owned()))
}

/// The methods by which a study runs loads inside the target.
fn with_loads(operator: &Arc<Operator>) -> Methods {
    let operator = Arc::clone(operator);
    inside::methods(Methods::new(), move |nqn, nsid| {
        operator.with(|target| target.device(nqn, nsid)).ok().flatten()
    })
}
