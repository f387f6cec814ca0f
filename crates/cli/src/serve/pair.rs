//! A target that is one of a pair: it serves while it is the primary member, and else stands by.
//!
//! A thread claims what only one member can have (a lock, or a key of etcd), then gives hosts
//! access. Before it gives the claim up it takes their access away and waits for the commands in
//! flight. A claim that ends by itself if it is not renewed has its end in a timer of the kernel,
//! which kills the process then: whatever stopped it, it cannot go on to write. The lock of an
//! image of Ceph is broken by the other member, which has the cluster refuse this one's writes
//! first. With a lock file the primary also locks each file and block device that it serves, so
//! that a member which is wrong about the lock file cannot serve them.

mod claim;
mod gateway;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use weft_reactor::{KillTimer, lease_time};
use weft_rpc::{Code, ErrorObject, Methods};
use weft_target::TargetError;
use weft_target::config::{self, Arbiter};

use self::claim::{Claim, RenewalResult};
use super::operate::method::method;
use super::operate::operator::Operator;
use super::operate::parameters::Params;
use crate::failure::Failure;

/// How long commands in flight may take at a hand-over.
const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the other member may take to claim what this one gives up.
const HAND_OVER_PATIENCE: Duration = Duration::from_secs(2);

/// How often a member tries to stand by that is to do so at once.
const LEAVE_ATTEMPTS: u32 = 3;

/// How long until the next attempt after something failed.
const RETRY: Duration = Duration::from_secs(1);

/// A member of a pair, from outside its thread.
#[derive(Debug)]
pub(super) struct Pair {
    config: config::Pair,
    standing: Arc<Mutex<MemberState>>,
    orders: Sender<Order>,
    /// The lock of its number, where both members have a file.
    _number: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Primary,
    Standby,
}

/// What others see of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberState {
    role: Role,
    /// Until when the claim of a primary lasts, by [`lease_time`].
    until: Duration,
    /// How often it has become primary.
    pub(super) terms: u64,
    /// How often its claim could neither be made nor renewed, as nobody answered.
    pub(super) failures: u64,
}

/// What becomes of a member's turn if its devices could not store everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It does not end: the other member would serve as if nothing were missing.
    Refused,
    /// It ends all the same: an operator has decided so.
    Accepted,
}

type Answer = Sender<Result<(), String>>;

/// What the primary member is told.
#[derive(Debug)]
enum Order {
    /// The other member is to be primary.
    HandOver(Answer, Loss),
    /// The process ends.
    Stop(Answer),
}

/// What its thread has.
#[derive(Debug)]
struct Member {
    operator: Arc<Operator>,
    standing: Arc<Mutex<MemberState>>,
    orders: Receiver<Order>,
    claim: Claim,
    /// Until when it can be relied on, by [`lease_time`].
    until: Duration,
    /// Ends the process with the claim, if that ends by itself.
    timer: Option<KillTimer>,
    /// Whether the devices are locked while this member is primary.
    locks_devices: bool,
}

impl Pair {
    /// Of a member that is about to open its devices: they are not locked while it stands by.
    pub(super) fn prepare(config: &config::Pair) {
        if locks_devices(config) {
            weft_backend::unlock_devices();
        }
    }

    /// Whether [`Self::start`] can be expected to succeed: no file is made, and nobody is asked.
    pub(super) fn check(config: &config::Pair) -> Result<(), Failure> {
        timer(config)?;
        lock_number(config, weft_backend::files::can_lock_beside)?;
        Claim::check(config).map_err(|error| Failure::io("open", &config.arbiter, &error))
    }

    /// Starts the thread of a member, whose target stands by.
    pub(super) fn start(config: &config::Pair, operator: &Arc<Operator>) -> Result<Self, Failure> {
        let timer = timer(config)?;
        let number = lock_number(config, weft_backend::files::lock_beside)?;
        let claim = Claim::new(config);
        let claim = claim.map_err(|error| Failure::io("open", &config.arbiter, &error))?;
        let standing =
            MemberState { role: Role::Standby, until: Duration::ZERO, terms: 0, failures: 0 };
        let standing = Arc::new(Mutex::new(standing));
        let (order, orders) = channel();
        let member = Member {
            operator: Arc::clone(operator),
            standing: Arc::clone(&standing),
            orders,
            claim,
            until: Duration::ZERO,
            timer,
            locks_devices: locks_devices(config),
        };
        let started = thread::Builder::new().name("weft-pair".to_owned());
        let started = started.spawn(move || member.run());
        started.map_err(|error| Failure::io("start", &"a thread", &error))?;
        Ok(Self { config: config.clone(), standing, orders: order, _number: number })
    }

    /// Gives up what this member has claimed, if it is primary: the process ends.
    pub(super) fn stop(&self) {
        if let Err(error) = self.order(Order::Stop) {
            log::debug!("pair: {error}");
        }
    }

    /// Which member this is, and who decides which of the two is primary.
    pub(super) const fn config(&self) -> &config::Pair {
        &self.config
    }

    /// How it stands now.
    pub(super) fn standing(&self) -> MemberState {
        *lock(&self.standing)
    }

    fn order(&self, order: impl FnOnce(Answer) -> Order) -> Result<(), String> {
        let stands_by = || {
            let member = self.config.member;
            format!(
                "member {member} stands by: the other one is primary, if it runs; call hand-over \
                 at its --control"
            )
        };
        if !self.standing().is_primary() {
            return Err(stands_by());
        }
        let (answer, answered) = channel();
        self.orders.send(order(answer)).map_err(|_| stands_by())?;
        answered.recv().map_err(|_| stands_by())?
    }
}

impl MemberState {
    pub(super) fn is_primary(&self) -> bool {
        self.role == Role::Primary
    }

    /// What is left of the claim of a primary, if that ends by itself.
    pub(super) fn lease_left(&self) -> Option<Duration> {
        let lasts = self.is_primary() && self.until < Duration::MAX;
        lasts.then(|| self.until.saturating_sub(lease_time()))
    }
}

/// What ends the process with a claim that ends by itself.
fn timer(config: &config::Pair) -> Result<Option<KillTimer>, Failure> {
    match config.arbiter {
        Arbiter::LockFile(_) => Ok(None),
        // The cluster fences whoever loses the lock, for an hour: the timer is for later.
        Arbiter::RbdLock(_) if std::process::id() == 1 => Ok(None),
        // The kernel spares the first process of a container from its own signals.
        Arbiter::Etcd(_) if std::process::id() == 1 => Err(Failure::because(
            "the first process of a container cannot be ended when its lease is over: start the \
             container with an init (podman run --init)",
        )),
        Arbiter::Etcd(_) | Arbiter::RbdLock(_) => {
            let timer = KillTimer::new().map(Some);
            timer.map_err(|error| Failure::io("make", &"a timer", &error))
        }
    }
}

/// Two members with one number would give hosts the same CNTLIDs.
fn lock_number<T>(
    config: &config::Pair,
    lock: fn(&Path) -> std::io::Result<T>,
) -> Result<Option<T>, Failure> {
    let Arbiter::LockFile(path) = &config.arbiter else { return Ok(None) };
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}", config.member));
    lock(Path::new(&beside)).map(Some).map_err(|error| {
        let (member, other) = (config.member, 3 - config.member);
        match error.kind() {
            ErrorKind::WouldBlock => Failure::Because(format!(
                "member {member} is taken by another process; write member = {other} in one of the \
                 two files"
            )),
            _ => Failure::io("lock", &beside.display(), &error),
        }
    })
}

/// Whether the primary locks its devices as well: where the lock of a file decides, `flock` is what
/// both members have. That of a machine that is gone would last too long for a lease.
fn locks_devices(config: &config::Pair) -> bool {
    matches!(config.arbiter, Arbiter::LockFile(_))
}

fn lock(standing: &Mutex<MemberState>) -> MutexGuard<'_, MemberState> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    fn run(mut self) {
        let mut told = None;
        loop {
            match self.claim.acquire() {
                Ok(until) => {
                    (told, self.until) = (None, until);
                    if let Some(answer) = self.serve() {
                        // If it waits no longer, the process ends all the same.
                        let _ = answer.send(Ok(()));
                        return;
                    }
                }
                Err(error) => {
                    lock(&self.standing).failures += 1;
                    // A server may be away for long: once is enough.
                    let error = format!("pair: this member cannot become primary: {error}");
                    if told.as_ref() != Some(&error) {
                        log::error!("{error}");
                    }
                    told = Some(error);
                    thread::sleep(RETRY);
                }
            }
        }
    }

    /// Is primary until something ends that; returns whom to tell if the process ends.
    fn serve(&mut self) -> Option<Answer> {
        if let Err(error) = self.rely_on_claim().and_then(|()| self.take_over()) {
            log::error!("pair: this member cannot serve: {error}");
            self.leave();
            thread::sleep(RETRY);
            return None;
        }
        // What was asked while it stood by was meant for the primary of that time.
        for order in self.orders.try_iter() {
            if let Order::Stop(answer) = order {
                self.end();
                return Some(answer);
            }
        }
        self.take(Role::Primary);
        log::info!("pair: this member is primary");
        loop {
            match self.keep() {
                Some(Order::HandOver(answer, loss)) => {
                    let outcome = self.hand_over(loss);
                    let is_primary = lock(&self.standing).is_primary();
                    match &outcome {
                        Ok(()) => log::info!("pair: the other member is primary"),
                        Err(error) => log::warn!("pair: no hand-over: {error}"),
                    }
                    // If it waits no longer, it sees the role.
                    let _ = answer.send(outcome);
                    if !is_primary {
                        return None;
                    }
                }
                Some(Order::Stop(answer)) => {
                    self.end();
                    return Some(answer);
                }
                None => {
                    log::warn!("pair: this member stands by");
                    self.leave();
                    return None;
                }
            }
        }
    }

    /// Renews the claim until it is lost or there is an order.
    fn keep(&mut self) -> Option<Order> {
        let interval = self.claim.renewal_interval();
        loop {
            match self.orders.recv_timeout(interval) {
                // The whole time of the claim is left for what is ordered.
                Ok(order) => return self.renew().is_some().then_some(order),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.renew()?,
            }
        }
    }

    /// Has the claim last longer; none: it is not to be relied on.
    fn renew(&mut self) -> Option<()> {
        match self.claim.renew() {
            Ok(RenewalResult::Until(until)) => {
                self.until = until;
                let set = self.rely_on_claim().inspect_err(|error| log::error!("pair: {error}"));
                set.ok()
            }
            Ok(RenewalResult::Lost) => {
                if let Some(why) = self.claim.end_if_lost() {
                    log::error!("pair: {why}");
                    std::process::abort();
                }
                log::error!("pair: the lease has ended");
                None
            }
            Err(error) => {
                lock(&self.standing).failures += 1;
                log::warn!("pair: the lease cannot be renewed: {error}");
                // Commands in flight can still end in order.
                (lease_time() + self.claim.margin() < self.until).then_some(())
            }
        }
    }

    fn take(&self, role: Role) {
        let mut standing = lock(&self.standing);
        standing.role = role;
        standing.terms += u64::from(role == Role::Primary);
    }

    /// This process lives as long as its claim at most.
    fn rely_on_claim(&mut self) -> Result<(), String> {
        lock(&self.standing).until = self.until;
        let (Some(timer), until) = (&mut self.timer, self.until) else { return Ok(()) };
        timer.set(until).map_err(|error| format!("the timer of the lease cannot be set: {error}"))
    }

    fn take_over(&self) -> Result<(), String> {
        if self.locks_devices {
            weft_backend::lock_devices().map_err(|error| error.to_string())?;
        }
        let taken = self.operator.with(|target| {
            target.read_reservations()?;
            target.stand_by(false)
        });
        taken.map_err(|error| error.message)?.map_err(|error| error.to_string())
    }

    /// Takes the hosts' access away, waits for their commands, and has the devices store
    /// everything.
    fn step_down(&self, patience: Duration, loss: Loss) -> Result<(), String> {
        let stepped_down = self.operator.with(|target| {
            target.stand_by(true)?;
            target.wait_until_idle(patience)?;
            Ok::<_, TargetError>(target.sync())
        });
        let stepped_down = stepped_down.map_err(|error| error.message)?;
        match stepped_down.map_err(|error| error.to_string())? {
            Err(error) if loss == Loss::Refused => Err(format!(
                "not all that was written is stored: {error}; once that is seen to, `weft ctl pair \
                 hand-over --force` has the other member serve what is there"
            )),
            Err(error) => {
                log::warn!("pair: not all that was written is stored: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Stands by, and gives up the claim. If that is not possible the process ends with it: it
    /// cannot be relied on.
    fn leave(&mut self) {
        self.take(Role::Standby);
        for _ in 0..LEAVE_ATTEMPTS {
            match self.step_down(IDLE_PATIENCE, Loss::Refused) {
                Ok(()) => return self.release(),
                Err(error) => log::error!("pair: this member cannot stand by: {error}"),
            }
            thread::sleep(RETRY);
        }
        log::error!("pair: this member does not give up its claim in order: this process ends");
        std::process::abort();
    }

    /// Gives up the claim of a process that is ending, or has it end with the process.
    fn end(&mut self) {
        self.take(Role::Standby);
        match self.step_down(IDLE_PATIENCE, Loss::Refused) {
            Ok(()) => self.release(),
            Err(error) => log::error!("pair: the claim ends with this process: {error}"),
        }
    }

    fn release(&mut self) {
        if self.locks_devices {
            weft_backend::unlock_devices();
        }
        if let Some(timer) = &mut self.timer
            && let Err(error) = timer.unset()
        {
            log::error!("pair: the timer of the lease cannot be unset: {error}");
        }
        if let Err(error) = self.claim.release() {
            log::warn!("pair: the claim ends by itself: {error}");
        }
    }

    /// Has the other member become primary.
    fn hand_over(&mut self, loss: Loss) -> Result<(), String> {
        let patience = self.until.saturating_sub(lease_time()) / 2;
        if let Err(error) = self.step_down(patience.min(IDLE_PATIENCE), loss) {
            return match self.operator.with(|target| target.stand_by(false)) {
                Ok(Ok(())) => Err(error),
                _ => {
                    self.leave();
                    Err(format!("{error}; this member stands by"))
                }
            };
        }
        self.take(Role::Standby);
        self.release();
        let end = lease_time() + HAND_OVER_PATIENCE;
        while lease_time() < end {
            if self.claim.is_taken().unwrap_or(false) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err("the other member does not claim to be primary: see whether it runs".to_owned())
    }
}

/// The methods of a member of a pair.
pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    fn pair(operator: &Operator) -> Result<&Pair, ErrorObject> {
        let none = "this target is not one of a pair: see [pair] in docs/config.toml";
        operator.pair().ok_or_else(|| ErrorObject::new(Code(-1), none))
    }
    let methods = method(methods, operator, "pair_get_state", |operator, params| {
        Params::of(params)?.end()?;
        let pair = pair(operator)?;
        let is_primary = pair.standing().is_primary();
        Ok(json!({
            "member": pair.config.member,
            "role": if is_primary { "primary" } else { "standby" },
            "arbiter": pair.config.arbiter.to_string(),
        }))
    });
    method(methods, operator, "pair_hand_over", |operator, params| {
        let mut params = Params::of(params)?;
        let force = params.take::<bool>("force")?.unwrap_or(false);
        params.end()?;
        let loss = if force { Loss::Accepted } else { Loss::Refused };
        let handed_over = pair(operator)?.order(|answer| Order::HandOver(answer, loss));
        handed_over.map(|()| Value::from(true)).map_err(|error| ErrorObject::new(Code(-1), error))
    })
}
