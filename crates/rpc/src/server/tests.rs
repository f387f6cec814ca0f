use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{CallError, Client, Method};

struct Add;

impl Method for Add {
    const NAME: &'static str = "add";
    type Params = (u32, u32);
    type Answer = u32;
}

struct Nothing;

impl Method for Nothing {
    const NAME: &'static str = "nothing";
    type Params = ();
    type Answer = String;
}

struct Absent;

impl Method for Absent {
    const NAME: &'static str = "absent";
    type Params = ();
    type Answer = ();
}

fn methods() -> Methods {
    Methods::new()
        .with::<Add>(|(one, other)| {
            one.checked_add(other).ok_or_else(|| "the sum is too large".to_owned())
        })
        .with::<Nothing>(|()| Ok("done".to_owned()))
}

/// Serves one connection.
fn serve(reader: impl Read, writer: impl Write) {
    let (caller, reader, trust) =
        (Caller::Unknown, BufReader::new(reader), Box::new(|| Ok(())) as Box<_>);
    let (places, calls) = (Places::default(), AtomicUsize::new(0));
    let shared = Shared { methods: methods(), token: None, places, calls };
    Connection { caller, reader, writer, trust }.serve(&shared, || ());
}

/// The server's replies to these lines.
fn said(text: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    serve(text, &mut out);
    let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

fn codes(text: &[u8]) -> Vec<Option<i64>> {
    said(text).iter().map(|answer| answer["error"]["code"].as_i64()).collect()
}

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn calls_are_answered_over_both_kinds_of_socket() {
    let directory = tempfile::tempdir().expect("a directory");
    let unix = Address::Unix(directory.path().join("control"));
    let tcp = "tcp://127.0.0.1:0".parse().expect("an address");
    for address in [unix, tcp] {
        let server = Server::start(&address, methods(), None).expect("a server");
        let mut client = Client::connect(server.address(), None, TIMEOUT).expect("a client");
        let mut other = Client::connect(server.address(), None, TIMEOUT).expect("a second client");
        assert_eq!(client.call::<Add>(&(1, 2)).expect("a sum"), 3);
        assert_eq!(other.call::<Nothing>(&()).expect("a word"), "done");
        let error = client.call::<Add>(&(u32::MAX, 1)).expect_err("too large");
        assert!(matches!(error, CallError::Error(ref error) if error.code == Code::FAILED));
        let error = client.call::<Absent>(&()).expect_err("no such method");
        assert!(error.to_string().contains("Method not found"), "{error}");
        assert_eq!(client.call::<Add>(&(3, 4)).expect("an error does not end the connection"), 7);
    }
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control");
    drop(UnixListener::bind(&path).expect("a socket file that remains"));
    let address = Address::Unix(path.clone());
    let server = Server::start(&address, methods(), None).expect("a server in its place");
    assert!(Server::start(&address, methods(), None).is_err(), "another server listens");
    let mode = fs::metadata(&path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(server);
    assert!(!path.exists());
    fs::write(&path, "precious").expect("a file");
    assert!(Server::start(&address, methods(), None).is_err(), "a file is not a socket");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "precious");
}

#[test]
fn a_group_may_use_the_socket_that_is_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("control");
    let own = fs::metadata(directory.path()).expect("a directory");
    let is_root = own.uid() == 0;
    // Root may give a file to any group, others to one of their own.
    let group = if is_root { 4711 } else { own.gid() };
    let at: Listening = format!("unix:{},group={group}", path.display()).parse().expect("a place");
    let server = Server::start(at.clone(), methods(), None).expect("a server");
    assert_eq!(server.address(), &Address::Unix(path.clone()));
    let found = fs::metadata(&path).expect("a socket");
    assert_eq!((found.permissions().mode() & 0o777, found.gid()), (0o660, group));
    drop(server);
    if !is_root {
        let other = format!("unix:{},group=0", path.display());
        assert!(
            Server::start(other.parse::<Listening>().expect("a place"), methods(), None).is_err()
        );
    }
    assert!(!path.exists());
}

#[test]
fn errors_have_the_specified_codes() {
    let text = br#"
{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}
{"jsonrpc":"2.0","method":"add","params":[1],"id":2}
{"jsonrpc":"2.0","method":"foobar","id":"1"}
{"jsonrpc":"2.0","method":1,"params":"bar"}
{"jsonrpc":"1.0","method":"nothing","id":1}
{"jsonrpc":"2.0","method":"nothing"}
{"jsonrpc":"2.0","method":"nothing","params":{},"id":3}
[]
[1]
[{"jsonrpc":"2.0","method":"nothing"}]
{"method":"nothing","id":4}
{"method":"nothing","id":null}
{"method":"foobar"}
{"jsonrpc":"2.0","method":"foobar, "params": "bar", "baz]
{"jsonrpc":"2.0","method":"nothing","id":5}
"#;
    let expected = [
        None,
        Some(-32602),
        Some(-32601),
        Some(-32600),
        Some(-32600),
        None,
        Some(-32600),
        // The array of one number is answered with an array.
        None,
        None,
        Some(-32601),
        // The connection ends here: where the next request begins is not known.
        Some(-32700),
    ];
    assert_eq!(codes(text), expected);
}

#[test]
fn a_batch_gets_one_reply() {
    let text = [
        r#"[{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}"#,
        r#"{"jsonrpc":"2.0","method":"nothing"}"#,
        r#"{"foo":"boo"}"#,
        r#"{"jsonrpc":"2.0","method":"nothing","id":"9"}]"#,
    ];
    let answers = said(format!("{}\n", text.join(",")).as_bytes());
    assert_eq!(answers.len(), 1);
    let answers = answers[0].as_array().expect("a batch");
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "result": 3, "id": 1}));
    assert_eq!(answers[1]["error"]["code"], -32600);
    assert_eq!(answers[2]["result"], "done");
}

#[test]
fn a_request_without_end_is_refused() {
    let mut text = vec![b' '; usize::try_from(REQUEST_BYTES_MAX).expect("a size") + 10];
    text.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"method\":\"nothing\",\"id\":1}\n");
    assert_eq!(codes(&text), [Some(-32600)], "then the connection is closed");
}

#[test]
fn every_truncation_is_refused() {
    let whole = br#"{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}"#;
    assert_eq!(codes(&whole[..0]), []);
    for length in 1..whole.len() {
        assert_eq!(codes(&whole[..length]), [Some(-32700)], "{length}");
    }
}

#[test]
fn a_request_of_many_lines_without_a_final_new_line_is_answered_at_once() {
    let address = "tcp://127.0.0.1:0".parse().expect("an address");
    let server = Server::start(&address, methods(), None).expect("a server");
    let Address::Tcp(address) = server.address() else { unreachable!("it is TCP") };
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
    for id in 1..=2 {
        let request = json!({"jsonrpc": "2.0", "method": "add", "params": [1, 2], "id": id});
        let text = serde_json::to_string_pretty(&request).expect("JSON");
        stream.write_all(text.as_bytes()).expect("sent");
        let response: Value = crate::read_value(&mut stream, 1000).expect("a response");
        assert_eq!(response, json!({"jsonrpc": "2.0", "result": 3, "id": id}));
    }
}

#[test]
fn a_response_is_written_whole() {
    struct Writes(Vec<usize>);
    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writes = Writes(Vec::new());
    let request = br#"{"method":"nothing","id":1}"#;
    serve(&request[..], &mut writes);
    assert_eq!(writes.0.len(), 1, "{:?}", writes.0);
}

#[test]
fn an_answer_that_does_not_come_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("its address"));
    let mut client = Client::connect(&address, None, Duration::from_millis(50)).expect("a client");
    assert!(matches!(client.call::<Nothing>(&()), Err(CallError::Io(_))));
    assert!(matches!(client.call::<Nothing>(&()), Err(CallError::Io(_))), "it stays unusable");
}

proptest! {
    #[test]
    fn no_input_breaks_the_server(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for answer in said(&bytes) {
            prop_assert!(answer.is_array() || answer["jsonrpc"] == "2.0");
        }
    }
}

#[test]
fn over_tcp_a_token_comes_first() {
    let folder = tempfile::tempdir().expect("a directory");
    let token = |text| Token::new(text).expect("a token");
    let (own, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
    let tcp = "tcp://127.0.0.1:0".parse().expect("an address");
    let server = Server::start(&tcp, methods(), Some(own.clone())).expect("a server");
    let connect = |token| Client::connect(server.address(), token, TIMEOUT);
    let error = connect(Some(&other)).expect_err("another token").to_string();
    assert!(error.contains("--control-token-file"), "{error}");
    let mut without = connect(None).expect("it is not asked yet");
    let error = without.call::<Add>(&(1, 2)).expect_err("no token").to_string();
    assert!(error.contains("--control-token-file"), "{error}");
    assert!(without.call::<Add>(&(1, 2)).is_err(), "the connection has ended");
    let mut with = connect(Some(&own)).expect("the same token");
    assert_eq!(with.call::<Add>(&(1, 2)).expect("a sum"), 3);
    // Whatever else comes first is refused: a batch, other JSON, no JSON.
    let Address::Tcp(address) = server.address() else { unreachable!() };
    for bad in ["[{\"method\":\"nothing\",\"id\":1}]", "7 ", "nonsense", "{}", "{\"method\":1}"] {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(bad.as_bytes()).expect("sent");
        let mut answer = String::new();
        // What was not read resets the connection after the answer.
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains("Permission denied"), "{bad}: {answer}");
    }
    // Who sends byte by byte does not keep the connection for long.
    let mut slow = TcpStream::connect(address).expect("a connection");
    slow.set_nodelay(true).expect("an option");
    let sent = (0..1000).take_while(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        slow.write_all(b" ").is_ok()
    });
    assert!(sent.count() < 1000, "the connection has ended");
    // A Unix socket's mode says who may connect.
    let unix = Address::Unix(folder.path().join("control"));
    let server = Server::start(&unix, methods(), Some(own)).expect("a server");
    let mut client = Client::connect(server.address(), None, TIMEOUT).expect("a client");
    assert_eq!(client.call::<Add>(&(1, 2)).expect("a sum"), 3);
}

/// Connections that say nothing, or not all of a first request, as many as there are places.
#[test]
fn who_says_nothing_keeps_nobody_out() {
    let folder = tempfile::tempdir().expect("a directory");
    let own = Token::new("0123456789abcdef").expect("a token");
    let tcp: Address = "tcp://127.0.0.1:0".parse().expect("an address");
    let unix = Address::Unix(folder.path().join("control"));
    for (at, token) in [(&tcp, None), (&tcp, Some(own)), (&unix, None)] {
        let server = Server::start(at, methods(), token.clone()).expect("a server");
        let connect = || -> Box<dyn Write> {
            match server.address() {
                Address::Tcp(at) => Box::new(TcpStream::connect(at).expect("a connection")),
                Address::Unix(path) => Box::new(UnixStream::connect(path).expect("a connection")),
            }
        };
        let client = || Client::connect(server.address(), token.as_ref(), TIMEOUT);
        let mut first = client().expect("a client");
        assert_eq!(first.call::<Add>(&(1, 2)).expect("a sum"), 3);
        let began = std::time::Instant::now();
        let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        for stream in &mut silent {
            // Some of them are gone already.
            let _ = stream.write_all(b"{\"method\":");
        }
        let mut late = client().expect("a place");
        assert_eq!(late.call::<Add>(&(1, 2)).expect("a sum"), 3);
        assert!(began.elapsed() < AUTHENTICATE_TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(first.call::<Add>(&(3, 4)).expect("who has called stays"), 7);
        // Callers keep their places.
        let mut callers: Vec<Client> =
            (2..CONNECTIONS_MAX).map(|_| client().expect("one")).collect();
        for caller in &mut callers {
            assert_eq!(caller.call::<Add>(&(1, 2)).expect("a sum"), 3);
        }
        let refused = client().and_then(|mut more| {
            more.call::<Add>(&(1, 2)).map_err(|error| io::Error::other(error.to_string()))
        });
        assert!(refused.is_err());
        assert_eq!(first.call::<Add>(&(3, 4)).expect("nor does one more end it"), 7);
    }
}

#[test]
fn a_method_is_told_who_calls() {
    let folder = tempfile::tempdir().expect("a directory");
    let unix = Address::Unix(folder.path().join("control"));
    let methods = Methods::new().with_named("who", |caller, _| Ok(caller.to_string().into()));
    let server = Server::start(&unix, methods, None).expect("a server");
    let mut client = Client::connect(server.address(), None, TIMEOUT).expect("a client");
    let who = client.call_named("who", Value::Null).expect("an answer").to_string();
    assert!(who.contains(&format!("process {} (", std::process::id())), "{who}");
}

#[test]
fn a_server_that_ends_answers_what_was_asked() {
    let tcp = "tcp://127.0.0.1:0".parse().expect("an address");
    let (begun, begin) = std::sync::mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let methods = Methods::new().with_named("slow", move |_, _| {
        begun.send(()).expect("someone waits");
        thread::sleep(Duration::from_millis(50));
        is_done.store(true, Ordering::Relaxed);
        Ok("done".into())
    });
    let server = Server::start(&tcp, methods, None).expect("a server");
    let mut client = Client::connect(server.address(), None, TIMEOUT).expect("a client");
    let asked = thread::spawn(move || client.call_named("slow", Value::Null));
    begin.recv().expect("it is called");
    drop(server);
    assert!(done.load(Ordering::Relaxed), "it is not waited for");
    assert!(asked.join().is_ok_and(|answer| answer.is_ok()));
}
