//! As much of HTTP/1.1 as a gateway of JSON needs: a request for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

/// No answer that is waited for is longer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Nor has a longer line, or more of them in its head.
const LINE_BYTES_MAX: u64 = 64 << 10;
const HEAD_LINES_MAX: usize = 100;

/// An answer whose body can be read.
#[derive(Debug)]
pub(super) struct Answer {
    stream: BufReader<TcpStream>,
    is_chunked: bool,
    /// What is left of the body, or of its chunk; none: until the connection ends.
    left: Option<u64>,
}

/// Posts an object to `HOST:PORT`. Each step may take the time.
pub(super) fn post(
    endpoint: &str,
    path: &str,
    body: &Value,
    timeout: Duration,
) -> io::Result<Answer> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in endpoint.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return ask(stream, endpoint, path, body, timeout),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(
    mut stream: TcpStream,
    endpoint: &str,
    path: &str,
    body: &Value,
    timeout: Duration,
) -> io::Result<Answer> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {endpoint}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    Answer::begin(BufReader::new(stream))
}

impl Answer {
    fn begin(mut stream: BufReader<TcpStream>) -> io::Result<Self> {
        let status = line(&mut stream)?;
        let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        let is_fine = code == Some("200");
        let mut answer = Self { stream, is_chunked: false, left: None };
        for _ in 0..HEAD_LINES_MAX {
            let header = line(&mut answer.stream)?;
            if header.is_empty() {
                if is_fine {
                    return Ok(answer);
                }
                let told = answer.into_text().unwrap_or_default();
                return Err(wrong(&format!("{status}: {}", told.trim())));
            }
            let Some((name, value)) = header.split_once(':') else { continue };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            match name.as_str() {
                "transfer-encoding" => {
                    answer.is_chunked = value.eq_ignore_ascii_case("chunked");
                    answer.left = Some(0);
                }
                "content-length" if !answer.is_chunked => {
                    answer.left = Some(value.parse().map_err(|_| wrong(&header))?);
                }
                _ => {}
            }
        }
        Err(wrong("its head has no end"))
    }

    /// The object that is all of it.
    pub(super) fn into_object(self) -> io::Result<Value> {
        let text = self.into_text()?;
        serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))
    }

    fn into_text(self) -> io::Result<String> {
        let mut text = String::new();
        self.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// The next object of a stream, a line each; none: it has ended.
    pub(super) fn next_object(&mut self) -> io::Result<Option<Value>> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while self.read(&mut byte)? == 1 && byte != *b"\n" {
            bytes.extend(byte);
            if bytes.len() as u64 > LINE_BYTES_MAX {
                return Err(wrong("a line of it has no end"));
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let object = serde_json::from_slice(&bytes);
        object.map(Some).map_err(|error| wrong(&error.to_string()))
    }
}

/// Its body.
impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_chunked && self.left == Some(0) {
            let size = match line(&mut self.stream)? {
                // The end of the chunk before.
                empty if empty.is_empty() => line(&mut self.stream)?,
                size => size,
            };
            let digits = size.split(';').next().unwrap_or_default().trim();
            let bytes = u64::from_str_radix(digits, 16).map_err(|_| wrong(&size))?;
            // After the last one nothing is a chunk.
            self.is_chunked = bytes != 0;
            self.left = Some(bytes);
        }
        let most = self.left.unwrap_or(u64::MAX).min(into.len() as u64);
        let most = usize::try_from(most).unwrap_or(into.len());
        let count = self.stream.read(&mut into[..most])?;
        if let Some(left) = &mut self.left {
            *left -= count as u64;
            if count == 0 && *left > 0 && !into.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(count)
    }
}

/// The next line without its end.
fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(line.trim_end_matches('\r').to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer that is understood: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;

    /// What becomes of an answer with these bytes.
    fn answered(bytes: &'static str) -> io::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(bytes.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let answer = post(&address, "/v3/x", &json!({ "a": 1 }), Duration::from_secs(20));
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /v3/x HTTP/1.1\r\n") && request.ends_with("{\"a\":1}"));
        answer
    }

    #[test]
    fn bodies_of_a_length_and_in_chunks_are_read() {
        let plain = answered("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"b\": 12}ignored");
        assert_eq!(plain.unwrap().into_object().unwrap(), json!({ "b": 12 }));
        let ended = answered("HTTP/1.1 200 OK\r\n\r\n{\"b\":13}");
        assert_eq!(ended.unwrap().into_object().unwrap(), json!({ "b": 13 }));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       4;x\r\n{\"b\"\r\n5\r\n:14}\n\r\n0\r\n\r\n";
        assert_eq!(answered(chunked).unwrap().into_object().unwrap(), json!({ "b": 14 }));
        let mut stream = answered(chunked).unwrap();
        assert_eq!(stream.next_object().unwrap(), Some(json!({ "b": 14 })));
        assert_eq!(stream.next_object().unwrap(), None);
    }

    #[test]
    fn other_answers_are_errors() {
        for (bytes, told) in [
            ("HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nlater", "503 Busy: later"),
            ("SSH-2.0\r\n\r\n", "SSH-2.0"),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "Content-Length: x"),
            ("HTTP/1.1 200 OK\r\n", "unexpected end"),
        ] {
            let error = answered(bytes).expect_err(bytes).to_string();
            assert!(error.contains(told), "{error}");
        }
        for bytes in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"b\"",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]",
        ] {
            assert!(answered(bytes).unwrap().into_object().is_err(), "{bytes}");
        }
    }
}
