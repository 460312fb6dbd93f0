//! What `cargo xtask bench` becomes: measures, and writes what it measured into `BENCHMARKS.md`.
//!
//! Each subject has a module that gives a section, and the section replaces the one of the same heading.

mod api;
mod document;
mod index;
mod table;

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
        [] | ["api"] => {
            let section = api::section(None).await?;
            println!("\n{section}");
            document::write(&section, "cargo xtask bench api")
        }
        // To compare two builds: only this one's figures are the repository's.
        ["api", "--worker", directory] => {
            println!("\n{}", api::section(Some(Path::new(directory))).await?);
            Ok(())
        }
        ["index"] => {
            let section = index::section(&index::SIZES).await?;
            println!("\n{section}");
            document::write(&section, "cargo xtask bench index")
        }
        // Of other sizes: to look at, not to keep.
        ["index", sizes @ ..] => {
            let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<Vec<u64>, _>>()?;
            println!("\n{}", index::section(&sizes).await?);
            Ok(())
        }
        _ => bail!("usage: cargo xtask bench [api [--worker DIRECTORY] | index [AGENTS...]]"),
    }
}

/// Does a part of it, and says how long that took.
async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    eprintln!("{name} ...");
    let done = work.await?;
    eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(done)
}
