//! `ideal`: the least that a replicated log can cost on this machine: socket -> CRC -> pwrite -> sendfile -> CRC -> pwrite -> ack.
//!
//! No protocol, no recovery, no threads beyond one a connection; the yardstick of `tests/bench`. The process that serves is a
//! child of the one that sends, so that its CPU can be measured alone. With `--echo` it keeps nothing: a plain round trip between
//! two processes. With `--tail` it sends the file that was written before. Prints one JSON object.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use barnabas_log::Batches;
use barnabas_log::testing::BatchBuilder;
use clap::Parser;
use rustix::net::SendFlags;
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The leader's log.
const LEADER_FILE: &str = "ideal-leader";
/// A read of the tail: what is asked for at once, and about what a Fetch request takes.
const TAIL_PIECE_BYTES: u64 = 1 << 20;
const TAIL_REQUEST_BYTES: usize = 100;

#[derive(Parser, Clone)]
struct Arguments {
    /// Followers that must have a batch before it is acknowledged.
    #[arg(long, default_value_t = 0)]
    followers: usize,
    /// Bytes to send.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Bytes of records in a batch, in records of 1 KiB.
    #[arg(long, default_value_t = 65_536)]
    batch_bytes: usize,
    #[arg(long, default_value_t = 4)]
    connections: u64,
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// Where the files are written.
    #[arg(long, default_value = ".")]
    data: PathBuf,
    /// Answers without checking or keeping anything.
    #[arg(long, conflicts_with_all = ["followers", "tail"])]
    echo: bool,
    /// Sends the leader's file of an earlier run, in pieces, instead of taking batches.
    #[arg(long)]
    tail: bool,
    /// The processor on which the server runs; default: wherever the system puts it.
    #[arg(long)]
    server_cpu: Option<usize>,
    /// Serves instead of sending; tells its port, and at the end of its input its CPU time in ns.
    #[arg(long, hide = true)]
    serve: bool,
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    match (arguments.serve, arguments.tail) {
        (true, true) => serve_tail(&arguments),
        (true, false) => serve(&arguments),
        (false, true) => read_tail(&arguments),
        (false, false) => drive(&arguments),
    }
}

/// The leader's log, and who waits for it.
struct Log {
    /// `None`: nothing is kept.
    file: Option<File>,
    state: Mutex<State>,
    grown: Condvar,
}

#[derive(Default)]
struct State {
    end: u64,
    positions: Vec<u64>,
    /// End of each batch that is not acknowledged, and who sent it.
    waiting: VecDeque<(u64, Arc<TcpStream>)>,
}

fn serve(arguments: &Arguments) -> Outcome<()> {
    let create =
        |name: &Path| File::options().read(true).write(true).create(true).truncate(true).open(name);
    let log = Arc::new(Log {
        file: match arguments.echo {
            true => None,
            false => Some(create(&arguments.data.join(LEADER_FILE))?),
        },
        state: Mutex::new(State { positions: vec![0; arguments.followers], ..State::default() }),
        grown: Condvar::new(),
    });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    for number in 0..arguments.followers {
        let follower = TcpStream::connect(listener.local_addr()?)?;
        let (leader, _) = listener.accept()?;
        leader.set_nodelay(true)?;
        follower.set_nodelay(true)?;
        let file = create(&arguments.data.join(format!("ideal-follower-{number}")))?;
        let log = log.clone();
        thread::spawn(move || feed(&log, &leader, number));
        thread::spawn(move || follow(follower, &file));
    }
    println!("{}", listener.local_addr()?.port());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = log.clone();
            thread::spawn(move || take(&log, stream));
        }
    });
    until_told()
}

/// Until nobody wants to be served any more; then tells the CPU time.
fn until_told() -> Outcome<()> {
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!("{}", cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec);
    Ok(())
}

/// The least that a read of a log costs: a request of some bytes, their number before the next piece of the file, and the piece.
fn serve_tail(arguments: &Arguments) -> Outcome<()> {
    let file = File::open(arguments.data.join(LEADER_FILE))?;
    let len = file.metadata()?.len();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    thread::spawn(move || -> Outcome<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (mut request, mut sent) = ([0; TAIL_REQUEST_BYTES], 0);
        loop {
            stream.read_exact(&mut request)?;
            let mut left = (len - sent).min(TAIL_PIECE_BYTES);
            rustix::net::send(&stream, &left.to_be_bytes(), SendFlags::MORE)?;
            while left > 0 {
                let count = usize::try_from(left)?;
                left -= rustix::fs::sendfile(&stream, &file, Some(&mut sent), count)? as u64;
            }
        }
    });
    until_told()
}

fn read_tail(arguments: &Arguments) -> Outcome<()> {
    let (mut child, mut said, port) = start(arguments)?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let (mut piece, mut bytes) = (Vec::new(), 0);
    let began = Instant::now();
    while bytes == 0 || !piece.is_empty() {
        stream.write_all(&[0; TAIL_REQUEST_BYTES])?;
        read_frame(&stream, &mut piece)?;
        bytes += piece.len();
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_ns = stop(&mut child, &mut said)?;
    let bytes = bytes as f64;
    println!(
        "{}",
        json!({
            "bench": "tail", "bytes": bytes, "seconds": seconds, "megabytes_per_second": bytes / 1e6 / seconds,
            "cpu_ns_per_byte": cpu_ns / bytes,
        })
    );
    Ok(())
}

/// Reads a length and as many bytes into the buffer.
fn read_frame(mut stream: &TcpStream, buffer: &mut Vec<u8>) -> Outcome<()> {
    let mut len = [0; 8];
    stream.read_exact(&mut len)?;
    buffer.resize(usize::try_from(u64::from_be_bytes(len))?, 0);
    Ok(stream.read_exact(buffer)?)
}

fn check(bytes: &[u8]) -> Outcome<()> {
    for batch in Batches::new(bytes) {
        batch?.check_crc()?;
    }
    Ok(())
}

/// A producer's connection: append, and acknowledge if nobody has to follow.
fn take(log: &Log, stream: TcpStream) -> Outcome<()> {
    stream.set_nodelay(true)?;
    let stream = Arc::new(stream);
    let mut buffer = Vec::new();
    loop {
        read_frame(&stream, &mut buffer)?;
        let Some(file) = &log.file else {
            (&*stream).write_all(&[0; 8])?;
            continue;
        };
        check(&buffer)?;
        let mut state = log.state.lock().map_err(|_| "poisoned")?;
        file.write_all_at(&buffer, state.end)?;
        state.end += buffer.len() as u64;
        if state.positions.is_empty() {
            drop(state);
            (&*stream).write_all(&[0; 8])?;
        } else {
            let end = state.end;
            state.waiting.push_back((end, stream.clone()));
            drop(state);
            log.grown.notify_all();
        }
    }
}

/// The leader's side of a follower: sends what is new from the file, takes the answer for an acknowledgement.
fn feed(log: &Log, mut stream: &TcpStream, number: usize) -> Outcome<()> {
    let file = log.file.as_ref().ok_or("nothing is kept")?;
    let mut sent = 0;
    loop {
        let mut state = log.state.lock().map_err(|_| "poisoned")?;
        while state.end == sent {
            state = log.grown.wait(state).map_err(|_| "poisoned")?;
        }
        // Whole batches, and never more than what all producers have in flight.
        let mut left = state.end - sent;
        drop(state);
        rustix::net::send(stream, &left.to_be_bytes(), SendFlags::MORE)?;
        while left > 0 {
            let count = usize::try_from(left)?;
            left -= rustix::fs::sendfile(stream, file, Some(&mut sent), count)? as u64;
        }
        stream.read_exact(&mut [0; 8])?;
        let mut state = log.state.lock().map_err(|_| "poisoned")?;
        state.positions[number] = sent;
        let committed = state.positions.iter().min().copied().unwrap_or(0);
        let mut done = Vec::new();
        while state.waiting.front().is_some_and(|(end, _)| *end <= committed) {
            done.extend(state.waiting.pop_front());
        }
        drop(state);
        for (_, producer) in done {
            (&*producer).write_all(&[0; 8])?;
        }
    }
}

fn follow(mut stream: TcpStream, file: &File) -> Outcome<()> {
    let (mut buffer, mut end) = (Vec::new(), 0);
    loop {
        read_frame(&stream, &mut buffer)?;
        check(&buffer)?;
        file.write_all_at(&buffer, end)?;
        end += buffer.len() as u64;
        stream.write_all(&[0; 8])?;
    }
}

/// What the server says, line by line.
type Said = Lines<BufReader<ChildStdout>>;

/// Starts the server; it, what it says, and its port.
fn start(arguments: &Arguments) -> Outcome<(Child, Said, u16)> {
    let program = std::env::current_exe()?;
    let mut command = match arguments.server_cpu {
        Some(processor) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string()]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(std::env::args_os().skip(1)).arg("--serve");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let port = said.next().ok_or("it told no port")??.parse()?;
    Ok((child, said, port))
}

/// Ends the server; ns of CPU that it has used.
fn stop(child: &mut Child, said: &mut Said) -> Outcome<f64> {
    drop(child.stdin.take());
    let cpu_ns = said.next().ok_or("it told no CPU time")??.parse()?;
    child.wait()?;
    Ok(cpu_ns)
}

fn drive(arguments: &Arguments) -> Outcome<()> {
    let (mut child, mut said, port) = start(arguments)?;
    let value = [7; 1024];
    let records = (arguments.batch_bytes / value.len()).max(1);
    let batch = (0..records).fold(BatchBuilder::new(), |batch, _| batch.record(&value)).build();
    let mut frame = (batch.len() as u64).to_be_bytes().to_vec();
    frame.extend_from_slice(&batch);
    let share = (arguments.bytes / batch.len() as u64 / arguments.connections).max(1);
    let began = Instant::now();
    let mut times = thread::scope(|scope| -> Outcome<Vec<Duration>> {
        let senders: Vec<_> = (0..arguments.connections)
            .map(|_| scope.spawn(|| send(port, &frame, share, arguments.in_flight)))
            .collect();
        let mut times = Vec::new();
        for sender in senders {
            times.extend(sender.join().map_err(|_| "a sender ended with a panic")??);
        }
        Ok(times)
    })?;
    let seconds = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let p50 = times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    let cpu_ns = stop(&mut child, &mut said)?;
    let bytes = (share * arguments.connections * batch.len() as u64) as f64;
    println!(
        "{}",
        json!({
            "bench": "ideal", "followers": arguments.followers, "bytes": bytes, "batch_bytes": batch.len(),
            "seconds": seconds, "megabytes_per_second": bytes / 1e6 / seconds, "cpu_ns_per_byte": cpu_ns / bytes,
            "p50_us": p50,
        })
    );
    Ok(())
}

/// Sends its share; how long each batch took from its sending to its acknowledgement.
fn send(port: u16, frame: &[u8], share: u64, in_flight: usize) -> Outcome<Vec<Duration>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut under_way = VecDeque::new();
    let mut times = Vec::new();
    let mut acknowledged = |mut stream: &TcpStream, under_way: &mut VecDeque<Instant>| {
        stream.read_exact(&mut [0; 8])?;
        times.extend(under_way.pop_front().map(|at| at.elapsed()));
        Ok::<_, std::io::Error>(())
    };
    for _ in 0..share {
        if under_way.len() == in_flight {
            acknowledged(&stream, &mut under_way)?;
        }
        under_way.push_back(Instant::now());
        stream.write_all(frame)?;
    }
    while !under_way.is_empty() {
        acknowledged(&stream, &mut under_way)?;
    }
    Ok(times)
}
