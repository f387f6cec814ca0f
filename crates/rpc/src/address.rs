//! Control addresses.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:PATH` or `tcp://ADDRESS:PORT`; `tcp:ADDRESS:PORT` is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket; its file permissions decide who may connect.
    Unix(PathBuf),
    /// A TCP port; whoever reaches it may connect, or whoever has the server's token.
    Tcp(SocketAddr),
}

/// A text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseAddressError(String);

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "{text:?} is not a control address")?;
        match text.starts_with(['/', '.']) {
            true => write!(f, ": write unix:{text}"),
            false => write!(f, " (examples: unix:/run/weft.sock, tcp://127.0.0.1:4430)"),
        }
    }
}

impl std::error::Error for ParseAddressError {}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let error = || ParseAddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(error()) } else { Ok(Self::Unix(path.into())) };
        }
        let address = text.strip_prefix("tcp:").ok_or_else(error)?;
        let address = address.strip_prefix("//").unwrap_or(address);
        address.parse().map(Self::Tcp).map_err(|_| error())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Address {
    /// Whether other machines may reach it.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, shown) in [
            ("unix:/run/weft.sock", "unix:/run/weft.sock"),
            ("unix:///run/weft.sock", "unix:/run/weft.sock"),
            ("unix:here", "unix:here"),
            ("tcp://127.0.0.1:4430", "tcp://127.0.0.1:4430"),
            ("tcp://[::1]:1", "tcp://[::1]:1"),
            ("tcp:127.0.0.1:5260", "tcp://127.0.0.1:5260"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for (text, is_remote) in [
            ("unix:/run/weft.sock", false),
            ("tcp://127.0.0.2:1", false),
            ("tcp://[::1]:1", false),
            ("tcp://[::ffff:127.0.0.1]:1", false),
            ("tcp://0.0.0.0:1", true),
            ("tcp://[::]:1", true),
            ("tcp://192.0.2.1:1", true),
        ] {
            assert_eq!(text.parse::<Address>().expect(text).is_remote(), is_remote, "{text}");
        }
        for text in ["", "unix:", "/run/x", "tcp://", "tcp://here:1", "tcp://1.2.3.4", "1.2.3.4:5"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
