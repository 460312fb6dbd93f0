//! Verdicts over a node that proves only its newest block, on a registry that changes all the time.
//!
//! 1. Cold wallets are answered from the snapshot while agents change, as over a node with all proofs.
//! 2. A suspension with an event that the node does not list, in a block with an attestation, shows within
//!    the TTL and half a minute.
//!
//! Size and duration are set by `NEWEST_AGENTS` (35), `NEWEST_SECONDS` (6, for all of them), `NEWEST_EVERY`
//! (2 s from change to change) and, for the second test, `NEWEST_TTL` (60 s).

use std::time::Duration;

use alloy::primitives::{B256, U256};
use alloy::sol_types::SolEvent as _;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::{Chain, Write};
use e2e::client::Client;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::wait_until;
use e2e::relay::attest;
use e2e::seed;
use e2e::stage::WorkerStage;
use e2e::story::DAY;
use e2e::worker::WorkerOptions;
use registry_core::eth::abi::IAgentRegistry::AgentSuspended;
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::snapshot::kya;
use crate::{REASON, has_snapshot, wallet};

const BLOCK: Duration = Duration::from_secs(2);
/// TTL of verdicts in the first test, in seconds.
const USUAL_TTL: u64 = 60;
/// Time after the TTL within which a suspension shows.
const TOLD: Duration = Duration::from_secs(30);

/// Reads one of the settings above.
fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect(name))
}

/// Counts of the cold wallets that were looked up while agents changed, and of those answered by the chain.
#[derive(Debug, Default)]
struct ColdLookups {
    all: usize,
    by_chain: usize,
}

/// Attests an agent every `NEWEST_EVERY` seconds, and looks each wallet up once at a new instance.
async fn ask_while_agents_change(stage: &WorkerStage, agents: u64) -> ColdLookups {
    let worker = stage.another(|options| options).await.unwrap();
    let client = worker.client();
    has_snapshot(&client).await;
    let seconds = setting("NEWEST_SECONDS", 6);
    let change = async {
        let mut changes = interval(Duration::from_secs(setting("NEWEST_EVERY", 2)));
        // Every tenth agent is suspended.
        for id in (1..=agents).filter(|id| !id.is_multiple_of(10)).cycle() {
            changes.tick().await;
            stage.chain.send(seed::operator(id), attest(id)).await.unwrap();
        }
    };
    let ask = async {
        let mut asked = ColdLookups::default();
        let mut requests = interval(Duration::from_secs(seconds) / agents as u32);
        for id in 1..=agents {
            requests.tick().await;
            let answer = client.get(&kya(wallet(id))).await;
            assert_eq!(answer.ok()["isRegistered"], true, "{}", answer.text);
            asked.all += 1;
            asked.by_chain += usize::from(!answer.header("server-timing").contains("snapshot"));
        }
        asked
    };
    tokio::select! {
        asked = ask => asked,
        _ = change => unreachable!("there is always another change"),
    }
}

/// Starts an index over a registry with this many agents and a block every two seconds.
async fn stage(agents: u64, ttl: u64) -> WorkerStage {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - DAY)).await.unwrap();
    seed::many(&chain, agents).await.unwrap();
    chain.node.freshen().await.unwrap();
    mine_blocks(&chain).await;
    let options = |options: WorkerOptions| options.ttl(ttl).unset("MAX_HEAD_AGE_SECONDS");
    let stage = WorkerStage::indexed(chain, options).await.unwrap();
    has_snapshot(&stage.client).await;
    stage
}

async fn mine_blocks(chain: &Chain) {
    chain.node.command("evm_setIntervalMining", json!([BLOCK.as_secs()])).await.unwrap();
}

async fn is_told_suspended(client: &Client, id: u64) -> bool {
    client.get(&kya(wallet(id))).await.ok()["agent"]["status"] == "Suspended"
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_wallets_are_answered_from_the_snapshot_also_where_a_node_proves_its_newest_block_alone() {
    let agents = setting("NEWEST_AGENTS", 35);
    let stage = stage(agents, USUAL_TTL).await;
    let all_proofs = ask_while_agents_change(&stage, agents).await;
    stage.proxy.inject(FaultRule::on("eth_getProof", NodeFault::NewestProofs));
    let newest = ask_while_agents_change(&stage, agents).await;
    println!("all proofs: {all_proofs:?}; those of the newest block alone: {newest:?}");
    for asked in [all_proofs, newest] {
        assert!(asked.by_chain * 20 <= asked.all, "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_that_no_event_tells_of_is_told_half_a_minute_after_the_ttl() {
    let ttl = setting("NEWEST_TTL", 60);
    let stage = stage(35, ttl).await;
    stage.proxy.inject(FaultRule::on("eth_getProof", NodeFault::NewestProofs));
    let hidden = 29;
    assert!(!is_told_suspended(&stage.client, hidden).await);
    let topics = vec![AgentSuspended::SIGNATURE_HASH, B256::from(U256::from(hidden))];
    stage.proxy.inject(FaultRule::on("eth_getLogs", NodeFault::HiddenLogs(topics)));
    let suspension = Write::new(stage.chain.owner(), &seed::suspension(hidden, REASON));
    let attestation = Write::new(seed::operator(1), &attest(1));
    let since = Instant::now();
    // Both are in one block.
    stage.chain.send_all(&[suspension, attestation], None).await.unwrap();
    mine_blocks(&stage.chain).await;
    let within = Duration::from_secs(ttl) + TOLD;
    wait_until("told", within, async || is_told_suspended(&stage.client, hidden).await).await;
    println!("told after {:?}, at a TTL of {ttl} s", since.elapsed());
}
