//! Where a producer's records come from: lines, read ahead within a bound, or numbers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that are read ahead.
const LINES_AHEAD_MAX: usize = 64;
/// Longest line; beyond it a record could not be sent anyway.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
}

/// What a look at the source brought.
#[derive(Debug)]
pub(super) enum Next {
    Record(Record),
    /// Nothing within the wait.
    Nothing,
    End,
    Failed(io::Error),
}

/// The records of one run.
#[derive(Debug)]
pub(super) enum Source {
    /// `record 0`, `record 1` and so on, filled up to a size.
    Numbers { next: u64, end: u64, bytes: usize },
    /// Lines of a file or of stdin.
    Lines { lines: Receiver<io::Result<Vec<u8>>>, key_separator: Option<Vec<u8>> },
}

impl Source {
    /// Lines of a file, or of stdin.
    pub(super) fn lines(file: Option<&Path>, key_separator: Option<&str>) -> io::Result<Self> {
        let input: Box<dyn Read + Send> = match file {
            Some(file) => Box::new(File::open(file)?),
            None => Box::new(io::stdin()),
        };
        let (give, lines) = sync_channel(LINES_AHEAD_MAX);
        // A thread of its own: a terminal that says nothing must not keep deliveries and signals waiting.
        thread::Builder::new().name("source".to_owned()).spawn(move || {
            let mut input = BufReader::new(input);
            while let Some(line) = read_line(&mut input).transpose() {
                let failed = line.is_err();
                if give.send(line).is_err() || failed {
                    break;
                }
            }
        })?;
        Ok(Self::Lines { lines, key_separator: key_separator.map(|text| text.as_bytes().to_vec()) })
    }

    /// The next record, within the wait.
    pub(super) fn next(&mut self, wait: Duration) -> Next {
        match self {
            Self::Numbers { next, end, .. } if next == end => Next::End,
            Self::Numbers { next, bytes, .. } => {
                let mut value = format!("record {next}").into_bytes();
                value.resize(value.len().max(*bytes), b'.');
                *next += 1;
                Next::Record(Record { key: None, value })
            }
            Self::Lines { lines, key_separator } => match lines.recv_timeout(wait) {
                Ok(Ok(line)) => Next::Record(split(line, key_separator.as_deref())),
                Ok(Err(error)) => Next::Failed(error),
                Err(RecvTimeoutError::Timeout) => Next::Nothing,
                Err(RecvTimeoutError::Disconnected) => Next::End,
            },
        }
    }

    /// Leaves out the records that an earlier run was done with; fewer if there are not so many.
    pub(super) fn skip(&mut self, records: u64) -> io::Result<()> {
        if let Self::Numbers { next, end, .. } = self {
            *next = records.min(*end);
            return Ok(());
        }
        for _ in 0..records {
            match self.next(Duration::MAX) {
                Next::Failed(error) => return Err(error),
                Next::End => break,
                Next::Record(_) | Next::Nothing => {}
            }
        }
        Ok(())
    }
}

/// One line without its end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
    if input.take(most + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > LINE_BYTES_MAX {
        return Err(io::Error::other(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Some(line))
}

fn split(line: Vec<u8>, separator: Option<&[u8]>) -> Record {
    let at = separator.and_then(|separator| {
        line.windows(separator.len())
            .position(|window| window == separator)
            .map(|at| (at, separator.len()))
    });
    match at {
        Some((at, len)) => {
            Record { key: Some(line[..at].to_vec()), value: line[at + len..].to_vec() }
        }
        None => Record { key: None, value: line },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: Option<&str>, value: &str) -> Record {
        Record { key: key.map(|key| key.as_bytes().to_vec()), value: value.as_bytes().to_vec() }
    }

    #[test]
    fn numbers_are_filled_and_counted_and_skipped() {
        let mut source = Source::Numbers { next: 0, end: 3, bytes: 10 };
        assert!(matches!(source.next(Duration::ZERO), Next::Record(r) if r.value == b"record 0.."));
        source.skip(2).unwrap();
        assert!(matches!(source.next(Duration::ZERO), Next::Record(r) if r.value == b"record 2.."));
        assert!(matches!(source.next(Duration::ZERO), Next::End));
        source.skip(99).unwrap();
        assert!(matches!(source.next(Duration::ZERO), Next::End));
    }

    #[test]
    fn a_line_is_split_at_the_first_separator() {
        assert_eq!(split(b"a::b::c".to_vec(), Some(b"::")), record(Some("a"), "b::c"));
        assert_eq!(split(b"abc".to_vec(), Some(b"::")), record(None, "abc"));
        assert_eq!(split(b"a::b".to_vec(), None), record(None, "a::b"));
        assert_eq!(split(b"::".to_vec(), Some(b"::")), record(Some(""), ""));
    }

    #[test]
    fn lines_keep_every_byte_but_their_end() {
        let mut input = &b"a\r\n\n\xff\x00"[..];
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, [b"a\r".to_vec(), vec![], b"\xff\x00".to_vec()]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut input = BufReader::new(io::repeat(b'x'));
        assert!(read_line(&mut input).unwrap_err().to_string().contains("longer"));
    }
}
