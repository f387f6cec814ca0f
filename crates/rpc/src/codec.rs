//! Lines.

use std::io::{self, BufRead};

/// Why there is no line.
#[derive(Debug)]
pub enum ReadError {
    /// The other side is gone; nothing was cut off.
    Ended,
    /// The other side is gone in the middle of a line.
    Cut,
    /// The line is longer than is allowed.
    TooLong,
    /// The connection failed.
    Io(io::Error),
}

/// Reads a line into `line`, without its end.
///
/// # Errors
/// There is none, or it is longer than `bytes_max`.
pub fn read_line(
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), ReadError> {
    line.clear();
    loop {
        let (taken, ended) = {
            let there = match from.fill_buf() {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ReadError::Io(error)),
            };
            if there.is_empty() {
                return Err(if line.is_empty() { ReadError::Ended } else { ReadError::Cut });
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let part = &there[..end.unwrap_or(there.len())];
            if line.len() + part.len() > bytes_max {
                return Err(ReadError::TooLong);
            }
            line.extend_from_slice(part);
            (part.len() + usize::from(end.is_some()), end.is_some())
        };
        from.consume(taken);
        if ended {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_are_told_apart_however_they_come() {
        let text = b"one\r\n\ntwo\nlast";
        for capacity in 1..text.len() + 1 {
            let mut from = BufReader::with_capacity(capacity, &text[..]);
            let mut line = Vec::new();
            for expected in ["one", "", "two"] {
                read_line(&mut from, &mut line, 3 + 1).expect(expected);
                assert_eq!(line, expected.as_bytes());
            }
            assert!(matches!(read_line(&mut from, &mut line, 8), Err(ReadError::Cut)));
        }
        assert!(matches!(read_line(&mut &b""[..], &mut Vec::new(), 1), Err(ReadError::Ended)));
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let text = vec![b'x'; 100_000];
        let mut line = Vec::new();
        let outcome = read_line(&mut BufReader::new(&text[..]), &mut line, 1000);
        assert!(matches!(outcome, Err(ReadError::TooLong)));
        assert!(line.len() <= 1000);
    }
}
