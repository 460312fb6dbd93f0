//! `BENCHMARKS.md`: a title, and one section per subject, each with the command and the day it is from.

use std::fs;
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use e2e::anvil::wall_clock;
use e2e::repo;
use registry_core::eth::timestamp::Timestamp;

const TITLE: &str = "# Benchmarks\n\nEach section is written by the command it names, and by nothing else.\n";

/// Puts a section into `BENCHMARKS.md`, below a line on where its figures come from.
pub(crate) fn write(section: &str, command: &str) -> Result<()> {
    let path = repo::root().join("BENCHMARKS.md");
    let before = fs::read_to_string(&path).unwrap_or_else(|_| TITLE.to_owned());
    let (heading, body) = section.split_once('\n').context("a section begins with its heading")?;
    let day = Timestamp::from_seconds(wall_clock()).to_string();
    let day = day.split('T').next().unwrap_or_default();
    let section = format!("{heading}\n\n`{command}`, {day}, {} cores.\n{body}", available_parallelism()?);
    Ok(fs::write(path, replaced(&before, &section))?)
}

/// The document with this section in place of the one of the same heading, or at the end.
fn replaced(document: &str, section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    for line in document.lines() {
        if parts.is_empty() || line.starts_with("## ") {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    match parts.iter_mut().find(|part| part.lines().next() == Some(heading)) {
        Some(part) => *part = section.to_owned(),
        None => parts.push(section.to_owned()),
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_its_own_and_no_other() {
        let one = replaced(TITLE, "## One\n\nfirst\n\n### Inner\n\nx\n");
        let two = replaced(&one, "## Two\n\nsecond\n");
        assert_eq!(two, format!("{TITLE}\n## One\n\nfirst\n\n### Inner\n\nx\n\n## Two\n\nsecond\n"));
        let anew = replaced(&two, "## One\n\nanew\n");
        assert_eq!(anew, format!("{TITLE}\n## One\n\nanew\n\n## Two\n\nsecond\n"));
    }
}
