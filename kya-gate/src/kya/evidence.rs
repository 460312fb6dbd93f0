//! Proofs of verdicts, for records of admissions: at the verdict's own block, and made once for all
//! admissions with that verdict. Nodes prove only their last blocks, some the newest one alone: where none
//! proves a verdict's block any more, a new verdict is read together with its proof.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use alloy_primitives::Address;
use host_kit::native::lock;
use lru::LruCache;
use registry_core::{
    api::question::WithEvidence,
    eth::timestamp::Timestamp,
    evidence::{self, Expected},
    gate::Verdict,
};
use serde_json::value::RawValue;

use super::{AccountReader, ReadCause, VerdictSource, flight::SingleFlight};

/// The most proofs that are kept. Each takes some 50 KB.
const PROOFS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

type KnownProofs = LruCache<(Address, u64), Arc<RawValue>>;

/// Proofs by wallet and block.
#[derive(Debug)]
pub(super) struct Proofs {
    known: Mutex<KnownProofs>,
    /// Reads under way; `None` in place of a block is the newest one.
    flights: SingleFlight<(Address, Option<u64>), Option<Arc<RawValue>>>,
}

impl Default for Proofs {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(PROOFS)), flights: SingleFlight::default() }
    }
}

impl AccountReader {
    /// Returns the proof of the verdict on a wallet at a block. Without a block, it is a kept proof of the
    /// cached verdict or else the proof of a new verdict at the newest block, which replaces the cached one.
    /// `None` where there is no proof, which is logged.
    pub async fn evidence(
        &self,
        wallet: Address,
        block: Option<u64>,
        now: Timestamp,
    ) -> Option<Arc<RawValue>> {
        let proved = async {
            let (cached, reading) = (self.cache.get(wallet, now), self.cache.begin());
            let wanted = block.or_else(|| Some(cached.verdict?.as_of.block_number));
            if let Some(known) =
                wanted.and_then(|block| lock(&self.proofs.known).get(&(wallet, block)).cloned())
            {
                return Some(known);
            }
            let proof = self.prove(wallet, block, ReadCause::Request { is_of_key: true }, now).await;
            let (proof, verdict) =
                proof.inspect_err(|error| tracing::warn!(%error, "the chain gave no evidence")).ok()?;
            lock(&self.proofs.known).put((wallet, verdict.as_of.block_number), Arc::clone(&proof));
            if block.is_none() {
                self.cache.put(wallet, Some(&Arc::new(verdict)), None, &reading);
            }
            Some(proof)
        };
        self.proofs.flights.run((wallet, block), proved).await
    }

    /// Checks that the chain's endpoints give proofs. Errors: the reason why they do not.
    pub async fn probe_evidence(&self, now: Timestamp) -> Result<(), String> {
        let proof = self.prove(Address::ZERO, None, ReadCause::Operator, now).await;
        proof.map(|_| ()).map_err(|error| format!("evidence: {error}"))
    }

    async fn prove(
        &self,
        wallet: Address,
        block: Option<u64>,
        cause: ReadCause,
        now: Timestamp,
    ) -> Result<(Arc<RawValue>, Verdict), String> {
        let VerdictSource::Registry(registry) = self.source else {
            return Err("there is no registry".to_owned());
        };
        let _read = self.budget.take(cause).ok_or("no read is left")?;
        let document = self.rpc.ask(WithEvidence::at(registry, wallet, None, block, now), now).await?;
        let verified = evidence::verify(&document.body, &Expected::default());
        let verdict = Verdict::from(&verified.map_err(|error| error.to_string())?.verdict);
        let text = RawValue::from_string(document.body).map_err(|error| error.to_string())?;
        Ok((Arc::from(text), verdict))
    }
}
