//! Where a server listens, and who may connect there.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;
use std::{fmt, fs, io};

use rustix::fs::{Gid, Mode};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::address::{Address, ParseAddressError};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Groups by name. A group of another directory has a number.
const GROUPS: &str = "/etc/group";

/// An address of a server. Behind the path of a Unix socket may be `,mode=0660` and `,group=GROUP`:
/// the members of a group may connect then, and otherwise only the server's user and root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    pub(crate) address: Address,
    /// Whether a group may connect as well.
    is_for_group: bool,
    /// The process's own group, if it is none.
    group: Option<u32>,
}

/// A text that is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseListeningError {
    /// The address.
    Address(ParseAddressError),
    /// There is no such option.
    Option(String),
    /// Not a mode of a control socket.
    Mode(String),
    /// Not a group of this machine.
    Group(String),
}

impl fmt::Display for ParseListeningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Option(text) => {
                write!(f, "{text:?} is no option of a Unix socket: mode=0660 or group=GROUP")
            }
            Self::Mode(text) => write!(
                f,
                "mode={text}: a control socket has 0600, for its user, or 0660, for a group too"
            ),
            Self::Group(text) => {
                write!(f, "group={text}: {GROUPS} has no such group, and it is no number")
            }
        }
    }
}

impl std::error::Error for ParseListeningError {}

impl From<&Address> for Listening {
    fn from(address: &Address) -> Self {
        Self { address: address.clone(), is_for_group: false, group: None }
    }
}

impl FromStr for Listening {
    type Err = ParseListeningError;

    fn from_str(text: &str) -> Result<Self, ParseListeningError> {
        let name = text.rfind('/').map_or(0, |at| at + 1);
        let has_options = text.starts_with("unix:") && text[name..].contains('=');
        let options = text[name..].find(',').filter(|_| has_options).map(|at| name + at);
        let (address, options) = text.split_at(options.unwrap_or(text.len()));
        let address = address.parse().map_err(ParseListeningError::Address)?;
        let (mut mode, mut group) = (None, None);
        for option in options.split(',').skip(1) {
            match option.split_once('=') {
                Some(("mode", "0600" | "600")) => mode = Some(false),
                Some(("mode", "0660" | "660")) => mode = Some(true),
                Some(("mode", other)) => return Err(ParseListeningError::Mode(other.to_owned())),
                Some(("group", name)) => {
                    let found =
                        number_of_group(&fs::read_to_string(GROUPS).unwrap_or_default(), name);
                    let found = found.ok_or_else(|| ParseListeningError::Group(name.to_owned()))?;
                    group = Some(found);
                }
                _ => return Err(ParseListeningError::Option(option.to_owned())),
            }
        }
        Ok(Self { address, is_for_group: mode.unwrap_or(group.is_some()), group })
    }
}

/// The number of a group in a text of the form of [`GROUPS`].
fn number_of_group(groups: &str, wanted: &str) -> Option<u32> {
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() == Some(wanted) { fields.nth(1)?.parse().ok() } else { None }
    });
    // The highest number means "no change" to the kernel.
    number.or_else(|| wanted.parse().ok()).filter(|number| *number != u32::MAX)
}

impl Listening {
    /// The address, without who may connect.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Makes the socket at its path. Nobody can connect before all of its access is set.
    pub(crate) fn listen_unix(&self, path: &Path) -> io::Result<OwnedFd> {
        let socket =
            net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let set = || {
            if let Some(group) = self.group {
                rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
            }
            if self.is_for_group {
                rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
            }
            net::listen(&socket, BACKLOG)
        };
        set().inspect_err(|_| {
            // It is of this call.
            let _ = fs::remove_file(path);
        })?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, bool, Option<u32>), String> {
        let read: Result<Listening, _> = text.parse();
        read.map(|at| (at.address.to_string(), at.is_for_group, at.group))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_group_may_connect_where_an_option_says_so() {
        for (text, address, is_for_group, group) in [
            ("unix:/run/a", "unix:/run/a", false, None),
            ("unix:/run/a,b", "unix:/run/a,b", false, None),
            ("unix:/run/x=y,z/a", "unix:/run/x=y,z/a", false, None),
            ("unix:/run/a,mode=0600", "unix:/run/a", false, None),
            ("unix:/run/a,mode=660", "unix:/run/a", true, None),
            ("unix:a,group=17", "unix:a", true, Some(17)),
            ("unix:/run/a,group=root,mode=0660", "unix:/run/a", true, Some(0)),
            ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1", false, None),
        ] {
            assert_eq!(read(text), Ok((address.to_owned(), is_for_group, group)), "{text}");
        }
        for (text, words) in [
            ("unix:/run/a,mode=0666", "0660"),
            ("unix:/run/a,mode=", "0660"),
            ("unix:/run/a,group=no-such-group", "no-such-group"),
            ("unix:/run/a,group=4294967295", "no such group"),
            ("unix:/run/a,grp=root", "group=GROUP"),
            ("tcp://127.0.0.1:1,mode=0660", "not a control address"),
            ("/run/a,group=root", "write unix:"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(number_of_group("a:x:5:\nweft:x:998:ann,bob\n", "weft"), Some(998));
        assert_eq!(number_of_group("a:x:5:\n", "weft"), None);
    }
}
