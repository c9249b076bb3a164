//! What counting costs a hot path: one append's counters, one request's histogram and its two looks at the clock, alone and with
//! another thread at the same counters; and what a sample of a scrape costs.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use barnabas_metrics::{Histogram, Labels, Text, Traffic};

const ROUNDS: u32 = 2_000_000;

fn ns(what: &str, rounds: u32, mut work: impl FnMut(u32)) {
    (0..rounds / 10).for_each(&mut work);
    let begun = Instant::now();
    (0..rounds).for_each(&mut work);
    let ns = begun.elapsed().as_secs_f64() * 1e9 / f64::from(rounds);
    println!("{{\"figure\": \"{what}\", \"ns\": {ns:.1}}}");
}

fn main() {
    let (traffic, histogram) = (Arc::new(Traffic::default()), Arc::new(Histogram::default()));
    for crowded in [false, true] {
        let over = Arc::new(AtomicBool::new(false));
        let (t, h, o) = (traffic.clone(), histogram.clone(), over.clone());
        let other = crowded.then(|| {
            thread::spawn(move || {
                while !o.load(Ordering::Relaxed) {
                    t.produced(1, 100);
                    h.observe(700);
                }
            })
        });
        let with = if crowded { ", another thread at the same" } else { "" };
        ns(&format!("append{with}"), ROUNDS, |n| black_box(&traffic).produced(1, n.into()));
        ns(&format!("request{with}"), ROUNDS, |_| {
            let begun = black_box(Instant::now());
            let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(0);
            black_box(&histogram).observe(us);
        });
        over.store(true, Ordering::Relaxed);
        other.into_iter().for_each(|other| other.join().unwrap_or(()));
    }
    let labels = Labels::none().with("topic", "a-topic-of-usual-length").with("partition", 17);
    let mut text = Text::with_room(200 << 20);
    text.metric("kafka_log_log_size");
    ns("sample of a scrape", 1_000_000, |n| text.sample(&labels, n));
    black_box(text.finish());
}
