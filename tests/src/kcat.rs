//! `kcat`, the client that users have at hand: metadata, producers with one delivery report a record, and consumers.

use std::io::{BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::corpus::Share;
use crate::ledger::Ledger;
use crate::{Fault, Outcome};

/// A pause between two acknowledgements that is worth noting.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Time between two lines that a gate lets trickle.
const TRICKLE_INTERVAL: Duration = Duration::from_millis(20);
/// Largest record that a consumer's output may announce; anything above is not our output.
const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Runs kcat to its end.
///
/// # Errors
/// It is not installed.
pub fn run(bootstrap: &str, arguments: &[&str], input: &[u8]) -> Outcome<Output> {
    let mut child = Command::new("kcat")
        .args(["-b", bootstrap])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Fault::from(format!("cannot run kcat: {e}")))?;
    let mut stdin = child.stdin.take().ok_or("no stdin")?;
    let input = input.to_vec();
    // A thread, because kcat may print before it has read everything. It ends with a broken pipe if kcat ends early.
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let _ = feeder.join();
    Ok(output)
}

/// What `kcat -L -J` says: brokers, controller, topics with leaders and ISRs.
///
/// # Errors
/// No broker answers.
pub fn metadata(bootstrap: &str, topic: Option<&str>) -> Outcome<Value> {
    let mut arguments = vec!["-L", "-J", "-m", "10"];
    if let Some(topic) = topic {
        arguments.extend(["-t", topic]);
    }
    let output = run(bootstrap, &arguments, b"")?;
    if !output.status.success() {
        return Err(format!("kcat -L: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// How far producers may go at full speed; shared by all of a run, opened step by step.
///
/// Beyond it they trickle and never stand still: kcat reports deliveries only while it is fed.
#[derive(Debug, Default)]
pub struct Gate {
    permille: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    /// Lets every producer send up to this part of its share, in thousandths.
    pub fn open(&self, permille: usize) {
        *self.permille.lock().unwrap_or_else(PoisonError::into_inner) = permille;
        self.opened.notify_all();
    }

    /// Returns at once before the gate, a little later beyond it; whether it was beyond.
    fn pass(&self, sequence: usize, of: usize) -> bool {
        let closed = |permille: &mut usize| sequence * 1000 >= of * *permille;
        let mut permille = self.permille.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = closed(&mut permille);
        drop(self.opened.wait_timeout_while(permille, TRICKLE_INTERVAL, closed));
        beyond
    }
}

/// What a producer's delivery reports said so far.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    /// Offset of each acknowledged record, in the order of their sequence.
    pub offsets: Vec<u64>,
    /// Pauses between two acknowledgements that were longer than 200 ms.
    pub pauses: Vec<(Instant, Instant)>,
    /// Records that the client gave up, in its words.
    pub failures: Vec<String>,
    /// Lines about trouble that kcat printed, at most 20.
    pub complaints: Vec<String>,
    last: Option<Instant>,
}

/// One kcat that produces the share of one partition, each record with its sequence as key, one request in flight.
///
/// One partition a process, because the k-th report is then that of the k-th record: kcat prints partition and offset only.
#[derive(Debug)]
pub struct Producer<'scope> {
    deliveries: Arc<Mutex<Deliveries>>,
    feeder: ScopedJoinHandle<'scope, std::io::Result<()>>,
    listener: JoinHandle<()>,
    child: std::process::Child,
}

impl<'scope> Producer<'scope> {
    /// Starts kcat and feeds it as far as the gate is open.
    ///
    /// # Errors
    /// kcat is not installed.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        bootstrap: &str,
        topic: &str,
        share: Share<'env>,
        gate: &'env Gate,
    ) -> Outcome<Self> {
        let mut child = Command::new("kcat")
            .args(["-P", "-b", bootstrap, "-t", topic, "-p", &share.index.to_string()])
            // The key ends at the first tab; -vv prints one line for every delivered record.
            .args(["-K", "\t", "-vv", "-E"])
            .args(["-X", "acks=all", "-X", "enable.idempotence=true", "-X", "max.in.flight=1"])
            .args(["-X", "message.timeout.ms=300000", "-X", "linger.ms=5"])
            .args([
                "-X",
                "topic.metadata.refresh.interval.ms=1000",
                "-X",
                "reconnect.backoff.max.ms=500",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Fault::from(format!("cannot run kcat: {e}")))?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let deliveries = Arc::new(Mutex::new(Deliveries::default()));
        let noted = Arc::clone(&deliveries);
        let listener = std::thread::spawn(move || listen(stderr, &noted));
        let feeder = scope.spawn(move || feed(stdin, share, gate));
        Ok(Self { deliveries, feeder, listener, child })
    }

    /// What was reported so far.
    pub fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything is acknowledged or given up and kcat has ended.
    ///
    /// # Errors
    /// kcat ended with an error, or gave up a record.
    pub fn finish(mut self) -> Outcome<Deliveries> {
        let fed = self.feeder.join().map_err(|_| "the feeder panicked")?;
        let status = self.child.wait()?;
        self.listener.join().map_err(|_| "the listener panicked")?;
        let deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !status.success() || !deliveries.failures.is_empty() || fed.is_err() {
            let (failures, said) = (&deliveries.failures, &deliveries.complaints);
            return Err(
                format!("kcat ended with {status}, gave up {failures:?}, said {said:?}").into()
            );
        }
        Ok(deliveries)
    }
}

fn feed(stdin: ChildStdin, share: Share<'_>, gate: &Gate) -> std::io::Result<()> {
    let mut out = BufWriter::new(stdin);
    for sequence in 0..share.len() {
        if gate.pass(sequence, share.len()) {
            out.flush()?;
        }
        write!(out, "{sequence}\t")?;
        out.write_all(share.line(sequence).unwrap_or_default())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn listen(stderr: impl Read, deliveries: &Mutex<Deliveries>) {
    let mut reader = BufReader::with_capacity(256 * 1024, stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        note(text.trim_end(), &mut deliveries.lock().unwrap_or_else(PoisonError::into_inner));
        line.clear();
    }
}

/// Notes one line of kcat's, such as `% Message delivered to partition 0 (offset 12) on broker 1`.
fn note(line: &str, deliveries: &mut Deliveries) {
    if let Some(rest) = line.strip_prefix("% Message delivered to partition ") {
        let offset = rest.split_once("(offset ").and_then(|(_, rest)| rest.split_once(')'));
        if let Some(offset) = offset.and_then(|(offset, _)| offset.parse().ok()) {
            let now = Instant::now();
            if let Some(last) = deliveries.last.replace(now)
                && now.duration_since(last) > PAUSE_MIN
            {
                deliveries.pauses.push((last, now));
            }
            deliveries.offsets.push(offset);
        }
    } else if line.contains("Delivery failed") {
        deliveries.failures.push(line.to_owned());
    } else if (line.starts_with("% ERROR") || line.starts_with("%3"))
        && deliveries.complaints.len() < 20
    {
        deliveries.complaints.push(line.to_owned());
    }
}

/// Reads a topic from its beginning to its end into one ledger a partition; what comes from other partitions is phantom.
///
/// # Errors
/// kcat fails, or prints what it was not asked for.
pub fn read_back(bootstrap: &str, topic: &str, ledgers: &mut [Ledger<'_>]) -> Outcome<()> {
    let mut child = Command::new("kcat")
        .args(["-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q"])
        .args(["-X", "check.crcs=true", "-f", "%p %o %K %S\\n%k%s\\n"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Fault::from(format!("cannot run kcat: {e}")))?;
    let stdout = child.stdout.take().ok_or("no stdout")?;
    let mut stderr = child.stderr.take().ok_or("no stderr")?;
    let complaints = std::thread::spawn(move || {
        let mut text = String::new();
        // What cannot be read is not shown.
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let parsed = parse_records(stdout, ledgers);
    if parsed.is_err() {
        // It would wait for a reader for ever.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let complaints = complaints.join().unwrap_or_default();
    parsed?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("kcat ended with {status}: {complaints}").into())
    }
}

fn parse_records(stdout: impl Read, ledgers: &mut [Ledger<'_>]) -> Outcome<()> {
    let mut reader = BufReader::with_capacity(1024 * 1024, stdout);
    let mut head = String::new();
    let mut body = Vec::new();
    loop {
        head.clear();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let bad = || Fault::from(format!("kcat printed '{}'", head.trim_end()));
        let numbers: Vec<i64> = head.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [partition, offset, key_bytes, value_bytes] = numbers[..] else { return Err(bad()) };
        // kcat prints -1 for a null key or value.
        let (key_bytes, value_bytes) = (key_bytes.max(0), value_bytes.max(0));
        let key_bytes = usize::try_from(key_bytes)?;
        let bytes = key_bytes + usize::try_from(value_bytes)?;
        if bytes > RECORD_BYTES_MAX {
            return Err(bad());
        }
        body.resize(bytes + 1, 0);
        reader.read_exact(&mut body)?;
        let ledger = ledgers.get_mut(usize::try_from(partition)?).ok_or_else(bad)?;
        ledger.read(u64::try_from(offset)?, &body[..key_bytes], &body[key_bytes..bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Corpus;

    #[test]
    fn delivery_reports_and_complaints_are_told_apart() {
        let mut deliveries = Deliveries::default();
        note("% Message delivered to partition 0 (offset 12) on broker 1", &mut deliveries);
        note("% Delivery failed for message: Local: Message timed out", &mut deliveries);
        note("% ERROR: Local: Broker transport failure", &mut deliveries);
        note("% Enable message offset reporting", &mut deliveries);
        assert_eq!(deliveries.offsets, [12]);
        assert_eq!((deliveries.failures.len(), deliveries.complaints.len()), (1, 1));
    }

    #[test]
    fn records_with_odd_bytes_are_parsed_by_length() {
        let mut corpus = Corpus::default();
        corpus.add(b"a \r\n\n\xff\x001 2 3 4\n");
        let mut ledgers = [Ledger::new(Share { corpus: &corpus, index: 0, of: 1 })];
        let output = b"0 0 1 3\n0a \r\n0 1 1 0\n1\n0 2 1 9\n2\xff\x001 2 3 4\n";
        parse_records(&output[..], &mut ledgers).unwrap();
        let [ledger] = ledgers;
        assert!(ledger.close(&[0, 1, 2]).holds());
        assert!(parse_records(&b"what\n"[..], &mut []).is_err());
    }
}
