//! What `cargo xtask bench` becomes: measures, and writes what it measured into `BENCHMARKS.md`.
//!
//! Each subject has a module that gives the tables of its section.

mod api;
mod document;
mod gate;
mod index;
mod snapshot;
mod synthetic;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use synthetic::sizes;

const USAGE: &str =
    "usage: cargo xtask bench [api | gate | index [AGENTS...] | snapshot [AGENTS...] | world]";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: &[&str]) -> Result<()> {
    let (subject, options) = arguments.split_first().unwrap_or((&"api", &[]));
    let origin = document::origin()?;
    let tables = match (*subject, options) {
        ("api", []) => api::section().await?,
        ("gate", []) => gate::section().await?,
        ("index", agents) => index::section(&sizes(agents)?).await?,
        ("snapshot", agents) => snapshot::section(&sizes(agents)?).await?,
        ("world", []) => world::section(),
        _ => bail!(USAGE),
    };
    tables.iter().for_each(|table| println!("\n{}", table.0));
    // Figures of other sizes are only shown.
    if options.is_empty() {
        document::write(&format!("cargo xtask bench {subject}"), &origin, &tables)
    } else {
        Ok(())
    }
}

/// Does a part of the work, and prints its time.
async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    eprintln!("{name} ...");
    let done = work.await?;
    eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(done)
}
