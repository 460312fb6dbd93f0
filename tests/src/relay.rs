//! Signed requests and the relayer's HTTP surface, as an agent's own software would use them.

use std::net::IpAddr;
use std::time::Duration;

use alloy::primitives::aliases::U48;
use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{Eip712Domain, SolCall};
use registry_core::eth::abi::{ForwardRequest, IAgentRegistry};
use registry_core::forward::{SignedRequest, domain};
use reqwest::{Body, Method};
use serde_json::{Value, json};

use crate::anvil::CHAIN_ID;
use crate::chain::Chain;
use crate::client::{Client, HttpAnswer};
use crate::daemon::RelayerDaemon;
use crate::http;

/// Inner gas of these requests, enough for a registration.
pub const REQUEST_GAS: u64 = 500_000;
const JSON: &str = "application/json";

/// Builds relay requests for the forwarder and the registry of one chain.
#[derive(Debug, Clone)]
pub struct RequestFactory {
    pub domain: Eip712Domain,
    pub registry: Address,
}

impl RequestFactory {
    /// Takes the contracts of a local chain with anvil's own chain id.
    pub fn of(chain: &Chain) -> Self {
        Self { domain: domain(CHAIN_ID, chain.contracts.forwarder), registry: chain.contracts.registry }
    }

    /// Builds an unsigned request of `signer` with this nonce and no deadline.
    pub fn draft(&self, signer: &PrivateKeySigner, nonce: u64, call: &impl SolCall) -> ForwardRequest {
        ForwardRequest {
            from: signer.address(),
            to: self.registry,
            value: U256::ZERO,
            gas: U256::from(REQUEST_GAS),
            nonce: U256::from(nonce),
            deadline: U48::ZERO,
            data: call.abi_encode().into(),
        }
    }

    pub fn sign(&self, signer: &PrivateKeySigner, request: ForwardRequest) -> RelayRequest {
        let mut signed = SignedRequest { request, signature: Bytes::new() };
        let id = signed.digest(&self.domain);
        signed.signature = signer.sign_hash_sync(&id).expect("a local key signs").as_bytes().into();
        RelayRequest { id, signed }
    }

    pub fn request(&self, signer: &PrivateKeySigner, nonce: u64, call: &impl SolCall) -> RelayRequest {
        self.sign(signer, self.draft(signer, nonce, call))
    }

    /// Builds a signed registration of the signer's own wallet as a root agent.
    pub fn registration(&self, signer: &PrivateKeySigner, nonce: u64) -> RelayRequest {
        self.request(signer, nonce, &register(signer.address()))
    }
}

/// Builds a registration of `wallet` as a root agent for which the wallet itself is liable.
pub fn register(wallet: Address) -> IAgentRegistry::registerAgentCall {
    IAgentRegistry::registerAgentCall {
        haftungsperson: wallet,
        agentWallet: wallet,
        constitutionHash: keccak256("constitution"),
        capabilityHash: keccak256("capabilities"),
        operationalScope: "relayed".to_owned(),
        parentAgentId: U256::ZERO,
        selfModifying: false,
    }
}

pub fn attest(agent: u64) -> IAgentRegistry::attestComplianceCall {
    IAgentRegistry::attestComplianceCall { agentId: U256::from(agent) }
}

#[derive(Debug, Clone)]
pub struct RelayRequest {
    pub id: B256,
    pub signed: SignedRequest,
}

impl RelayRequest {
    /// Returns the relay body, with its numbers as decimal strings.
    pub fn body(&self) -> Value {
        let request = &self.signed.request;
        json!({
            "request": {
                "from": request.from, "to": request.to, "value": request.value.to_string(),
                "gas": request.gas.to_string(), "nonce": request.nonce.to_string(),
                "deadline": request.deadline.to_string(), "data": request.data,
            },
            "signature": self.signed.signature,
        })
    }

    /// Returns the body with one field of the request replaced and the old signature.
    pub fn with(&self, field: &str, value: impl Into<Value>) -> Value {
        let mut body = self.body();
        body["request"][field] = value.into();
        body
    }
}

impl RelayerDaemon {
    /// Returns a client of this daemon, with a time-out above `RELAY_WAIT_SECONDS`.
    pub fn client(&self) -> Client {
        Client { http: http::client(Duration::from_secs(120)), ..Client::new(self.url()) }
    }
}

impl Client {
    /// Returns this client as if behind a proxy that sets this `X-Forwarded-For`.
    pub fn forwarded_for(&self, addresses: &str) -> Self {
        self.with("x-forwarded-for", addresses)
    }

    pub fn with_key(&self, key: &str) -> Self {
        self.with("authorization", &format!("Bearer {key}"))
    }

    /// Returns this client with its sockets bound to this address of the machine.
    pub fn from_address(&self, address: impl Into<IpAddr>) -> Self {
        let http = http::builder().local_address(address.into()).build();
        Self { http: http.expect("a client"), ..self.clone() }
    }

    pub async fn post_relay(&self, body: impl Into<Body>) -> HttpAnswer {
        self.post("/relay", JSON, body).await
    }

    pub async fn relay(&self, request: &RelayRequest) -> HttpAnswer {
        self.post_relay(request.body().to_string()).await
    }

    /// Posts a relay to a daemon that may die meanwhile.
    pub async fn try_relay(&self, request: &RelayRequest) -> reqwest::Result<HttpAnswer> {
        self.try_send(Method::POST, "/relay", Some((JSON, request.body().to_string().into()))).await
    }

    /// Requests the state of a relay.
    pub async fn state(&self, request: &RelayRequest) -> HttpAnswer {
        self.get(&format!("/relay/{}", request.id)).await
    }

    /// Returns the wei used of the budget, reservations included, as `/status` has it.
    pub async fn used_wei(&self) -> u128 {
        let status = self.get("/status").await.ok();
        let wei = status["gasBudget"]["usedWei"].as_str().and_then(|wei| wei.parse().ok());
        wei.expect("wei as a decimal string")
    }

    /// Returns the value of a sample of `/metrics`, by its name with its labels as written there.
    pub async fn metric(&self, name: &str) -> f64 {
        let metrics = self.get("/metrics").await.text;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in:\n{metrics}"))
    }
}

impl HttpAnswer {
    /// Checks that this is an error with this status, code and message, in the documented shape.
    pub fn refused(&self, status: u16, code: &str, message: &str) -> &Self {
        assert_eq!(self.json(), json!({ "error": message, "code": code }), "{}", self.status);
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}
