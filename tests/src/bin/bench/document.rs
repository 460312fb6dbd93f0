//! `BENCHMARKS.md`: a section per subject, which explains its tables; the tables, and the figures in them.
//!
//! The text is written by hand. A benchmark replaces the tables of its section, and the line on where they
//! are from.

use std::fmt::Display;
use std::fs;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::anvil::wall_clock;
use e2e::repo;
use registry_core::eth::timestamp::Timestamp;

/// The day and the machine, before anything is measured.
pub(crate) fn origin() -> Result<String> {
    let time = Timestamp::from_seconds(wall_clock()).to_string();
    let (day, _) = time.split_once('T').context("a day")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().context("a load average")?;
    Ok(format!("{day}, {} cores, load average {load} before.", available_parallelism()?))
}

pub(crate) fn write(command: &str, origin: &str, tables: &[Table]) -> Result<()> {
    let path = repo::root().join("BENCHMARKS.md");
    Ok(fs::write(&path, replaced(&fs::read_to_string(&path)?, command, origin, tables)?)?)
}

/// The document with these tables in place of those below the line that begins with the command.
fn replaced(document: &str, command: &str, origin: &str, tables: &[Table]) -> Result<String> {
    let command = format!("`{command}`, ");
    let (before, after) =
        document.split_once(&command).with_context(|| format!("no section of {command}"))?;
    let (_, after) = after.split_once('\n').context("a line's end")?;
    let (section, rest) =
        after.split_once("\n## ").map_or((after, None), |(section, rest)| (section, Some(rest)));
    let mut new = format!("{before}{command}{origin}\n");
    let (mut tables, mut is_table) = (tables.iter(), false);
    for line in section.lines() {
        if !line.starts_with('|') {
            new = new + line + "\n";
        } else if !is_table {
            new += &tables.next().context("the section has more tables")?.0;
        }
        is_table = line.starts_with('|');
    }
    ensure!(tables.next().is_none(), "the section has fewer tables");
    Ok(new + &rest.map(|rest| format!("\n## {rest}")).unwrap_or_default())
}

/// A table in Markdown; the first column is text, the others are figures.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) String);

impl Table {
    /// `columns` are separated by ` | `.
    pub(crate) fn new(columns: &str) -> Self {
        let figures = columns.matches(" | ").count();
        Self(format!("| {columns} |\n|---|{}\n", "---:|".repeat(figures)))
    }

    pub(crate) fn row<C: Display>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().map(|cell| format!("| {cell} "));
        self.0.extend(cells.chain(["|\n".to_owned()]));
    }
}

/// Milliseconds, to a hundredth below ten.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

pub(crate) fn median<T: Ord + Copy + Default>(samples: &[T]) -> T {
    percentile(samples, 50)
}

pub(crate) fn medians<const N: usize>(samples: &[[u64; N]]) -> [u64; N] {
    std::array::from_fn(|place| median(&samples.iter().map(|figures| figures[place]).collect::<Vec<_>>()))
}

/// The one that so many of 100 do not exceed.
pub(crate) fn percentile<T: Ord + Copy + Default>(samples: &[T], percent: usize) -> T {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_gets_its_tables_and_no_other_does() {
        let table = |figure: &str| Table(format!("| a |\n|---|\n| {figure} |\n"));
        let document = |origin: &str, [one, two]: [&str; 2]| {
            let [one, two, other] = [one, two, "other"].map(|figure| table(figure).0);
            format!(
                "# T\n\n## A\n\n`bench a`, {origin}\n\n{one}\n### B\n\n{two}\n## C\n\n`bench c`, old\n\n{other}"
            )
        };
        let old = document("old", ["1", "2"]);
        let written = |figures: &[&str]| {
            let tables: Vec<Table> = figures.iter().map(|figure| table(figure)).collect();
            replaced(&old, "bench a", "today", &tables)
        };
        assert_eq!(written(&["3", "4"]).unwrap(), document("today", ["3", "4"]));
        assert!(written(&["3"]).is_err() && written(&["3", "4", "5"]).is_err());
    }
}
