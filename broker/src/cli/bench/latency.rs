//! `barnabas bench latency`: one batch in flight, in blocks that alternate with plain round trips of as many bytes, so that
//! both see the same machine. Where the system runs the broker and the other end of the plain round trips (on this processor or on
//! another one) is its choice and changes both several times over; `tests/bench` compares them in the same places.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::link::{Link, leaders};
use super::produce::{batch, check, request};
use super::{Batch, Driven, percentile, refused, say};
use crate::cli::CliError;

/// Round trips of one kind in a row.
const BLOCK: u32 = 100;
/// Bytes that the plain round trip brings back: about those of a produce answer.
const ANSWER_BYTES: usize = 64;

#[derive(Args, Debug)]
pub(in crate::cli) struct LatencyArgs {
    #[command(flatten)]
    driven: Driven,
    #[command(flatten)]
    batch: Batch,
    /// Batches to send.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

impl LatencyArgs {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let partitions = leaders(&self.driven)?;
        let (partition, address) =
            partitions.first().ok_or_else(|| refused("the topic has no partition"))?;
        let frame = request(&self.driven.topic, *partition, self.batch.acks, &batch(&self.batch))?;
        let mut link = Link::dial(address)?;
        let mut plain = echo(frame.len()).map_err(refused)?;
        let (mut times, mut plain_times) = (Vec::new(), Vec::new());
        let mut left = self.count;
        while left > 0 {
            let block = left.min(BLOCK);
            left -= block;
            for _ in 0..block {
                let began = Instant::now();
                link.send(&frame)?;
                check(link.receive()?)?;
                times.push(began.elapsed());
            }
            for _ in 0..block {
                let began = Instant::now();
                let mut answer = [0; ANSWER_BYTES];
                plain
                    .write_all(&frame)
                    .and_then(|()| plain.read_exact(&mut answer))
                    .map_err(refused)?;
                plain_times.push(began.elapsed());
            }
        }
        times.sort_unstable();
        plain_times.sort_unstable();
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        let round_trip = percentile(&plain_times, 0.5);
        let result = json!({
            "bench": "latency", "count": self.count, "frame_bytes": frame.len(), "p50_us": p50, "p99_us": p99,
            "round_trip_p50_us": round_trip, "ratio": p50 / round_trip,
        });
        let sentence = format!(
            "{} batches: p50 {p50:.0} us, p99 {p99:.0} us; a plain round trip of {} bytes here {round_trip:.0} us",
            self.count,
            frame.len()
        );
        say(&self.driven, &result, &sentence);
        Ok(())
    }
}

/// A connection to a thread that answers every `bytes` bytes with a few.
fn echo(bytes: usize) -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    thread::spawn(move || {
        let mut buffer = vec![0; bytes];
        // Until the other end is dropped.
        while other.read_exact(&mut buffer).is_ok() && other.write_all(&[0; ANSWER_BYTES]).is_ok() {
        }
    });
    Ok(stream)
}
