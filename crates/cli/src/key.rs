//! `weft key`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weft_nvme::Nqn;
use weft_nvmf::auth::{HashFunction, Secret, SecretBytes};
use weft_nvmf::keys::{Derivation, IdentityVersion, Key, SecretText, TlsKey};
use weft_reactor::system::random_bytes;
use weft_target::key_file;

use crate::failure::Failure;
use crate::output::Format;

/// Options of `weft key`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a new key to a file that only this user can read.
    Generate(Generate),
    /// Print the identities under which TLS uses a key for a host and a subsystem.
    ShowIdentity(Box<ShowIdentity>),
    /// Check that a file holds a key, and print its kind, hash function and length.
    Check(Check),
}

#[derive(Debug, Args)]
struct Generate {
    /// What the key is for.
    #[arg(value_enum)]
    kind: Kind,
    /// The new file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Hash function: sha256 or sha384, for DH-HMAC-CHAP also sha512; none: the key is used as it
    /// is. The key has the length of its hash.
    #[arg(short = 'm', long, value_name = "HASH", default_value = "sha256", value_parser = hmac)]
    hmac: Hmac,
    /// Length of the key in bytes, where the hash function does not decide it: 32, 48 or 64.
    #[arg(short = 'l', long, value_name = "BYTES")]
    key_length: Option<usize>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A PSK of TLS.
    Tls,
    /// A secret of DH-HMAC-CHAP.
    Dhchap,
}

/// The hash function of a key, if it has one.
#[derive(Clone, Copy, Debug)]
struct Hmac(Option<HashFunction>);

#[derive(Debug, Args)]
struct ShowIdentity {
    /// The key file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// NQN of the host.
    #[arg(short = 'n', long)]
    hostnqn: Nqn,
    /// NQN of the subsystem.
    #[arg(short = 'c', long)]
    subsysnqn: Nqn,
    /// Version of the identity: 0 or 1; by default both.
    #[arg(short = 'I', long, value_parser = clap::value_parser!(u8).range(0..=1))]
    identity: Option<u8>,
    /// Derive as libnvme before 1.16 did.
    #[arg(short = 'C', long)]
    compat: bool,
    /// Write the PSK of the identity to a new file, as the kernel's keyring takes it (keyctl padd
    /// psk IDENTITY %:.nvme < FILE).
    #[arg(long, value_name = "FILE", requires = "identity")]
    psk_file: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

#[derive(Debug, Args)]
struct Check {
    /// The key file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.what {
        What::Generate(options) => generate(options),
        What::ShowIdentity(options) => show_identity(options),
        What::Check(options) => check(options),
    }
}

fn generate(options: &Generate) -> Result<(), Failure> {
    let Generate { kind, hmac: Hmac(hash), .. } = *options;
    let length = hash.map_or(32, HashFunction::length);
    let length = options.key_length.unwrap_or(length);
    let key = random(length)?;
    let text = match kind {
        Kind::Tls => TlsKey::new(hash, key).map_err(Failure::because)?.text(),
        Kind::Dhchap => Secret::new(&key, hash)
            .ok_or_else(|| Failure::because("a secret of DH-HMAC-CHAP has 32, 48 or 64 bytes"))?
            .text(),
    };
    let line = SecretText::new(format!("{}\n", *text));
    write_secret(&options.file, line.as_bytes())?;
    let hash = hash.map(|hash| hash.to_string());
    options.output_format.print("", &json!({ "file": options.file, "hash": hash, "bytes": length }))
}

fn show_identity(options: &ShowIdentity) -> Result<(), Failure> {
    let key: TlsKey = key_file::read(&options.file).map_err(Failure::Because)?;
    let derivation = if options.compat { Derivation::OldLibnvme } else { Derivation::Standard };
    let versions = match options.identity {
        Some(0) => &[IdentityVersion::V0][..],
        Some(_) => &[IdentityVersion::V1],
        None => &[IdentityVersion::V0, IdentityVersion::V1],
    };
    let mut identities = Vec::new();
    for version in versions {
        let (host, subsystem) = (options.hostnqn.as_str(), options.subsysnqn.as_str());
        let psk = key.psk(*version, derivation, host, subsystem).ok_or_else(|| {
            Failure::because("the names are too long for an identity of version 0: use version 1")
        })?;
        if let Some(path) = &options.psk_file {
            write_secret(path, &psk.secret)?;
        }
        identities.push(psk.identity);
    }
    let text: String = identities.iter().map(|one| format!("{one}\n")).collect();
    options.output_format.print(&text, &json!({ "identities": identities }))
}

fn check(options: &Check) -> Result<(), Failure> {
    let (kind, hash, length) = match key_file::read(&options.file).map_err(Failure::Because)? {
        Key::Tls(key) => ("TLS", key.hash(), key.length()),
        Key::Dhchap(key) => ("DH-HMAC-CHAP", key.hash(), key.length()),
    };
    let hash = hash.map(|hash| hash.to_string());
    let shown = hash.as_deref().unwrap_or("no hash function");
    let text = format!("a key of {kind}, {shown}, {length} bytes\n");
    options.output_format.print(&text, &json!({ "kind": kind, "hash": hash, "bytes": length }))
}

fn random(length: usize) -> Result<SecretBytes, Failure> {
    let bytes =
        random_bytes::<64>().map_err(|error| Failure::io("get", &"random bytes", &error))?;
    let key = bytes.get(..length).ok_or_else(|| Failure::because("a key has 32, 48 or 64 bytes"));
    Ok(key?.to_vec().into())
}

/// Writes a new file, which only this user can read from the beginning.
fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::Because(format!("{} is there; a key is never overwritten", path.display()))
        }
        ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(Path::new(".")).display();
            let file = path.display();
            Failure::Because(format!(
                "cannot write {file}: there is no folder {folder} (mkdir -p -m 700 {folder})"
            ))
        }
        _ => Failure::io("write", &path.display(), &error),
    })
}

fn hmac(text: &str) -> Result<Hmac, String> {
    match text {
        "none" | "0" => Ok(Hmac(None)),
        "1" => Ok(Hmac(Some(HashFunction::Sha256))),
        "2" => Ok(Hmac(Some(HashFunction::Sha384))),
        "3" => Ok(Hmac(Some(HashFunction::Sha512))),
        name => name.parse().map(|hash| Hmac(Some(hash))),
    }
}
