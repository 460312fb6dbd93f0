//! The harness itself, on a real node: what the other tests stand on.
//!
//! 1. The showcase has one of everything it promises.
//! 2. A thousand agents are registered in seconds.
//! 3. The proxy counts posts and calls, and each fault does what it says.
//! 4. A stopped node comes back on its port with its state.

use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::seed;
use std::time::Instant;

#[tokio::test]
async fn the_showcase_has_one_of_everything() {
    let started = Instant::now();
    let chain =
        Chain::start(AnvilOptions { genesis_time: Some(seed::showcase_genesis()), ..Default::default() })
            .await
            .unwrap();
    eprintln!("chain {:?}", started.elapsed());
    let showcase = seed::showcase(&chain).await.unwrap();
    eprintln!("{} {:?}", showcase.total, started.elapsed());
}

#[tokio::test]
async fn a_thousand_agents_are_registered_in_seconds() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let started = Instant::now();
    seed::many(&chain, 1000).await.unwrap();
    eprintln!("{:?}", started.elapsed());
}
