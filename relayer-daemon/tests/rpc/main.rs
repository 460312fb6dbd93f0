//! Several RPC endpoints, some of them bad: where reads go, what is tried again, what is never shown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod endpoint;
mod receipts;
mod start;

use std::time::{Duration, Instant};

use alloy::{
    primitives::{Address, B256, Bytes, U256},
    signers::local::PrivateKeySigner,
    sol_types::SolCall as _,
};
use registry_core::eth::abi::IForwarder::{self, executeReturn};
use relayer_daemon::{
    chain::{
        BroadcastVerdict::{Accepted, FeeTooLow, NonceTooLow, Rejected, Unknown},
        ChainNode, Rpc, RpcError, SimulationResult,
    },
    gas::fees::Fees,
    sender::signing::Wallet,
    store::TransactionPurpose,
};
use serde_json::{Value, json};

use self::endpoint::{
    MAX_TIP,
    ScriptedReply::{self, Answer, Error, Head, Http, Silence, Tags},
    alone, chain, pair, rpc, rpc_within, scripted,
};

/// Longer than any call in the background takes.
const ALL_ENDED: Duration = Duration::from_secs(20);

fn number(text: &str) -> ScriptedReply {
    Answer(json!(text))
}

async fn read(rpc: &Rpc) -> Result<String, RpcError> {
    rpc.read("eth_blockNumber", json!([])).await
}

#[tokio::test]
async fn reads_stick_to_an_endpoint_that_answers_be_it_an_error_and_stay_away_from_one_that_failed() {
    let revert = "execution reverted: nonce too low";
    for (first, expected, calls) in [
        (number("0x1"), "0x1", (3, 0)),
        (Error(3, revert), revert, (3, 0)),
        (Http(503, "<html>s3cr3t-key</html>"), "0x2", (1, 3)),
        (Http(429, "slow down"), "0x2", (1, 3)),
        (Silence, "0x2", (1, 3)),
        (Http(200, "<html>maintenance</html>"), "0x2", (1, 3)),
    ] {
        let [first, second] = pair(first, number("0x2")).await;
        let rpc = rpc(&[&first, &second]);
        for _ in 0..3 {
            let answer = match read(&rpc).await {
                Err(RpcError::Node(error)) => error.message.into_owned(),
                answer => answer.unwrap(),
            };
            assert_eq!(answer, expected);
        }
        assert_eq!((first.calls(), second.calls()), calls, "{expected}");
        let used = if calls.1 > 0 { second } else { first };
        assert!(rpc.label().ends_with(&used.url.port().unwrap().to_string()));
    }
}

#[tokio::test]
async fn a_method_that_is_bad_at_one_endpoint_is_asked_of_another_and_the_rest_stays() {
    let history = json!({ "oldestBlock": "0x1", "baseFeePerGas": ["0x1", "0x1"], "reward": null });
    for bad in [
        Answer(Value::Null),
        Answer(json!("a text")),
        Error(-32601, "the method eth_feeHistory does not exist/is not available"),
        Error(-32000, "eth_feeHistory is disabled"),
    ] {
        let [first, second] = pair(bad.clone(), Answer(history.clone())).await;
        let chain = chain(&[&first, &second]);
        for calls in [(1, 1), (1, 2)] {
            assert!(chain.market().await.is_ok(), "{bad:?}");
            assert_eq!((first.calls(), second.calls()), calls, "asked first again: {bad:?}");
        }
        assert!(chain.rpc.label().ends_with(&first.url.port().unwrap().to_string()), "all reads moved");
        let alone = scripted(&[bad]).await;
        assert!(self::chain(&[&alone]).market().await.is_err());
        assert_eq!(alone.calls(), 1);
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_a_dead_endpoint_is_given_up_in_the_end_and_never_named() {
    for (script, text, calls) in [
        (&[Http(429, ""), Error(-32005, "limit exceeded"), number("0x3")][..], "0x3", 3),
        (&[Http(500, "key s3cr3t-key is over its quota")], "HTTP 500", 4),
        (&[Error(-32000, "no such project: s3cr3t-key at 127.0.0.1")], "no such project", 1),
        (&[Silence], "RPC timeout", 1),
    ] {
        let endpoint = scripted(script).await;
        let answer = read(&rpc(&[&endpoint])).await;
        let shown = answer.as_ref().map_or_else(ToString::to_string, String::clone);
        assert!(shown.contains(text), "{shown}");
        assert!(
            ["s3cr3t", "127.0.0.1"].iter().all(|it| !format!("{shown} {answer:?}").contains(it)),
            "{shown}"
        );
        assert_eq!(endpoint.calls(), calls, "{script:?}");
    }
    let endpoint = scripted(&[Answer(Value::Null)]).await;
    let receipt: Option<Value> =
        rpc(&[&endpoint]).read("eth_getTransactionReceipt", json!(["0x"])).await.unwrap();
    assert_eq!((receipt, endpoint.calls()), (None, 1), "null is an answer");
}

#[tokio::test]
async fn a_read_waits_for_each_silent_endpoint_once() {
    let [first, second] = pair(Silence, Silence).await;
    assert!(matches!(read(&rpc(&[&first, &second])).await, Err(RpcError::Timeout)));
    assert_eq!((first.calls(), second.calls()), (1, 1));
}

#[tokio::test]
async fn transactions_go_to_all_endpoints_and_one_that_takes_it_is_enough() {
    let low = || Error(-32000, "nonce too low");
    for (first, second, expected) in [
        (Http(500, ""), number("0x01"), Accepted),
        (low(), Error(-32000, "already known"), Accepted),
        // An endpoint that is silent or dead says nothing, and hides nothing that a living one says.
        (low(), Silence, NonceTooLow),
        (Http(502, ""), Error(-32000, "transaction underpriced"), FeeTooLow),
        (Http(502, ""), Silence, Unknown),
        (low(), Error(-32000, "oversized data"), NonceTooLow),
        (Error(3, "execution reverted: already known"), Error(-32000, "invalid sender"), Rejected),
    ] {
        let [first, second] = pair(first, second).await;
        let rpc = rpc(&[&first, &second]);
        let (verdict, text) = rpc.broadcast(&[2, 3]).await;
        assert_eq!(verdict, expected, "{text}");
        rpc.finish_broadcasts(ALL_ENDED).await;
        assert_eq!((first.calls(), second.calls()), (1, 1));
    }
}

#[tokio::test]
async fn the_first_acceptance_goes_on_without_a_silent_endpoint_which_is_then_rested() {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let [silent, good] = pair(Silence, number("0x01")).await;
    let resting = rpc_within(TIMEOUT, &[&silent, &good]);
    let started = Instant::now();
    assert_eq!(resting.broadcast(&[1]).await.0, Accepted);
    assert!(started.elapsed() < TIMEOUT, "waited for the silent one");
    // As at shutdown.
    assert_eq!(resting.finish_broadcasts(Duration::ZERO).await, 1, "cut off, and said so");
    assert_eq!(resting.finish_broadcasts(ALL_ENDED).await, 0, "waited for");
    for byte in 2..10 {
        assert_eq!(resting.broadcast(&[byte]).await.0, Accepted);
    }
    assert_eq!((silent.calls(), good.calls()), (1, 9), "asked although it rests");

    // Where all of them rest, all of them are asked.
    let only = scripted(&[Silence, number("0x01")]).await;
    let alone = rpc(&[&only]);
    assert_eq!(alone.broadcast(&[1]).await.0, Unknown);
    assert_eq!(alone.broadcast(&[1]).await.0, Accepted);
}

#[tokio::test]
async fn a_view_of_the_account_is_of_one_block_by_its_hash_or_else_its_number() {
    let header = || Answer(json!({ "number": "0x10", "hash": B256::repeat_byte(9), "timestamp": "0x1" }));
    let nonce = || Answer(json!(B256::with_last_byte(5)));
    let other = || Answer(json!({ "number": "0x10", "hash": B256::repeat_byte(8), "timestamp": "0x1" }));
    let by_number = |code, words, last| [header(), Error(code, words), nonce(), number("0x7"), last];
    let behind = Error(-32000, "header for hash not found");
    for (script, is_seen) in [
        (&[header(), nonce(), number("0x7")][..], true),
        (&by_number(-32602, "cannot unmarshal object", header()), true),
        // ganache, EthereumJS, IOTA, Axon.
        (&by_number(-32700, "Cannot wrap a \"object\" as a json-rpc type", header()), true),
        (&by_number(-32602, "argument must be a string", header()), true),
        (&by_number(-32000, "Invalid block hash", header()), true),
        // Another branch answered.
        (&by_number(-32602, "argument must be a string", other()), false),
        (&[header(), behind], false),
    ] {
        let (endpoint, chain) = alone(script).await;
        let view = chain.account_view(Address::ZERO, Some(Address::ZERO)).await.ok();
        let seen = view.map(|view| (view.block_number, view.mined_nonce, view.forwarder_nonce));
        assert_eq!(seen, is_seen.then_some((16, 7, Some(U256::from(5)))));
        assert!(!is_seen || endpoint.calls() == script.len());
    }
}

#[tokio::test]
async fn finality_is_counted_by_depth_only_where_the_chain_has_no_tags() {
    let unknown = (-32602, "invalid argument 0: hex string without 0x prefix");
    for (script, expected) in [
        (&[Tags(1_000, Ok(900))][..], Some(900)),
        (&[Tags(1_000, Err(unknown))], Some(936)),
        // geth after a restart, as long as finality stands still.
        (&[Tags(1_000, Err((-32000, "finalized block not found")))], None),
        (&[Tags(1_000, Err((-32603, "Internal error")))], None),
        (&[Tags(1_000, Err((429, "slow down")))], None),
    ] {
        let (_endpoint, chain) = alone(script).await;
        assert_eq!(chain.heads().await.ok().map(|heads| heads.finalized), expected, "{script:?}");
    }
    let known = Tags(1_000, Ok(900));
    let (_endpoint, chain) = alone(&[known.clone(), known.clone(), known, Tags(1_000, Err(unknown))]).await;
    assert_eq!(chain.heads().await.unwrap().finalized, 900);
    assert!(chain.heads().await.is_err(), "a tag that was known is not missing");
}

#[tokio::test]
async fn a_block_number_beyond_all_chains_makes_no_sense_and_nothing_panics() {
    let header = json!({ "number": "0x8000000000000000", "hash": null, "timestamp": "0x1" });
    let history = json!({ "oldestBlock": "0x7fffffffffffffff", "baseFeePerGas": ["0x1", "0x1", "0x1"] });
    let [header, history] = pair(Answer(header), Answer(history)).await;
    assert!(matches!(chain(&[&header]).header("latest").await, Err(RpcError::Malformed(_))));
    assert!(matches!(chain(&[&history]).market().await, Err(RpcError::Malformed(_))));
}

#[tokio::test]
async fn reads_move_to_an_endpoint_that_is_clearly_ahead() {
    for (from, to, moves) in [
        // Blocks of twelve seconds, and of two.
        (Head(16, 1_000), Head(19, 1_036), true),
        (Head(16, 1_000), Head(19, 1_006), true),
        // Two blocks are nothing.
        (Head(16, 1_000), Head(18, 1_024), false),
        (Head(19, 1_036), Head(16, 1_000), false),
        // Of blocks of 200 ms, four are less than a second, and 25 are five seconds.
        (Head(1_000, 5_000), Head(1_004, 5_001), false),
        (Head(1_000, 5_000), Head(1_025, 5_005), true),
        (Error(-32000, "no head"), Head(16, 1_000), true),
    ] {
        let row = format!("from {from:?} to {to:?}");
        let [first, second] = pair(from, to).await;
        let rpc = rpc(&[&first, &second]);
        rpc.prefer_freshest().await;
        let before = second.calls();
        read(&rpc).await.unwrap();
        assert_eq!(second.calls() > before, moves, "{row}");
    }
    // On a chain that makes blocks only now and then.
    let [stale, ahead] = pair(Head(16, 1_000), Head(21, 1_001)).await;
    let both = rpc(&[&stale, &ahead]);
    both.prefer_freshest().await;
    assert_eq!(read(&both).await.unwrap(), "0x10", "it may just be slower by a moment");
    both.prefer_freshest().await;
    assert_eq!(read(&both).await.unwrap(), "0x15", "it still lacks what the other had at the last look");
    let only = scripted(&[number("0x10")]).await;
    rpc(&[&only]).prefer_freshest().await;
    assert_eq!(only.calls(), 0, "a single one is not asked");
}

#[tokio::test]
async fn the_tip_follows_others_up_to_its_cap_and_never_our_own_offers() {
    const GWEI: u128 = 1_000_000_000;
    // A fee history of one block in which half of all paid this tip or less.
    let paid = |tip: u128| {
        let reward = [[U256::from(tip)]];
        Answer(json!({ "oldestBlock": "0x1", "baseFeePerGas": ["0x1", "0x1"], "reward": reward }))
    };
    let wallet = Wallet::new(PrivateKeySigner::from_bytes(&B256::repeat_byte(7)).unwrap(), 1, Address::ZERO);
    let raised = Fees { max_fee: 9 * GWEI, tip: GWEI * 11 / 10 };
    let replacement = wallet.no_op(0, raised, TransactionPurpose::Gap).await.unwrap();
    let script = [paid(GWEI), number("0x1"), paid(raised.tip), paid(2 * GWEI), paid(90 * GWEI)];
    let (_endpoint, chain) = alone(&script).await;
    assert_eq!(chain.market().await.unwrap().tip, GWEI);
    chain.broadcast(&replacement.raw).await;
    for tip in [GWEI, 2 * GWEI, MAX_TIP] {
        assert_eq!(chain.market().await.unwrap().tip, tip);
    }
}

#[tokio::test]
async fn an_odd_answer_does_not_switch_the_simulation_of_gas_off_and_a_missing_method_does_for_a_while() {
    let outcome = executeReturn { success: true, returnData: Bytes::new() };
    let outcome = Bytes::from(IForwarder::executeCall::abi_encode_returns(&outcome));
    let call = json!({ "status": "0x1", "gasUsed": "0x7", "returnData": outcome });
    let (by_call, by_simulation) = (|| Answer(json!(outcome)), Answer(json!([{ "calls": [call] }])));
    let odd = Error(-32_000, "header for hash does not exist");
    let missing = Error(-32_601, "the method eth_simulateV1 does not exist/is not available");
    let script = [odd, by_call(), by_simulation, missing, by_call(), by_call()];
    let (endpoint, chain) = alone(&script).await;
    for expected in [None, Some(7), None, None] {
        let simulated = chain.simulate(Address::ZERO, &Bytes::new(), 9).await.unwrap();
        assert!(matches!(simulated, SimulationResult::Success { gas_used } if gas_used == expected));
    }
    assert_eq!(endpoint.calls(), 6, "asked once");
}

#[tokio::test]
async fn an_endpoint_that_was_down_at_the_start_is_used_once_it_says_that_it_is_of_the_right_chain() {
    for (chain_id, is_right) in [("0x1", true), ("0x2", false)] {
        // A 429 at the start ends nothing.
        let first = scripted(&[Http(429, "slow down"), number("0x1"), Http(502, "")]).await;
        let down = || Http(502, "");
        let second = scripted(&[down(), down(), down(), down(), number(chain_id), number("0x7")]).await;
        let rpc = rpc(&[&first, &second]);
        let ids: Vec<_> = rpc.chain_ids().await.into_iter().map(|(_, id)| id.ok()).collect();
        assert_eq!(ids, [Some(1), None]);
        rpc.expect_chain(1);
        // The first answers no more; the second is asked for its chain once, and left alone if it is another.
        let block = read(&rpc).await;
        if is_right {
            assert_eq!((block.unwrap().as_str(), second.calls()), ("0x7", 6));
        } else {
            assert!(matches!(block, Err(RpcError::Unreachable(_))), "read from another chain");
            assert_eq!(rpc.broadcast(&[1]).await.0, Unknown, "sent to another chain");
        }
    }
}
