//! `weft namespace`: namespaces that a host makes, attaches and deletes.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weft_host::{Controller, TransportId};
use weft_nvme::identify::{self, ControllerList, FormattedLbaSize};
use weft_nvme::wire::U64;
use weft_nvme::{AdminOpcode, Command, Wire};
use weft_nvmf::host::AdminData;

use crate::connection::{Connection, NamespaceChoice, one_nsid};
use crate::destroy;
use crate::failure::Failure;
use crate::output::{self, Format};

/// Options of `weft namespace`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a namespace; it is attached to no controller yet.
    Create {
        #[command(flatten)]
        at: At,
        /// Its size in logical blocks (NSZE).
        #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
        nsze: u64,
        /// Its capacity in logical blocks (NCAP); by default its size.
        #[arg(long, value_name = "BLOCKS")]
        ncap: Option<u64>,
        /// The number of its LBA format (FLBAS); weft has 512 bytes at 0 and 4096 at 1.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=15))]
        flbas: u8,
    },
    /// Attach a namespace to controllers; a weft target takes one for all of its host.
    Attach {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        to: Controllers,
    },
    /// Detach a namespace from controllers.
    Detach {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        to: Controllers,
    },
    /// Delete a namespace and what it holds.
    Delete {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        choice: NamespaceChoice,
        /// Allow to destroy this namespace, by the address that the question has.
        #[arg(long, value_name = "ADDRESS")]
        yes_destroy: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct At {
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

#[derive(Debug, Args)]
struct Controllers {
    #[command(flatten)]
    choice: NamespaceChoice,
    /// The controllers (CNTLID); by default the one that is connected for this.
    #[arg(long, value_delimiter = ',', value_name = "CNTLID,…")]
    controllers: Vec<u16>,
}

/// Select of Namespace Management, and of Namespace Attachment.
const CREATE: u32 = 0;
const DELETE: u32 = 1;
const ATTACH: u32 = 0;
const DETACH: u32 = 1;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.verb {
        Verb::Create { at, nsze, ncap, flbas } => {
            let mut wanted = identify::Namespace::zeroed();
            (wanted.size, wanted.capacity) = (U64::new(*nsze), U64::new(ncap.unwrap_or(*nsze)));
            wanted.formatted_lba_size = FormattedLbaSize(*flbas);
            let data = AdminData::ToController(wanted.bytes().to_vec());
            if at.connection.options()?.address.nsid.is_some() {
                return Err(Failure::because(
                    "the controller chooses the number of a new namespace: leave nsid= of the \
                     address out",
                ));
            }
            let controller = at.connection.connect()?;
            let nsid = managed(&controller, AdminOpcode::NAMESPACE_MANAGEMENT, 0, CREATE, data)?;
            controller.disconnect()?;
            at.say("created", nsid)
        }
        Verb::Attach { at, to } => change(at, to, ATTACH, "attached"),
        Verb::Detach { at, to } => change(at, to, DETACH, "detached"),
        Verb::Delete { at, choice, yes_destroy } => {
            let nsid = at.nsid(choice)?;
            let address = at.connection.options()?.address;
            let port = Some(address.port());
            let named = TransportId { nsid: Some(nsid), trsvcid: port, ..address };
            let named = named.to_string();
            destroy::confirm(&format!("delete destroys {named}"), &named, yes_destroy)?;
            let controller = at.connection.connect()?;
            let opcode = AdminOpcode::NAMESPACE_MANAGEMENT;
            managed(&controller, opcode, nsid, DELETE, AdminData::None)?;
            controller.disconnect()?;
            at.say("deleted", nsid)
        }
    }
}

impl At {
    /// The namespace that the option or the address names.
    fn nsid(&self, choice: &NamespaceChoice) -> Result<u32, Failure> {
        let named = one_nsid(choice.nsid(), self.connection.options()?.address.nsid)?;
        named.ok_or_else(|| {
            Failure::because("no namespace is named: give --namespace-id, or ?nsid= in the address")
        })
    }

    fn say(&self, what: &str, nsid: u32) -> Result<(), Failure> {
        match self.output_format {
            Format::Human => output::print(&format!("{what} namespace {nsid}\n")),
            Format::Json => {
                output::print_json(&json!({ "nsid": nsid, "result": Value::from(what) }))
            }
        }
    }
}

fn change(at: &At, to: &Controllers, select: u32, what: &str) -> Result<(), Failure> {
    let nsid = at.nsid(&to.choice)?;
    let controller = at.connection.connect()?;
    let mut ids = to.controllers.clone();
    if ids.is_empty() {
        ids.push(controller.info()?.controller_id);
    }
    let data = AdminData::ToController(ControllerList::new(ids).bytes().to_vec());
    let opcode = AdminOpcode::NAMESPACE_ATTACHMENT;
    managed(&controller, opcode, nsid, select, data)?;
    controller.disconnect()?;
    at.say(what, nsid)
}

/// Sends one of the two commands; Dword 0 of its completion.
fn managed(
    controller: &Controller,
    opcode: AdminOpcode,
    nsid: u32,
    select: u32,
    data: AdminData,
) -> Result<u32, Failure> {
    let command = Command::new(opcode).with_namespace_id(nsid).with_cdw10(select);
    Ok(controller.admin_command_checked(command, data)?.completion.dword0())
}
