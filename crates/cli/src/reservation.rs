//! `weft reservation`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weft_nvme::reservation::{Registrant, ReservationControl, ReservationStatus};

use crate::connection::{Connection, NamespaceChoice};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::table::Table;
use crate::values::number;

/// Options of `weft reservation`.
///
/// Registrations and reservations belong to a host by its Host Identifier: without
/// /etc/nvme/hostid give --hostid and --hostnqn, or each command is another host.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Register, unregister or replace the key of this host.
    Register {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        key: Key,
        /// New Reservation Key (NRKEY).
        #[arg(long, default_value = "0", value_parser = number::<u64>, value_name = "KEY")]
        nrkey: u64,
        /// Action (RREGA): 0 register, 1 unregister, 2 replace.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=2))]
        rrega: u8,
        /// Whether it survives a loss of power (CPTPL): 0 as it is, 2 no, 3 yes.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
        cptpl: u8,
    },
    /// Acquire a reservation, or preempt that of others.
    Acquire {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        key: Key,
        /// Key of those that are preempted (PRKEY).
        #[arg(long, default_value = "0", value_parser = number::<u64>, value_name = "KEY")]
        prkey: u64,
        /// Type (RTYPE): 1 write exclusive, 2 exclusive access, 3 and 4 for registrants only, 5 and
        /// 6 held by all of them.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=6))]
        rtype: u8,
        /// Action (RACQA): 0 acquire, 1 preempt, 2 preempt and abort.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=2))]
        racqa: u8,
    },
    /// Release the reservation of this host, or clear it with all registrants.
    Release {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        key: Key,
        /// Type (RTYPE) of the reservation.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=6))]
        rtype: u8,
        /// Action (RRELA): 0 release, 1 clear.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=1))]
        rrela: u8,
    },
    /// Show what is reserved, and who is registered.
    Report {
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
struct At {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

#[derive(Debug, Args)]
struct Key {
    /// Current Reservation Key (CRKEY), such as 0xabc.
    #[arg(long, default_value = "0", value_parser = number::<u64>, value_name = "KEY")]
    crkey: u64,
    /// Ignore the current key (IEKEY).
    #[arg(long)]
    iekey: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let control = |key: &Key, action| {
        ReservationControl(0).with_raw_action(action).with_ignore_existing_key(key.iekey)
    };
    match &options.verb {
        Verb::Register { at, key, nrkey, rrega, cptpl } => {
            let control = control(key, *rrega).with_raw_persistence(*cptpl);
            let done = ["registered", "unregistered", "replaced"];
            at.change(done, *rrega, |of| of.reservation_register(control, key.crkey, *nrkey))
        }
        Verb::Acquire { at, key, prkey, rtype, racqa } => {
            let control = control(key, *racqa).with_raw_reservation_type(*rtype);
            let done = ["acquired", "preempted", "preempted"];
            at.change(done, *racqa, |of| of.reservation_acquire(control, key.crkey, *prkey))
        }
        Verb::Release { at, key, rtype, rrela } => {
            let control = control(key, *rrela).with_raw_reservation_type(*rtype);
            let done = ["released", "cleared", "cleared"];
            at.change(done, *rrela, |of| of.reservation_release(control, key.crkey))
        }
        Verb::Report { at } => {
            let (controller, namespace) = at.connection.namespace(&at.namespace)?;
            let (status, registrants) = namespace.reservation_report()?;
            controller.disconnect()?;
            match at.output_format {
                Format::Human => output::print(&human(&status, &registrants)),
                Format::Json => output::print_json(&as_json(&status, &registrants)),
            }
        }
    }
}

impl At {
    fn change(
        &self,
        done: [&str; 3],
        action: u8,
        command: impl FnOnce(&weft_host::Namespace) -> Result<(), weft_host::Error>,
    ) -> Result<(), Failure> {
        let (controller, namespace) = self.connection.namespace(&self.namespace)?;
        command(&namespace)?;
        let nsid = namespace.nsid();
        controller.disconnect()?;
        let what = done[usize::from(action)];
        match self.output_format {
            Format::Human => output::print(&format!("{what} at namespace {nsid}\n")),
            Format::Json => output::print_json(&json!({ "nsid": nsid, "result": what })),
        }
    }
}

fn host_id(registrant: &Registrant) -> String {
    uuid::Uuid::from_bytes(registrant.host_id).to_string()
}

fn human(status: &ReservationStatus, registrants: &[Registrant]) -> String {
    let mut table = Table::new(&["hostid", ">rkey", ">rcsts", ">cntlid"]);
    for one in registrants {
        let cntlid = format!("{:#06x}", one.controller_id.get());
        let key = format!("{:#x}", one.key.get());
        table.row(vec![host_id(one), key, one.status.to_string(), cntlid]);
    }
    let (generation, kind) = (status.generation.get(), status.reservation_type);
    let persists = if status.persistence == 1 { "on" } else { "off" };
    let head = format!(
        "generation {generation}, reservation {kind}, persistence {persists}, {} registered\n",
        registrants.len()
    );
    if registrants.is_empty() { head } else { head + &table.text() }
}

/// As nvme-cli's, in the extended form.
fn as_json(status: &ReservationStatus, registrants: &[Registrant]) -> Value {
    let registrants = registrants.iter().map(|one| {
        json!({
            "cntlid": one.controller_id.get(),
            "rcsts": one.status,
            "rkey": one.key.get(),
            "hostid": host_id(one),
        })
    });
    json!({
        "gen": status.generation.get(),
        "rtype": status.reservation_type.0,
        "regctl": status.registrants.get(),
        "ptpls": status.persistence,
        "regctlext": registrants.collect::<Vec<Value>>(),
    })
}
