//! A new agent without any ETH: makes a key for it and one for its liable person, registers and attests
//! through the relayer, and shows what the read API says of it before and after.
//!
//! The agent registers itself, which proves nothing about the wallet that it names as liable. That wallet
//! attests: the first answer of the agent's then says `attested`, and not `named`.
//!
//! It talks HTTP and nothing else: `/domain`, `/status` (for the registry's address), `/nonce/:address` and
//! `POST /relay` of the relayer (`RELAYER_URL`, default http://127.0.0.1:3001), `/api/v1/kya/:wallet` of the
//! read API (`API_URL`, default http://127.0.0.1:3000). The read API keeps a KYA answer for a minute, so the
//! second one is asked for once the first has expired.
//!
//! ```text
//! cargo run -p relayer-daemon --example register
//! ```

use std::{env, time::Duration};

use alloy::{
    primitives::{Address, Bytes, U256, aliases::U48, keccak256},
    signers::{SignerSync, local::PrivateKeySigner},
    sol_types::SolCall,
};
use anyhow::{Context, bail};
use registry_core::{
    eth::abi::IAgentRegistry::{attestComplianceCall, registerAgentCall},
    forward::{ForwardRequest, SignedRequest, domain},
};
use reqwest::{Client, Response};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Time after which the client gives up asking for a relay.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Domain {
    chain_id: u64,
    verifying_contract: Address,
}

#[derive(Deserialize)]
struct Nonce {
    next: u64,
}

#[derive(Deserialize)]
struct Status {
    registry: Address,
}

struct Services {
    http: Client,
    relayer: String,
    api: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = |name: &str, default: &str| {
        env::var(name).unwrap_or_else(|_| default.to_owned()).trim_end_matches('/').to_owned()
    };
    let services = Services {
        http: Client::builder().timeout(Duration::from_secs(60)).build()?,
        relayer: url("RELAYER_URL", "http://127.0.0.1:3001"),
        api: url("API_URL", "http://127.0.0.1:3000"),
    };
    let (agent, person) = (PrivateKeySigner::random(), PrivateKeySigner::random());
    let wallet = agent.address();
    println!("Fresh keys, no ETH: the agent's {wallet}, its liable person's {}\n", person.address());
    println!("KYA before:\n{:#}\n", services.kya(wallet).await?);

    let register = registerAgentCall {
        haftungsperson: person.address(),
        agentWallet: wallet,
        constitutionHash: keccak256("We do as we are told, and say when we do not."),
        capabilityHash: keccak256("{\"tools\":[\"invoice\"]}"),
        operationalScope: "Invoicing for a small bakery 🥐".to_owned(),
        parentAgentId: U256::ZERO,
        selfModifying: false,
    };
    let registered = services.relay(&agent, register.abi_encode(), 900_000).await.context("registering")?;
    let id =
        registered.get("agentId").and_then(Value::as_u64).context("no agentId in the relayer's answer")?;
    println!("Registered as agent {id}: transaction {}\n", text(&registered, "txHash"));

    let attest = attestComplianceCall { agentId: U256::from(id) };
    let attested = services.relay(&person, attest.abi_encode(), 150_000).await.context("attesting")?;
    println!("Attested by the liable person: transaction {}\n", text(&attested, "txHash"));

    println!("KYA after:\n{:#}", services.kya_once_registered(wallet).await?);
    Ok(())
}

impl Services {
    /// Signs a call of the registry and has it relayed; returns the relayer's answer once it is executed.
    async fn relay(&self, key: &PrivateKeySigner, call: Vec<u8>, gas: u64) -> anyhow::Result<Value> {
        let Domain { chain_id, verifying_contract } = self.get(&format!("{}/domain", self.relayer)).await?;
        let Status { registry } = self.get(&format!("{}/status", self.relayer)).await?;
        let wallet = key.address();
        let Nonce { next } = self.get(&format!("{}/nonce/{wallet}", self.relayer)).await?;

        let mut signed = SignedRequest {
            request: ForwardRequest {
                from: wallet,
                to: registry,
                value: U256::ZERO,
                gas: U256::from(gas),
                nonce: U256::from(next),
                deadline: U48::ZERO,
                data: call.into(),
            },
            signature: Bytes::new(),
        };
        let digest = signed.digest(&domain(chain_id, verifying_contract));
        signed.signature = key.sign_hash_sync(&digest)?.as_bytes().into();

        let request = &signed.request;
        let body = json!({
            "request": {
                "from": request.from,
                "to": request.to,
                "value": "0",
                "gas": request.gas.to_string(),
                "nonce": request.nonce.to_string(),
                "deadline": "0",
                "data": request.data,
            },
            "signature": signed.signature,
        });
        let answer = self.http.post(format!("{}/relay", self.relayer)).json(&body).send().await?;
        let answer: Value = read(answer).await?;
        if answer.get("txHash").is_some() {
            return Ok(answer);
        }
        self.wait_for(&text(&answer, "id")).await
    }

    /// A relay that took longer than the relayer lets a client wait: asks until it has ended.
    async fn wait_for(&self, id: &str) -> anyhow::Result<Value> {
        let wait = async {
            loop {
                let relay: Value = self.get(&format!("{}/relay/{id}", self.relayer)).await?;
                match text(&relay, "state").as_str() {
                    "pending" => tokio::time::sleep(Duration::from_secs(2)).await,
                    "executed" => return Ok(relay),
                    state => bail!("relay {state}: {}", text(&relay, "error")),
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.context("the relay is still pending")?
    }

    async fn kya(&self, wallet: Address) -> anyhow::Result<Value> {
        self.get(&format!("{}/api/v1/kya/{wallet}", self.api)).await
    }

    /// The read API may still hold its answer from before: asks until that has expired.
    async fn kya_once_registered(&self, wallet: Address) -> anyhow::Result<Value> {
        let registered = async {
            loop {
                let kya = self.kya(wallet).await?;
                if kya.get("isRegistered") == Some(&Value::Bool(true)) {
                    return Ok(kya);
                }
                println!("(the read API caches a KYA answer for a minute; asking again)");
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, registered).await.context("still not registered at the read API")?
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> anyhow::Result<T> {
        read(self.http.get(url).send().await?).await
    }
}

/// The JSON of a good answer, or the error that a bad one carries.
async fn read<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    let status = response.status();
    let body: Value = response.json().await.context("no JSON in the answer")?;
    if !status.is_success() {
        bail!("{status}: {}", text(&body, "error"));
    }
    Ok(serde_json::from_value(body)?)
}

fn text(body: &Value, field: &str) -> String {
    body.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
