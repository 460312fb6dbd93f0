//! The gate as a `tower` layer: its axum example, over HTTP.
//!
//! A signed request is admitted once, and its handler sees the wallet, but none of a client's own headers for
//! it. Changed content reaches no handler. A refusal is the daemon's, byte for byte.

use e2e::anvil::CHAIN_ID;
use e2e::gate::{Gate, ORIGIN, embedded, start_example};
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::registration_call;
use e2e::signed_requests::Draft;

use crate::{ask, assert_refused, configuration, get, good, plain};

#[tokio::test]
async fn a_signed_request_reaches_the_handler_with_its_wallet_and_its_own_content() {
    let configured = configuration(ReverseProxyKind::Envoy).await;
    let (_example, url) = start_example(&embedded(&configured).unwrap()).await.unwrap();
    let request = get("/items?view=full").header("kya-liable", "me").sign(&good(), CHAIN_ID);
    let admitted = request.send(&url).await.unwrap();
    assert_eq!(admitted.status, 200, "{admitted:?}");
    let agent = registration_call(1, good().address(), "guarded", 0);
    let (wallet, liable) = (agent.agentWallet.to_checksum(None), agent.haftungsperson.to_checksum(None));
    assert_eq!(admitted.body, format!("items for {wallet}, for which {liable} is liable"));
    assert_refused(&request.send(&url).await.unwrap(), 401, "nonce_reused");
    assert_eq!(plain(&url, "/livez").await.status, 200, "a route behind the layer is open");

    let daemon = Gate::start(&configured).await.unwrap();
    let request = Draft::post(ORIGIN, "/orders", r#"{"amount":"100"}"#).sign(&good(), CHAIN_ID);
    let changed = request.clone().carrying(r#"{"amount":"900"}"#, true);
    let (changed, refusal) = (changed.send(&url).await.unwrap(), ask(&daemon, &changed).await);
    assert_refused(&changed, 401, "bad_content_digest");
    assert_eq!(changed.body, refusal.body);
    for name in ["www-authenticate", "accept-signature", "content-type", "cache-control", "kya-wallet"] {
        assert_eq!(changed.header(name), refusal.header(name), "{name}");
    }
    let same = request.send(&url).await.unwrap();
    assert_eq!(same.status, 200, "{same:?}");
    assert!(same.body.contains(&format!(r#"{wallet} orders {{"amount":"100"}}"#)), "{same:?}");
}
