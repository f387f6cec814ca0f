//! The interchange form of a key: `FAMILY-VERSION:HH:BASE64(key ‖ CRC-32, little-endian):`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use zeroize::Zeroizing;

use weft_nvme::authentication::HashId;

use crate::auth::{HashFunction, SecretBytes};

/// Text with a secret, such as a key's interchange form; wiped when it is dropped.
pub type SecretText = Zeroizing<String>;

/// The longest key of any form.
const KEY_BYTES_MAX: usize = 64;
const CRC_BYTES: usize = 4;

/// One of the two forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The text before the version, which tells the forms from one another.
    pub(crate) family: &'static str,
    /// The largest identifier of a hash function.
    hashes: u8,
}

/// The version of both forms.
const VERSION: &str = "1";

/// A configured PSK of TLS.
pub(crate) const TLS: Form = Form { family: "NVMeTLSkey-", hashes: 2 };

/// A secret of DH-HMAC-CHAP.
pub(crate) const DHCHAP: Form = Form { family: "DHHC-", hashes: 3 };

/// Why a text is not a key. It never repeats any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseKeyError {
    /// It starts with neither `NVMeTLSkey-` nor `DHHC-`.
    Prefix,
    /// It is a key of DH-HMAC-CHAP where one of TLS is needed.
    OfDhchap,
    /// It is a key of TLS where one of DH-HMAC-CHAP is needed.
    OfTls,
    /// The version of the form is not 1.
    Version,
    /// It is not a prefix, two digits and a value, each with a colon after it.
    Parts,
    /// The two digits are no hash of this form.
    Hash,
    /// The value is not base64.
    Base64,
    /// The key has another length than its hash has, or than keys have.
    Length(usize),
    /// The CRC-32 is not the key's.
    Crc,
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Prefix => "a key begins with NVMeTLSkey-1: (TLS) or DHHC-1: (DH-HMAC-CHAP)",
            Self::OfDhchap => {
                "this is a key of DH-HMAC-CHAP (DHHC-1:); one of TLS begins with NVMeTLSkey-1:"
            }
            Self::OfTls => {
                "this is a key of TLS (NVMeTLSkey-1:); one of DH-HMAC-CHAP begins with DHHC-1:"
            }
            Self::Version => "only version 1 of this form of key is known",
            Self::Parts => "a key is PREFIX:HH:BASE64:, with a colon at its end",
            Self::Hash => {
                "the hash of a key is two digits, 00 to 02 for TLS and 00 to 03 for DH-HMAC-CHAP"
            }
            Self::Base64 => "the value of the key is not base64",
            Self::Length(bytes) => {
                return write!(
                    formatter,
                    "a key of this form and hash is never {bytes} bytes long"
                );
            }
            Self::Crc => "the checksum of the key is wrong: it was not copied as a whole",
        };
        formatter.write_str(what)
    }
}

impl std::error::Error for ParseKeyError {}

/// Reads a key of this form and its hash function; the caller checks the length.
pub(crate) fn parse(
    form: Form,
    text: &str,
) -> Result<(Option<HashFunction>, SecretBytes), ParseKeyError> {
    let text = text.trim();
    let rest = text.strip_prefix(form.family).ok_or(match text {
        _ if text.starts_with(TLS.family) => ParseKeyError::OfTls,
        _ if text.starts_with(DHCHAP.family) => ParseKeyError::OfDhchap,
        _ => ParseKeyError::Prefix,
    })?;
    let (version, rest) = rest.split_once(':').ok_or(ParseKeyError::Version)?;
    if version != VERSION {
        return Err(ParseKeyError::Version);
    }
    let (digits, rest) = rest.split_once(':').ok_or(ParseKeyError::Parts)?;
    let value = rest.strip_suffix(':').ok_or(ParseKeyError::Parts)?;
    let id = match digits.as_bytes() {
        [b'0', digit @ b'0'..=b'9'] if digit - b'0' <= form.hashes => digit - b'0',
        _ => return Err(ParseKeyError::Hash),
    };
    // What base64 may decode to before it notices that it is too long.
    let mut bytes = Zeroizing::new([0u8; KEY_BYTES_MAX + CRC_BYTES + 3]);
    let len = STANDARD.decode_slice(value, &mut *bytes).map_err(|error| match error {
        base64::DecodeSliceError::OutputSliceTooSmall => ParseKeyError::Length(value.len() / 4 * 3),
        base64::DecodeSliceError::DecodeError(_) => ParseKeyError::Base64,
    })?;
    let decoded = bytes.get(..len).unwrap_or_default();
    let (key, crc) = decoded.split_last_chunk().ok_or(ParseKeyError::Length(0))?;
    if *crc != checksum(key) {
        return Err(ParseKeyError::Crc);
    }
    Ok((HashFunction::of(HashId(id)), key.to_vec().into()))
}

/// Writes a key in this form.
pub(crate) fn write(form: Form, hash: Option<HashFunction>, key: &[u8]) -> SecretText {
    let HashId(id) = hash.map_or(HashId(0), HashFunction::id);
    // With these capacities they never move, which would leave a copy behind.
    let mut value = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX + CRC_BYTES));
    value.extend_from_slice(key);
    value.extend_from_slice(&checksum(key));
    let mut text = SecretText::new(String::with_capacity(128));
    text.push_str(&format!("{}{VERSION}:{id:02}:", form.family));
    STANDARD.encode_string(&*value, &mut text);
    text.push(':');
    text
}

fn checksum(key: &[u8]) -> [u8; CRC_BYTES] {
    // A CRC of 32 bits in a u64: the low four bytes are all of it.
    let [a, b, c, d, ..] = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, key).to_le_bytes();
    [a, b, c, d]
}
