//! Verdicts as signed tokens, of the real Worker and the real gate, verified by the field's own verifiers.
//!
//! 1. npm jose, PyPI PyJWT and Envoy's `jwt_authn` accept a verdict, and refuse each that has ended, was
//!    signed by another key or changed, or has another algorithm, audience or issuer.
//! 2. Keys rotate under load without a refusal.
//! 3. The Worker signs for clients that name the media type; without keys it says so.
//! 4. A file of keys that a gate cannot use is named, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::anvil::{CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::client::Client;
use e2e::gate::{Gate, ORIGIN, Service};
use e2e::process::{Process, Spawn, wait_until};
use e2e::reverse_proxies::{self, Kind};
use e2e::seed::{chain_of_one, kya, wallet};
use e2e::signed_requests::Draft;
use e2e::stage::Stage;
use e2e::verdict_tokens::{key_file, key_set, kid, new_key, of_algorithm, signed, signing};
use e2e::worker::{Worker, WorkerOptions};
use e2e::{http, repo, signers};
use registry_core::token::{Jws, KeySet, VerdictClaims};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const ISSUER: &str = "https://kya.example";
const SITE: &str = "https://shop.example";
const JWKS: &str = "/.well-known/jwks.json";
const PATIENCE: Duration = Duration::from_secs(30);

/// A Worker that signs, and its keys: the present one and the next.
struct Issuer {
    stage: Stage,
    present: Value,
    next: Value,
}

async fn issuer() -> &'static Issuer {
    static ISSUING: OnceCell<Issuer> = OnceCell::const_new();
    ISSUING
        .get_or_init(async || {
            let (present, next) = (new_key().await.unwrap(), new_key().await.unwrap());
            let keys = key_set(&[&present, &next]);
            let signing = |options: WorkerOptions| {
                options.var("VERDICT_KEYS", keys).var("VERDICT_ISSUER", ISSUER).var("CHAIN_ID", CHAIN_ID)
            };
            let stage = Stage::over(chain_of_one().await.unwrap(), signing).await.unwrap();
            Issuer { stage, present, next }
        })
        .await
}

/// The token that the Worker answers this query with.
async fn token(client: &Client, query: &str) -> String {
    let answer = client.with("accept", "application/jwt").get(&format!("{}{query}", kya("good"))).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/jwt"), "{}", answer.text);
    answer.text
}

/// npm jose behind a port.
struct Jose {
    url: String,
    http: reqwest::Client,
    _process: Process,
}

impl Jose {
    async fn start(keys: &str, audience: &str) -> Self {
        let script = repo::root().join("tests/signers/verdict-verifier.mjs");
        let spawn = Spawn::new("jose", "node").arg(script).args([keys, ISSUER, audience, "1000"]);
        let mut process = spawn.start().unwrap();
        let url = process.announced("listening on ", PATIENCE).await.unwrap();
        Self { url, http: http::client(PATIENCE), _process: process }
    }

    /// The claims, or the error's name.
    async fn verify(&self, token: &str) -> Result<Value, String> {
        let answer = self.http.post(&self.url).body(token.to_owned()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        if status == 200 { Ok(serde_json::from_str(&text).unwrap()) } else { Err(text) }
    }
}

/// What Envoy answers a request that has this verdict.
async fn envoy_says(http: &reqwest::Client, url: &str, token: &str) -> u16 {
    http.get(url).header("kya-verdict", token).send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verifier_accepts_a_verdict_and_none_that_is_another() {
    let Issuer { stage, present, next } = issuer().await;
    let stranger = new_key().await.unwrap();
    let of_worker = token(&stage.client, &format!("?audience={SITE}")).await;
    let claims = Jws::parse(&of_worker).unwrap().claims;
    let changed = |change: fn(&mut VerdictClaims)| {
        let mut claims = claims.clone();
        change(&mut claims);
        claims
    };
    let by = |key: &Value, name: &Value, claims: &VerdictClaims| signed(key, &kid(name), claims).unwrap();
    // The first letter of the claims but one: other bytes, and still base64url.
    let place = of_worker.find('.').unwrap() + 2;
    let letter = if &of_worker[place..=place] == "A" { "B" } else { "A" };
    let mut altered = of_worker.clone();
    altered.replace_range(place..=place, letter);
    let ended = changed(|claims| (claims.iat, claims.exp) = (wall_clock() - 180, wall_clock() - 120));
    let rows = [
        ("of the Worker", of_worker, true),
        ("of the next key", by(next, next, &claims), true),
        ("expired", by(present, present, &ended), false),
        ("re-signed by another key", by(&stranger, present, &claims), false),
        ("of an unknown key", by(&stranger, &stranger, &claims), false),
        ("alg none", of_algorithm("none", present, &claims), false),
        ("alg HS256", of_algorithm("HS256", present, &claims), false),
        ("another audience", token(&stage.client, "?audience=https://other.example").await, false),
        ("no audience", token(&stage.client, "").await, false),
        ("another issuer", by(present, present, &changed(|claims| claims.iss += ".other")), false),
        ("a changed letter", altered, false),
    ];
    let keys = format!("{}{JWKS}", stage.worker.url());
    let jose = Jose::start(&keys, SITE).await;
    let service = Service::start().await.unwrap();
    let (_envoy, envoy) =
        reverse_proxies::verdict_verifier(stage.worker.url(), ISSUER, SITE, service.url()).await.unwrap();
    let mut arguments = vec![keys.as_str(), ISSUER, SITE];
    arguments.extend(rows.iter().map(|(_, token, _)| token.as_str()));
    let printed = signers::python("verify_verdicts.py", &arguments).await.unwrap();
    let http = http::client(PATIENCE);
    println!("{:<26} jose                                PyJWT                       Envoy", "");
    for ((name, token, accepted), pyjwt) in rows.iter().zip(printed.as_array().unwrap()) {
        let jose = jose.verify(token).await;
        let envoy = envoy_says(&http, &envoy, token).await;
        let reached = service.take().len();
        let said = jose.as_ref().map_or_else(String::as_str, |_| "accepted");
        let python_said = pyjwt["error"].as_str().unwrap_or("accepted");
        println!("{name:<26} {said:<35} {python_said:<27} {envoy}");
        assert_eq!((said == "accepted", python_said == "accepted"), (*accepted, *accepted), "{name}");
        // Envoy's word for another audience is 403.
        let refusals = [(401, 0), (403, 0)];
        let is_expected =
            if *accepted { (envoy, reached) == (200, 1) } else { refusals.contains(&(envoy, reached)) };
        assert!(is_expected, "{name}: {envoy}, {reached}");
        if *accepted {
            let claims = serde_json::to_value(&claims).unwrap();
            assert_eq!((jose.unwrap(), pyjwt), (claims.clone(), &claims), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_signs_for_clients_that_name_the_media_type() {
    let Issuer { stage, present, next } = issuer().await;
    let client = &stage.client;
    let path = kya("good");
    let answer = client.get(&path).await;
    let verdict = answer.ok();
    assert_eq!((answer.header("content-type"), answer.header("vary")), ("application/json", "Accept"));
    let first = client.with("accept", "application/jwt, application/json;q=0.5").get(&path).await;
    assert_eq!((first.status, first.header("content-type")), (200, "application/jwt"));
    let expected = [("vary", "Accept"), ("cache-control", "no-store"), ("x-cache", "HIT"), ("etag", "")];
    for (name, value) in expected {
        assert_eq!(first.header(name), value, "{name}");
    }
    let claims = Jws::parse(&first.text).unwrap().claims;
    let wallet = format!("eip155:{CHAIN_ID}:{:#x}", wallet("good").address());
    let now = wall_clock();
    assert_eq!((claims.iss.as_str(), claims.sub, claims.aud), (ISSUER, wallet, None));
    assert!(claims.iat <= now && now < claims.exp && claims.exp <= claims.iat + 60, "{}", claims.exp);
    assert_eq!(serde_json::to_value(claims.as_of).unwrap(), verdict["asOf"]);
    assert_eq!(json!([claims.decision, claims.reasons]), json!([verdict["decision"], verdict["reasons"]]));
    let liable = claims.liable.unwrap().to_checksum(None);
    assert_eq!(liable, verdict["agent"]["haftungsperson"].as_str().unwrap());
    let again = token(client, "?history=0").await;
    assert_eq!(Jws::parse(&again).unwrap().claims.exp, claims.exp, "it ends with the cached verdict");
    let unregistered = client.with("accept", "application/jwt").get(&kya("unregistered")).await;
    let unregistered = Jws::parse(&unregistered.text).unwrap().claims;
    let said = json!([unregistered.decision, unregistered.reasons, unregistered.liable]);
    assert_eq!(said, json!(["deny", ["NOT_REGISTERED"], null]));

    // Other questions have no signed form.
    let other = kya("unregistered").rsplit('/').next().unwrap().to_owned();
    let block = format!("?block={}", stage.chain.node.height().await.unwrap());
    for query in [&block, "?evidence=1", &format!(",{other}")] {
        let refused = client.with("accept", "application/jwt").get(&format!("{path}{query}")).await;
        assert!(refused.error(406).contains("only the verdict on one wallet"), "{query}");
        let json = client.with("accept", "application/jwt, */*;q=0.1").get(&format!("{path}{query}")).await;
        assert_eq!((json.status, json.header("content-type")), (200, "application/json"), "{query}");
    }
    for query in ["?audience=shop.example", "?audience=https://shop.example/", "?audience=&audience="] {
        let message = client.get(&format!("{path}{query}")).await.error(400);
        assert!(message.starts_with("Invalid audience: must be"), "{query}: {message}");
    }

    let published = client.with("origin", "https://example.org").get(JWKS).await;
    assert_eq!((published.status, published.header("content-type")), (200, "application/jwk-set+json"));
    assert_eq!(published.header("cache-control"), "public, max-age=300");
    assert_eq!(published.header("access-control-allow-origin"), "*");
    let keys = KeySet::parse(&published.text).unwrap();
    assert!(keys.find(&kid(present)).is_some() && keys.find(&kid(next)).is_some());
    assert!(!published.text.contains("\"d\""), "no private part is published");
    let unchanged = client.with("if-none-match", published.header("etag")).get(JWKS).await;
    assert_eq!(unchanged.status, 304);
    assert!(!stage.worker.log().contains(present["d"].as_str().unwrap()), "nor logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_a_worker_says_that_it_signs_none_and_wrong_ones_are_named() {
    let stage = &issuer().await.stage;
    let options = WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry);
    let worker = Worker::start(options.clone()).await.unwrap();
    let client = worker.client();
    let refused = client.with("accept", "application/jwt").get(&kya("good")).await;
    let message = refused.error(406);
    assert!(message.contains("VERDICT_KEYS is not set; ask for application/json"), "{message}");
    assert_eq!(refused.json()["code"], "NOT_ACCEPTABLE");
    assert_eq!(
        client.with("accept", "application/jwt, application/json;q=0.1").get(&kya("good")).await.status,
        200
    );
    client.get(JWKS).await.error(404);

    // A private part of another key: the runtime finds that out.
    let (mut key, other) = (new_key().await.unwrap(), new_key().await.unwrap());
    key["d"] = other["d"].clone();
    let wrong =
        options.var("VERDICT_KEYS", key_set(&[&key])).var("VERDICT_ISSUER", ISSUER).var("CHAIN_ID", CHAIN_ID);
    let worker = Worker::start(wrong).await.unwrap();
    let message = worker.client().with("accept", "application/jwt").get(&kya("good")).await.error(500);
    assert_eq!(message, "Misconfigured: VERDICT_KEYS key 1: d is not the private part of x and y");
    worker.client().get(&kya("good")).await.ok();
}

/// A gate's configuration with the keys in this file.
fn configuration(chain: &Chain, keys: &Path) -> String {
    let registry = chain.contracts.registry.to_string();
    let text = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry).unwrap();
    text + &signing(ISSUER, keys)
}

/// Asks the gate as Envoy does; the verdict that it signed.
async fn admitted(gate: &str) -> String {
    let request = Draft::get(ORIGIN, "/items").sign(&wallet("good"), CHAIN_ID);
    let answer = request.asked_by_envoy().send(gate).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    // Its head is in lower case, and a token is not.
    answer.raw_header("kya-verdict").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_load_without_a_refusal() {
    let (chain, directory) = (chain_of_one().await.unwrap(), tempfile::tempdir().unwrap());
    let keys = [new_key().await.unwrap(), new_key().await.unwrap(), new_key().await.unwrap()];
    let file = directory.path().join("keys.json");
    let set = |order: &[usize]| key_set(&order.iter().map(|index| &keys[*index]).collect::<Vec<_>>());
    key_file(&file, &set(&[0, 1])).unwrap();
    let text = configuration(&chain, &file).replace("[kya]\n", "[kya]\ncache-seconds = 2\n");
    let gate = Gate::start(&text).await.unwrap();
    let jose = Arc::new(Jose::start(&format!("{}{JWKS}", gate.url()), ORIGIN).await);
    let service = Service::start().await.unwrap();
    let (_envoy, envoy) =
        reverse_proxies::verdict_verifier(gate.url(), ISSUER, ORIGIN, service.url()).await.unwrap();

    let verified: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let refused: Arc<Mutex<Vec<String>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (gate, envoy, jose) = (gate.url().to_owned(), envoy.clone(), Arc::clone(&jose));
            let (verified, refused) = (Arc::clone(&verified), Arc::clone(&refused));
            let (stop, http) = (Arc::clone(&stop), http::client(PATIENCE));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let token = admitted(&gate).await;
                    let kid = Jws::parse(&token).unwrap().kid;
                    let (said, status) = tokio::join!(jose.verify(&token), envoy_says(&http, &envoy, &token));
                    if let (Ok(_), 200) = (&said, status) {
                        *verified.lock().unwrap().entry(kid).or_default() += 1;
                    } else {
                        refused.lock().unwrap().push(format!("{kid}: {said:?}, {status}"));
                    }
                }
            })
        })
        .collect();
    let count = |key: &Value| verified.lock().unwrap().get(&kid(key)).copied().unwrap_or_default();
    let signs = async |key: &Value| {
        wait_until("tokens of a key", PATIENCE, async || count(key) >= 20).await;
    };
    let later = async |seconds: u64| {
        let begun = wall_clock();
        wait_until("later", PATIENCE, async || wall_clock() > begun + seconds).await;
    };
    signs(&keys[0]).await;
    key_file(&file, &set(&[1, 0])).unwrap();
    signs(&keys[1]).await;
    // The former key's last token ends two seconds after it was signed.
    later(3).await;
    key_file(&file, &set(&[1, 2])).unwrap();
    let probe = http::client(PATIENCE);
    wait_until("the next key is published", PATIENCE, async || {
        let published =
            probe.get(format!("{}{JWKS}", gate.url())).send().await.unwrap().text().await.unwrap();
        published.contains(&kid(&keys[2]))
    })
    .await;
    // Both verifiers keep keys for a second.
    later(2).await;
    key_file(&file, &set(&[2, 1])).unwrap();
    signs(&keys[2]).await;
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let counts: Vec<u64> = keys.iter().map(count).collect();
    println!("tokens verified by jose and Envoy, by key: {counts:?}");
    assert_eq!(*refused.lock().unwrap(), Vec::<String>::new());
    let signed: BTreeSet<String> = verified.lock().unwrap().keys().cloned().collect();
    assert_eq!(signed, keys.iter().map(kid).collect::<BTreeSet<_>>());
    let secret = keys[0]["d"].as_str().unwrap();
    assert!(gate.log().contains("other keys") && !gate.log().contains(secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_keys_that_cannot_be_used_is_named_and_changes_nothing() {
    let (chain, directory) = (chain_of_one().await.unwrap(), tempfile::tempdir().unwrap());
    let (key, file) = (new_key().await.unwrap(), directory.path().join("keys.json"));
    key_file(&file, &key_set(&[&key])).unwrap();
    let configuration = configuration(&chain, &file);
    let gate = Gate::start(&configuration).await.unwrap();
    let (good, report) = Gate::check(&configuration).await.unwrap();
    let named = format!("✓ verdict   signed by {ISSUER} with the key {}", kid(&key));
    assert!(good && report.contains(&named), "{report}");
    key_file(&file, "{\"keys\":[7]}").unwrap();
    let (good, report) = Gate::check(&configuration).await.unwrap();
    assert!(!good && report.contains("✗ verdict   verdict.keys: must be a JWK set"), "{report}");
    wait_until("the file's fault is logged", PATIENCE, async || gate.log().contains("must be a JWK set"))
        .await;
    assert_eq!(Jws::parse(&admitted(gate.url()).await).unwrap().kid, kid(&key));
}
