//! Recorded answers of anvil about a wallet (`vectors/evidence`).

use alloy_primitives::{Address, B256};
use registry_core::evidence::{self, Evidence, EvidenceError, Expected, Layout, Material, Verified};
use serde_json::{Value, json};

pub(crate) struct Recorded {
    pub(crate) wallet: Address,
    pub(crate) registry: Address,
    pub(crate) layout: Layout,
    pub(crate) code: String,
    pub(crate) chain_id: u64,
    pub(crate) slots: Vec<B256>,
    pub(crate) block: Value,
    pub(crate) proof: Value,
}

impl Recorded {
    pub(crate) fn load(kind: &str) -> Self {
        let read = |name: &str| {
            let path = format!("{}/tests/vectors/evidence/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let recorded: Value = serde_json::from_str(&read(&format!("{kind}.json"))).unwrap();
        let address = |name: &str| recorded[name].as_str().unwrap().parse::<Address>().unwrap();
        let slots = recorded["proof"]["storageProof"].as_array().unwrap();
        Self {
            wallet: address("wallet"),
            registry: address("registry"),
            layout: Layout::AGENT_REGISTRY,
            code: json!(read("registry_code.hex")).to_string(),
            chain_id: recorded["chainId"].as_u64().unwrap(),
            slots: slots.iter().map(|slot| slot["key"].as_str().unwrap().parse().unwrap()).collect(),
            block: recorded["block"].clone(),
            proof: recorded["proof"].clone(),
        }
    }

    /// Returns the material of evidence, with this block and proof.
    pub(crate) fn material<'a>(&'a self, block: &'a str, proof: &'a str) -> Material<'a> {
        let Self { wallet, registry, chain_id, layout, ref slots, ref code, .. } = *self;
        Material { wallet, registry, chain_id, layout, slots, block, proof, code }
    }

    pub(crate) fn make(&self) -> Result<(Evidence, Verified), EvidenceError> {
        evidence::make(&self.material(&self.block.to_string(), &self.proof.to_string()))
    }

    /// Returns the hash of the registry's code.
    pub(crate) fn code_hash(&self) -> B256 {
        self.proof["codeHash"].as_str().unwrap().parse().unwrap()
    }

    /// Returns the same recording of a registry that is known by its code's hash alone.
    pub(crate) fn foreign(self, code_hash: B256) -> Self {
        Self { layout: Layout { code_hash: Some(code_hash), ..self.layout }, ..self }
    }

    pub(crate) fn document(&self) -> String {
        serde_json::to_string(&self.make().unwrap().0).unwrap()
    }

    /// Returns everything that a careful verifier knows from elsewhere.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            block_hash: Some(self.block["hash"].as_str().unwrap().parse().unwrap()),
            chain_id: Some(self.chain_id),
            registry: Some(self.registry),
            wallet: Some(self.wallet),
            ..Expected::default()
        }
    }
}
