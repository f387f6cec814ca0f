//! What makes a member primary: a lock of a file or of an image, or a key of etcd.
//!
//! A lock is that of an open file, and who has it is primary only as long as the path still names
//! that file: the other member opens the path.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weft_backend::files;
use weft_backend::rbd::ImageLock;
use weft_reactor::lease_time;
use weft_target::config::{Arbiter, Etcd, Pair};

use super::gateway::Gateway;

/// The claim of one member.
#[derive(Debug)]
pub(super) enum Claim {
    /// The lock of a file. The kernel releases it once the process and its operations have ended.
    LockFile(LockFile),
    Etcd(Box<EtcdKey>),
    /// The exclusive lock of an image. Who takes it from a member that is gone, or does not answer,
    /// has that one fenced by the cluster.
    RbdLock(ImageLock),
}

/// How often it is asked whether the lock of an image is free: how long hosts wait at a hand-over.
const LOCK_INTERVAL: Duration = Duration::from_millis(25);
/// How often its owner is asked for it, and found to be gone.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);
/// How often its owner looks whether it still has it.
const KEPT_INTERVAL: Duration = Duration::from_secs(1);
/// A client stays fenced for an hour (Ceph's default): a process that was stopped for longer could
/// write again.
const STOPPED_MOST: Duration = Duration::from_mins(15);

/// What became of a claim that was renewed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RenewalResult {
    /// The member is primary until then, by [`lease_time`].
    Until(Duration),
    /// It is primary no longer.
    Lost,
}

impl Claim {
    pub(super) fn new(pair: &Pair) -> io::Result<Self> {
        Ok(match &pair.arbiter {
            Arbiter::LockFile(path) => Self::LockFile(LockFile::open(path)?),
            Arbiter::Etcd(etcd) => Self::Etcd(Box::new(EtcdKey::new(etcd, pair.member)?)),
            Arbiter::RbdLock(image) => Self::RbdLock(ImageLock::open(image)?),
        })
    }

    /// Whether [`Self::new`] can be expected to succeed. No file is made, and no cluster asked.
    pub(super) fn check(pair: &Pair) -> io::Result<()> {
        match &pair.arbiter {
            Arbiter::LockFile(path) => match LockFile::options().open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => files::can_create(path),
                opened => opened.map(drop),
            },
            Arbiter::Etcd(etcd) => EtcdKey::new(etcd, pair.member).map(drop),
            Arbiter::RbdLock(_) => Ok(()),
        }
    }

    /// Waits until this member is primary, and returns until when.
    pub(super) fn acquire(&mut self) -> io::Result<Duration> {
        match self {
            Self::LockFile(lock) => lock.acquire().map(|()| Duration::MAX),
            Self::Etcd(key) => loop {
                match key.acquire()? {
                    Some(until) => return Ok(until),
                    None => key.wait(),
                }
            },
            Self::RbdLock(lock) => acquire(lock),
        }
    }

    /// Whether any member is primary now.
    pub(super) fn is_taken(&mut self) -> io::Result<bool> {
        match self {
            Self::LockFile(LockFile { file, .. }) => match file.try_lock_shared() {
                Ok(()) => file.unlock().map(|()| false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
            Self::Etcd(key) => key.is_taken(),
            Self::RbdLock(lock) => lock.is_taken(),
        }
    }

    /// Has the claim last longer.
    pub(super) fn renew(&mut self) -> io::Result<RenewalResult> {
        match self {
            Self::LockFile(lock) if lock.is_current() => Ok(RenewalResult::Until(Duration::MAX)),
            Self::LockFile(_) => Ok(RenewalResult::Lost),
            Self::Etcd(key) => key.renew(),
            Self::RbdLock(lock) => match lock.is_kept() {
                Ok(false) => Ok(RenewalResult::Lost),
                // Without an answer it may be broken: the cluster keeps the others' writes apart.
                Ok(true) | Err(_) => Ok(RenewalResult::Until(lease_time() + STOPPED_MOST)),
            },
        }
    }

    /// Why a member that has lost it can serve only as a new process, if that is so.
    pub(super) fn end_if_lost(&self) -> Option<&'static str> {
        match self {
            Self::LockFile(_) => Some(
                "the lock file is not the one at its path any more, and another member may have \
                 locked that: this process ends",
            ),
            Self::RbdLock(_) => {
                Some("another client has broken the lock, and this process is fenced: it ends")
            }
            Self::Etcd(_) => None,
        }
    }

    /// How often it is renewed.
    pub(super) fn renewal_interval(&self) -> Duration {
        match self {
            Self::Etcd(key) => key.interval(),
            Self::LockFile(_) | Self::RbdLock(_) => KEPT_INTERVAL,
        }
    }

    /// What is needed of its time to give it up in order.
    pub(super) fn margin(&self) -> Duration {
        match self {
            Self::LockFile(_) | Self::RbdLock(_) => Duration::ZERO,
            Self::Etcd(key) => key.config.ttl / 4,
        }
    }

    /// Gives it up.
    pub(super) fn release(&mut self) -> io::Result<()> {
        match self {
            Self::LockFile(lock) => lock.file.unlock(),
            Self::Etcd(key) => key.release(),
            Self::RbdLock(lock) => lock.release(),
        }
    }
}

/// The lock of a file.
#[derive(Debug)]
pub(super) struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = Self::options().create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(weft_reactor::no_wait());
        options
    }

    /// Whether the path still names the file that is open.
    fn is_current(&self) -> bool {
        files::is_at(&self.file, &self.path)
    }

    /// Waits for the lock of the file that the path names.
    fn acquire(&mut self) -> io::Result<()> {
        loop {
            *self = Self::open(&self.path)?;
            let (lock, locked) = channel();
            let file = self.file.try_clone()?;
            // It may wait for ever on a file that has gone: then nobody hears of it.
            let wait = move || drop(lock.send(file.lock()));
            thread::Builder::new().name("weft-lock".to_owned()).spawn(wait)?;
            while self.is_current() {
                match locked.recv_timeout(KEPT_INTERVAL) {
                    Ok(outcome) => {
                        outcome?;
                        // If it is another one now, that is waited for.
                        if self.is_current() {
                            return Ok(());
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
    }
}

/// Waits for the lock of an image, and returns until when it can be relied on.
fn acquire(lock: &ImageLock) -> io::Result<Duration> {
    let mut attempt = lease_time();
    loop {
        if lease_time() >= attempt || !lock.is_taken()? {
            if lock.try_acquire()? {
                return Ok(lease_time() + STOPPED_MOST);
            }
            attempt = lease_time() + ATTEMPT_INTERVAL;
        }
        sleep(LOCK_INTERVAL);
    }
}

/// A key of etcd that exists as long as a lease.
#[derive(Debug)]
pub(super) struct EtcdKey {
    config: Etcd,
    gateway: Gateway,
    key: String,
    value: String,
    lease: Option<String>,
    /// The endpoint that answered last.
    endpoint: usize,
    /// The revision at which another member was seen to have the key.
    seen: Option<u64>,
}

impl EtcdKey {
    fn new(config: &Etcd, member: u8) -> io::Result<Self> {
        let (key, value) = (STANDARD.encode(&config.key), STANDARD.encode(member.to_string()));
        let (config, gateway) = (config.clone(), Gateway::new(config.tls.clone())?);
        Ok(Self { config, gateway, key, value, lease: None, endpoint: 0, seen: None })
    }

    /// Until when a lease can be relied on whose grant or renewal was sent at this time. Of the
    /// rest, a quarter, operations that have begun can end, and clocks may differ.
    fn until(&self, sent: Duration) -> Duration {
        sent + self.config.ttl * 3 / 4
    }

    /// Two renewals that fail, each after as long, are over at half of the lease.
    fn interval(&self) -> Duration {
        self.config.ttl / 8
    }

    /// Whether a member has the key.
    fn is_taken(&mut self) -> io::Result<bool> {
        let range = self.call("/v3/kv/range", &json!({ "key": self.key }))?;
        self.seen = number(&range["header"]["revision"]);
        Ok(range["kvs"].as_array().is_some_and(|keys| !keys.is_empty()))
    }

    /// Makes the key with a new lease, unless it exists; returns until when it can be relied on.
    fn acquire(&mut self) -> io::Result<Option<Duration>> {
        if self.is_taken()? {
            return Ok(None);
        }
        let sent = lease_time();
        let granted = self.call("/v3/lease/grant", &json!({ "TTL": self.config.ttl.as_secs() }))?;
        let (Some(lease), Some(ttl)) = (granted["ID"].as_str(), number(&granted["TTL"])) else {
            return Err(io::Error::other(format!("etcd granted no lease: {granted}")));
        };
        if ttl < self.config.ttl.as_secs() {
            return Err(io::Error::other(format!("etcd granted a lease of {ttl} s only")));
        }
        let put = json!({ "key": self.key, "value": self.value, "lease": lease });
        let compare = json!({ "key": self.key, "target": "CREATE", "create_revision": "0" });
        let transaction = json!({ "compare": [compare], "success": [{ "request_put": put }] });
        self.lease = Some(lease.to_owned());
        let made = self.call("/v3/kv/txn", &transaction);
        if made.as_ref().is_ok_and(|made| made["succeeded"] == true) {
            return Ok(Some(self.until(sent)));
        }
        // Whether the key was made is not known if there was no answer: then it goes as well.
        self.release()?;
        made.map(|_| None)
    }

    /// Waits for a change of the key, for as long as a lease at most.
    fn wait(&self) {
        let (began, most) = (lease_time(), self.config.ttl);
        let changed = self.watch(most).unwrap_or(false);
        if !changed {
            sleep(most.saturating_sub(lease_time() - began).min(self.interval()));
        }
    }

    /// Whether the key has changed since it was looked at.
    fn watch(&self, most: Duration) -> io::Result<bool> {
        let Some(seen) = self.seen else { return Ok(false) };
        let request = json!({ "create_request": { "key": self.key, "start_revision": seen + 1 } });
        let url = format!("{}/v3/watch", self.config.endpoints[self.endpoint]);
        for told in self.gateway.stream(&url, &request, most)? {
            if told?["result"]["events"].is_array() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn renew(&mut self) -> io::Result<RenewalResult> {
        let Some(lease) = &self.lease else { return Ok(RenewalResult::Lost) };
        let sent = lease_time();
        let told = self.call("/v3/lease/keepalive", &json!({ "ID": lease }))?;
        // One that has ended has no time left.
        match number(&told["result"]["TTL"]) {
            Some(ttl) if ttl > 0 => Ok(RenewalResult::Until(self.until(sent))),
            _ => {
                self.lease = None;
                Ok(RenewalResult::Lost)
            }
        }
    }

    fn release(&mut self) -> io::Result<()> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        self.call("/v3/lease/revoke", &json!({ "ID": lease })).map(drop)
    }

    /// Asks the endpoint that answered last, and the others if it does not.
    fn call(&mut self, path: &str, body: &Value) -> io::Result<Value> {
        let count = self.config.endpoints.len();
        let timeout = self.interval() / u32::try_from(count).unwrap_or(u32::MAX);
        let mut failure = None;
        for _ in 0..count {
            let endpoint = &self.config.endpoints[self.endpoint];
            match self.gateway.call(&format!("{endpoint}{path}"), body, timeout) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let told = format!("{endpoint}: {error}");
                    failure.get_or_insert(io::Error::new(error.kind(), told));
                    self.endpoint = (self.endpoint + 1) % count;
                }
            }
        }
        Err(failure.unwrap_or_else(|| io::Error::other("etcd has no endpoint")))
    }
}

/// A number as the gateway writes it: in quotes, and not at all if it is 0.
fn number(of: &Value) -> Option<u64> {
    of.as_u64().or_else(|| of.as_str()?.parse().ok())
}
