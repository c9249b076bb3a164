//! One line per event with fixed columns: virtual time, number of the event, who, what, particulars.

use std::collections::VecDeque;

/// Where the lines go.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    keep_max: usize,
    lines: VecDeque<String>,
}

impl Trace {
    /// Writes nothing; costs nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Keeps the last `keep_max` lines.
    #[must_use]
    pub fn keep(keep_max: usize) -> Self {
        Self { on: true, keep_max, lines: VecDeque::new() }
    }

    /// Whether lines are wanted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Adds a line.
    pub fn line(&mut self, line: String) {
        if self.lines.len() == self.keep_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
