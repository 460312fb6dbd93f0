//! The relayer's error table as a client sees it: status, code, message and cost. Every wrong body and forged
//! signature is in `core/tests/forward`.

use registry_core::eth::abi::ForwardRequest;

use crate::prelude::*;

#[tokio::test]
async fn what_is_refused_has_its_code_and_its_words_and_is_not_paid_for() {
    let stage = RelayerFixture::set()
        .await
        .var("RELAYED_FUNCTIONS", "registerAgent,attestCompliance,reactivateAgent");
    let stage = stage.var("MAX_QUEUE", 1).var("MAX_FEE_PER_GAS_GWEI", 2);
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let good = stage.registration("alice");
    let suspend = IAgentRegistry::suspendAgentCall { agentId: U256::ONE, reason: "test".to_owned() };
    let forged = stage.desk.sign(&agent("mallory"), good.signed.request.clone()).body();
    let asked = stage.asked();
    let target = "Relayer only forwards to the registry contract";
    let function = "Relayer does not forward this function of the registry";
    for (body, status, code, message) in [
        (json!("relay me"), 400, "INVALID_JSON", "Body is not a JSON object"),
        (good.with("to", json!(Address::repeat_byte(1))), 403, "TARGET_NOT_ALLOWED", target),
        (stage.desk.request(&alice, 0, &suspend).body(), 403, "FUNCTION_NOT_ALLOWED", function),
        (forged, 401, "INVALID_SIGNATURE", MISMATCH),
    ] {
        client.post_relay(body.to_string()).await.refused(status, code, message);
    }
    assert_eq!(stage.asked(), asked, "the chain was asked");

    let reactivate = IAgentRegistry::reactivateAgentCall { agentId: U256::ONE };
    let mismatch = stage.desk.registration(&alice, 1_000);
    client.relay(&mismatch).await.refused(401, "INVALID_SIGNATURE_OR_NONCE", MISMATCH);
    let little = ForwardRequest { gas: U256::from(30_000), ..good.signed.request.clone() };
    for (request, message) in [
        (stage.desk.request(&alice, 0, &attest(9)), "Agent not found"),
        (stage.desk.request(&alice, 0, &reactivate), "Only regulator"),
        // The gas does not suffice for a reason from the registry.
        (stage.desk.sign(&alice, little), "Call failed without a reason; request.gas may be too low"),
    ] {
        client.relay(&request).await.refused(500, "CALL_REVERTED", message);
        assert_eq!(state(&client, &request).await, "dropped");
    }
    let refused_for_now = async |code: &str, message: &str| {
        let answer = client.relay(&good).await;
        assert!(answer.refused(503, code, message).number("retry-after") > 0);
    };
    stage.gas_costs(3_000_000_000).await;
    let message = "Network fees are above the relayer's maximum. Please try again later or use direct mode.";
    refused_for_now("NETWORK_FEES_TOO_HIGH", message).await;
    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), 0, "something was paid for");
    assert_eq!(client.used_wei().await, 0);

    stage.gas_costs(1_000_000_000).await;
    let posted = stage.leave_pending(&client, &stage.registration("bob")).await;
    refused_for_now("QUEUE_FULL", "Too many relays in flight. Please try again shortly.").await;
    stage.mine().await;
    answer(posted).await.ok();
    stage.relay(&client, &good).await;
    client.relay(&good).await.refused(401, "ALREADY_RELAYED", MISMATCH);
    stage.audit(&client).await;
}

#[tokio::test]
async fn a_large_body_is_refused_while_it_arrives_and_a_slow_one_is_cut_off() {
    let stage = RelayerFixture::set().await;
    let (daemon, client) = stage.daemon().await;
    let message = "Request body is larger than 64 KiB";
    // A body exactly at the limit is read, and found not to be JSON.
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
    // A long body that is announced and never sent is refused on the announcement.
    let mut announced = begin("content-length: 10000000000\r\n\r\n").await;
    assert_eq!(status(&mut announced).await, "HTTP/1.1 413");
    // An unannounced and endless body is refused once it is too long.
    let mut endless = begin("transfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("1000\r\n{}\r\n", "y".repeat(4096));
    endless.write_all(chunk.repeat(17).as_bytes()).await.unwrap();
    assert_eq!(status(&mut endless).await, "HTTP/1.1 413");

    let started = Instant::now();
    let mut without_body = begin("content-length: 100\r\n\r\n").await;
    let mut without_end_of_head = begin("content-le").await;
    assert_eq!(status(&mut without_body).await, "HTTP/1.1 408");
    // The connection is closed, with a 408 or without.
    let _ = without_end_of_head.read_to_end(&mut Vec::new()).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    client.get("/livez").await.ok();
}
