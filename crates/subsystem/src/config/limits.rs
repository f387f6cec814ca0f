//! Limits, each with its default and the source of the number.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_backend::duration::as_text;

use weft_nvmf::limits::NSID_MAX;

use super::{ConfigError, text};

/// First controller id handed out, as in the Linux target.
pub const CNTLID_FIRST: u16 = 1;

/// Last controller id handed out: FFF0h and above are reserved or have special meanings.
pub const CNTLID_LAST: u16 = 0xffef;

/// Limits of what hosts may ask for and of the resources that the target uses for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Entries of an I/O queue (CAP.MQES + 1), 2 to 1024. Default 1024, as in the Linux target
    /// (`NVMET_QUEUE_SIZE`); over RDMA 256 at most. A Linux host asks for 128 by default.
    pub queue_entries: u16,
    /// I/O queues of one controller, 1 to 1024. Default 128, as in the Linux target
    /// (`NVMET_NR_QUEUES`).
    pub io_queues: u16,
    /// Largest transfer of one command (MDTS), a power of two of 4 KiB to 4 MiB. Default
    /// 1 MiB: a quarter of the reactor's largest buffer.
    #[serde(rename = "transfer-size", with = "text::size")]
    pub transfer_bytes: u32,
    /// Data that may come within a command capsule, 0 to 64 KiB in steps of 16. Default 16 KiB, as
    /// in the Linux target for TCP (`NVMET_TCP_DEF_INLINE_DATA_SIZE`).
    #[serde(rename = "in-capsule-size", with = "text::size")]
    pub in_capsule_bytes: u32,
    /// Largest H2CData PDU that a host may send (MAXH2CDATA), 4 KiB to 4 MiB in steps of 4.
    /// Default 1 MiB: the largest transfer then needs one PDU.
    #[serde(rename = "h2c-data-size", with = "text::size")]
    pub h2c_data_bytes: u32,
    /// Namespaces of one subsystem (NN), 1 to 8192. Default 1024, as in the Linux target
    /// (`NVMET_MAX_NAMESPACES`).
    pub namespaces: u32,
    /// Controllers of one subsystem at a time, 1 to 65519. Default 1024.
    pub controllers: u16,
    /// Connections of all hosts at a time, 1 and up. Default 16384; the descriptors that the
    /// process may open bound it further.
    pub connections: usize,
    /// How long a connection has from accept to the end of its Connect, 100 ms to 10 min. Default
    /// 10 s: ten times what a slow path with one lost segment needs.
    #[serde(with = "as_text")]
    pub connect_timeout: Duration,
    /// How long a controller that ends waits for its commands before its next Connect is refused,
    /// 1 s to 10 min. Default 30 s: the I/O timeout of the Linux host. A target that stops waits
    /// for commands as long, but 10 s at most.
    #[serde(with = "as_text")]
    pub drain_timeout: Duration,
    /// How long a host may hold memory without progress (it neither sends the data that it was
    /// asked for, or less than a sixteenth of it in twice this time, nor receives what it is sent)
    /// while others wait for memory, 100 ms to 10 min. Default 10 s: a third of the I/O timeout of
    /// the Linux host.
    #[serde(with = "as_text")]
    pub stall_timeout: Duration,
    /// The shortest keep-alive timeout that is honoured; shorter ones are rounded up to it. 100 ms
    /// to 1 h. Default 1 s: the granularity (KAS) of the Linux target.
    #[serde(with = "as_text")]
    pub keep_alive_min: Duration,
    /// The longest keep-alive timeout; longer ones are refused. Default 1 h.
    #[serde(with = "as_text")]
    pub keep_alive_max: Duration,
    /// Memory for payloads of one poll group, used as needed, 16 MiB to 64 GiB. Default 256 MiB:
    /// 256 transfers of the default size at once.
    #[serde(rename = "pool-size", with = "text::size")]
    pub pool_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_entries: 1024,
            io_queues: 128,
            transfer_bytes: 1 << 20,
            in_capsule_bytes: 16 << 10,
            h2c_data_bytes: 1 << 20,
            namespaces: 1024,
            controllers: 1024,
            connections: 16_384,
            connect_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(10),
            keep_alive_min: Duration::from_secs(1),
            keep_alive_max: Duration::from_secs(3600),
            pool_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// Checks every bound.
    ///
    /// # Errors
    /// The first one that is outside its range, with the range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        between("queue-entries", u64::from(self.queue_entries), 2, 1024)?;
        between("io-queues", u64::from(self.io_queues), 1, 1024)?;
        between("transfer-size", u64::from(self.transfer_bytes), 4096, 4 << 20)?;
        if !self.transfer_bytes.is_power_of_two() {
            let what = format!("{} is not a power of two", self.transfer_bytes);
            return Err(ConfigError::new("limits.transfer-size", what)
                .remedy("the field MDTS counts in powers of two: try 128KiB or 1MiB"));
        }
        between("in-capsule-size", u64::from(self.in_capsule_bytes), 0, 64 << 10)?;
        multiple("in-capsule-size", self.in_capsule_bytes, 16, "the field IOCCSZ")?;
        between("h2c-data-size", u64::from(self.h2c_data_bytes), 4096, 4 << 20)?;
        multiple("h2c-data-size", self.h2c_data_bytes, 4, "the field MAXH2CDATA")?;
        between("namespaces", u64::from(self.namespaces), 1, u64::from(NSID_MAX))?;
        let controllers_max = u64::from(CNTLID_LAST);
        between("controllers", u64::from(self.controllers), 1, controllers_max)?;
        between("connections", self.connections as u64, 1, 1 << 20)?;
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let (tenth, ten_minutes) = (Duration::from_millis(100), Duration::from_secs(600));
        lasting("connect-timeout", self.connect_timeout, tenth, ten_minutes)?;
        lasting("drain-timeout", self.drain_timeout, second, ten_minutes)?;
        lasting("stall-timeout", self.stall_timeout, tenth, ten_minutes)?;
        lasting("keep-alive-min", self.keep_alive_min, tenth, hour)?;
        lasting("keep-alive-max", self.keep_alive_max, self.keep_alive_min, 24 * hour)?;
        between("pool-size", self.pool_bytes as u64, 16 << 20, 64 << 30)
    }
}

fn between(key: &str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(format!("limits.{key}"), format!("{value} is out of range"))
        .remedy(format!("give {least} to {most}")))
}

fn multiple(key: &str, value: u32, step: u32, field: &str) -> Result<(), ConfigError> {
    if value.is_multiple_of(step) {
        return Ok(());
    }
    let what = format!("{value} is not a multiple of {step}");
    Err(ConfigError::new(format!("limits.{key}"), what)
        .remedy(format!("{field} counts in units of {step} bytes")))
}

fn lasting(key: &str, value: Duration, least: Duration, most: Duration) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let text = weft_backend::duration::exact;
    Err(ConfigError::new(format!("limits.{key}"), format!("{} is out of range", text(value)))
        .remedy(format!("give {} to {}", text(least), text(most))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(change: impl FnOnce(&mut Limits)) -> String {
        let mut limits = Limits::default();
        change(&mut limits);
        limits.validate().expect_err("out of range").key().to_owned()
    }

    #[test]
    fn defaults_are_within_their_ranges() {
        assert_eq!(Limits::default().validate(), Ok(()));
    }

    #[test]
    fn every_bound_is_held() {
        assert_eq!(key_of(|l| l.queue_entries = 1), "limits.queue-entries");
        assert_eq!(key_of(|l| l.queue_entries = 1025), "limits.queue-entries");
        assert_eq!(key_of(|l| l.io_queues = 0), "limits.io-queues");
        assert_eq!(key_of(|l| l.transfer_bytes = 2048), "limits.transfer-size");
        assert_eq!(key_of(|l| l.transfer_bytes = 3 << 20), "limits.transfer-size");
        assert_eq!(key_of(|l| l.in_capsule_bytes = 65 << 10), "limits.in-capsule-size");
        assert_eq!(key_of(|l| l.in_capsule_bytes = 8), "limits.in-capsule-size");
        assert_eq!(key_of(|l| l.h2c_data_bytes = 0), "limits.h2c-data-size");
        assert_eq!(key_of(|l| l.h2c_data_bytes = 4097), "limits.h2c-data-size");
        assert_eq!(key_of(|l| l.namespaces = 0), "limits.namespaces");
        assert_eq!(key_of(|l| l.controllers = 0), "limits.controllers");
        assert_eq!(key_of(|l| l.connections = 0), "limits.connections");
        assert_eq!(key_of(|l| l.connect_timeout = Duration::ZERO), "limits.connect-timeout");
        assert_eq!(key_of(|l| l.drain_timeout = Duration::ZERO), "limits.drain-timeout");
        assert_eq!(key_of(|l| l.stall_timeout = Duration::ZERO), "limits.stall-timeout");
        assert_eq!(key_of(|l| l.keep_alive_min = Duration::ZERO), "limits.keep-alive-min");
        assert_eq!(key_of(|l| l.keep_alive_max = Duration::ZERO), "limits.keep-alive-max");
        assert_eq!(key_of(|l| l.pool_bytes = 0), "limits.pool-size");
    }

    #[test]
    fn a_message_gives_the_range() {
        let limits = Limits { queue_entries: 4096, ..Limits::default() };
        let error = limits.validate().expect_err("out of range").to_string();
        assert_eq!(error, "`limits.queue-entries`: 4096 is out of range; give 2 to 1024");
    }
}
