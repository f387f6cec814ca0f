//! What hosts that authenticate themselves cost another host at the same target.
//!
//! A load reads at a fixed rate while others connect. Its latency is taken from the loopback
//! device, from the request to its answer, so that neither its own scheduling nor the target's
//! clock is part of it. Those who connect share the load's processor and have no key. The target
//! computes both powers of an exchange before it can tell, and answers 200 ms later; a host
//! without authentication stays as long.

use super::experiment::{Flood, Metric, Sample};
use super::options::Options;
use super::process::{Folder, Program, Target, give, signal, words};
use crate::packages;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2024-01.org.example:flood";
/// The host whose latency counts, a host that has a key, and one that has none.
const LOAD: &str = "nqn.2024-01.org.example:load";
const KEYED: &str = "nqn.2024-01.org.example:keyed";
const OPEN: &str = "nqn.2024-01.org.example:open";

/// A key that anyone may know.
const KEY: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n";

/// Connects begin so often: 200 a second.
const BETWEEN: Duration = Duration::from_millis(5);
/// How long a host without authentication stays: as long as one waits for its failure.
const STAY: Duration = Duration::from_millis(200);
/// Longer than any answer takes unless the target hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests a second of the load, one at a time.
const RATE: &str = "5000";
/// With fewer answers there is no 99th percentile.
const ANSWERS_MIN: usize = 1000;

/// Takes one sample.
pub(crate) fn sample(program: &Program, options: &Options, flood: Flood) -> Result<Sample> {
    ensure!(rustix::process::geteuid().is_root(), "only root sees the loopback device's packets");
    packages::need("tcpdump takes the time of packets", &[("tcpdump", "tcpdump")])?;
    let folder = Folder::new("flood")?;
    let target = start(program, options, flood, &folder.0)?;
    let rest = target.all_paths.strip_prefix("nvme-tcp://").context("an address of TCP")?;
    let places = rest.split('/').next().unwrap_or_default();
    let (load_port, flood_port) = places.split_once(',').context("two ports")?;
    let (load_port, flood_port): (SocketAddr, SocketAddr) =
        (load_port.parse()?, flood_port.parse()?);
    let hosts = Hosts::start(flood_port, flood.authenticates, options.cpus.1);
    sleep(Duration::from_secs(1));
    let capture = folder.0.join("packets");
    let dump = Dump::start(load_port.port(), &capture)?;
    let (began, before) = (Instant::now(), hosts.ended());
    let load = load(program, options, &target.address);
    let rate = f64::from(hosts.ended() - before) / began.elapsed().as_secs_f64();
    // What has passed is written by then.
    sleep(Duration::from_millis(200));
    drop(dump);
    hosts.stop()?;
    let iops = load?;
    let times = answers(&fs::read(&capture)?, load_port.port());
    ensure!(times.len() >= ANSWERS_MIN, "only {} answers were seen", times.len());
    let share = |percent: usize| times[times.len() * percent / 100];
    Ok(Sample::from([
        (Metric::Iops, iops),
        (Metric::P50Us, share(50)),
        (Metric::P99Us, share(99)),
        (Metric::ConnectsPerSecond, rate),
    ]))
}

fn start(program: &Program, options: &Options, flood: Flood, folder: &Path) -> Result<Target> {
    let key = folder.join("key");
    fs::write(&key, KEY)?;
    give(&key, program.user())?;
    let config = folder.join("target.toml");
    let host = |nqn: &str| format!("[[subsystem.host]]\nnqn = \"{nqn}\"\n");
    let text = format!(
        "cpus = \"{}\"\nidle-poll = \"{}\"\n[[port]]\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[port]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         {}{}{}dhchap-key = \"{}\"\ndhchap-groups = [\"ffdhe2048\"]\n\
         [[subsystem.namespace]]\nmemory = \"64MiB\"\n",
        options.cpus.0,
        flood.idle_poll,
        host(LOAD),
        host(OPEN),
        host(KEYED),
        key.display(),
    );
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?;
    let arguments = ["target", "--config", config, "--stop-with-stdin", "--output-format", "json"];
    Target::start(program, &words(&arguments), None)
}

/// The load, to its end: its requests a second. It comes before the others of its processor.
fn load(program: &Program, options: &Options, address: &str) -> Result<f64> {
    let time = |time: Duration| format!("{}us", time.as_micros());
    let mut arguments = words(&["bench", address, "--output-format", "json", "--quiet"]);
    arguments.extend(words(&["--rw", "randread", "--bs", "4k", "--iodepth", "1"]));
    arguments.extend(words(&["--rate-iops", RATE, "--hostnqn", LOAD, "--time_based"]));
    arguments.extend(words(&["--cpus", &options.cpus.1.to_string()]));
    arguments.extend(words(&["--runtime", &time(options.runtime())]));
    arguments.extend(words(&["--ramp-time", &time(options.ramp())]));
    let inner = program.command(&arguments, None);
    let mut command = Command::new("chrt");
    command.args(["--fifo", "50"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.stdin(Stdio::null()).output().context("cannot run chrt")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the load: {}: {said}", output.status);
    let said: Value = serde_json::from_slice(&output.stdout)?;
    said["jobs"][0]["read"]["iops"].as_f64().context("the load says no rate")
}

/// Packets with data from and to a port, with the time at which they pass the loopback device.
/// Dropping it ends tcpdump.
struct Dump(Child);

impl Dump {
    fn start(port: u16, file: &Path) -> Result<Self> {
        let mut command = Command::new("tcpdump");
        command.args(["-U", "-i", "lo", "-B", "65536", "-s", "80", "-Z", "root"]);
        command.args(["--time-stamp-precision", "nano", "-w"]).arg(file);
        command.arg(format!("tcp port {port} and tcp[tcpflags] & tcp-push != 0"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let dump = Self(command.spawn().context("cannot run tcpdump")?);
        let deadline = Instant::now() + PATIENCE;
        // The file's header is there once it listens.
        while fs::metadata(file).map_or(0, |metadata| metadata.len()) < PCAP_HEADER as u64 {
            ensure!(Instant::now() < deadline, "tcpdump does not begin");
            sleep(Duration::from_millis(10));
        }
        Ok(dump)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        // It ends by itself, and writes what it has, at this signal alone.
        let _ = signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

const PCAP_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
const ETHERNET_HEADER: usize = 14;

/// Microseconds from each request to the first segment of its answer, least first, without the
/// first quarter: the connection and the ramp.
fn answers(capture: &[u8], port: u16) -> Vec<f64> {
    let word = |at: usize| capture.get(at..at + 4).and_then(|four| four.try_into().ok());
    let little = |at| word(at).map(u32::from_le_bytes);
    let mut times = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut asked: Option<u64> = None;
    let mut at = PCAP_HEADER;
    while let (Some(seconds), Some(nanoseconds), Some(length)) =
        (little(at), little(at + 4), little(at + 8))
    {
        let packet = at + PACKET_HEADER;
        at = packet + length as usize;
        let Some(first) = capture.get(packet + ETHERNET_HEADER) else { break };
        let tcp = packet + ETHERNET_HEADER + usize::from(first & 15) * 4;
        let (Some(ports), Some(sequence)) = (word(tcp), word(tcp + 4)) else { break };
        // The loopback device shows a packet as it leaves and as it comes.
        if !seen.insert((ports, sequence)) {
            continue;
        }
        let now = u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds);
        let [.., high, low] = ports;
        if u16::from_be_bytes([high, low]) == port {
            asked = Some(now);
        } else if let Some(asked) = asked.take() {
            times.push(now.saturating_sub(asked) as f64 / 1e3);
        }
    }
    let mut times = times.split_off(times.len() / 4);
    times.sort_by(f64::total_cmp);
    times
}

/// Hosts that connect one after the other, each on a thread of its own.
struct Hosts {
    stop: Arc<AtomicBool>,
    /// Those whose Connect, and authentication, has come to its end.
    ended: Arc<AtomicU32>,
    /// The last thing that went wrong otherwise.
    thread: JoinHandle<Result<()>>,
}

impl Hosts {
    fn start(at: SocketAddr, authenticates: bool, cpu: usize) -> Self {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            // Those that it starts are confined to the processor as well.
            confine_this_thread(cpu)?;
            let (began, mut begun) = (Instant::now(), 0);
            while !stopped.load(Ordering::Relaxed) {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    if visit(at, authenticates).is_ok() {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
                begun += 1;
                sleep((BETWEEN * begun).saturating_sub(began.elapsed()));
            }
            Ok(())
        });
        Self { stop, ended, thread }
    }

    fn ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => bail!("the hosts have ended"),
        }
    }
}

fn confine_this_thread(cpu: usize) -> Result<()> {
    let link = fs::read_link("/proc/thread-self")?;
    let id = link.file_name().context("a thread has a number")?.to_owned();
    let mut command = Command::new("taskset");
    command.args(["--pid", "--cpu-list", &cpu.to_string()]).arg(id).stdout(Stdio::null());
    ensure!(command.status()?.success(), "taskset has failed");
    Ok(())
}

/// One host: it connects, stays or fails to authenticate itself, and goes.
fn visit(at: SocketAddr, authenticates: bool) -> Result<()> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(&initialize())?;
    read_pdu(&mut stream)?;
    stream.write_all(&connect(if authenticates { KEYED } else { OPEN }))?;
    answer(&mut stream)?;
    if !authenticates {
        sleep(STAY);
        return Ok(());
    }
    stream.write_all(&send(1, &negotiate()))?;
    answer(&mut stream)?;
    stream.write_all(&receive(2))?;
    let challenge = answer(&mut stream)?;
    ensure!(challenge.starts_with(&CHALLENGE), "no challenge: {challenge:02x?}");
    stream.write_all(&send(3, &reply()))?;
    answer(&mut stream)?;
    stream.write_all(&receive(4))?;
    let failure = answer(&mut stream)?;
    ensure!(failure.starts_with(&FAILURE), "it has not failed: {failure:02x?}");
    Ok(())
}

const INITIALIZE_BYTES: u8 = 128;
const CAPSULE_BYTES: u8 = 72;
const COMMON_HEADER: usize = 8;
const RESPONSE: u8 = 5;
const DATA: u8 = 7;

/// AUTH_TYPE and AUTH_ID of the messages.
const CHALLENGE: [u8; 2] = [0x01, 0x01];
const REPLY: [u8; 2] = [0x01, 0x02];
const FAILURE: [u8; 2] = [0x00, 0xf1];

/// Lengths of SHA-256's values and of ffdhe2048's.
const HASH_BYTES: u8 = 32;
const VALUE_BYTES: u16 = 256;

fn initialize() -> Vec<u8> {
    let mut pdu = vec![0; usize::from(INITIALIZE_BYTES)];
    (pdu[2], pdu[4]) = (INITIALIZE_BYTES, INITIALIZE_BYTES);
    pdu
}

/// A command capsule of a Fabrics command: its data in it, or as many bytes of data wanted.
fn capsule(id: u8, fabrics_type: u8, data: &[u8], wanted: u32) -> Vec<u8> {
    let start = usize::from(CAPSULE_BYTES);
    let mut pdu = vec![0; start];
    (pdu[0], pdu[2]) = (4, CAPSULE_BYTES);
    pdu[3] = if data.is_empty() { 0 } else { CAPSULE_BYTES };
    let all = u32::from(CAPSULE_BYTES) + length(data);
    pdu[4..8].copy_from_slice(&all.to_le_bytes());
    let command = &mut pdu[COMMON_HEADER..];
    (command[0], command[1], command[2], command[4]) = (0x7f, 0x40, id, fabrics_type);
    let (bytes, kind) = if data.is_empty() { (wanted, 0x5a) } else { (length(data), 0x01) };
    command[32..36].copy_from_slice(&bytes.to_le_bytes());
    command[39] = kind;
    pdu.extend_from_slice(data);
    pdu
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a message is short")
}

fn connect(host: &str) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].fill(0x5a);
    data[16..18].fill(0xff);
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    let mut pdu = capsule(0, 0x01, &data, 0);
    // SQSIZE.
    pdu[COMMON_HEADER + 44] = 31;
    pdu
}

/// Authentication Send or Receive: SPSP0, SPSP1, SECP and the length.
fn authentication(mut pdu: Vec<u8>, bytes: u32) -> Vec<u8> {
    let command = &mut pdu[COMMON_HEADER..];
    command[41..44].copy_from_slice(&[1, 1, 0xe9]);
    command[44..48].copy_from_slice(&bytes.to_le_bytes());
    pdu
}

fn send(id: u8, message: &[u8]) -> Vec<u8> {
    authentication(capsule(id, 0x05, message, 0), length(message))
}

fn receive(id: u8) -> Vec<u8> {
    const BYTES: u32 = 4096;
    authentication(capsule(id, 0x06, &[], BYTES), BYTES)
}

/// DH-HMAC-CHAP with SHA-256 and ffdhe2048.
fn negotiate() -> Vec<u8> {
    let mut message = vec![0; 72];
    (message[4], message[7]) = (1, 1);
    let descriptor = &mut message[8..];
    (descriptor[0], descriptor[2], descriptor[3]) = (1, 1, 1);
    (descriptor[4], descriptor[34]) = (1, 1);
    message
}

/// A value of the group that is as good as any, and a response that is not.
fn reply() -> Vec<u8> {
    let mut message = vec![0; 16];
    message[..2].copy_from_slice(&REPLY);
    (message[4], message[6]) = (1, HASH_BYTES);
    message[10..12].copy_from_slice(&VALUE_BYTES.to_le_bytes());
    message.resize(message.len() + 2 * usize::from(HASH_BYTES), 0);
    message.resize(message.len() + usize::from(VALUE_BYTES), 0x5a);
    message
}

fn read_pdu(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut pdu = vec![0; COMMON_HEADER];
    stream.read_exact(&mut pdu)?;
    let length = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]);
    ensure!((8..=65536).contains(&length), "a PDU of {length} bytes");
    pdu.resize(length as usize, 0);
    stream.read_exact(&mut pdu[COMMON_HEADER..])?;
    Ok(pdu)
}

/// The data of the answer to a command, which has succeeded.
fn answer(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let pdu = read_pdu(stream)?;
        match pdu[0] {
            RESPONSE => {
                let status = pdu.get(22..24).context("a response is longer")?;
                ensure!(status[0] & 0xfe == 0 && status[1] == 0, "status {status:02x?}");
                return Ok(data);
            }
            DATA => data.extend_from_slice(pdu.get(usize::from(pdu[3])..).unwrap_or_default()),
            other => bail!("a PDU of type {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of the capture: from one port to another, with a sequence number.
    fn packet(nanoseconds: u32, from: u16, to: u16, sequence: u32) -> Vec<u8> {
        let mut bytes = vec![0; PACKET_HEADER + ETHERNET_HEADER + 20 + 20];
        bytes[..4].copy_from_slice(&7_u32.to_le_bytes());
        bytes[4..8].copy_from_slice(&nanoseconds.to_le_bytes());
        let captured = length(&bytes[PACKET_HEADER..]);
        bytes[8..12].copy_from_slice(&captured.to_le_bytes());
        bytes[PACKET_HEADER + ETHERNET_HEADER] = 0x45;
        let tcp = PACKET_HEADER + ETHERNET_HEADER + 20;
        bytes[tcp..tcp + 2].copy_from_slice(&from.to_be_bytes());
        bytes[tcp + 2..tcp + 4].copy_from_slice(&to.to_be_bytes());
        bytes[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        bytes
    }

    #[test]
    fn an_answer_takes_from_the_request_to_its_first_segment() {
        let mut capture = vec![0; PCAP_HEADER];
        for (number, takes) in (0..).zip([5000, 9000, 30_000, 20_000]) {
            let (begin, sequence) = (number * 100_000, number * 4096);
            for twice in [0, 100] {
                capture.extend(packet(begin + twice, 9, 4420, sequence));
            }
            capture.extend(packet(begin + takes, 4420, 9, sequence));
            capture.extend(packet(begin + takes + 100, 4420, 9, sequence));
            // The rest of the answer.
            capture.extend(packet(begin + takes + 200, 4420, 9, sequence + 1448));
        }
        assert_eq!(answers(&capture, 4420), [9.0, 20.0, 30.0], "the first quarter does not count");
        assert_eq!(answers(&capture[..capture.len() - 50], 4420).len(), 3, "cut at any byte");
        assert_eq!(answers(&[], 4420), [0.0; 0]);
    }

    #[test]
    fn messages_have_the_lengths_of_the_specification() {
        assert_eq!(negotiate().len(), 8 + 64);
        assert_eq!(reply().len(), 16 + 32 + 32 + 256);
        assert_eq!(connect(OPEN).len(), 72 + 1024);
        assert_eq!(receive(2).len(), 72);
        assert_eq!(initialize().len(), 128);
    }
}
