//! Comparison of verdicts with the chain's: evidence of the wallet at the snapshot's block is made from the
//! answers of the caller's own endpoint, and verified.

use alloy_primitives::Address;
use host_kit::native::RpcClient;
use registry_core::{
    api::{error::Error as ApiError, question::WithEvidence},
    chain::{Limits, Run},
    eth::{
        multicall::CANONICAL_ADDRESS,
        redact::Redactor,
        rpc::endpoint::{RpcEndpoint, parse_list},
    },
    evidence::{self, Expected},
    registry::kya::Kya,
    snapshot::Identity,
};

use crate::{error::Error, options::SpotChecks, service};

/// The result of a comparison.
#[derive(Debug)]
pub enum SpotCheck {
    /// The chain says the same of this wallet.
    Agrees(Address),
    /// The chain says something else: the service cannot be trusted, or the chain was reorganised.
    Contradicts(Box<Contradiction>),
}

/// A verdict that the chain contradicts, both as of the same block.
#[derive(Clone, Debug)]
pub struct Contradiction {
    /// The wallet.
    pub wallet: Address,
    /// The verdict as of the snapshot's block, without the past, which evidence does not cover.
    pub held: Kya,
    /// The chain's verdict.
    pub proved: Kya,
    /// The evidence document that proves it, to be kept: `kya verify evidence` reads it.
    pub evidence: String,
}

/// Comparisons at the caller's own endpoint.
#[derive(Debug)]
pub(crate) struct Checker {
    rpc: RpcClient,
    options: SpotChecks,
    identity: Identity,
}

impl Checker {
    pub(crate) fn new(options: SpotChecks, identity: Identity) -> Result<Self, Error> {
        let rule = "rpc must be http:// or https:// URLs separated by commas, 8 at most";
        let endpoints = parse_list(&options.rpc).map_err(|_| Error::Option(rule))?;
        let rpc = RpcClient::new(service::client()?, endpoints, identity.chain_id);
        Ok(Self { rpc, options, identity })
    }

    /// Compares what is held of a wallet, as of its block, with the chain.
    pub(crate) async fn check(&self, held: Kya) -> Result<SpotCheck, Error> {
        let (block, now) = (held.as_of.block_number, held.as_of.block_timestamp);
        let (registry, layout) = (self.identity.registry, self.options.layout);
        let query = WithEvidence::at(registry, held.wallet, layout, Some(block), now);
        let run = Run::new(query, CANONICAL_ADDRESS, Limits::default());
        let asked = self.rpc.ask(run, |_| ()).await;
        let redactor = Redactor::new(self.rpc.endpoints().iter().flat_map(RpcEndpoint::secrets));
        let evidence = asked.map_err(|error| error.redacted(&redactor))?.body;
        self.compare(held, evidence)
    }

    /// Compares what is held of a wallet with the chain's evidence of this wallet and no other.
    fn compare(&self, held: Kya, evidence: String) -> Result<SpotCheck, Error> {
        let wallet = held.wallet;
        let expected = Expected {
            chain_id: Some(self.identity.chain_id),
            registry: Some(self.identity.registry),
            wallet: Some(wallet),
            layout: self.options.layout,
            ..Expected::default()
        };
        let verified = evidence::verify(&evidence, &expected);
        let proved = verified.map_err(|error| ApiError::Evidence(error.to_string()))?.verdict;
        // Another block of this height is a contradiction only where the verdict differs.
        let is_same = held == Kya { as_of: held.as_of, ..proved.clone() };
        Ok(match is_same {
            true => SpotCheck::Agrees(wallet),
            false => SpotCheck::Contradicts(Box::new(Contradiction { wallet, held, proved, evidence })),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn evidence_of_another_wallet_is_no_comparison() {
        let kyoto = include_str!("../../tests/fixtures/3ad2b3d/evidence.kyoto.json").to_owned();
        let nobody = include_str!("../../tests/fixtures/3ad2b3d/evidence.nobody.json").to_owned();
        let registry = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512".parse().unwrap();
        let rpc = "http://127.0.0.1:1".to_owned();
        let options = SpotChecks { rpc, every: Duration::ZERO, layout: None };
        let checker = Checker::new(options, Identity { chain_id: 31_337, registry }).unwrap();
        let held = evidence::verify(&kyoto, &Expected::default()).unwrap().verdict;
        assert!(matches!(checker.compare(held.clone(), kyoto), Ok(SpotCheck::Agrees(_))));
        assert!(matches!(checker.compare(held, nobody), Err(Error::Chain(ApiError::Evidence(_)))));
    }
}
