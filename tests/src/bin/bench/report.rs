//! `BENCHMARKS.md`: its text is written by hand; a benchmark replaces its tables and the line on their
//! origin.

use std::fmt::Display;
use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result};
use e2e::{anvil::wall_clock, chain::time, repo};

/// Describes the day and the machine, before anything is measured.
pub(crate) fn origin() -> Result<String> {
    let (now, load) = (time(wall_clock()), fs::read_to_string("/proc/loadavg")?);
    let (day, load) = (now.split('T').next().context("a day")?, load.split(' ').next().context("a load")?);
    Ok(format!("{day}, {} cores, load average {load} before.", thread::available_parallelism()?))
}

pub(crate) fn write(command: &str, origin: &str, tables: &[String]) -> Result<()> {
    let path = repo::root().join("BENCHMARKS.md");
    Ok(fs::write(&path, updated(fs::read_to_string(&path)?, command, origin, tables)?)?)
}

/// Replaces, in the document, the origin after the command, and the tables with the same heads as these.
fn updated(mut document: String, command: &str, origin: &str, tables: &[String]) -> Result<String> {
    let line = format!("`{command}`, ");
    let heads = tables
        .iter()
        .map(|table| (table.split_inclusive('\n').next().unwrap_or(""), "\n\n", table.trim_end()));
    for (start, end, new) in [(&line[..], "\n", &format!("{line}{origin}")[..])].into_iter().chain(heads) {
        let at = document.find(start).with_context(|| format!("BENCHMARKS.md has no {start}"))?;
        let end = document[at..].find(end).unwrap_or(document[at..].trim_end().len());
        document.replace_range(at..at + end, new);
    }
    Ok(document)
}

/// Makes a Markdown table's head from columns separated by ` | `: the first is text, the others are figures.
pub(crate) fn head(columns: &str) -> String {
    format!("| {columns} |\n|---|{}\n", "---:|".repeat(columns.matches(" | ").count()))
}

/// Makes a row of a table, and prints it to standard error at once.
pub(crate) fn row(cells: &[&dyn Display]) -> String {
    let row = cells.iter().map(|cell| format!("| {cell} ")).collect::<String>() + "|\n";
    eprint!("{row}");
    row
}

/// Formats milliseconds, to a hundredth below ten, else to a tenth.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Returns the sample that `percent` of 100 do not exceed; the default where there are none.
pub(crate) fn percentile<T: Ord + Copy + Default>(percent: usize, samples: impl IntoIterator<Item = T>) -> T {
    let mut sorted = Vec::from_iter(samples);
    sorted.sort_unstable();
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

pub(crate) fn medians<const N: usize>(samples: &[[u64; N]]) -> [u64; N] {
    std::array::from_fn(|place| percentile(50, samples.iter().map(|figures| figures[place])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_gets_its_origin_and_its_tables_and_no_other_does() {
        let table = |name: &str, figure: u8| head(name) + &row(&[&figure]);
        let document = |origin: &str, [one, two]: [u8; 2]| {
            let [one, two, other] =
                [("a", one), ("b", two), ("c", 9)].map(|(name, figure)| table(name, figure));
            format!("# T\n\n`bench x`, {origin}\n\n{one}\nText.\n\n{two}\n## C\n\n`bench y`, old\n\n{other}")
        };
        let written = |tables: &[String]| updated(document("old", [1, 2]), "bench x", "today", tables);
        assert_eq!(written(&[table("a", 3), table("b", 4)]).unwrap(), document("today", [3, 4]));
        assert!(written(&[table("d", 3)]).is_err());
    }
}
