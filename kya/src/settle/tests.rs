//! Replacements of a transaction, and what is told of a call.

use alloy::signers::local::PrivateKeySigner;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{
    journal::Journal,
    place::{Reader, RegistryAccess},
    signer::Signer,
    submit::SendOptions,
};

/// Starts a node with block 2, of a very high base fee, as its newest, and 0 as its finalized one. Its
/// pool is full. Looks at a receipt find these in their order, and then the last one. Returns its URL.
async fn node(receipts: Vec<Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut looks = 0_usize;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let question = loop {
                let read = stream.read_buf(&mut bytes).await.unwrap_or_default();
                let body = str::from_utf8(&bytes).unwrap().split_once("\r\n\r\n");
                let question: Option<Value> = body.and_then(|(_, body)| serde_json::from_str(body).ok());
                if question.is_some() || read == 0 {
                    break question;
                }
            };
            // The client may have hung up.
            let Some(question) = question else { continue };
            let number = if question["params"][0] == "finalized" { "0x0" } else { "0x2" };
            let mut kind = "result";
            let answer = match question["method"].as_str().unwrap() {
                "eth_getTransactionReceipt" => {
                    looks += 1;
                    receipts.get(looks - 1).or(receipts.last()).unwrap().clone()
                }
                "eth_sendRawTransaction" => {
                    kind = "error";
                    json!({ "code": -32000, "message": "txpool is full" })
                }
                "eth_getTransactionCount" => json!("0x0"),
                "eth_getBlockByNumber" => {
                    json!({ "number": number, "timestamp": "0x1", "baseFeePerGas": "0xffffffff" })
                }
                _ => json!("0x1"),
            };
            let body = json!({ "jsonrpc": "2.0", "id": 1, kind: answer }).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}", body.len());
            let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn an_open_transaction_is_replaced_and_reported_with_what_keeps_it_open_and_a_mined_one_neither() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mined = json!({ "status": "0x1", "blockNumber": "0x1", "logs": [] });
    let refused = "(the node refuses the transaction: txpool is full)";
    let not_final = "(it is not as final yet as asked)";
    // With the time-out 0 there is one round, which compares the fees. The last one is mined after it, and
    // has seconds for that round.
    for (receipts, timeout, replacements, reason) in [
        (vec![Value::Null], 0, 1, refused),
        (vec![mined.clone()], 0, 0, not_final),
        (vec![Value::Null, mined], 5, 1, not_final),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (signer, registry) = (Signer::Local(PrivateKeySigner::random()), Address::repeat_byte(1));
        let url = node(receipts).await;
        // A client that hangs up holds up no other.
        drop(TcpStream::connect(url.trim_start_matches("http://")).await.unwrap());
        let node = RpcNode::connect(&url, Some(1), Address::ZERO).await.unwrap();
        let reader = Reader::Node(node);
        let place = RegistryAccess { chain: 1, registry, relayer: None, reader, document: None };
        let options = SendOptions {
            direct: true,
            finality: Finality::Finalized,
            confirmations: 1,
            timeout,
            state: None,
        };
        let journal = Journal::open(directory.path(), 1, registry, signer.address()).await.unwrap();
        let caller = Caller { place: &place, signer: &signer, options: &options, journal };
        let transaction = TxEip1559 { chain_id: 1, gas_limit: 21_000, ..TxEip1559::default() };
        let sent = caller.own(transaction, Vec::new()).await.unwrap();
        let call = JournaledCall {
            call: "0x".parse().unwrap(),
            at: crate::now().seconds(),
            sent,
            is_executed: false,
        };
        caller.journal.keep(&call).unwrap();
        let failure = caller.settle(call, false).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Pending);
        assert!(failure.text.contains(reason), "{}", failure.text);
        let [JournaledCall { sent: SentCall::Transaction { replaced, .. }, .. }] =
            &caller.journal.calls().unwrap()[..]
        else {
            panic!("one transaction")
        };
        assert_eq!(replaced.len(), replacements);
    }
}

#[test]
fn a_call_is_told_by_the_registrys_event_of_it_by_its_signer_alone() {
    let (registry, signer, wallet) =
        (Address::repeat_byte(1), Address::repeat_byte(2), Address::repeat_byte(3));
    let (id, other) = (U256::from(7), B256::repeat_byte(9));
    let attest = attestComplianceCall { agentId: id }.abi_encode();
    let end = terminateSelfCall { agentId: id }.abi_encode();
    let register = registerAgentCall { agentWallet: wallet, ..crate::register::tests::call() }.abi_encode();
    let (by, id) = (signer.into_word(), B256::from(id));
    for (call, topics) in [
        (attest, vec![ComplianceAttested::SIGNATURE_HASH, id, by]),
        (end, vec![AgentTerminated::SIGNATURE_HASH, id, by]),
        (register, vec![AgentRegistered::SIGNATURE_HASH, id, wallet.into_word(), by]),
    ] {
        let log = ReceiptLog { address: registry, topics };
        assert_eq!(told_by(&log, registry, signer, &call), Some(7));
        assert_eq!(told_by(&log, wallet, signer, &call), None);
        assert_eq!(told_by(&log, registry, wallet, &call), None);
        assert_eq!(told_by(&log, registry, signer, &call[..3]), None);
        for changed in (0..log.topics.len()).filter(|at| *at != 1 || log.topics.len() == 3) {
            let mut log = log.clone();
            log.topics[changed] = other;
            assert_eq!(told_by(&log, registry, signer, &call), None, "{changed}");
        }
    }
}
