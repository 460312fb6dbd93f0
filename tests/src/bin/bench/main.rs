//! What `cargo xtask bench` becomes: measures, and writes what it measured into `BENCHMARKS.md`.
//!
//! Each subject has a module that gives a section, and the section replaces the one of the same heading.

mod api;
mod document;
mod gate;
mod index;
mod snapshot;
mod table;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] | ["api"] => report(&api::section(None).await?, Some("cargo xtask bench api")),
        // To compare two builds: only this one's figures are the repository's.
        ["api", "--worker", directory] => report(&api::section(Some(Path::new(directory))).await?, None),
        ["gate"] => report(&gate::section().await?, Some("cargo xtask bench gate")),
        ["index"] => report(&index::section(&index::SIZES).await?, Some("cargo xtask bench index")),
        // Other sizes are only shown.
        ["index", sizes @ ..] => {
            let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<u64>, _>>()?;
            report(&index::section(&sizes).await?, None)
        }
        ["snapshot"] => {
            report(&snapshot::section(&snapshot::SIZES).await?, Some("cargo xtask bench snapshot"))
        }
        ["snapshot", sizes @ ..] => {
            let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<u64>, _>>()?;
            report(&snapshot::section(&sizes).await?, None)
        }
        ["world"] => report(&world::section(), Some("cargo xtask bench world")),
        _ => bail!(
            "usage: cargo xtask bench [api [--worker DIRECTORY] | gate | index [AGENTS...] | snapshot [AGENTS...] | world]"
        ),
    }
}

/// Prints a section, and writes it into `BENCHMARKS.md` where it is the result of this command.
fn report(section: &str, command: Option<&str>) -> Result<()> {
    println!("\n{section}");
    command.map_or(Ok(()), |command| document::write(section, command))
}

/// Does a part of the work, and prints its time.
async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    eprintln!("{name} ...");
    let done = work.await?;
    eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(done)
}
