//! Changes of verdicts, from the index behind the real Worker, over a real chain.
//!
//! 1. A client that polls with the last answer's cursor gets each change once: registrations, suspensions,
//!    attestations that lapse, at their second, and what a reorg undoes.
//! 2. Pages have the length asked for and lead on; expired cursors are refused, and bad input is named.
//! 3. An answer is never older than a verdict may be.
//! 4. Without an index, or with one that does not answer, there is an error that says so.
//! 5. A client of the event stream receives changes as they come, and goes on with the last id after the
//!    stream's end; while the chain does not answer, the stream says so.
//! 6. A client has a limit of open streams, and room again when one ends.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use alloy::rpc::types::TransactionReceipt;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Client, assert_has};
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::process::eventually;
use e2e::seed;
use e2e::stage::Stage;
use e2e::story::DAY;
use e2e::worker::{Worker, WorkerOptions};
use registry_core::eth::timestamp::Timestamp;
use reqwest::{Method, Response};
use serde_json::{Value, json};

const AGENTS: u64 = 30;
const WAIT: Duration = Duration::from_secs(60);

/// A chain with agents on it, which is eight days behind the clock: no attestation is current.
async fn chain() -> Chain {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 8 * DAY)).await.unwrap();
    seed::many(&chain, AGENTS).await.unwrap();
    chain
}

/// A stage with these TTLs, in seconds.
async fn stage(agent_ttl: u64, kya_ttl: u64) -> Stage {
    let options =
        |options: WorkerOptions| options.var("AGENT_TTL_SECONDS", agent_ttl).var("KYA_TTL_SECONDS", kya_ttl);
    Stage::indexed(chain().await, options).await.unwrap()
}

fn wallet(name: &str) -> Address {
    seed::wallet(name).address()
}

async fn suspend(chain: &Chain, id: u64) -> TransactionReceipt {
    chain.send(chain.owner(), seed::suspension(id, "end to end")).await.unwrap()
}

fn standing(status: &str, decision: &str) -> Value {
    json!({ "status": status, "decision": decision })
}

fn time(seconds: u64) -> Value {
    Timestamp::from_seconds(seconds).to_string().into()
}

/// A provider that polls.
struct Provider {
    client: Client,
    next: String,
    changes: Vec<Value>,
}

impl Provider {
    async fn new(client: &Client) -> Self {
        let answer = client.get("/api/v1/changes?since=now").await.ok();
        assert_eq!((&answer["data"], &answer["hasMore"]), (&json!([]), &json!(false)));
        let next = answer["next"].as_str().unwrap().to_owned();
        Self { client: client.clone(), next, changes: Vec::new() }
    }

    async fn poll(&mut self) -> Vec<Value> {
        let answer = self.client.get(&format!("/api/v1/changes?since={}", self.next)).await.ok();
        self.next = answer["next"].as_str().unwrap().to_owned();
        let data = answer["data"].as_array().unwrap().clone();
        self.changes.extend_from_slice(&data);
        data
    }

    /// The one change that there is now.
    async fn change(&mut self) -> Value {
        let mut data = self.poll().await;
        assert_eq!(data.len(), 1, "{data:?}");
        data.remove(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_told_once_and_what_was_undone_is_a_change_back() {
    let mut stage = stage(0, 0).await;
    let (chain, client) = (&stage.chain, stage.client.clone());
    let mut provider = Provider::new(&client).await;
    let began = provider.next.clone();

    // An agent with an attestation that lapses soon.
    let registered_at = wall_clock() - 7 * DAY + 20;
    chain.node.set_next_block_time(registered_at).await.unwrap();
    let call = seed::registration_call(AGENTS + 1, wallet("soon"), "lapses", 0);
    let receipt = chain.send(chain.owner(), call).await.unwrap();
    let registered = provider.change().await;
    let (provision, renew) = (standing("Active", "provision"), standing("Active", "request_renewal"));
    assert_eq!(
        registered,
        json!({
            "cursor": provider.next, "agentId": AGENTS + 1, "wallet": wallet("soon").to_string(),
            "from": null, "to": provision,
            "blockNumber": receipt.block_number, "time": time(registered_at),
        })
    );

    let receipt = suspend(chain, 1).await;
    let suspended_at = chain.node.time().await.unwrap();
    chain.node.mine(3).await.unwrap();
    let suspended = provider.change().await;
    let expected = json!({
        "agentId": 1, "from": renew, "to": standing("Suspended", "request_renewal"),
        "blockNumber": receipt.block_number, "time": time(suspended_at),
    });
    assert_has(&suspended, expected, "its own block, not the newest");

    let lapsed = eventually("lapsed", WAIT, async || provider.poll().await.pop()).await.unwrap();
    let lapse = time(registered_at + 7 * DAY + 1);
    let expected = json!({ "agentId": AGENTS + 1, "from": provision, "to": renew, "time": lapse });
    assert_has(&lapsed, expected, "lapsed");

    // A wallet's agent is undone, and its suspension was before.
    chain.node.set_next_block_time(wall_clock() - 1).await.unwrap();
    let call = seed::registration_call(AGENTS + 2, wallet("undone"), "undone", 0);
    chain.send(chain.owner(), call).await.unwrap();
    assert_eq!(provider.change().await["to"], provision);
    suspend(chain, AGENTS + 2).await;
    let stopped = provider.change().await;
    chain.node.reorganise(1).await.unwrap();
    let back = provider.change().await;
    assert_eq!((&back["from"], &back["to"]), (&stopped["to"], &stopped["from"]));
    chain.node.reorganise(2).await.unwrap();
    let gone = provider.change().await;
    let undone = json!({ "agentId": AGENTS + 2, "to": null, "wallet": wallet("undone").to_string() });
    assert_has(&gone, undone, "undone");

    // An index that dies goes on with the same list.
    stage.kill_index();
    let refused = client.get(&format!("/api/v1/changes?since={}", provider.next)).await;
    refused.failed(503, "INDEXING");
    assert_eq!(refused.number("retry-after"), 10);
    suspend(&stage.chain, 2).await;
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    assert_eq!(provider.change().await["agentId"], 2);

    // All of it again, three at a time, and from the oldest.
    for start in [format!("?since={began}&limit=3"), "?limit=3".to_owned()] {
        let (mut pages, mut listed, mut path) = (0, Vec::new(), format!("/api/v1/changes{start}"));
        loop {
            let page = client.get(&path).await;
            let body = page.ok();
            let data = body["data"].as_array().unwrap();
            listed.extend_from_slice(data);
            pages += 1;
            path = format!("/api/v1/changes?since={}&limit=3", body["next"].as_str().unwrap());
            assert_eq!(page.header("link"), format!("<{path}>; rel=\"next\""));
            assert_eq!(body["limit"], 3);
            if body["hasMore"] == false {
                break;
            }
            assert_eq!(data.len(), 3);
        }
        assert_eq!((listed.len(), pages), (8, 3));
        assert_eq!(listed, provider.changes);
        let newest = client.get("/api/v1/changes?since=newest&limit=3").await.ok();
        assert_eq!(newest["data"], json!(listed[5..]));
        assert_eq!((&newest["next"], &newest["hasMore"]), (&json!(provider.next), &json!(false)));
    }

    refusals_and_headers(&stage, &provider).await;
}

/// Refused queries, conditional requests, and failures of the chain.
async fn refusals_and_headers(stage: &Stage, provider: &Provider) {
    let client = &stage.client;
    for (query, message) in [
        ("since=yesterday", "Invalid since: must be the `next` of an earlier answer, now or newest"),
        ("since=", "Invalid since: must be the `next` of an earlier answer, now or newest"),
        ("since=now&since=now", "Invalid since: must be given once"),
        ("limit=0", "Invalid limit: must be a whole number of at least 1"),
    ] {
        assert_eq!(client.get(&format!("/api/v1/changes?{query}")).await.error(400), message);
    }
    let (list, number) = provider.next.split_once('-').unwrap();
    let ahead = number.parse::<u64>().unwrap() + 1;
    for cursor in ["1-1".to_owned(), format!("{list}-{ahead}"), format!("1{list}-{number}")] {
        let refused = client.get(&format!("/api/v1/changes?since={cursor}")).await;
        refused.failed(410, "CURSOR_EXPIRED");
    }

    let path = format!("/api/v1/changes?since={}", provider.next);
    let first = client.get(&path).await;
    let etag = first.header("etag").to_owned();
    assert_eq!(first.header("cache-control"), "no-store");
    stage.chain.node.mine(1).await.unwrap();
    let known = client.with("if-none-match", &etag);
    assert_eq!(known.get(&path).await.status, 304, "a new block is no change");
    let head = client.send(Method::HEAD, &path).await;
    assert_eq!((head.status, head.text.as_str(), head.header("etag")), (200, "", etag.as_str()));
    let body = client.get(&path).await;
    assert_eq!(body.number("x-as-of-block"), body.ok()["asOf"]["blockNumber"].as_u64().unwrap());

    stage.proxy.inject(Rule::any(Fault::Refuse));
    let silent = client.get(&path).await;
    silent.failed(500, "RPC_UNAVAILABLE");
    stage.proxy.heal();
    suspend(&stage.chain, 3).await;
    assert_eq!(known.get(&path).await.ok()["data"][0]["agentId"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_never_older_than_a_verdict_may_be() {
    // What else is about the whole registry may be kept for an hour.
    let stage = stage(3_600, 2).await;
    let mut provider = Provider::new(&stage.client).await;
    let answer = stage.client.get(&format!("/api/v1/changes?since={}", provider.next)).await;
    assert_eq!(answer.header("cache-control"), "public, max-age=2");
    suspend(&stage.chain, 1).await;
    let change = eventually("a change", WAIT, async || provider.poll().await.pop()).await.unwrap();
    assert_eq!((&change["agentId"], &change["to"]["status"]), (&json!(1), &json!("Suspended")));
}

/// A client of a stream, which comes back when it ends.
struct Follower {
    url: String,
    last_id: Option<String>,
    stream: Option<Response>,
    text: String,
    /// How often it came back.
    returns: u32,
}

impl Follower {
    fn new(stage: &Stage) -> Self {
        let url = format!("{}/api/v1/changes?since=now", stage.worker.url());
        Self { url, last_id: None, stream: None, text: String::new(), returns: 0 }
    }

    /// The next block of lines: an event, or a comment. A refusal to open the stream is a block, too.
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
            match tokio::time::timeout(WAIT, stream.chunk()).await.expect("the stream is silent").unwrap() {
                Some(chunk) => self.text.push_str(core::str::from_utf8(&chunk).unwrap()),
                None => {
                    assert_eq!(self.text, "", "a stream ends between two events");
                    (self.stream, self.returns) = (None, self.returns + 1);
                }
            }
        }
    }

    /// The next block that is like this.
    async fn until(&mut self, mut wanted: impl FnMut(&Self, &str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let block = self.block().await;
            if wanted(self, &block) {
                return block;
            }
            assert!(began.elapsed() < WAIT, "{block}");
        }
    }

    async fn change(&mut self) -> Value {
        let event = self.until(|_, block| block.contains("event: change\n")).await;
        serde_json::from_str(event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_stream_receives_a_suspension_and_goes_on_after_its_end() {
    let options = |options: WorkerOptions| {
        options.var("AGENT_TTL_SECONDS", 3_600).var("KYA_TTL_SECONDS", 1).var("CHANGES_STREAM_SECONDS", 5)
    };
    let stage = Stage::indexed(chain().await, options).await.unwrap();
    let mut follower = Follower::new(&stage);
    follower.until(|follower, _| follower.last_id.is_some()).await;
    for id in 1..4 {
        suspend(&stage.chain, id).await;
        let change = follower.change().await;
        assert_eq!((&change["agentId"], &change["to"]["status"]), (&json!(id), &json!("Suspended")));
        assert_eq!(change["cursor"].as_str(), follower.last_id.as_deref());
        // The stream ends; the next one begins with the changes in between.
        let returns = follower.returns;
        follower.until(|follower, _| follower.returns > returns).await;
    }

    // A client that has gone takes nothing with it.
    drop(Follower::new(&stage).block().await);
    stage.proxy.inject(Rule::any(Fault::Refuse));
    follower.until(|_, block| block.contains("RPC_UNAVAILABLE")).await;
    stage.proxy.heal();
    suspend(&stage.chain, 4).await;
    assert_eq!(follower.change().await["agentId"], 4);

    let events = stage.client.with("accept", "text/event-stream");
    let head = events.send(Method::HEAD, "/api/v1/changes").await;
    assert_eq!((head.status, head.header("content-type"), &*head.text), (200, "text/event-stream", ""));
    let refused = events.with("last-event-id", "x").get("/api/v1/changes").await;
    assert_eq!(refused.error(400), "Invalid Last-Event-ID: must be the id of an event of this stream");
    events.with("last-event-id", "1-1").get("/api/v1/changes").await.error(410);
    let anything = stage.client.with("accept", "*/*").get("/api/v1/changes").await;
    assert_eq!((anything.header("content-type"), anything.header("vary")), ("application/json", "Accept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_as_many_streams_as_it_may_and_room_again_once_they_have_ended() {
    let options = |options: WorkerOptions| {
        // The index's Worker has the same settings, and no object that counts clients.
        options
            .var("KYA_TTL_SECONDS", 1)
            .var("CHANGES_STREAMS_PER_CLIENT", 2)
            .var("CHANGES_STREAM_SECONDS", 10)
            // A slot without a heartbeat expires after four deadlines and eleven seconds.
            .var("RPC_TIMEOUT_SECONDS", 1)
            .var("RPC_DEADLINE_SECONDS", 2)
            .var("RATE_LIMITER", "durable-object")
    };
    let stage = Stage::indexed(chain().await, options).await.unwrap();
    stage.client.get("/api/v1/agents?q=agent").await.ok();
    stage.client.get(&format!("/api/v1/liable/{}", wallet("stranger"))).await.ok();

    let mut open = Vec::new();
    for _ in 0..2 {
        let mut follower = Follower::new(&stage);
        follower.until(|follower, _| follower.last_id.is_some()).await;
        open.push(follower);
    }
    let events = stage.client.with("accept", "text/event-stream");
    let refused = events.get("/api/v1/changes?since=now").await;
    refused.failed(429, "RATE_LIMITED");
    assert_eq!(refused.number("retry-after"), 60);
    drop(open);
    // The local proxy may not tell the Worker that a client has gone: its slots expire in any case.
    let mut next = Follower::new(&stage);
    next.until(|follower, _| follower.last_id.is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_index_there_is_an_error_that_says_so() {
    let chain = chain().await;
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry);
    let worker = Worker::start(options).await.unwrap();
    let client = worker.client();
    let refused = client.get("/api/v1/changes").await;
    let message = "This is answered from an index of the registry, and this service keeps none";
    assert_eq!(refused.failed(501, "INDEX_REQUIRED"), message);
    assert_eq!(refused.header("cache-control"), "no-store");
    client.get("/api/v1/changes?since=x").await.error(400);
    client.with("accept", "text/event-stream").get("/api/v1/changes").await.error(501);
}
