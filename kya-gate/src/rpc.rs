//! The RPC endpoints: queries to the chain, counted, and their errors without the endpoints' secrets.

use std::fmt::Display;

use host_kit::native::RpcClient;
use registry_core::{
    chain::{Query, QueryError, Run},
    eth::{
        redact::{Redactor, public_origin},
        rpc::endpoint::RpcEndpoint,
        timestamp::Timestamp,
    },
    gate::limits,
};
use reqwest::{Client, Url};

use crate::{metrics::Metrics, settings::ChainSettings};

/// The RPC endpoints of one chain.
#[derive(Debug)]
pub struct Rpc {
    http: Client,
    client: RpcClient,
    chain: ChainSettings,
    redactor: Redactor,
    metrics: Metrics,
}

impl Rpc {
    /// Makes a client for the endpoints of this chain.
    pub fn new(http: Client, chain: ChainSettings, metrics: Metrics) -> Self {
        // The settings have only HTTP URLs, each of which is an endpoint.
        let endpoints = chain.rpc.iter().filter_map(|url| RpcEndpoint::parse(url.as_str())).collect();
        let secrets = chain.rpc.iter().flat_map(|url| [Some(url.as_str()), url.host_str()]).flatten();
        let (client, redactor) = (RpcClient::new(http.clone(), endpoints, chain.id), Redactor::new(secrets));
        Self { http, client, redactor, chain, metrics }
    }

    /// Returns the endpoints' scheme and host, for messages.
    pub fn labels(&self) -> String {
        let labels: Vec<String> = self.chain.rpc.iter().map(|url| public_origin(url.as_str())).collect();
        let which = if labels.len() > 1 { "one of " } else { "" };
        format!("{which}{}", labels.join(", "))
    }

    /// Returns a client for each endpoint.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let alone = |url: &Url| ChainSettings { rpc: vec![url.clone()], ..self.chain.clone() };
        self.chain.rpc.iter().map(move |url| Self::new(self.http.clone(), alone(url), self.metrics.clone()))
    }

    /// Answers a query at `now`. An endpoint that is stuck at an old block counts as failed. Errors: the
    /// query's, without the endpoints' secrets.
    pub async fn ask<Q: Query>(&self, query: Q, now: Timestamp) -> Result<Q::Output, String>
    where
        Q::Error: Display,
    {
        self.answer(query, now).await.map_err(|error| self.cleaned(&error))
    }

    /// Answers a query about a block; `None` where no endpoint has the state of that block. Errors: the
    /// query's other errors, without the endpoints' secrets.
    pub async fn ask_at<Q>(&self, query: Q, now: Timestamp) -> Result<Option<Q::Output>, String>
    where
        Q: Query<Error = QueryError>,
    {
        match self.answer(query, now).await {
            Ok(output) => Ok(Some(output)),
            Err(QueryError::BlockNotAvailable(_)) => Ok(None),
            Err(error) => Err(self.cleaned(&error)),
        }
    }

    async fn answer<Q: Query>(&self, query: Q, now: Timestamp) -> Result<Q::Output, Q::Error> {
        let limits = limits(now, self.chain.max_head_age_seconds);
        let run = Run::new(query, self.chain.multicall3, limits);
        let count = |replied: bool| {
            let result = if replied { "ok" } else { "failed" };
            self.metrics.round_trips.with_label_values(&["chain", result]).inc();
        };
        self.client.ask(run, count).await
    }

    fn cleaned(&self, error: &impl Display) -> String {
        self.redactor.clean(&error.to_string()).to_string()
    }
}
