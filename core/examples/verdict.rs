//! A minimal host of this crate, which decides whether a wallet's agent may be served: it moves the run's
//! bytes and supplies the time.
//!
//! The node's reply is recorded. A real host posts each batch to its RPC endpoint.
//!
//! ```text
//! cargo run -p registry-core --example verdict
//! ```

use std::error::Error;

use alloy_primitives::address;
use registry_core::{
    api::{question::Question, route::Route},
    chain::{Batch, Limits, Reply, Run, Step},
    eth::{multicall::CANONICAL_ADDRESS, timestamp::Timestamp},
};

/// Posts a batch to the RPC endpoint; returns the status and the body of the response.
fn post(batch: &Batch) -> (u16, &'static [u8]) {
    eprintln!("sent: {}", batch.body);
    (200, include_bytes!("verdict.json"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let question = Question {
        route: Route::parse("/api/v1/kya/0xB0B0b0B0B0B0B0b0B0B0B0b0b0b0b0B0b0b0B0B0")?,
        registry: address!("084b032A85c97C6025255E2b83aD606909caa64e"),
        chain: "https://sepolia.base.org".to_owned(),
        now: Timestamp::from_seconds(1_800_000_000),
        scan: None,
        excerpt: None,
    };
    let mut run = Run::new(question, CANONICAL_ADDRESS, Limits::default());
    let document = loop {
        match run.step()? {
            Step::Send(batch) => {
                let (status, body) = post(&batch);
                run.feed(Reply { status, body })?;
            }
            Step::Done(document) => break document,
        }
    };
    println!("{}", document.body);
    assert!(document.body.contains(r#""decision":"provision""#));
    Ok(())
}

#[test]
fn the_example_runs() -> Result<(), Box<dyn Error>> {
    main()
}
