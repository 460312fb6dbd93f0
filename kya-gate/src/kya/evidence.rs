//! Proofs of verdicts, for records of admissions: of the very block that the verdict is of, and made once
//! for all admissions with that verdict.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use alloy_primitives::Address;
use lru::LruCache;
use registry_core::{api::question::EvidenceAt, eth::timestamp::Timestamp};
use serde_json::value::RawValue;

use super::{AccountReader, Source};

/// The proofs known at once. Each takes some 50 KB.
const PROOFS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Proofs by wallet and block.
#[derive(Debug)]
pub(super) struct Proofs(Mutex<LruCache<(Address, u64), Arc<RawValue>>>);

impl Default for Proofs {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(PROOFS)))
    }
}

impl AccountReader {
    /// The proof of the verdict on a wallet at a block; `None` where there is none, which is logged.
    pub async fn evidence(&self, wallet: Address, block: u64, now: Timestamp) -> Option<Arc<RawValue>> {
        let key = (wallet, block);
        let known = self.proofs.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone);
        if known.is_some() {
            return known;
        }
        let proof = self.prove(wallet, Some(block), now).await;
        let proof = proof.inspect_err(|error| tracing::warn!(%error, "the chain gave no evidence")).ok()?;
        self.proofs.0.lock().unwrap_or_else(PoisonError::into_inner).put(key, Arc::clone(&proof));
        Some(proof)
    }

    /// Whether the chain's endpoints give proofs.
    ///
    /// # Errors
    /// Why not.
    pub async fn probe_evidence(&self, now: Timestamp) -> Result<(), String> {
        self.prove(Address::ZERO, None, now).await.map(|_| ()).map_err(|error| format!("evidence: {error}"))
    }

    async fn prove(
        &self,
        wallet: Address,
        block: Option<u64>,
        now: Timestamp,
    ) -> Result<Arc<RawValue>, String> {
        let Source::Registry(registry) = self.source else { return Err("there is no registry".to_owned()) };
        let document = self.rpc.ask(EvidenceAt::new(registry, wallet, None, block, now), now).await?;
        let text = RawValue::from_string(document.body).map_err(|error| error.to_string())?;
        Ok(Arc::from(text))
    }
}
