//! The browser package as its users meet it, in Node and in a plain page, on the whole stack: a chain with
//! the showcase on it, the real Worker to compare with, the real relayer to agree with.
//!
//! The tests are Node's and lie in `tests/package`, a file a subject; each file opens with what it promises.
//! `cargo all-test --test package -- WORD` runs those with the word in their names.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // What others wrote.
    if let Err(error) = e2e::npm::installed("clients").await {
        println!("{error:#}");
        return ExitCode::FAILURE;
    }
    // The tests that compare page and Worker over the whole registry run while no agent registers.
    e2e::browser::main(&["tests/package/reading", "tests/package/writing"]).await
}
