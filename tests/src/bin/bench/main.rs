//! The program behind `cargo xtask bench`: measures, and writes the figures into `BENCHMARKS.md`.
//!
//! Each subject has a module that makes the tables of its section; the index and the snapshot have a row for
//! each size of a registry.

mod api;
mod crowd;
mod gate;
mod index;
mod lab;
mod report;
mod snapshot;
mod world;

use std::env;

use anyhow::{Context as _, Result, bail};

const USAGE: &str =
    "usage: cargo xtask bench [api | crowd | gate | index [AGENTS...] | snapshot [AGENTS...] | world]";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (subject, sizes) = arguments.split_first().map_or(("api", &[][..]), |(first, rest)| (first, rest));
    let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<u64>, _>>().context(USAGE)?;
    let origin = report::origin()?;
    let tables = match (subject, &sizes[..]) {
        ("api", []) => api::tables().await?,
        ("crowd", []) => crowd::tables().await?,
        ("gate", []) => gate::tables().await?,
        ("index", _) => lab::by_size(&sizes, index::COLUMNS, index::measure).await?,
        ("snapshot", _) => lab::by_size(&sizes, snapshot::COLUMNS, snapshot::measure).await?,
        ("world", []) => world::tables(),
        _ => bail!(USAGE),
    };
    tables.iter().for_each(|table| println!("\n{table}"));
    // Figures of other sizes are only shown.
    if sizes.is_empty() {
        report::write(&format!("cargo xtask bench {subject}"), &origin, &tables)?;
    }
    Ok(())
}
