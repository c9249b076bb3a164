//! Figures of a broker and their text form: counters that hot paths touch, the table of all metrics, Prometheus' text format.
//!
//! Knows neither the broker nor sockets nor clocks. What is counted belongs to whoever counts it; a scrape gathers it.

mod histogram;
mod read;
mod table;
mod text;
mod traffic;
mod window;

pub use histogram::{BUCKETS, Counts, Histogram};
pub use read::{Sample, Scraped};
pub use table::{Kind, METRICS, Metric, Place, find, reference};
pub use text::{Labels, Text};
pub use traffic::{Carried, Traffic};
pub use window::{WINDOW_MS, Window};
