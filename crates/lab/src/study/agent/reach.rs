//! Which address of the target's machine do the machines of the load reach?
//!
//! One machine listens at an address, another connects and has to read the word of that listener:
//! at the same address another machine may have something else, itself for example.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::time::Duration;
use std::{fs, thread};

use uuid::Uuid;
use weft_reactor::monotonic_time;

use super::calls::Listening;

/// How long a listener waits for others.
const LISTEN: Duration = Duration::from_secs(20);

/// How often it looks for them.
const LOOK: Duration = Duration::from_millis(5);

/// How long another machine may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Listens at an address for a short time, and answers everybody with a word of its own.
pub(super) fn listen(address: IpAddr) -> Result<Listening, String> {
    let fault = |error: std::io::Error| format!("cannot listen at {address}: {error}");
    let listener = TcpListener::bind((address, 0)).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    let address = listener.local_addr().map_err(fault)?;
    let word = Uuid::new_v4().simple().to_string();
    let said = word.clone();
    let end = monotonic_time() + LISTEN;
    let answering = thread::Builder::new().name("weft-reach".to_owned()).spawn(move || {
        while monotonic_time() < end {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    // Whoever does not want the answer does not get it.
                    let _ = stream.write_all(said.as_bytes());
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
    });
    answering.map_err(fault)?;
    Ok(Listening { address, word })
}

/// Reads a listener's word.
pub(super) fn reach(listening: &Listening) -> Result<(), String> {
    let address = listening.address;
    let fault = |error: std::io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address, ANSWER).map_err(fault)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(fault)?;
    let mut said = String::new();
    let longest = listening.word.len() as u64;
    stream.take(longest).read_to_string(&mut said).map_err(fault)?;
    match said == listening.word {
        true => Ok(()),
        false => Err(format!("{address} is another machine there")),
    }
}

/// The addresses of this machine, those of the loopback interface first.
pub(super) fn addresses() -> Vec<IpAddr> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let mut addresses = ipv4(&text("/proc/net/fib_trie"));
    addresses.extend(ipv6(&text("/proc/net/if_inet6")));
    addresses.sort_by_key(|address| !address.is_loopback());
    addresses
}

/// The local addresses of the kernel's routing table.
fn ipv4(trie: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut leaf = None;
    for line in trie.lines() {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            leaf = address.parse::<IpAddr>().ok();
        } else if line.contains("host LOCAL") {
            addresses.extend(leaf.filter(|leaf| !addresses.contains(leaf)));
        }
    }
    addresses
}

/// The addresses of interfaces that need no interface to be named with them.
fn ipv6(interfaces: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let digits = line.split_ascii_whitespace().next()?;
        let address = Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?);
        (!address.is_unicast_link_local()).then_some(IpAddr::V6(address))
    };
    interfaces.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_name_the_addresses_of_this_machine() {
        let trie = [
            "Main:",
            "     |-- 10.77.1.0",
            "        /24 link UNICAST",
            "Local:",
            "     |-- 10.77.1.1",
            "        /32 host LOCAL",
            "     |-- 10.77.1.255",
            "        /32 link BROADCAST",
            "     |-- 127.0.0.1",
            "        /32 host LOCAL",
            "     |-- 10.77.1.1",
            "        /32 host LOCAL",
        ];
        let expected: Vec<IpAddr> =
            ["10.77.1.1", "127.0.0.1"].iter().map(|text| text.parse().expect(text)).collect();
        assert_eq!(ipv4(&trie.join("\n")), expected);
        let interfaces = "00000000000000000000000000000001 01 80 10 80       lo\n\
                          fe80000000000000505400fffe123456 02 40 20 80     eth0\n\
                          20010db8000000000000000000000001 02 40 00 80     eth0\n";
        let expected: Vec<IpAddr> =
            ["::1", "2001:db8::1"].iter().map(|text| text.parse().expect(text)).collect();
        assert_eq!(ipv6(interfaces), expected);
        let here = addresses();
        assert!(here.first().is_some_and(IpAddr::is_loopback), "{here:?}");
    }

    #[test]
    fn only_the_listener_itself_is_reached() {
        let here: IpAddr = "127.0.0.1".parse().expect("an address");
        let listening = listen(here).expect("a listener");
        assert_eq!(reach(&listening), Ok(()));
        assert_eq!(reach(&listening), Ok(()), "by several");
        let other = Listening { word: "0".repeat(32), ..listening };
        let why = reach(&other).expect_err("another listener");
        assert!(why.contains("another machine"), "{why}");
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one");
        let why = reach(&Listening { address: closed, ..other }).expect_err("nobody");
        assert!(why.starts_with("127.0.0.1:"), "{why}");
        assert!(listen("192.0.2.1".parse().expect("an address")).is_err(), "not of this machine");
    }
}
