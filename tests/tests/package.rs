//! The browser package as its users run it, in Node and in a plain page, on the whole stack: a chain with the
//! showcase on it, the real Worker for comparison, and the real relayer.
//!
//! The tests are Node's, in `tests/package`, one file for each subject; each file opens with its promises.
//! `cargo all-test --test package -- WORD` runs those with the word in their names.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // Packages of other projects.
    if let Err(error) = e2e::npm::installed("clients").await {
        println!("{error:#}");
        return ExitCode::FAILURE;
    }
    // The tests that compare page and Worker over the whole registry run while no agent registers.
    e2e::browser::main(&["tests/package/reading", "tests/package/writing"]).await
}
