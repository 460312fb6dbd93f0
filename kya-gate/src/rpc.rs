//! The RPC endpoints: moves the bytes of the core's queries, with its failover between endpoints.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use registry_core::{
    chain::{Batch, Endpoints, Failure, Freshness, Limits, Query, Reply, Run, Step},
    eth::{
        redact::{Redactor, public_origin},
        timestamp::Timestamp,
    },
};
use reqwest::{Client, header};

use crate::{metrics::Metrics, settings::ChainSettings};

/// The RPC endpoints of one chain.
#[derive(Debug)]
pub struct Rpc {
    client: Client,
    chain: ChainSettings,
    redactor: Redactor,
    endpoints: Mutex<Endpoints>,
    metrics: Metrics,
}

impl Rpc {
    /// The endpoints of this chain.
    pub fn new(client: Client, chain: ChainSettings, metrics: Metrics) -> Self {
        let endpoints = Mutex::new(Endpoints::new(chain.rpc.len(), Some(chain.id)));
        let secrets = chain.rpc.iter().flat_map(|url| [Some(url.as_str()), url.host_str()]).flatten();
        Self { client, redactor: Redactor::new(secrets), chain, endpoints, metrics }
    }

    /// The endpoints' scheme and host, for messages.
    pub fn labels(&self) -> String {
        self.chain.rpc.iter().map(|url| public_origin(url.as_str())).collect::<Vec<_>>().join(", ")
    }

    /// The answer to a query at `now`. An endpoint that is stuck at an old block counts as failed.
    ///
    /// # Errors
    /// The query's, without the endpoints' secrets.
    pub async fn ask<Q: Query>(&self, query: Q, now: Timestamp) -> Result<Q::Output, String>
    where
        Q::Error: std::fmt::Display,
    {
        let started = Instant::now();
        let max_age_seconds = self.chain.max_head_age_seconds;
        let freshness = (max_age_seconds > 0).then_some(Freshness { now, max_age_seconds });
        let limits = Limits { freshness, ..Limits::default() };
        let mut run = Run::new(query, self.chain.multicall3, limits).over(self.lock().clone());
        let answer = loop {
            run.passed(u32::try_from(started.elapsed().as_millis()).unwrap_or(u32::MAX));
            let batch = match run.step() {
                Ok(Step::Send(batch)) => batch,
                Ok(Step::Done(answer)) => break Ok(answer),
                Err(error) => break Err(error),
            };
            tokio::time::sleep(Duration::from_millis(batch.delay_ms.into())).await;
            let reply = self.post(&batch).await;
            let result = if reply.is_ok() { "ok" } else { "failed" };
            self.metrics.round_trips.with_label_values(&["chain", result]).inc();
            let taken = match &reply {
                Ok((status, body)) => run.feed(Reply { status: *status, body }),
                Err(failure) => run.fail(*failure),
            };
            let update = run.update();
            self.lock().merge(&update);
            if let Err(error) = taken {
                break Err(error);
            }
        };
        answer.map_err(|error| self.redactor.clean(&error.to_string()).to_string())
    }

    async fn post(&self, batch: &Batch) -> Result<(u16, Vec<u8>), Failure> {
        let url = self.chain.rpc.get(batch.endpoint).ok_or(Failure::Unreachable)?.clone();
        let request = self
            .client
            .post(url)
            .timeout(Duration::from_millis(batch.timeout_ms.into()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(batch.body.clone());
        let failure =
            |error: reqwest::Error| if error.is_timeout() { Failure::TimedOut } else { Failure::Unreachable };
        let response = request.send().await.map_err(failure)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        let mut pieces = response.bytes_stream();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(failure)?);
            if body.len() > batch.max_reply_bytes {
                return Err(Failure::TooLarge);
            }
        }
        Ok((status, body))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
