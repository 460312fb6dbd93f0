//! Verdicts compared with the chain's: evidence of the wallet at the snapshot's block, made from what an
//! endpoint of the caller's own answers, and verified.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use alloy_primitives::Address;
use registry_core::{
    api::{document::Document, error::Error as ApiError, question::EvidenceAt},
    chain::{Batch, Endpoints, Failure, Limits, Reply, Run, Step},
    eth::{
        multicall::CANONICAL_ADDRESS,
        redact::Redactor,
        rpc::endpoint::{RpcEndpoint, parse_list},
    },
    evidence::{self, Expected},
    registry::kya::Kya,
    snapshot::Identity,
};
use reqwest::{
    Client,
    header::{AUTHORIZATION, CONTENT_TYPE},
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
    /// The evidence document that proves it, to be kept: `evidence verify` reads it.
    pub evidence: String,
}

/// The caller's own way to the chain.
#[derive(Debug)]
pub(crate) struct Checker {
    client: Client,
    endpoints: Vec<RpcEndpoint>,
    known: Mutex<Endpoints>,
    options: SpotChecks,
    identity: Identity,
}

impl Checker {
    pub(crate) fn new(options: SpotChecks, identity: Identity) -> Result<Self, Error> {
        let rule = "rpc must be http:// or https:// URLs separated by commas, 8 at most";
        let endpoints = parse_list(&options.rpc).map_err(|_| Error::Option(rule))?;
        let known = Mutex::new(Endpoints::new(endpoints.len(), Some(identity.chain_id)));
        Ok(Self { client: service::client()?, endpoints, known, options, identity })
    }

    /// The time between two checks.
    pub(crate) const fn every(&self) -> Duration {
        self.options.every
    }

    /// Compares what is held of a wallet, as of its block, with the chain.
    pub(crate) async fn check(&self, held: Kya) -> Result<SpotCheck, Error> {
        let (wallet, layout) = (held.wallet, self.options.layout);
        let (block, now) = (held.as_of.block_number, held.as_of.block_timestamp);
        let query = EvidenceAt::new(self.identity.registry, wallet, layout, Some(block), now);
        let asked = self.ask(query).await;
        let redactor = Redactor::new(self.endpoints.iter().flat_map(RpcEndpoint::secrets));
        let evidence = asked.map_err(|error| error.redacted(&redactor))?.body;
        let expected = Expected {
            chain_id: Some(self.identity.chain_id),
            registry: Some(self.identity.registry),
            wallet: Some(wallet),
            layout,
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

    async fn ask(&self, query: EvidenceAt) -> Result<Document, ApiError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut run = Run::new(query, CANONICAL_ADDRESS, Limits::default()).over(known);
        let began = Instant::now();
        loop {
            run.passed(u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX));
            let batch = match run.step()? {
                Step::Done(document) => return Ok(document),
                Step::Send(batch) => batch,
            };
            tokio::time::sleep(Duration::from_millis(batch.delay_ms.into())).await;
            let timeout = Duration::from_millis(batch.timeout_ms.into());
            let fed = match tokio::time::timeout(timeout, self.post(&batch)).await {
                Ok(Ok((status, body))) => run.feed(Reply { status, body: &body }),
                Ok(Err(failure)) => run.fail(failure),
                Err(_) => run.fail(Failure::TimedOut),
            };
            self.known.lock().unwrap_or_else(PoisonError::into_inner).merge(&run.update());
            fed?;
        }
    }

    async fn post(&self, batch: &Batch) -> Result<(u16, Vec<u8>), Failure> {
        let endpoint = self.endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
        let mut request = self.client.post(&endpoint.url).header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &endpoint.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let sent = request.body(batch.body.clone()).send().await;
        let mut response = sent.map_err(|_| Failure::Unreachable)?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(|_| Failure::Unreachable)? {
            if body.len() + chunk.len() > batch.max_reply_bytes {
                return Err(Failure::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }
}
