//! The read API as a source of verdicts, played by a server.

use super::*;
use alloy_primitives::U256;
use axum::{Router, body::Body, extract::State, http::Response, routing::get};
use futures_util::stream;
use registry_core::{
    eth::as_of::AsOf,
    registry::kya::{Decision, Kya},
    token::StatedAt,
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

const WALLET: Address = Address::repeat_byte(1);
const REGISTRY: &str = "eip155:8453:0x00000000000000000000000000000000000000aa";
const NOW: u64 = 1_800_000_000;

/// An API with answers about this registry, of a block of this second.
#[derive(Clone)]
struct FakeApi {
    about: watch::Sender<(&'static str, u64)>,
    /// The open streams of changes, in their order.
    streams: watch::Sender<Vec<mpsc::UnboundedSender<&'static str>>>,
}

impl FakeApi {
    /// Starts the API, and a reader that takes verdicts from it.
    async fn start() -> (Self, Arc<AccountReader>) {
        let api =
            Self { about: watch::Sender::new((REGISTRY, NOW)), streams: watch::Sender::new(Vec::new()) };
        let app = Router::new()
            .route("/api/v1/kya/{wallet}", get(Self::verdict))
            .route("/api/v1/changes", get(Self::changes))
            .with_state(api.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, app).await });
        let settings = format!(
            r#"
            origin = "https://api.example"
            chain = {{ id = 8453, rpc = ["http://127.0.0.1:1"] }}
            kya = {{ registry = "0x00000000000000000000000000000000000000aa", api = "http://{url}" }}
            policy.api = {{ allow = ["provision"] }}
            "#
        );
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = Settings::parse_embedded(&settings, None).unwrap();
        (api, Arc::new(AccountReader::new(&settings, Metrics::new().unwrap()).unwrap()))
    }

    fn answer(&self, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        for registry in self.about.borrow().0.lines() {
            response.headers_mut().append("kya-registry", registry.parse().unwrap());
        }
        response
    }

    async fn verdict(State(api): State<Self>) -> Response<Body> {
        let (now, read_at) = (Timestamp::from_seconds(NOW), Timestamp::from_seconds(api.about.borrow().1));
        let as_of = AsOf { block_timestamp: read_at, ..AsOf::default() };
        let kya = Kya::of(WALLET, None, U256::from(604_800), now, as_of);
        api.answer(Body::from(serde_json::to_string(&kya).unwrap()))
    }

    async fn changes(State(api): State<Self>) -> Response<Body> {
        let (sender, receiver) = mpsc::unbounded_channel();
        api.streams.send_modify(|streams| streams.push(sender));
        let pieces = stream::unfold(receiver, async |mut receiver| {
            let piece = receiver.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(piece), receiver))
        });
        api.answer(Body::from_stream(pieces))
    }

    /// Writes to the last stream.
    fn write(&self, piece: &'static str) {
        self.streams.borrow().last().unwrap().send(piece).unwrap();
    }

    /// Ends all streams, and waits until there is another one.
    async fn reopened(&self) {
        let mut streams = self.streams.subscribe();
        self.streams.send_modify(|streams| streams.retain(|_| false));
        streams.wait_for(|streams| !streams.is_empty()).await.unwrap();
    }
}

const CHANGE: &str = "event: change\nid: 1-1\ndata: {\"wallet\":\"0x0101010101010101010101010101010101010101\",\"to\":null,\"blockNumber\":9}\n\n";
const OTHER_CHANGE: &str = "event: change\nid: 1-2\ndata: {\"wallet\":\"0x0202020202020202020202020202020202020202\",\"to\":null,\"blockNumber\":9}\n\n";
const BLOCK: &str = ": block 9\nid: 1-1\n\n";

#[tokio::test]
async fn a_chain_that_gives_no_proof_is_said_to_give_none() {
    let settings = r#"
        origin = "https://api.example"
        chain = { id = 8453, rpc = ["http://127.0.0.1:1"] }
        kya = { registry = "0x00000000000000000000000000000000000000aa" }
        policy.api = { allow = ["provision"] }
    "#;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = Settings::parse_embedded(settings, None).unwrap();
    let accounts = AccountReader::new(&settings, Metrics::new().unwrap()).unwrap();
    let refused = accounts.probe_evidence(Timestamp::from_seconds(NOW)).await.unwrap_err();
    assert!(refused.starts_with("evidence: "), "{refused}");
}

#[tokio::test]
async fn a_verdict_of_the_api_is_of_the_configured_registry_and_of_now() {
    let (fake, accounts) = FakeApi::start().await;
    let VerdictSource::Api(api) = &accounts.source else { panic!("no API") };
    let now = Timestamp::from_seconds(NOW);
    for (registry, read_at, error) in [
        (REGISTRY, NOW, ""),
        // `max-head-age-seconds`, and a minute in the API's own caches.
        (REGISTRY, NOW - 120, ""),
        (REGISTRY, NOW - 121, "a block that is 121 seconds old"),
        (REGISTRY, 1_577_836_800, "seconds old"),
        (REGISTRY, NOW + 60, ""),
        (REGISTRY, NOW + 61, "yet to come"),
        ("eip155:8453:0x00000000000000000000000000000000000000aa\neip155:1:0xaa", NOW, "aa, eip155:1:0xaa,"),
        ("eip155:84532:0x00000000000000000000000000000000000000aa", NOW, "about eip155:84532:"),
        ("eip155:8453:0x00000000000000000000000000000000000000ab", NOW, "00ab, and not about eip155:8453"),
        ("", NOW, "without KYA-Registry"),
    ] {
        fake.about.send_replace((registry, read_at));
        match api.read(WALLET, now).await {
            Ok(verdict) => {
                assert_eq!((verdict.decision, error), (Decision::Deny, ""), "{registry} {read_at}")
            }
            Err(said) => assert!(!error.is_empty() && said.contains(error), "{registry} {read_at}: {said}"),
        }
    }
}

/// Starts a reader that follows a fake API's changes, once it has opened their stream. It follows until the
/// sender is dropped.
async fn followed() -> (FakeApi, Arc<AccountReader>, watch::Sender<bool>) {
    let (fake, accounts) = FakeApi::start().await;
    let (running, stop) = watch::channel(false);
    let mut opened = fake.streams.subscribe();
    tokio::spawn(follow(Arc::clone(&accounts), stop));
    opened.wait_for(|streams| !streams.is_empty()).await.unwrap();
    (fake, accounts, running)
}

#[tokio::test]
async fn a_stream_of_changes_counts_from_the_first_block_that_it_names() {
    let (fake, accounts, _running) = followed().await;
    let changes = accounts.metrics.changes.with_label_values(&["change"]);
    let reaches = async |is_reached: &dyn Fn() -> bool| {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    for stream in 1..=3 {
        fake.write(CHANGE);
        reaches(&|| changes.get() == stream).await;
        assert_eq!(accounts.metrics.following.get(), 0, "stream {stream} has not caught up");
        fake.write(BLOCK);
        reaches(&|| accounts.metrics.following.get() == 1).await;
        fake.reopened().await;
    }
    // A stream about another registry is not followed, but opened again.
    fake.about.send_replace(("eip155:1:0x00000000000000000000000000000000000000aa", NOW));
    fake.reopened().await;
    fake.reopened().await;
    assert_eq!(accounts.metrics.following.get(), 0);
}

fn verdict(block: u64) -> Arc<Verdict> {
    Arc::new(Verdict {
        decision: Decision::Provision,
        reasons: Vec::new(),
        agent: None,
        compliant_until: None,
        as_of: StatedAt::number(block),
    })
}

#[tokio::test]
async fn a_verdict_of_a_block_before_the_first_one_of_a_stream_is_not_followed() {
    let (fake, accounts, _running) = followed().await;
    fake.write(BLOCK);
    while accounts.metrics.following.get() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for (block, is_followed) in [(8, false), (9, true)] {
        accounts.cache.put(WALLET, Some(&verdict(block)), None, &accounts.cache.begin());
        tokio::time::sleep(Duration::from_millis(1)).await;
        // A verdict that is not followed ages.
        let fresh_for = accounts.cache.get(WALLET, Timestamp::from_seconds(NOW)).fresh_for;
        assert_eq!(fresh_for == accounts.cache.cached(), is_followed, "of block {block}: {fresh_for:?}");
    }
}

#[tokio::test]
async fn a_verdict_from_before_a_change_that_may_be_missed_is_not_used() {
    const UNREADABLE: &str = "event: change\nid: 1-1\ndata: {}\n\n";
    const OTHER_EVENT: &str = "event: other\nid: 1-1\ndata: {}\n\n";
    // Events before the verdict and after it, and whether a new stream follows: at its next block, the
    // verdict is still used or not.
    for (before, after, is_reopened, is_used) in [
        (None, None, false, false),
        (None, None, true, false),
        (Some(OTHER_EVENT), None, false, false),
        (Some(BLOCK), None, false, true),
        (Some(BLOCK), None, true, true),
        (Some(BLOCK), Some(UNREADABLE), false, false),
        (Some(BLOCK), Some(UNREADABLE), true, false),
    ] {
        let (fake, accounts, _running) = followed().await;
        let changes = accounts.metrics.changes.with_label_values(&["change"]);
        let write = async |piece: Option<&'static str>| {
            let count = changes.get();
            piece.into_iter().chain([OTHER_CHANGE]).for_each(|piece| fake.write(piece));
            while changes.get() == count {
                tokio::task::yield_now().await;
            }
        };
        write(before).await;
        accounts.cache.put(WALLET, Some(&verdict(9)), None, &accounts.cache.begin());
        write(after).await;
        if is_reopened {
            fake.reopened().await;
        }
        write(Some(BLOCK)).await;
        let cached = accounts.cache.get(WALLET, Timestamp::from_seconds(NOW));
        assert_eq!(cached.verdict.is_some(), is_used, "{before:?} {after:?} {is_reopened}");
    }
}
