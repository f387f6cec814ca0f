//! `cargo xtask scale`: what subsystems, namespaces and hosts cost a target (docs/scale.md).
//!
//! The hosts are connections made here, of a few lines each: processes of real hosts would cost
//! more than what is measured.

use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::bench;
use xtask::cargo::build_binary;
use xtask::report::Report;

/// Longest times of a target, whatever it serves: for its start, and for one namespace more.
const START_MAX: Duration = Duration::from_secs(2);
const ADD_MAX: Duration = Duration::from_millis(10);

/// Subsystems and namespaces.
type Population = (usize, usize);
const FEW: Population = (1, 10);
const MANY: Population = (1024, 10_000);
const SERVED: [Population; 4] = [FEW, (1, 8000), (1024, 1024), MANY];

const HOSTS: [usize; 3] = [10, 100, 1000];

/// Entries of an I/O queue, as Linux' host has them.
const ENTRIES: u16 = 128;

const PATIENCE: Duration = Duration::from_secs(20);

/// How many namespaces are added, and keep-alives sent on each connection.
const ADDED: usize = 21;
const KEEP_ALIVES: usize = 20;

/// Measures, prints both tables, and fails if a bar is missed.
pub(crate) fn run(root: &Path, report: &mut Report) {
    let mut binary = None;
    report.check("build", || build_binary(root).map(|path| binary = Some(path)));
    let Some(binary) = binary else { return };
    let folder = xtask::cargo::target_folder(root).join("scale");
    report.check("subsystems and namespaces", || {
        fs::create_dir_all(&folder)?;
        println!(
            "| subsystems | namespaces | ready after | memory | one more | \
             discovery: host, target |"
        );
        println!("|---|---|---|---|---|---|");
        SERVED.iter().try_for_each(|served| serve(&binary, &folder, *served))
    });
    report.check("hosts", || {
        println!("| hosts | admin connection | I/O connection | connect | keep-alive | idle |");
        println!("|---|---|---|---|---|---|");
        HOSTS.iter().try_for_each(|hosts| connect(&binary, &folder, *hosts))
    });
}

/// A row of the first table.
fn serve(binary: &Path, folder: &Path, served: Population) -> Result<()> {
    let begun = Instant::now();
    let target = Target::start(binary, folder, served)?;
    let mut control = target.control()?;
    let ready = begun.elapsed();
    let memory = target.memory()?;
    let mut added = Vec::new();
    for number in 0..ADDED {
        let begun = Instant::now();
        let name = format!("more{number}");
        let null = json!({"name": name, "num_blocks": 2048, "block_size": 512});
        control.call("bdev_null_create", &null)?;
        let namespace = json!({"nqn": nqn(0), "namespace": {"bdev_name": name}});
        control.call("nvmf_subsystem_add_ns", &namespace)?;
        added.push(begun.elapsed());
    }
    added.sort_unstable();
    let (least, one) = (added[0], added[ADDED / 2]);
    let (begun, spent) = (Instant::now(), target.cpu()?);
    let address = format!("tcp://127.0.0.1:{}", target.port);
    let found = Command::new(binary).args(["discover", &address]).output()?;
    ensure!(found.status.success(), "weft discover: {}", found.status);
    let (discovered, spent) = (begun.elapsed(), target.cpu()?.saturating_sub(spent));
    let (subsystems, namespaces) = served;
    println!(
        "| {subsystems} | {namespaces} | {} ms | {} MB | {:.1} ms | {} ms, {:.1} ms |",
        ready.as_millis(),
        memory / 1_000_000,
        one.as_secs_f64() * 1e3,
        discovered.as_millis(),
        spent.as_secs_f64() * 1e3,
    );
    ensure!(ready <= START_MAX, "the start takes {ready:?}, more than {START_MAX:?}");
    // The least, because other programs may run here.
    ensure!(least <= ADD_MAX, "one namespace more takes {least:?}, more than {ADD_MAX:?}");
    Ok(())
}

/// A row of the second table.
fn connect(binary: &Path, folder: &Path, hosts: usize) -> Result<()> {
    raise_limit();
    let target = Target::start(binary, folder, FEW)?;
    target.control()?;
    // What is allocated once is not the cost of a host.
    let mut first = Connection::open(target.port)?;
    first.connect(hosts, 0, 32, u16::MAX)?;
    let (memory, begun) = (target.memory()?, target.cpu()?);
    let mut admin = Vec::new();
    for host in 0..hosts {
        let mut connection = Connection::open(target.port)?;
        let controller = connection.connect(host, 0, 32, u16::MAX)?;
        connection.enable()?;
        admin.push((connection, controller));
    }
    let with_admin = target.memory()?;
    let mut queues = Vec::new();
    for (host, (_, controller)) in admin.iter().enumerate() {
        let mut connection = Connection::open(target.port)?;
        connection.connect(host, 1, ENTRIES, *controller)?;
        queues.push(connection);
    }
    let with_queues = target.memory()?;
    let connected = target.cpu()?.saturating_sub(begun);
    let begun = target.cpu()?;
    for _ in 0..KEEP_ALIVES {
        for (connection, _) in &mut admin {
            connection.send(&Connection::command(0x18), &[])?;
        }
        for (connection, _) in &mut admin {
            connection.answer()?;
        }
    }
    let kept_alive = target.cpu()?.saturating_sub(begun);
    let begun = target.cpu()?;
    let idle = Duration::from_secs(3);
    sleep(idle);
    let idled = target.cpu()?.saturating_sub(begun);
    let each = |before: u64, after: u64| after.saturating_sub(before) / 1000 / hosts as u64;
    println!(
        "| {hosts} | {} KB | {} KB | {:.0} µs | {:.1} µs | {:.1} % |",
        each(memory, with_admin),
        each(with_admin, with_queues),
        connected.as_secs_f64() * 1e6 / (2 * hosts) as f64,
        kept_alive.as_secs_f64() * 1e6 / (KEEP_ALIVES * hosts) as f64,
        idled.as_secs_f64() / idle.as_secs_f64() * 100.0,
    );
    Ok(())
}

/// Each connection is a descriptor here, as in the target.
fn raise_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ =
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

fn nqn(number: usize) -> String {
    format!("nqn.2014-08.org.example:subsystem{number}")
}

/// A target with null devices.
struct Target {
    process: Process,
    port: u16,
    socket: PathBuf,
}

impl Target {
    fn start(binary: &Path, folder: &Path, (subsystems, namespaces): Population) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut text = format!(
            "[limits]\nnamespaces = 8192\n\n[[port]]\nlisten = \"tcp://127.0.0.1:{port}\"\n"
        );
        for number in 0..subsystems {
            write!(text, "[[subsystem]]\nnqn = \"{}\"\n", nqn(number))?;
            let more = usize::from(number < namespaces % subsystems);
            for _ in 0..namespaces / subsystems + more {
                text += "[[subsystem.namespace]]\nnull = \"1GiB\"\n";
            }
        }
        let [config, socket, log] = ["config.toml", "socket", "log"].map(|name| folder.join(name));
        fs::write(&config, text)?;
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(binary);
        command.args(["target", "--config"]).arg(&config);
        command.arg("--control").arg(format!("unix:{}", socket.display()));
        Ok(Self { process: Process::start(&mut command, &log)?, port, socket })
    }

    /// Its control socket, as soon as it answers: its ports are open then.
    fn control(&self) -> Result<Control> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return Ok(Control(stream)),
                Err(error) if begun.elapsed() > PATIENCE => {
                    bail!("the target does not start: {error}: {}", self.process.output());
                }
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Its resident memory in bytes.
    fn memory(&self) -> Result<u64> {
        bench::resident_bytes(self.process.id())
    }

    fn cpu(&self) -> Result<Duration> {
        bench::cpu_time(self.process.id())
    }
}

struct Control(UnixStream);

impl Control {
    fn call(&mut self, method: &str, params: &Value) -> Result<()> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.0.write_all(call.to_string().as_bytes())?;
        let answers = serde_json::Deserializer::from_reader(BufReader::new(&self.0));
        let answer = answers.into_iter::<Value>().next().context("no answer")??;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(())
    }
}

/// A host's connection: commands one at a time, without data but that of Connect.
struct Connection(TcpStream);

impl Connection {
    fn open(port: u16) -> Result<Self> {
        let begun = Instant::now();
        let stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => sleep(Duration::from_millis(1)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut this = Self(stream);
        // ICReq: a common header, and nothing asked for.
        let mut request = [0; 128];
        request[2] = 128;
        request[4] = 128;
        this.0.write_all(&request)?;
        let mut answer = [0; 128];
        this.0.read_exact(&mut answer)?;
        ensure!(answer[0] == 1, "no ICResp");
        Ok(this)
    }

    /// A command with an SGL without data.
    fn command(opcode: u8) -> [u8; 64] {
        let mut command = [0; 64];
        command[0] = opcode;
        command[1] = 0x40;
        command
    }

    fn send(&mut self, command: &[u8; 64], data: &[u8]) -> Result<()> {
        let offset = if data.is_empty() { 0 } else { 72 };
        let mut capsule = vec![4, 0, 72, offset];
        capsule.extend((72 + u32::try_from(data.len())?).to_le_bytes());
        capsule.extend(command);
        capsule.extend(data);
        Ok(self.0.write_all(&capsule)?)
    }

    /// The first bytes of the result of what was sent.
    fn answer(&mut self) -> Result<u16> {
        let mut response = [0; 24];
        self.0.read_exact(&mut response)?;
        let status = u16::from_le_bytes([response[22], response[23]]) >> 1;
        ensure!(response[0] == 5 && status == 0, "status {status:#x}");
        Ok(u16::from_le_bytes([response[8], response[9]]))
    }

    /// Connect, as host `host` to the first subsystem; returns the controller's identifier.
    fn connect(&mut self, host: usize, queue: u16, entries: u16, controller: u16) -> Result<u16> {
        let mut data = [0; 1024];
        data[..8].copy_from_slice(&(host as u64 + 1).to_le_bytes());
        data[15] = 1;
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        for (at, name) in [(256, nqn(0)), (512, format!("nqn.2014-08.org.example:host{host}"))] {
            data[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        let mut command = Self::command(0x7f);
        command[4] = 1;
        command[32..36].copy_from_slice(&1024_u32.to_le_bytes());
        command[39] = 1; // The data is in the capsule.
        command[42..44].copy_from_slice(&queue.to_le_bytes());
        command[44..46].copy_from_slice(&(entries - 1).to_le_bytes());
        let keep_alive_ms: u32 = if queue == 0 { 120_000 } else { 0 };
        command[48..52].copy_from_slice(&keep_alive_ms.to_le_bytes());
        self.send(&command, &data)?;
        self.answer()
    }

    /// Sets CC.EN by Property Set, with the entry sizes of I/O queues.
    fn enable(&mut self) -> Result<()> {
        let mut command = Self::command(0x7f);
        command[44] = 0x14;
        command[48..52].copy_from_slice(&0x46_0001_u32.to_le_bytes());
        self.send(&command, &[])?;
        self.answer().map(drop)
    }
}
