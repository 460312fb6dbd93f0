//! Changes of verdicts as a stream of events. Cursors that outlast an index's process are in
//! [`store`](crate::store).
//!
//! 1. A client receives changes as they happen, and resumes from the last id after the stream's end; while
//!    the chain does not answer, the stream says so.
//! 2. A client has a limit of open streams, and room again when one ends.

use std::time::{Duration, Instant};

use e2e::client::Client;
use e2e::fault::{FaultRule, NodeFault};
use e2e::http;
use e2e::process::wait_until;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{PATIENCE, StageGuard, filled, is_listed, reactivate, register, suspend};

/// A client of a stream, which reconnects when the stream ends.
struct Follower {
    url: String,
    last_id: Option<String>,
    stream: Option<Response>,
    text: String,
    /// Number of streams that have ended.
    returns: u32,
}

impl Follower {
    fn new(client: &Client) -> Self {
        let url = format!("{}/api/v1/changes?since=now", client.base());
        Self { url, last_id: None, stream: None, text: String::new(), returns: 0 }
    }

    /// Waits for the next block of lines: an event, a comment, or the refusal to open the stream.
    async fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                if let Some(id) = block.lines().find_map(|line| line.strip_prefix("id: ")) {
                    self.last_id = Some(id.to_owned());
                }
                return block;
            }
            let Some(stream) = &mut self.stream else {
                let client = http::builder().build().unwrap();
                let mut request = client.get(&self.url).header("Accept", "text/event-stream");
                if let Some(id) = &self.last_id {
                    request = request.header("Last-Event-ID", id);
                }
                let response = request.send().await.unwrap();
                if response.status() != 200 {
                    return response.text().await.unwrap();
                }
                assert_eq!(response.headers()["content-type"], "text/event-stream");
                assert_eq!(response.headers()["cache-control"], "no-store");
                assert_eq!(response.headers()["access-control-allow-origin"], "*", "for pages of any origin");
                self.stream = Some(response);
                continue;
            };
            match tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("the stream is silent").unwrap()
            {
                Some(chunk) => self.text.push_str(core::str::from_utf8(&chunk).unwrap()),
                None => {
                    assert_eq!(self.text, "", "a stream ends between two events");
                    (self.stream, self.returns) = (None, self.returns + 1);
                }
            }
        }
    }

    async fn until(&mut self, mut wanted: impl FnMut(&Self, &str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let block = self.block().await;
            if wanted(self, &block) {
                return block;
            }
            assert!(began.elapsed() < PATIENCE, "{block}");
        }
    }

    /// Waits for the next change, and checks that it is one of this agent to this status.
    async fn change_to(&mut self, id: u64, status: &str) -> Value {
        let event = self.until(|_, block| block.contains("event: change\n")).await;
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let change: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&change["agentId"], &change["to"]["status"]), (&json!(id), &json!(status)));
        change
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_stream_receives_a_suspension_and_goes_on_after_its_end() {
    let stage = StageGuard::with(|options| options.ttl(1).var("CHANGES_STREAM_SECONDS", 5)).await;
    let id = register(&stage.chain, "streamed", "streamed", 0).await;
    is_listed(&stage, id).await;
    let mut follower = Follower::new(&stage.client);
    follower.until(|follower, _| follower.last_id.is_some()).await;
    for status in ["Suspended", "Active"] {
        match status {
            "Suspended" => suspend(&stage.chain, id).await,
            _ => reactivate(&stage.chain, id).await,
        }
        let change = follower.change_to(id, status).await;
        assert_eq!(change["cursor"].as_str(), follower.last_id.as_deref());
        // The stream ends; the next one begins with the changes in between.
        let returns = follower.returns;
        follower.until(|follower, _| follower.returns > returns).await;
    }

    // A client that leaves does not affect the others.
    drop(Follower::new(&stage.client).block().await);
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    follower.until(|_, block| block.contains("RPC_UNAVAILABLE")).await;
    stage.proxy.heal();
    suspend(&stage.chain, id).await;
    follower.change_to(id, "Suspended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_as_many_streams_as_it_may_and_room_again_once_they_have_ended() {
    // The slot of a silent stream expires after 71 seconds, and a stream ends after five minutes.
    let stage = StageGuard::with(|options| options.ttl(3).var("CHANGES_STREAMS_PER_CLIENT", 2)).await;
    filled(&stage.client).await;
    let path = "/api/v1/changes?since=now";
    let mut open = Vec::new();
    for _ in 0..2 {
        let accept = "Accept: text/event-stream";
        let mut stream = http::request_to_reset(stage.worker.url(), path, accept).await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
        open.push(stream);
    }
    let refused = stage.client.with("accept", "text/event-stream").get("/api/v1/changes?since=now").await;
    refused.failed(429, "RATE_LIMITED");
    assert_eq!(refused.number("retry-after"), 60);
    drop(open);
    let has_room = async || !Follower::new(&stage.client).block().await.contains("RATE_LIMITED");
    wait_until("room for a stream", Duration::from_secs(20), has_room).await;
}
