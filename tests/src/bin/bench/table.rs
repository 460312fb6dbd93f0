//! Tables in Markdown, and the figures in them.

use std::fmt::Write as _;
use std::time::Duration;

/// A table, row by row; the first column is text, the others are figures.
#[derive(Debug)]
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Self { text: String::new() };
        table.row(columns);
        table.text.push_str("|---|");
        table.text.push_str(&"---:|".repeat(columns.len().saturating_sub(1)));
        table.text.push('\n');
        table
    }

    pub(crate) fn row(&mut self, cells: &[impl AsRef<str>]) {
        for cell in cells {
            // A string takes whatever is written to it.
            let _ = write!(self.text, "| {} ", cell.as_ref());
        }
        self.text.push_str("|\n");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// Milliseconds, to a hundredth below ten.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}

/// MiB, to a tenth.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// The one in the middle.
pub(crate) fn median<T: Ord + Copy>(samples: &[T]) -> Option<T> {
    percentile(samples, 50)
}

/// The one that 99 of 100 do not exceed.
pub(crate) fn p99<T: Ord + Copy>(samples: &[T]) -> Option<T> {
    percentile(samples, 99)
}

/// The one that so many of 100 do not exceed.
pub(crate) fn percentile<T: Ord + Copy>(samples: &[T], percent: usize) -> Option<T> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * percent / 100).copied()
}
