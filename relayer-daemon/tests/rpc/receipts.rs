//! Receipts: one by one at every endpoint, and many at once out of whole blocks.

use alloy::primitives::{Address, B256, U64};
use relayer_daemon::chain::{ChainNode, ReceiptLookup};
use serde_json::{Value, json};

use crate::endpoint::ScriptedReply::{Answer, Error, Http, Silence};
use crate::endpoint::{alone, chain, pair};

fn hash(byte: u8) -> B256 {
    B256::repeat_byte(byte)
}

/// Returns the receipt of a call of the forwarder in a block with this number.
fn ours(byte: u8, block: u64) -> Value {
    json!({
        "transactionHash": hash(byte), "blockNumber": U64::from(block), "blockHash": hash(9), "status": "0x1",
        "gasUsed": "0x1", "effectiveGasPrice": "0x1", "logs": [], "from": Address::repeat_byte(7), "to": Address::ZERO,
    })
}

#[tokio::test]
async fn a_receipt_is_looked_up_at_every_endpoint_and_absent_only_if_all_say_so() {
    let (null, receipt) = (|| Answer(Value::Null), |byte| Answer(ours(byte, 1)));
    for (first, second, expected) in [
        (null(), receipt(1), "found"),
        (Http(502, ""), receipt(1), "found"),
        (receipt(2), receipt(1), "found"),
        (null(), null(), "absent"),
        (null(), Silence, "unclear"),
        (null(), Error(-32000, "header not found"), "unclear"),
        (null(), Answer(json!({ "status": "what?" })), "unclear"),
    ] {
        let [first, second] = pair(first, second).await;
        let found = match chain(&[&first, &second]).receipt_everywhere(hash(1)).await {
            ReceiptLookup::Found(receipt) if receipt.hash == hash(1) => "found",
            ReceiptLookup::Found(_) => "another's",
            ReceiptLookup::Absent => "absent",
            ReceiptLookup::Unclear => "unclear",
        };
        assert_eq!(found, expected);
    }
}

/// Returns the receipt of another transaction of that block, of a form that only this chain knows.
fn foreign(block: u64) -> Value {
    json!({ "blockNumber": U64::from(block), "from": Address::repeat_byte(1), "to": null, "type": "0x7e" })
}

fn nonces(bytes: &[u8]) -> Vec<Vec<B256>> {
    bytes.iter().map(|byte| vec![hash(*byte)]).collect()
}

/// Returns the receipts that are found of four nonces, by the block, and the number of calls.
async fn found(script: &[Value]) -> (Vec<B256>, usize) {
    let (endpoint, chain) = alone(&script.iter().cloned().map(Answer).collect::<Vec<_>>()).await;
    let mut found: Vec<B256> = chain.receipts_by_block(&nonces(&[1, 2, 3, 4])).await.into_keys().collect();
    found.sort_unstable();
    (found, endpoint.calls())
}

#[tokio::test]
async fn receipts_of_many_are_one_call_where_one_block_has_them_and_one_not_worth_its_call_is_the_last() {
    let block = json!([foreign(5), ours(1, 5), ours(2, 5), ours(3, 5), ours(4, 5), ours(8, 5)]);
    let all = vec![hash(1), hash(2), hash(3), hash(4)];
    assert_eq!(found(std::slice::from_ref(&block)).await, (all.clone(), 1));
    // A block may have been made since the chain counted them.
    assert_eq!(found(&[json!([foreign(6)]), block.clone()]).await, (all.clone(), 2));
    // An empty one does not tell its number.
    for none in [json!([]), Value::Null] {
        assert_eq!(found(&[none, json!("0x6"), block.clone()]).await, (all.clone(), 3));
    }
    assert_eq!(found(&[json!([ours(1, 5), ours(2, 5)]), json!([])]).await, (vec![hash(1), hash(2)], 1));
    assert_eq!(found(&[json!([foreign(6)]), json!([foreign(5)]), json!([ours(1, 4)])]).await, (vec![], 2));
    assert_eq!(found(&[json!([]), json!("0x6"), json!([]), json!([ours(1, 4)])]).await, (vec![], 3));
    // What is in no block yet, or not ours, is not found.
    let mut pending = ours(1, 5);
    pending["blockHash"] = Value::Null;
    let mut other = ours(2, 5);
    other["to"] = json!(Address::repeat_byte(3));
    let mut no_op = ours(3, 5);
    no_op["to"] = no_op["from"].clone();
    assert_eq!(found(&[json!([pending, other, no_op])]).await, (vec![hash(3)], 1));
}

#[tokio::test]
async fn few_are_not_looked_for_in_blocks_but_share_those_that_were_read_for_others() {
    let (endpoint, chain) = alone(&[Answer(json!([ours(1, 5), ours(2, 5), ours(3, 5), ours(4, 5)]))]).await;
    assert!(chain.receipts_by_block(&nonces(&[4])).await.is_empty());
    assert_eq!(endpoint.calls(), 0);
    assert_eq!(chain.receipts_by_block(&nonces(&[1, 2, 3])).await.len(), 3);
    // Either of the transactions that were tried for a nonce.
    let replaced = [vec![hash(7), hash(4)]];
    assert!(chain.receipts_by_block(&replaced).await.contains_key(&hash(4)));
    assert_eq!(endpoint.calls(), 1);
    let never = chain.with_block_receipts_from(0);
    assert!(never.receipts_by_block(&nonces(&[5, 6, 8, 9])).await.is_empty());
    assert_eq!(endpoint.calls(), 1, "read without the setting");
}

#[tokio::test]
async fn a_node_without_the_method_or_silent_is_asked_once_and_one_that_fails_again() {
    let block = Answer(json!([ours(1, 5), ours(2, 5), ours(3, 5)]));
    let missing = Error(-32_601, "the method eth_getBlockReceipts does not exist/is not available");
    let failing = Error(-32_000, "no such block here");
    for (script, calls) in [([missing, block.clone()], 1), ([failing, block], 2)] {
        let (endpoint, chain) = alone(&script).await;
        assert!(chain.receipts_by_block(&nonces(&[1, 2, 3])).await.is_empty());
        let again = chain.receipts_by_block(&nonces(&[1, 2, 3])).await;
        assert_eq!((again.len(), endpoint.calls()), (3 * (calls - 1), calls));
    }
    let (endpoint, chain) = alone(&[Silence]).await;
    assert!(chain.receipts_by_block(&nonces(&[1, 2, 3])).await.is_empty());
    let calls = endpoint.calls();
    assert!(chain.receipts_by_block(&nonces(&[1, 2, 3])).await.is_empty());
    assert_eq!(endpoint.calls(), calls, "asked again at once");
}
