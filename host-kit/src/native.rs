//! JSON-RPC over reqwest, size-capped body reading, and the clock.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use registry_core::{
    chain::{Batch, Endpoints, Failure, Query, Run, Update},
    eth::{rpc::endpoint::RpcEndpoint, timestamp::Timestamp},
};
use reqwest::{
    Client, Response,
    header::{AUTHORIZATION, CONTENT_TYPE},
};

use crate::{RpcHost, RpcReply, drive};

/// RPC endpoints of one chain, and what is known of them.
#[derive(Debug)]
pub struct RpcClient {
    client: Client,
    endpoints: Vec<RpcEndpoint>,
    known: Mutex<Endpoints>,
}

impl RpcClient {
    /// Creates a client of these endpoints, all of which have to be on this chain.
    pub fn new(client: Client, endpoints: Vec<RpcEndpoint>, chain_id: u64) -> Self {
        let known = Mutex::new(Endpoints::new(endpoints.len(), Some(chain_id)));
        Self { client, endpoints, known }
    }

    /// Returns the endpoints.
    pub fn endpoints(&self) -> &[RpcEndpoint] {
        &self.endpoints
    }

    /// Runs a query over these endpoints. `count` is called after each round trip with whether there was a
    /// reply. Errors: the query's, which may quote a node's message and thereby an endpoint's secret.
    pub async fn ask<Q: Query>(&self, run: Run<Q>, count: impl Fn(bool)) -> Result<Q::Output, Q::Error> {
        let run = run.over(lock(&self.known).clone());
        drive(run, &mut NativeHost { client: self, began: Instant::now(), count }).await
    }

    /// Makes one round trip, without the batch's delay.
    async fn post(&self, batch: &Batch) -> Result<RpcReply, Failure> {
        let endpoint = self.endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
        let mut request = self
            .client
            .post(&endpoint.url)
            .timeout(Duration::from_millis(batch.timeout_ms.into()))
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &endpoint.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let response = request.body(batch.body.clone()).send().await.map_err(failure)?;
        let status = response.status().as_u16();
        let body = read_body(response, batch.max_reply_bytes).await.map_err(failure)?;
        Ok(RpcReply { endpoint: batch.endpoint, status, body: body.ok_or(Failure::TooLarge)? })
    }
}

struct NativeHost<'a, F> {
    client: &'a RpcClient,
    began: Instant,
    count: F,
}

impl<F: Fn(bool)> RpcHost for NativeHost<'_, F> {
    fn elapsed_ms(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_millis()).unwrap_or(u32::MAX)
    }

    async fn round_trip(&mut self, batch: &Batch, _may_hedge: bool) -> Result<RpcReply, Failure> {
        tokio::time::sleep(Duration::from_millis(batch.delay_ms.into())).await;
        let reply = self.client.post(batch).await;
        (self.count)(reply.is_ok());
        reply
    }

    fn merge(&mut self, update: impl FnOnce() -> Update) {
        lock(&self.client.known).merge(&update());
    }
}

/// Locks a mutex, also one that a panic has poisoned: what a host keeps is changed by single calls.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the machine's time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the body of a response; `None` where it is larger than `max_bytes`, of which no more is read.
/// Errors: a body that breaks off, or does not end before the request's timeout.
pub async fn read_body(mut response: Response, max_bytes: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len().saturating_add(chunk.len()) > max_bytes {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Converts an error, without its message, which may quote the URL.
fn failure(error: reqwest::Error) -> Failure {
    if error.is_timeout() { Failure::TimedOut } else { Failure::Unreachable }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Returns the URL of a server that answers one request with these bytes and hangs up, or never answers.
    async fn server(answer: Option<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"question") {
                stream.read_buf(&mut request).await.unwrap();
            }
            let request = String::from_utf8(request).unwrap().to_ascii_lowercase();
            assert!(request.contains("authorization: basic dxnlcjo=\r\n"), "{request}");
            assert!(request.contains("content-type: application/json\r\n"), "{request}");
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                None => std::future::pending().await,
            }
        });
        format!("http://user@{address}")
    }

    #[tokio::test]
    async fn a_reply_is_read_up_to_its_cap_and_its_timeout() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let answer = |status: u16, length: usize, body: &str| {
            Some(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}"))
        };
        let chunked = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let reply = |status, body: &str| Ok((status, body.to_owned()));
        for (answer, expected) in [
            (answer(200, 4, "abcd"), reply(200, "abcd")),
            (answer(429, 0, ""), reply(429, "")),
            (answer(200, 5, "abcde"), Err(Failure::TooLarge)),
            (Some(chunked.to_owned()), Err(Failure::TooLarge)),
            (answer(200, 4, "abc"), Err(Failure::Unreachable)),
            (None, Err(Failure::TimedOut)),
        ] {
            let timeout_ms = if answer.is_some() { 60_000 } else { 50 };
            let endpoint = RpcEndpoint::parse(&server(answer.clone()).await).unwrap();
            let rpc = RpcClient::new(Client::builder().no_proxy().build().unwrap(), vec![endpoint], 1);
            let body = "question".to_owned();
            let batch = Batch { endpoint: 0, body, delay_ms: 0, timeout_ms, max_reply_bytes: 4 };
            let replied = rpc.post(&batch).await;
            let replied = replied.map(|reply| (reply.status, String::from_utf8(reply.body).unwrap()));
            assert_eq!(replied, expected, "{answer:?}");
        }
    }
}
