//! The RPC endpoints: queries to the chain, counted, and their errors without the endpoints' secrets.

use host_kit::native::RpcClient;
use registry_core::{
    chain::{Freshness, Limits, Query, Run},
    eth::{
        redact::{Redactor, public_origin},
        rpc::endpoint::RpcEndpoint,
        timestamp::Timestamp,
    },
};
use reqwest::Client;

use crate::{metrics::Metrics, settings::ChainSettings};

/// The RPC endpoints of one chain.
#[derive(Debug)]
pub struct Rpc {
    client: RpcClient,
    chain: ChainSettings,
    redactor: Redactor,
    metrics: Metrics,
}

impl Rpc {
    /// The endpoints of this chain.
    pub fn new(client: Client, chain: ChainSettings, metrics: Metrics) -> Self {
        // The settings have HTTP URLs alone, each of which is an endpoint.
        let endpoints = chain.rpc.iter().filter_map(|url| RpcEndpoint::parse(url.as_str())).collect();
        let secrets = chain.rpc.iter().flat_map(|url| [Some(url.as_str()), url.host_str()]).flatten();
        let (client, redactor) = (RpcClient::new(client, endpoints, chain.id), Redactor::new(secrets));
        Self { client, redactor, chain, metrics }
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
        let max_age_seconds = self.chain.max_head_age_seconds;
        let freshness = (max_age_seconds > 0).then_some(Freshness { now, max_age_seconds });
        let run = Run::new(query, self.chain.multicall3, Limits { freshness, ..Limits::default() });
        let count = |replied: bool| {
            let result = if replied { "ok" } else { "failed" };
            self.metrics.round_trips.with_label_values(&["chain", result]).inc();
        };
        let answer = self.client.ask(run, count).await;
        answer.map_err(|error| self.redactor.clean(&error.to_string()).to_string())
    }
}
