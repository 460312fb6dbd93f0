//! The relayer's error table as a client meets it: status, code, message, and what it costs. Every wrong body
//! and forged signature is in `core/tests/forward`.

use alloy::primitives::aliases::U48;
use registry_core::eth::abi::ForwardRequest;

use crate::prelude::*;

#[tokio::test]
async fn what_is_refused_has_its_code_and_its_words_and_is_not_paid_for() {
    let functions = "registerAgent,attestCompliance,reactivateAgent";
    let stage = Stage::set().await.var("RELAYED_FUNCTIONS", functions).var("MAX_REQUEST_GAS", 600_000);
    let (_daemon, client) = stage.daemon().await;
    let (alice, elsewhere) = (agent("alice"), Address::repeat_byte(1));
    let good = stage.registration("alice");
    let draft = || good.signed.request.clone();
    let sign = |request| stage.desk.sign(&alice, request);
    let with_gas = |gas: u64| sign(ForwardRequest { gas: U256::from(gas), ..draft() });
    let suspend = IAgentRegistry::suspendAgentCall { agentId: U256::ONE, reason: "test".to_owned() };
    let forged = stage.desk.sign(&agent("mallory"), draft()).body();
    let late = U48::from(wall_clock() - 5);
    let asked = stage.proxy.posts();
    let missing = "Missing request or signature";
    let gas = "Invalid request.gas: 600001 is above the relayer's maximum of 600000";
    let target = "Relayer only forwards to the registry contract";
    let function = "Relayer does not forward this function of the registry";
    for (body, status, code, message) in [
        (json!("relay me"), 400, "INVALID_JSON", "Body is not a JSON object"),
        (json!({}), 400, "MISSING_REQUEST_OR_SIGNATURE", missing),
        (good.with("nonce", "-1"), 400, "INVALID_FIELD", "Invalid request.nonce: must not be negative"),
        (sign(ForwardRequest { gas: U256::from(600_001), ..draft() }).body(), 400, "GAS_ABOVE_MAXIMUM", gas),
        (good.with("to", json!(elsewhere)), 403, "TARGET_NOT_ALLOWED", target),
        (good.with("value", 1), 403, "VALUE_NOT_SUPPORTED", "Value transfers not supported"),
        (stage.desk.request(&alice, 0, &suspend).body(), 403, "FUNCTION_NOT_ALLOWED", function),
        (forged, 401, "INVALID_SIGNATURE", MISMATCH),
        (sign(ForwardRequest { deadline: late, ..draft() }).body(), 401, "DEADLINE_PASSED", MISMATCH),
    ] {
        client.post_relay(body.to_string()).await.refused(status, code, message);
    }
    assert_eq!(stage.proxy.posts(), asked, "the chain was asked");

    let reactivate = IAgentRegistry::reactivateAgentCall { agentId: U256::ONE };
    let mismatch = stage.desk.registration(&alice, 1_000);
    client.relay(&mismatch).await.refused(401, "INVALID_SIGNATURE_OR_NONCE", MISMATCH);
    for (request, message) in [
        (stage.desk.request(&alice, 0, &attest(9)), "Agent not found"),
        (stage.desk.request(&alice, 0, &reactivate), "Only regulator"),
        // The registry has no chance to say a word.
        (with_gas(30_000), "Call failed without a reason; request.gas may be too low"),
    ] {
        client.relay(&request).await.refused(500, "CALL_REVERTED", message);
        assert_eq!(state(&client, &request).await, "dropped");
    }
    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), 0, "something was paid for");
    assert_eq!(client.used_wei().await, 0);

    // All of the gas that may be asked for, a deadline that is ahead, and numbers as numbers.
    let ahead = U48::from(wall_clock() + 600);
    let request = sign(ForwardRequest { gas: U256::from(600_000), deadline: ahead, ..draft() });
    let mut numbers = request.with("gas", "0x927c0");
    numbers["request"]["nonce"] = json!(0);
    client.post_relay(numbers.to_string()).await.ok();
    stage.expect([&request]);
    client.relay(&request).await.refused(401, "ALREADY_RELAYED", MISMATCH);
    stage.relay(&client, &stage.desk.request(&alice, 1, &attest(1))).await;
    stage.audit(&client).await;
}

#[tokio::test]
async fn a_large_body_is_refused_while_it_arrives_and_a_slow_one_is_cut_off() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    let message = "Request body is larger than 64 KiB";
    // Exactly at the limit it is read, and found to be no JSON.
    client.post_relay(" ".repeat(64 * 1024)).await.refused(400, "INVALID_JSON", "Body is not a JSON object");
    client.post_relay(" ".repeat(64 * 1024 + 1)).await.refused(413, "BODY_TOO_LARGE", message);

    let begin = async |headers: &str| {
        let mut stream = TcpStream::connect(daemon.url().trim_start_matches("http://")).await.unwrap();
        let head = format!("POST /relay HTTP/1.1\r\nhost: relayer\r\n{headers}");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let status = async |stream: &mut TcpStream| {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    // Announced and never sent: refused on the announcement.
    let mut announced = begin("content-length: 10000000000\r\n\r\n").await;
    assert_eq!(status(&mut announced).await, "HTTP/1.1 413");
    // Sent without an announcement, and without an end: refused once it is too much.
    let mut endless = begin("transfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("1000\r\n{}\r\n", "y".repeat(4096));
    endless.write_all(chunk.repeat(17).as_bytes()).await.unwrap();
    assert_eq!(status(&mut endless).await, "HTTP/1.1 413");

    let started = Instant::now();
    let mut without_body = begin("content-length: 100\r\n\r\n").await;
    let mut without_end_of_head = begin("content-le").await;
    assert_eq!(status(&mut without_body).await, "HTTP/1.1 408");
    // Closed with or without a 408 of its own, but closed.
    let _ = without_end_of_head.read_to_end(&mut Vec::new()).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    client.get("/livez").await.ok();
}

#[tokio::test]
async fn what_may_pass_is_refused_for_now_and_good_afterwards() {
    let stage = Stage::set().await.var("MAX_QUEUE", 1).var("MAX_FEE_PER_GAS_GWEI", 2);
    let stage = stage.var("RPC_TIMEOUT_SECONDS", 1).var("RELAY_RETRY_SECONDS", 1);
    let (_daemon, client) = stage.daemon().await;
    let request = stage.registration("bob");
    let refused = async |code: &str, message: &str| {
        let answer = client.relay(&request).await;
        assert!(answer.refused(503, code, message).number("retry-after") > 0);
    };
    stage.gas_costs(1_000_000_000).await;
    let posted = stage.leave_pending(&client, &stage.registration("alice")).await;
    refused("QUEUE_FULL", "Too many relays in flight. Please try again shortly.").await;
    stage.mine().await;
    answer(posted).await.ok();

    stage.gas_costs(3_000_000_000).await;
    let message = "Network fees are above the relayer's maximum. Please try again later or use direct mode.";
    refused("NETWORK_FEES_TOO_HIGH", message).await;
    stage.gas_costs(1_000_000_000).await;

    let closed = "RPC endpoint unreachable: connection closed early";
    for (fault, code, message) in
        [(Fault::Refuse, "RPC_FAILED", closed), (Fault::Hang, "RPC_TIMEOUT", "RPC timeout")]
    {
        stage.proxy.inject(Rule::any(fault));
        client.relay(&request).await.refused(500, code, message);
        stage.proxy.heal();
    }
    stage.relay(&client, &request).await;
    stage.audit(&client).await;
}
