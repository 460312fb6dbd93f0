//! The gate over a local chain: behind operators' proxies, with Redis, for clients and verifiers of other
//! projects, and as a layer of a service.
//!
//! The rules for signatures, policies, nonces and records are tested in `core` and in `kya-gate`.

mod acceptances;
mod clients;
mod daemon;
mod layer;
mod liable;
mod proxies;
mod records;
mod redis;
mod tokens;

use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::CHAIN_ID;
use e2e::chain::Chain;
use e2e::gate::{Gate, ORIGIN};
use e2e::process::PATIENCE;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::{chain_of_one, registration_call, suspension, wallet};
use e2e::signed_requests::{Draft, RawAnswer, SignedHttpRequest};
use tokio::sync::OnceCell;

/// Issuer of the tokens.
const ISSUER: &str = "https://kya.example";

/// Returns the chain of all tests. The wallet `good` is that of a compliant agent, `suspended` that of a
/// suspended one, and `new` is not registered.
async fn chain() -> &'static Chain {
    static CHAIN: OnceCell<Chain> = OnceCell::const_new();
    CHAIN
        .get_or_init(async || {
            let chain = chain_of_one().await.unwrap();
            let call = registration_call(2, wallet("suspended").address(), "guarded", 0);
            chain.send(chain.owner(), call).await.unwrap();
            chain.send(chain.owner(), suspension(2, "a test")).await.unwrap();
            chain
        })
        .await
}

/// Returns the documented configuration of a gate beside this proxy, with `rpc` as its endpoint.
async fn configuration_at(kind: ReverseProxyKind, rpc: &str) -> String {
    let registry = chain().await.contracts.registry.to_string();
    kind.gate(ORIGIN, CHAIN_ID, rpc, &registry).unwrap()
}

async fn configuration(kind: ReverseProxyKind) -> String {
    configuration_at(kind, chain().await.node.url()).await
}

fn good() -> PrivateKeySigner {
    wallet("good")
}

fn get(target: &str) -> Draft {
    Draft::get(ORIGIN, target)
}

/// Signs a GET of that target as the compliant agent.
fn signed(target: &str) -> SignedHttpRequest {
    get(target).sign(&good(), CHAIN_ID)
}

/// Sends a GET without a signature to the server at `url`.
async fn plain(url: &str, target: &str) -> RawAnswer {
    get(target).unsigned().send(url).await.unwrap()
}

/// Asks the gate about a request as Envoy does.
async fn ask(gate: &Gate, request: &SignedHttpRequest) -> RawAnswer {
    request.asked_by_envoy().send(gate.url()).await.unwrap()
}

fn assert_refused(answer: &RawAnswer, status: u16, reason: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.body.contains(&format!("\"reason\":\"{reason}\"")), "{reason}: {answer:?}");
}
