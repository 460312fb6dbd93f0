//! The explorer in a real browser, on the whole stack: a chain with the showcase on it, the real Worker with
//! the page's files, the real relayer.
//!
//! The tests are Node's, in `tests/browser`, one file for each subject; each file opens with its promises.
//! This program starts their stack once and runs them. `cargo all-test --test explorer -- WORD` runs those
//! with the word in their names; `UPDATE_SCREENSHOTS=1` in the environment renews the README's pictures.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    // The tests that compare page and chain over the whole registry run while no agent registers.
    e2e::browser::main(&["tests/browser/reading", "tests/browser/writing"]).await
}
