//! Keys beside nvme-cli's, and OpenSSL as the other end of TLS, from Debian.

use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use xtask::python::succeeded;
use xtask::report::Report;
use xtask::{cargo, packages};

const NQN: &str = "nqn.2024-01.org.example:tls";
const HOST: &str = "nqn.2024-01.org.example:tls-host";
const NVME: &str = "/usr/sbin/nvme";

const PATIENCE: Duration = Duration::from_secs(20);

/// How long nothing may come where nothing has to.
const QUIET: Duration = Duration::from_secs(2);

const KEYCTL: (&str, &str) = ("keyctl", "keyutils");

/// The suite of keys with SHA-256, the only one that OpenSSL's tools have for a PSK.
const SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// The first bytes of an ICResp: its type, flags, lengths and PDU format version.
const RESPONSE: [u8; 10] = [1, 0, 128, 0, 128, 0, 0, 0, 0, 0];

/// Runs all of it.
pub(crate) fn run(root: &Path, report: &mut Report) {
    let mut weft = None;
    report.check("nvme-cli and OpenSSL from Debian", || {
        packages::need(
            "keys and TLS are held against other programs",
            &[(NVME, "nvme-cli"), ("openssl", "openssl")],
        )?;
        weft = Some(cargo::build_binary(root)?);
        Ok(())
    });
    let Some(weft) = weft else { return };
    let folder = cargo::target_folder(root).join("security");
    let mut check = |name: &str, check: fn(&Bench) -> Result<()>| {
        report.check(name, || {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            check(&Bench { weft: weft.clone(), folder: folder.clone() })
        });
    };
    check("nvme-cli and weft take each other's keys", keys);
    check("OpenSSL as a host: both versions, new keys, no tickets, no other way in", client);
    check("OpenSSL as a target: either version is chosen", server);
    // A container may forbid it, and a kernel be without it.
    let keyring = packages::need("keys are put into the kernel's keyring", &[KEYCTL])
        .and_then(|()| succeeded(Command::new("keyctl").args(["show", "@u"])));
    match keyring {
        Ok(_) => check("keys of the kernel, by name and by number", kernel_keys),
        Err(error) => report.lacks("keys of the kernel", 1, &format!("{error:#}")),
    }
}

/// The program under test and a folder for its files.
struct Bench {
    weft: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn weft(&self, words: &[&str]) -> Result<String> {
        succeeded(Command::new(&self.weft).args(words))
    }

    fn path(&self, name: &str) -> Result<String> {
        Ok(self.folder.join(name).to_str().context("a path of text")?.to_owned())
    }

    /// A new key of TLS.
    fn key(&self) -> Result<String> {
        let path = self.path("key")?;
        self.weft(&["key", "generate", "tls", &path])?;
        Ok(path)
    }

    /// A target whose port requires TLS with this key, and its address.
    fn target(&self, key: &str) -> Result<(Process, String)> {
        let config = self.path("target.toml")?;
        fs::write(
            &config,
            format!(
                "[[port]]\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n[[subsystem]]\n\
                 nqn = \"{NQN}\"\n[[subsystem.host]]\nnqn = \"{HOST}\"\npsk = [{key:?}]\n\
                 [[subsystem.namespace]]\nmemory = \"1MiB\"\n"
            ),
        )?;
        let mut target = Command::new(&self.weft);
        target.args(["target", "-o", "json", "--config", &config]);
        let target = Process::start(&mut target, &self.folder.join("target.log"))?;
        let said = target.said()?;
        let address = said["ports"][0]["address"].as_str().context("no address")?;
        Ok((target, address.to_owned()))
    }

    /// The words by which OpenSSL has the PSK of a key.
    fn psk(&self, key: &str, version: &str) -> Result<[String; 4]> {
        let file = self.path("psk")?;
        // There is none yet the first time.
        let _ = fs::remove_file(&file);
        let names = ["--hostnqn", HOST, "--subsysnqn", NQN, "--identity", version];
        let words = [&["key", "show-identity", key], &names[..], &["--psk-file", &file]].concat();
        let identity = self.weft(&words)?.trim().to_owned();
        let psk: String = fs::read(file)?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(["-psk_identity".to_owned(), identity, "-psk".to_owned(), psk])
    }
}

fn keys(bench: &Bench) -> Result<()> {
    let nvme = |words: &[&str]| succeeded(Command::new(NVME).args(words));
    let check = |key: &str, says: &str| -> Result<()> {
        let path = bench.path("theirs")?;
        fs::write(&path, key)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let said = bench.weft(&["key", "check", &path])?;
        ensure!(said.trim() == says, "{said:?} is not {says:?}");
        Ok(())
    };
    for (number, hash, bytes) in [("1", "sha256", 32), ("2", "sha384", 48), ("3", "sha512", 64)] {
        let path = bench.path(&format!("ours{number}"))?;
        if number != "3" {
            let theirs = nvme(&["gen-tls-key", "--hmac", number])?;
            check(&theirs, &format!("a key of TLS, {hash}, {bytes} bytes"))?;
            bench.weft(&["key", "generate", "tls", "--hmac", number, &path])?;
            let ours = fs::read_to_string(&path)?;
            let said = nvme(&["check-tls-key", "--key", ours.trim()])?;
            let expected = format!("Key is valid (HMAC {number}, length {bytes},");
            ensure!(said.contains(&expected), "{said:?} has no {expected:?}");
        }
        let length = bytes.to_string();
        let words = ["gen-dhchap-key", "--hmac", number, "--key-length", &length, "--nqn", HOST];
        check(&nvme(&words)?, &format!("a key of DH-HMAC-CHAP, {hash}, {bytes} bytes"))?;
        let path = bench.path(&format!("secret{number}"))?;
        bench.weft(&["key", "generate", "dhchap", "--hmac", number, &path])?;
        let said = nvme(&["check-dhchap-key", "--key", fs::read_to_string(&path)?.trim()])?;
        let expected = format!("Key is valid (HMAC {number}, length {bytes},");
        ensure!(said.contains(&expected), "{said:?} has no {expected:?}");
    }
    Ok(())
}

/// A target and hosts have a key that `keyctl` has put into the user's keyring, also where the
/// session has no link to that, as a service's has none.
fn kernel_keys(bench: &Bench) -> Result<()> {
    let name = format!("weft-test:{}", std::process::id());
    let keyctl = |words: &[&str]| succeeded(Command::new("keyctl").args(words));
    let file = bench.key()?;
    let put = format!("keyctl padd user {name} @u <'{file}'");
    let serial = succeeded(Command::new("sh").args(["-c", &put]))?.trim().to_owned();
    fs::remove_file(&file)?;
    let outcome = (|| {
        let by_name = format!("%user:{name}");
        let (target, address) = bench.target(&by_name)?;
        let url = format!("nvme-tcp://{address}/{NQN}");
        for key in [&by_name, &format!("%{serial}")] {
            let words = ["list", "--tls", "--tls-key-file", key, "--hostnqn", HOST, &url];
            bench.weft(&words)?;
            let weft = bench.weft.to_str().context("a path of text")?;
            let said = keyctl(&["session", "-", weft, "key", "check", key])?;
            ensure!(said.contains("a key of TLS, sha256, 32 bytes"), "{said}");
        }
        drop(target);
        Ok(by_name)
    })();
    keyctl(&["unlink", &serial, "@u"])?;
    let refused = bench.weft(&["key", "check", &outcome?]);
    let error = format!("{:#}", refused.err().context("the key is not there any more")?);
    ensure!(error.contains("no such key is in the keyring of the session"), "{error}");
    Ok(())
}

/// A process that ends with its test, and what it has written.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Peer {
    fn start(command: &mut Command, log: File) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let (input, mut pipe) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let output = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut bytes) {
                if let Ok(mut output) = shared.lock() {
                    output.extend_from_slice(&bytes[..read]);
                }
            }
        });
        Ok(Self { child, input: input.context("no input")?, output })
    }

    fn has(&self, part: &[u8]) -> bool {
        let output = self.output.lock().map(|output| output.clone()).unwrap_or_default();
        output.windows(part.len()).any(|found| found == part)
    }

    fn wait_for(&self, what: &str, part: &[u8]) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.has(part) {
            if Instant::now() > deadline {
                let output = self.output.lock().map(|output| output.clone()).unwrap_or_default();
                bail!("no {what} within {PATIENCE:?}: {}", String::from_utf8_lossy(&output));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The process has to end by itself: its connection was closed.
    fn wait_for_end(&mut self, what: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "{what}: the target has kept the connection");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.input.write_all(bytes)?;
        Ok(self.input.flush()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// ICReq without digests.
fn request() -> [u8; 128] {
    let mut request = [0; 128];
    [request[2], request[4]] = [128, 128];
    request
}

fn client(bench: &Bench) -> Result<()> {
    let key = bench.key()?;
    let (_target, address) = bench.target(&key)?;
    let open = |name: &str, words: &[&str]| -> Result<Peer> {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &address]).args(words);
        Peer::start(&mut command, File::create(bench.folder.join(name))?)
    };
    for version in ["0", "1"] {
        let psk = bench.psk(&key, version)?;
        let words: Vec<&str> = psk.iter().map(String::as_str).collect();
        let words = [&["-tls1_3", "-ciphersuites", SUITE], &words[..]].concat();
        let mut peer = open("s_client.log", &words)?;
        peer.wait_for("handshake", b"Reused, TLSv1.3")?;
        // A new key of this side, and the target is asked for one.
        peer.send(b"K\n")?;
        // What comes at once would be taken for a part of the command.
        std::thread::sleep(QUIET);
        peer.send(&request())?;
        peer.wait_for("ICResp", &RESPONSE)?;
        ensure!(!peer.has(b"New Session Ticket"), "the target has sent a session ticket");
    }
    let psk = bench.psk(&key, "1")?;
    let [_, identity, _, secret] = psk.each_ref().map(String::as_str);
    let wrong = secret.replace(['0', '1', '2', '3'], "4");
    let others: [(&str, &[&str]); 4] = [
        ("another key", &["-tls1_3", "-psk_identity", identity, "-psk", &wrong]),
        ("another name", &["-tls1_3", "-psk_identity", "Client_identity", "-psk", secret]),
        ("no key", &["-tls1_3"]),
        ("TLS 1.2", &["-tls1_2", "-psk_identity", identity, "-psk", secret]),
    ];
    for (what, words) in others {
        let mut peer = open("refused.log", words)?;
        peer.wait_for("connection", b"CONNECTED")?;
        // It may have ended already.
        let _ = peer.send(&request());
        peer.wait_for_end(what)?;
        ensure!(!peer.has(&RESPONSE), "the target has answered to {what}");
    }
    // It was the refused ones' fault: whoever has the key still gets in.
    let mut peer = open("s_client.log", &["-tls1_3", "-psk_identity", identity, "-psk", secret])?;
    peer.wait_for("handshake", b"TLSv1.3")?;
    peer.send(&request())?;
    peer.wait_for("ICResp after the refusals", &RESPONSE)
}

fn server(bench: &Bench) -> Result<()> {
    let key = bench.key()?;
    for version in ["0", "1"] {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", &address, "-nocert", "-tls1_3"]);
        command.args(["-ciphersuites", SUITE]).args(bench.psk(&key, version)?);
        let mut server = Peer::start(&mut command, File::create(bench.path("s_server.log")?)?)?;
        server.wait_for("readiness", b"ACCEPT")?;
        let mut host = Command::new(&bench.weft);
        host.args(["list", "--hostnqn", HOST, "--tls", "--tls-key-file", &key]);
        host.arg(format!("nvme-tcp://{address}/{NQN}"));
        let log = File::create(bench.folder.join("host.log"))?;
        let _host = Peer::start(&mut host, log)?;
        // Its type, flags, lengths and PDU format version.
        server.wait_for("ICReq", &request()[..RESPONSE.len()])?;
        // The server's tickets, of which it has sent two, mean nothing to the host.
        let mut response = request();
        response[0] = 1;
        response[12..16].copy_from_slice(&0x10_0000u32.to_le_bytes());
        server.send(&response)?;
        server.wait_for("Connect with the host's name", HOST.as_bytes())?;
    }
    Ok(())
}
