//! Error messages of real nodes and providers for what they do not support. The answer is a good node's, or
//! an error that says why there is none.

use registry_core::eth::{abi::IAgentRegistry::ComplianceAttested, as_of::BlockId};
use registry_core::gate::AttestedQuery;

use crate::common::host::{Host, failing, good, node_with};
use crate::common::{prelude::*, reply_of, requests, response};
use crate::{LIST, ONE_ROUND, all, node, quirky};

/// Returns a route at a block by number, and one at a block by hash.
fn at_blocks() -> [String; 2] {
    let hash = pinned(90)["blockHash"].as_str().unwrap().to_owned();
    [format!("/api/v1/agent/1?block={hash}"), "/api/v1/agent/1?block=90".to_owned()]
}

#[test]
fn nodes_in_words_of_their_own_give_the_answers_of_a_good_node() {
    let hashes = |code, words| Quirks { hash_refusal: Some((code, words)), ..Quirks::default() };
    let batches =
        |limit, status| Quirks { batch_limit: Some(limit), batch_status: Some(status), ..Quirks::default() };
    let each = |limit, code, words| Quirks {
        batch_limit: Some(limit),
        batch_refusal: Some((code, words)),
        ..Quirks::default()
    };
    let rows = [
        // EIP-1898 refused.
        ("ganache 7.9", hashes(-32700, "Cannot wrap a \"object\" as a json-rpc type")),
        ("EthereumJS", hashes(-32602, "invalid argument 1: argument must be a string")),
        ("IOTA", hashes(-32602, "hex string without 0x prefix")),
        ("Axon", hashes(-32603, "Invalid block hash: invalid length 66")),
        ("geth 1.9", hashes(-32602, "invalid argument 1: json: cannot unmarshal object into Go value")),
        ("Cosmos", hashes(-32000, "header not found")),
        ("QuickNode's proxy", hashes(-32603, "Internal error")),
        ("as a limit", hashes(-32005, "limit exceeded")),
        ("as unavailable", hashes(-32000, "temporarily unavailable")),
        ("as a revert", hashes(3, "execution reverted")),
        ("as too much work", hashes(-32000, "out of gas")),
        // Batches refused.
        ("no batches", batches(1, 400)),
        ("no batches, as not found", batches(1, 404)),
        ("dRPC's free tier", batches(3, 400)),
        ("denied", batches(1, 403)),
        ("not implemented", batches(1, 501)),
        ("failed", batches(2, 500)),
        ("no JSON", batches(1, 200)),
        ("under each id", each(1, -32000, "over the max batch")),
        ("more than two under each id", each(2, -32000, "over the max batch")),
        // EDR before Shanghai: no PUSH0.
        ("EDR", Quirks { undeployed: Undeployed::InvalidOpcode, ..Quirks::default() }),
        ("Hedera", Quirks { undeployed: Undeployed::Reverted, ..Quirks::default() }),
        ("Arbitrum", Quirks { sees_other_blocks: true, ..Quirks::default() }),
        ("Arbitrum by number", Quirks { sees_other_blocks: true, no_eip1898: true, ..Quirks::default() }),
    ];
    for (who, quirks) in rows {
        for target in all().map(str::to_owned).chain(at_blocks()) {
            let mut expected = node(30).ask(&target).unwrap();
            let mut host = Host::new([Node { quirks: quirks.clone(), ..node(30) }]);
            for trips in [11, 5] {
                let mut answer = host.ask(&target).unwrap_or_else(|error| panic!("{who}, {target}: {error}"));
                if who == "Cosmos" && answer.get("asOf").is_some_and(|as_of| as_of["blockNumber"] == 98) {
                    // Read a little further back, as of a block that the node does not have yet.
                    answer["asOf"] = expected["asOf"].take();
                    expected["asOf"] = answer["asOf"].clone();
                }
                assert_eq!(answer, expected, "{who}, {target}");
                let posts = host.posts()[0];
                assert!(posts <= trips, "{who}, {target}: {posts} posts, {:?}", host.nodes[0].log);
            }
        }
    }
}

#[test]
fn a_block_without_state_is_404_in_the_words_of_any_node() {
    let rows = [
        ("EDR", -32602, "Received invalid block tag 101. Latest block number is 100", Value::Null),
        ("EthereumJS", -32602, "specified block greater than current height", Value::Null),
        ("Cosmos", -32000, "failed to load state at height 5; version does not exist", Value::Null),
        ("Flow", -32000, "invalid height not in available range", Value::Null),
        ("Nethermind", -32603, "Internal error", json!("MissingTrieNodeException: Node A is missing")),
        ("a node", -32603, "Internal error", Value::Null),
        ("dRPC", 35, "archive is not available on free tier", Value::Null),
        ("Cloudflare", -32046, "Cannot fulfill request", Value::Null),
    ];
    let rows = rows.map(|(who, code, words, data)| (who, "agent/1", Some((code, words, data))));
    let verdict = &ONE_ROUND[5]["/api/v1/".len()..];
    let (known, unknown) = (pinned(5)["blockHash"].clone(), format!("0x{}", "ab".repeat(32)));
    for (who, path, refusal) in rows.into_iter().chain([("geth", verdict, None)]) {
        for block in ["101", "5", known.as_str().unwrap(), &unknown] {
            let mut node = node(3);
            node.oldest_state = 80;
            node.quirks.state_refusal = refusal.clone();
            let target = format!("/api/v1/{path}?block={block}");
            let error = node.ask(&target).unwrap_err();
            assert_eq!(error, QueryError::BlockNotAvailable(BlockId::parse(block).unwrap()).into(), "{who}");
            assert_eq!((error.code(), error.status()), (Code::BlockNotAvailable, 404));
            let most = if who == "geth" && known != *block { 3 } else { 8 };
            assert!(node.round_trips() <= most, "{who}, {block}: {:?}", node.log);
            // An archive node behind it has the block.
            if block == "5" {
                let answer = Host::new([node.clone(), good()]).ask(&target).unwrap();
                assert_eq!(answer["asOf"]["blockNumber"], 5, "{who}");
                let oldest = node.ask(&format!("/api/v1/{path}?block=80")).unwrap();
                assert_eq!(oldest["asOf"]["blockNumber"], 80, "{who}");
            }
        }
    }
    // A failure that occurs once, or at any block, says nothing of this one.
    for target in at_blocks() {
        for (code, words) in [(-32000, "upstream connect error"), (-32602, "EOF"), (3, "execution reverted")]
        {
            let mut node = node(3);
            node.quirks.outcomes = vec![("eth_call", 1, Err(json!({"code": code, "message": words})))];
            assert_eq!(node.ask(&target).unwrap()["asOf"]["blockNumber"], 90, "{words}");
        }
    }
    let mut node = node(3);
    let refusal = Err(json!({"code": -32601, "message": "the method eth_call does not exist"}));
    node.quirks.outcomes = vec![("eth_call", u32::MAX, refusal)];
    assert_eq!(node.ask("/api/v1/agent/1?block=5").unwrap_err().code(), Code::RpcError);
}

#[test]
fn a_block_without_state_is_404_without_a_word_and_says_nothing_of_batches() {
    let errors = [(-32000, "archive requests are not served"), (-32005, "rate limit exceeded")];
    let errors = errors.map(|(code, words)| Fault::Error(code, words));
    let statuses = [400, 401, 404, 429, 502].map(Fault::Status);
    for fault in [Fault::Null, Fault::Html].into_iter().chain(statuses).chain(errors) {
        for target in at_blocks() {
            let mut node = node_with(|node| node.oldest_state = 95);
            node.quirks.faulty = Some((Node::is_of_lost_state, fault.clone()));
            let mut host = Host::new([node.clone()]);
            let error = host.ask(&target).unwrap_err();
            assert_eq!(error.code(), Code::BlockNotAvailable, "{fault:?}, {target}: {error}");
            assert_ne!(host.known.features().next().unwrap().batch, Some(false), "{fault:?}, {target}");
            let posts = host.posts()[0];
            assert!(posts <= 9, "{fault:?}, {target}: {posts} posts");
            // An archive node behind it has the block.
            let answer = Host::new([node, good()]).ask(&target);
            let answer = answer.unwrap_or_else(|error| panic!("{fault:?}, {target}: {error}"));
            assert_eq!(answer["asOf"]["blockNumber"], 90, "{fault:?}, {target}");
            // A fault at every block is about none of them.
            let error = Host::new([failing(fault.clone())]).ask(&target).map_err(|error| error.code());
            let is_of_any_block = error.is_err_and(|code| code != Code::BlockNotAvailable);
            assert!(fault == Fault::Null || is_of_any_block, "{fault:?}");
        }
    }
}

#[test]
fn a_node_that_ignores_the_block_is_ruled_out() {
    for no_eip1898 in [false, true] {
        let quirks = Quirks { ignores_blocks: true, no_eip1898, ..Quirks::default() };
        for target in at_blocks() {
            let error = quirky(quirks.clone()).ask(&target).unwrap_err();
            assert_eq!(error, RunError::OtherBlock.into(), "{target}");
            let ignores = Node { quirks: quirks.clone(), ..node(12) };
            assert_eq!(Host::new([ignores, good()]).ask(&target).unwrap()["asOf"]["blockNumber"], 90);
        }
        // Between two rounds a block is mined: no answer is made of both.
        let mines = Quirks { posts_per_block: Some(1), ..quirks };
        assert!(quirky(mines.clone()).ask(LIST).is_err());
        let mines = node_with(|node| node.quirks = mines);
        Host::new([mines, good()]).ask(LIST).unwrap();
    }
}

#[test]
fn a_block_that_was_replaced_is_not_taken_for_the_one_of_its_number() {
    let hash = B256::repeat_byte(7);
    let quirks = Quirks { no_eip1898: true, replaced: Some((hash, 90)), ..Quirks::default() };
    let error = quirky(quirks).ask(&format!("/api/v1/agent/1?block={hash}")).unwrap_err();
    assert_eq!(error.code(), Code::BlockNotAvailable, "{error}");
}

#[test]
fn a_call_that_is_not_answered_in_time_is_made_smaller_and_its_size_is_kept() {
    let geth = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32002,"message":"request timed out"}}"#;
    for (agents, most, first_time_outs, late) in [
        (100, 40, 2, None),
        // The first smaller call may walk over 32 agents.
        (12, 8, 3, None),
        // A gateway's time-out is one, too.
        (12, 8, 3, Some((504, "<html>"))),
        (12, 8, 3, Some((504, r#"{"message":"Endpoint request timed out"}"#))),
        (12, 8, 3, Some((524, r#"{"error":"Gateway Timeout"}"#))),
        (12, 8, 3, Some((504, geth))),
        (12, 8, 3, Some((200, geth))),
    ] {
        let quirks = Quirks { most_in_time: Some(most), late, ..Quirks::default() };
        let slow = Node { quirks, ..node(agents) };
        let expected = node(agents).ask(LIST).unwrap();
        for others in 0..=u32::from(late.is_some()) {
            let mut host = Host::new(vec![slow.clone(); 1 + others as usize]);
            // A minute later, a larger call is tried.
            for (now, time_outs) in [(0, first_time_outs), (1, 0), (60_000, 2), (60_001, 0)] {
                host.now = now;
                let answer =
                    host.ask(LIST).unwrap_or_else(|error| panic!("{late:?}, {others}, {now}: {error}"));
                assert_eq!(answer, expected, "{late:?}");
                let each = late.map_or(4_000, |_| 3_000);
                let most_ms = 800 + each * if time_outs > 0 { time_outs + others } else { 0 };
                assert!(host.took < most_ms, "{late:?}, {others}, {now}: {} ms", host.took);
            }
        }
    }
}

#[test]
fn a_request_that_is_too_long_is_sent_in_pieces_or_in_another_way() {
    let json = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Payload too big"}}"#;
    // The lens is too long for the second one.
    for (undeployed, most) in [(Undeployed::Refused, 10_000), (Undeployed::Override, 4_000)] {
        for (target, words) in all().flat_map(|target| [(target, "<html>"), (target, json)]) {
            let quirks = Quirks { undeployed, longest_body: Some((most, words)), ..Quirks::default() };
            let mut long = Node { quirks, ..node(12) };
            let limits = Limits { rounds: 1_000, ..Limits::default() };
            let answer = long.ask_within(target, limits);
            let answer = answer.unwrap_or_else(|error| panic!("{target}, {most}: {error}"));
            assert_eq!(answer, node(12).ask(target).unwrap(), "{target}, {most}, {words}");
        }
    }
}

#[test]
fn answers_in_other_spellings_are_read_and_the_first_one_that_is_left_out_is_asked_for_alone() {
    let changes: [fn(&mut Vec<Value>); 3] = [
        |answers| {
            answers.iter_mut().for_each(|answer| {
                let text = answer.to_string().replace("\"0x", "\"0X");
                *answer = serde_json::from_str(&text).unwrap();
            });
        },
        |answers| answers.iter_mut().for_each(|answer| answer["id"] = json!(answer["id"].as_f64())),
        |answers| drop(answers.drain(..answers.len().min(2) - 1)),
    ];
    for (which, change) in changes.iter().enumerate() {
        for target in all().map(str::to_owned).chain(at_blocks()) {
            let mut node = node(12);
            let expected = node.clone().ask(&target).unwrap();
            let answer = drive(run(&target), |batch| {
                let mut answers = crate::common::requests(str::from_utf8(&node.post(batch).1).unwrap());
                change(&mut answers);
                (200, crate::common::reply_of(&batch.body, answers))
            });
            let answer = answer.unwrap_or_else(|error| panic!("{which}, {target}: {error}"));
            assert_eq!(read(answer), expected, "{which}, {target}");
        }
    }
}

#[test]
fn logs_without_the_header_that_vouches_for_them_are_not_relied_on() {
    let (agent, liable) = (U256::from(1), Address::repeat_byte(0xa));
    let mut node = node(2);
    node.emit(100, &ComplianceAttested { agentId: agent, by: liable, attestedAt: 7 });
    let since = Timestamp::default();
    let query = AttestedQuery { registry: REGISTRY, agent, liable, block: 100, since };
    assert!(node.run(query.clone()).unwrap().is_some());
    // A machine behind the node's address lacks the block, and lists no events of it.
    let error = |code, message| Some(Err(json!({"code": code, "message": message})));
    for header in [
        error(-32603, "upstream does not have the requested block yet"),
        error(-32000, "header not found"),
        error(-32603, "internal error"),
        Some(Ok(Value::Null)),
        None,
    ] {
        let mut lags = true;
        let found = drive(Run::new(query.clone(), CANONICAL_ADDRESS, Limits::default()), |batch| {
            let (status, body) = node.post(batch);
            let asked = requests(&batch.body);
            let is_of_logs = asked.iter().any(|request| request["method"] == "eth_getLogs");
            if !is_of_logs || !std::mem::take(&mut lags) {
                return (status, body);
            }
            let answer = |request: &Value| match request["method"].as_str().unwrap() {
                "eth_getLogs" => Some(response(&request["id"], Ok(json!([])))),
                _ => header.clone().map(|header| response(&request["id"], header)),
            };
            (status, reply_of(&batch.body, asked.iter().filter_map(answer).collect()))
        });
        assert!(!lags && found.as_ref().is_ok_and(Option::is_some), "{header:?}: {found:?}");
    }
}
