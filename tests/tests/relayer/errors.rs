//! Every row of the relayer's error table, and every way to send nonsense: status, message, code.
//!
//! 1. A malformed body gets 400 and what is wrong with which field.
//! 2. A body above 64 KiB is refused while it arrives; a slow client is cut off.
//! 3. 403: another target, a value; before any signature is looked at.
//! 4. 401: not the signer, not the nonce, not the chain, past the deadline, a malleable or mutilated
//!    signature, a replay.
//! 5. 400: more gas than the relayer's cap.
//! 6. 503: the account is nearly empty.
//! 7. 503: the queue is full, or the network's fees are above what the operator allows.
//! 8. 500: the chain is out of reach, or silent.
//!
//! Rate limits and budget have modules of their own, and so have the contract's reverts.

use std::time::{Duration, Instant};

use alloy::hex;
use alloy::primitives::aliases::U48;
use alloy::primitives::{Address, U256, uint};
use alloy::sol_types::SolCall as _;
use e2e::anvil::wall_clock;
use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::relay::{Desk, attest, register};
use registry_core::eth::abi::{IAgentRegistry, IForwarder};
use registry_core::forward::domain;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::audit::{Stage, agent, relayer};

const MISMATCH: &str = "Invalid signature or nonce mismatch";

#[tokio::test]
async fn a_malformed_body_is_told_what_is_wrong_with_which_field() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let good = stage.desk.registration(&alice, 0);
    let body = good.body();

    for not_json in ["", "relay me", "[]", "\"body\"", "{", "null", "{\"request\":{}", "\u{0}"] {
        client.post(not_json).await.refused(400, "INVALID_JSON", "Body is not a JSON object");
    }
    let missing = "Missing request or signature";
    let code = "MISSING_REQUEST_OR_SIGNATURE";
    for without in [
        json!({}),
        json!({ "request": body["request"] }),
        json!({ "signature": body["signature"] }),
        json!({ "request": null, "signature": body["signature"] }),
        json!({ "request": body["request"], "signature": null }),
        json!({ "request": body["request"], "signature": "" }),
    ] {
        client.post(without.to_string()).await.refused(400, code, missing);
    }
    let shape = "Invalid request: must be a JSON object with each field once";
    for request in [json!([]), json!("0x"), json!(7), json!(true)] {
        let body = json!({ "request": request, "signature": body["signature"] });
        client.post(body.to_string()).await.refused(400, "INVALID_FIELD", shape);
    }
    let twice = body.to_string().replacen("\"data\":", "\"data\":\"0x\",\"data\":", 1);
    client.post(twice).await.refused(400, "INVALID_FIELD", shape);

    let number = "must be a whole number: a JSON number, a decimal string or a 0x-hex string";
    let whole = "must be a whole number without fraction or exponent; write large values as strings";
    let huge = format!("1{}", "0".repeat(78));
    for (field, value, problem) in [
        ("from", json!(null), "missing"),
        ("from", json!(7), "must be a string"),
        ("from", json!("alice"), "must be 0x followed by 40 hexadecimal digits"),
        ("from", json!("0x123"), "must be 0x followed by 40 hexadecimal digits"),
        (
            "from",
            json!("0xF39fd6e51aad88F6F4ce6aB8827279cffFb92266"),
            "its mixed-case checksum (EIP-55) is wrong; check for a typo, or write it in lower case",
        ),
        ("to", json!(null), "missing"),
        ("to", json!({}), "must be a string"),
        ("to", json!("0x"), "must be 0x followed by 40 hexadecimal digits"),
        ("value", json!(null), "missing"),
        ("value", json!("-1"), "must not be negative"),
        ("value", json!("zero"), number),
        ("gas", json!(null), "missing"),
        ("gas", json!(true), number),
        ("gas", json!("0x"), number),
        ("gas", json!("1e6"), number),
        ("gas", json!(1.5), whole),
        ("gas", json!(-1), "must not be negative"),
        ("nonce", json!(null), "missing"),
        ("nonce", json!(""), number),
        ("nonce", json!([0]), number),
        ("nonce", json!(huge), "must fit in 256 bits"),
        ("nonce", json!(format!("0x1{}", "0".repeat(64))), "must fit in 256 bits"),
        ("deadline", json!(null), "missing"),
        ("deadline", json!("tomorrow"), number),
        ("deadline", json!(281_474_976_710_656_u64), "must fit in 48 bits"),
        ("deadline", json!(huge), "must fit in 48 bits"),
        ("data", json!(null), "missing"),
        ("data", json!([1, 2]), "must be a string"),
        ("data", json!("attest"), "must be 0x-prefixed hex"),
        ("data", json!("0xabc"), "must have an even number of hex digits"),
        ("data", json!("0xzz"), "must be 0x-prefixed hex"),
    ] {
        let message = format!("Invalid request.{field}: {problem}");
        let answer = client.post(good.with(field, value.clone()).to_string()).await;
        answer.refused(400, "INVALID_FIELD", &message);
        // Left out is the same as null.
        if value.is_null() {
            let mut body = good.body();
            body["request"].as_object_mut().unwrap().remove(field);
            client.post(body.to_string()).await.refused(400, "INVALID_FIELD", &message);
        }
    }
    // Numbers that serde_json cannot hold, written out.
    for (written, problem) in [("1e21", whole), (huge.as_str(), "must fit in 256 bits")] {
        let body = good.with("nonce", "NONCE").to_string().replace("\"NONCE\"", written);
        client.post(body).await.refused(400, "INVALID_FIELD", &format!("Invalid request.nonce: {problem}"));
    }
    for (signature, problem) in [
        (json!(7), "must be a string"),
        (json!({}), "must be a string"),
        (json!("signed"), "must be 0x-prefixed hex"),
        (json!("0x123"), "must have an even number of hex digits"),
    ] {
        let body = json!({ "request": body["request"], "signature": signature });
        let message = format!("Invalid signature: {problem}");
        client.post(body.to_string()).await.refused(400, "INVALID_FIELD", &message);
    }

    // The node was asked nothing, and the good request still goes through: as numbers this time.
    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), 0);
    let mut as_numbers = good.body();
    for field in ["value", "gas", "nonce", "deadline"] {
        let value: u64 = as_numbers["request"][field].as_str().unwrap().parse().unwrap();
        as_numbers["request"][field] =
            if field == "gas" { json!(format!("{value:#x}")) } else { json!(value) };
    }
    client.post(as_numbers.to_string()).await.ok();
    stage.audit(&client, &[&good]).await;
}

#[tokio::test]
async fn a_large_body_is_refused_while_it_arrives_and_a_slow_one_is_cut_off() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    let message = "Request body is larger than 64 KiB";
    let large = "x".repeat(65 * 1024);
    client.post(large.clone()).await.refused(413, "BODY_TOO_LARGE", message);
    // Exactly at the limit it is read, and found to be no JSON.
    client.post(" ".repeat(64 * 1024)).await.refused(400, "INVALID_JSON", "Body is not a JSON object");
    client.post(" ".repeat(64 * 1024 + 1)).await.refused(413, "BODY_TOO_LARGE", message);

    let address = daemon.url().trim_start_matches("http://");
    let head = |headers: &str| format!("POST /relay HTTP/1.1\r\nhost: relayer\r\n{headers}\r\n");
    // Announced and never sent: refused on the announcement.
    let mut announced = TcpStream::connect(address).await.unwrap();
    announced.write_all(head("content-length: 10000000000\r\n").as_bytes()).await.unwrap();
    assert!(first_line(&mut announced).await.starts_with("HTTP/1.1 413 "));
    // Sent without an announcement, and without an end: refused once it is too much.
    let mut endless = TcpStream::connect(address).await.unwrap();
    endless.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).await.unwrap();
    let chunk = format!("1000\r\n{}\r\n", "y".repeat(4096));
    for _ in 0..17 {
        endless.write_all(chunk.as_bytes()).await.unwrap();
    }
    assert!(first_line(&mut endless).await.starts_with("HTTP/1.1 413 "));

    let started = Instant::now();
    let mut without_body = TcpStream::connect(address).await.unwrap();
    without_body.write_all(head("content-length: 100\r\n").as_bytes()).await.unwrap();
    let mut without_end_of_head = TcpStream::connect(address).await.unwrap();
    without_end_of_head.write_all(b"POST /relay HTTP/1.1\r\nhost: rel").await.unwrap();
    assert!(first_line(&mut without_body).await.starts_with("HTTP/1.1 408 "));
    let mut rest = Vec::new();
    // Closed with or without a 408 of its own, but closed.
    let _ = without_end_of_head.read_to_end(&mut rest).await;
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    client.get("/livez").await.ok();
}

async fn first_line(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn only_the_registry_may_be_called_and_no_value_goes_with_it() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let target = "Relayer only forwards to the registry contract";
    for elsewhere in [stage.chain.contracts.forwarder, alice.address(), Address::ZERO] {
        let mut request = stage.desk.draft(&alice, 0, &register(alice.address()));
        request.to = elsewhere;
        client.relay(&stage.desk.sign(&alice, request)).await.refused(403, "TARGET_NOT_ALLOWED", target);
    }
    for value in [U256::ONE, U256::MAX] {
        let mut request = stage.desk.draft(&alice, 0, &register(alice.address()));
        request.value = value;
        let signed = stage.desk.sign(&alice, request);
        client.relay(&signed).await.refused(403, "VALUE_NOT_SUPPORTED", "Value transfers not supported");
    }
    // Cheap checks first: a forged request for another contract is refused for its target.
    let forged = stage.desk.registration(&agent("mallory"), 0).with("from", alice.address().to_string());
    let mut elsewhere = forged.clone();
    elsewhere["request"]["to"] = json!(alice.address());
    client.post(elsewhere.to_string()).await.refused(403, "TARGET_NOT_ALLOWED", target);
    client.post(forged.to_string()).await.refused(401, "INVALID_SIGNATURE", MISMATCH);
    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), 0);
}

#[tokio::test]
async fn a_signature_counts_for_its_signer_its_nonce_its_chain_and_once() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let (alice, mallory) = (agent("alice"), agent("mallory"));
    let good = stage.desk.registration(&alice, 0);
    let signature = good.signed.signature.to_vec();
    let refused = async |body: Value| {
        client.post(body.to_string()).await.refused(401, "INVALID_SIGNATURE", MISMATCH);
    };

    let asked = stage.proxy.calls("eth_call");
    refused(stage.desk.sign(&mallory, good.signed.request.clone()).body()).await;
    refused(good.with("data", hex::encode_prefixed(attest(1).abi_encode()))).await;
    refused(good.with("gas", "500001")).await;
    refused(good.with("nonce", 1)).await;
    refused(good.with("deadline", wall_clock() + 1_000)).await;
    let foreign = |chain_id, forwarder| {
        Desk { domain: domain(chain_id, forwarder), registry: stage.desk.registry }
            .registration(&alice, 0)
            .body()
    };
    refused(foreign(84532, stage.chain.contracts.forwarder)).await;
    refused(foreign(31337, stage.chain.contracts.registry)).await;

    refused(good.signed_with(&signature[..64])).await;
    refused(good.signed_with(&[&signature[..], &[0]].concat())).await;
    refused(good.signed_with(&[27])).await;
    refused(good.signed_with(&[0; 65])).await;
    refused(good.signed_with(&[0xff; 65])).await;
    // The malleable twin: n - s, and the other v.
    const ORDER: U256 = uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);
    let mut twin = signature.clone();
    let high_s = ORDER - U256::from_be_slice(&signature[32..64]);
    twin[32..64].copy_from_slice(&high_s.to_be_bytes::<32>());
    twin[64] = if signature[64] == 27 { 28 } else { 27 };
    refused(good.signed_with(&twin)).await;
    // v as 0 or 1: the forwarder would not take it either.
    let mut low_v = signature.clone();
    low_v[64] -= 27;
    refused(good.signed_with(&low_v)).await;
    assert_eq!(stage.proxy.calls("eth_call"), asked, "forgeries cost no RPC call");

    // Signed well, but for a nonce that is not there.
    let code = "INVALID_SIGNATURE_OR_NONCE";
    client.relay(&stage.desk.registration(&alice, 1_000)).await.refused(401, code, MISMATCH);
    let mut late = stage.desk.draft(&alice, 0, &register(alice.address()));
    late.deadline = U48::from(wall_clock() - 5);
    client.relay(&stage.desk.sign(&alice, late)).await.refused(401, "DEADLINE_PASSED", MISMATCH);

    client.relay(&good).await.ok();
    client.relay(&good).await.refused(401, "ALREADY_RELAYED", MISMATCH);
    let other_with_used_nonce = stage.desk.request(&alice, 0, &attest(1));
    client.relay(&other_with_used_nonce).await.refused(401, code, MISMATCH);
    stage.audit(&client, &[&good]).await;
}

#[tokio::test]
async fn a_deadline_still_ahead_is_kept() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let mut request = stage.desk.draft(&alice, 0, &register(alice.address()));
    request.deadline = U48::from(wall_clock() + 120);
    let signed = stage.desk.sign(&alice, request);
    client.relay(&signed).await.ok();
    stage.audit(&client, &[&signed]).await;
}

#[tokio::test]
async fn gas_is_capped_and_what_is_asked_for_within_the_cap_is_given() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("MAX_REQUEST_GAS", 600_000);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let alice = agent("alice");
    for gas in [U256::from(600_001), U256::from(u64::MAX), U256::MAX] {
        let mut request = stage.desk.draft(&alice, 0, &register(alice.address()));
        request.gas = gas;
        let message = format!("Invalid request.gas: {gas} is above the relayer's maximum of 600000");
        client.relay(&stage.desk.sign(&alice, request)).await.refused(400, "GAS_ABOVE_MAXIMUM", &message);
    }
    // Too little for the call itself: found out in time, and the signer's nonce is not used up.
    let mut starved = stage.desk.draft(&alice, 0, &register(alice.address()));
    starved.gas = U256::from(30_000);
    let message = "Call failed without a reason; request.gas may be too low";
    client.relay(&stage.desk.sign(&alice, starved)).await.refused(500, "CALL_REVERTED", message);
    let nonce = IForwarder::getNonceCall { from: alice.address() };
    assert_eq!(stage.chain.read(stage.chain.contracts.forwarder, nonce).await.unwrap(), U256::ZERO);

    let mut all = stage.desk.draft(&alice, 0, &register(alice.address()));
    all.gas = U256::from(600_000);
    let all = stage.desk.sign(&alice, all);
    client.relay(&all).await.ok();
    stage.audit(&client, &[&all]).await;
}

#[tokio::test]
async fn a_nearly_empty_account_relays_nothing_and_says_so() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    let poor = U256::from(999_999_999_999_999_u64);
    stage.chain.node.set_balance(relayer().address(), poor).await.unwrap();
    let message = "Relayer balance too low. Please try again later or use direct mode.";
    let answer = client.relay(&request).await;
    answer.refused(503, "RELAYER_BALANCE_TOO_LOW", message);
    assert!(answer.number("retry-after") > 0);
    assert_eq!(client.used_wei().await, 0, "nothing stays reserved");

    // The very same signed request is good again once there is money.
    let rich = U256::from(1_000_000_000_000_000_000_u64);
    stage.chain.node.set_balance(relayer().address(), rich).await.unwrap();
    client.relay(&request).await.ok();
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_full_queue_takes_no_more_and_forgets_nothing() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("MAX_QUEUE", 1)).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    let first = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &first).await;
    let second = stage.desk.registration(&agent("bob"), 0);
    let refusal = client.relay(&second).await;
    let message = "Too many relays in flight. Please try again shortly.";
    refusal.refused(503, "QUEUE_FULL", message);
    assert!(refusal.number("retry-after") > 0);

    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    client.relay(&second).await.ok();
    stage.audit(&client, &[&first, &second]).await;
}

#[tokio::test]
async fn fees_above_the_operators_cap_are_not_paid() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("MAX_FEE_PER_GAS_GWEI", 2)).await.unwrap();
    let client = daemon.client();
    stage.gas_costs(3_000_000_000).await;
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = client.relay(&request).await;
    let message = "Network fees are above the relayer's maximum. Please try again later or use direct mode.";
    answer.refused(503, "NETWORK_FEES_TOO_HIGH", message);
    assert!(answer.number("retry-after") > 0);
    stage.gas_costs(1_000_000_000).await;
    client.relay(&request).await.ok();
    stage.audit(&client, &[&request]).await;
}

fn broken_gateway() -> Fault {
    Fault::Status { status: 502, body: "<html>Bad gateway</html>".to_owned(), retry_after: None }
}

#[tokio::test]
async fn a_chain_out_of_reach_or_silent_is_a_500_that_says_so_and_costs_nothing() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("RPC_TIMEOUT_SECONDS", 1).var("RELAY_RETRY_SECONDS", 1);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let request = stage.desk.registration(&agent("alice"), 0);
    for (fault, code, message) in [
        (Fault::Refuse, "RPC_FAILED", "RPC endpoint unreachable: connection closed early"),
        (broken_gateway(), "RPC_FAILED", "RPC endpoint unreachable: HTTP 502"),
        (Fault::Hang, "RPC_TIMEOUT", "RPC timeout"),
    ] {
        stage.proxy.inject(Rule::any(fault));
        client.relay(&request).await.refused(500, code, message);
        stage.proxy.heal();
    }
    client.get("/domain").await.ok();
    client.relay(&request).await.ok();
    stage.audit(&client, &[&request]).await;
    let registered = IAgentRegistry::isRegisteredCall { agentWallet: agent("alice").address() };
    assert!(stage.chain.read(stage.chain.contracts.registry, registered).await.unwrap());
}
