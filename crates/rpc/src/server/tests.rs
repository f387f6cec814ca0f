use std::time::Duration;

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

/// The server's replies to these lines.
fn said(text: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    serve(&methods(), text, &mut out);
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
        let server = Server::start(&address, methods()).expect("a server");
        let mut client = Client::connect(server.address(), TIMEOUT).expect("a client");
        let mut other = Client::connect(server.address(), TIMEOUT).expect("a second client");
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
    let server = Server::start(&address, methods()).expect("a server in its place");
    assert!(Server::start(&address, methods()).is_err(), "another server listens");
    let mode = fs::metadata(&path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(server);
    assert!(!path.exists());
    fs::write(&path, "precious").expect("a file");
    assert!(Server::start(&address, methods()).is_err(), "a file is not a socket");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "precious");
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
    let server = Server::start(&address, methods()).expect("a server");
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
    serve(&methods(), &request[..], &mut writes);
    assert_eq!(writes.0.len(), 1, "{:?}", writes.0);
}

#[test]
fn an_answer_that_does_not_come_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("its address"));
    let mut client = Client::connect(&address, Duration::from_millis(50)).expect("a client");
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
