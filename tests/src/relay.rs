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
use crate::client::{Answer, Client};
use crate::daemon::Daemon;
use crate::http;

/// Inner gas of the requests made here: enough for a registration.
pub const REQUEST_GAS: u64 = 500_000;
const JSON: &str = "application/json";

/// The forwarder and the registry of one chain: what requests are made for.
#[derive(Debug, Clone)]
pub struct Desk {
    pub domain: Eip712Domain,
    pub registry: Address,
}

impl Desk {
    /// Of a local chain with anvil's own chain id.
    pub fn of(chain: &Chain) -> Self {
        Self { domain: domain(CHAIN_ID, chain.contracts.forwarder), registry: chain.contracts.registry }
    }

    /// An unsigned request of `signer`, with its `nonce`-th nonce and no deadline.
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

    pub fn sign(&self, signer: &PrivateKeySigner, request: ForwardRequest) -> Signed {
        let mut signed = SignedRequest { request, signature: Bytes::new() };
        let id = signed.digest(&self.domain);
        signed.signature = signer.sign_hash_sync(&id).expect("a local key signs").as_bytes().into();
        Signed { id, signed }
    }

    pub fn request(&self, signer: &PrivateKeySigner, nonce: u64, call: &impl SolCall) -> Signed {
        self.sign(signer, self.draft(signer, nonce, call))
    }

    /// A signed registration of the signer's own wallet, as a root agent.
    pub fn registration(&self, signer: &PrivateKeySigner, nonce: u64) -> Signed {
        self.request(signer, nonce, &register(signer.address()))
    }
}

/// A registration of `wallet` as a root agent, the wallet itself being liable.
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
pub struct Signed {
    pub id: B256,
    pub signed: SignedRequest,
}

impl Signed {
    /// The relay body, its numbers as decimal strings.
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

    /// The body with one field of the request replaced, and its signature left as it was.
    pub fn with(&self, field: &str, value: impl Into<Value>) -> Value {
        let mut body = self.body();
        body["request"][field] = value.into();
        body
    }
}

pub type RelayClient = Client;

impl Daemon {
    /// A client of this daemon. Its answers may take as long as `RELAY_WAIT_SECONDS`.
    pub fn client(&self) -> RelayClient {
        Client { http: http::client(Duration::from_secs(120)), ..Client::new(self.url()) }
    }
}

impl Client {
    /// The same client behind a proxy that appends this to `X-Forwarded-For`.
    pub fn forwarded_for(&self, addresses: &str) -> Self {
        self.with("x-forwarded-for", addresses)
    }

    pub fn with_key(&self, key: &str) -> Self {
        self.with("authorization", &format!("Bearer {key}"))
    }

    /// The same client on a socket bound to this address of the machine.
    pub fn from_address(&self, address: impl Into<IpAddr>) -> Self {
        let http = http::builder().local_address(address.into()).build();
        Self { http: http.expect("a client"), ..self.clone() }
    }

    pub async fn post_relay(&self, body: impl Into<Body>) -> Answer {
        self.post("/relay", JSON, body).await
    }

    pub async fn relay(&self, request: &Signed) -> Answer {
        self.post_relay(request.body().to_string()).await
    }

    /// The same, where the daemon may die meanwhile.
    pub async fn try_relay(&self, request: &Signed) -> reqwest::Result<Answer> {
        self.try_send(Method::POST, "/relay", Some((JSON, request.body().to_string().into()))).await
    }

    /// What the daemon knows of a relay.
    pub async fn state(&self, request: &Signed) -> Answer {
        self.get(&format!("/relay/{}", request.id)).await
    }

    /// Wei used of the budget, reservations included, as `/status` has it.
    pub async fn used_wei(&self) -> u128 {
        let status = self.get("/status").await.ok();
        let wei = status["gasBudget"]["usedWei"].as_str().and_then(|wei| wei.parse().ok());
        wei.expect("wei as a decimal string")
    }

    /// A sample of `/metrics`, by its name and its labels as they are written there.
    pub async fn metric(&self, name: &str) -> f64 {
        let metrics = self.get("/metrics").await.text;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("{name} is not in:\n{metrics}"))
    }
}

impl Answer {
    /// Checks that this is a refusal or failure with this status, code and message, in the documented shape.
    pub fn refused(&self, status: u16, code: &str, message: &str) -> &Self {
        assert_eq!(self.json(), json!({ "error": message, "code": code }), "{}", self.status);
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}
