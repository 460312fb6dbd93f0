//! Verdicts of the real Worker and the real gate as signed tokens, for the field's own verifiers.
//!
//! 1. The documented samples for npm jose, this project's Python package, the crate jsonwebtoken and Envoy
//!    accept a verdict of the Worker and one by its next key. They refuse one that has ended, was signed by
//!    another key or changed, has another algorithm, audience, issuer, wallet, chain or registry, or does not
//!    admit.
//! 2. The Worker signs for clients that name the media type, and publishes its keys; without keys it says so.
//! 3. A gate signs with the present keys of its file, and an invalid file changes nothing.

use e2e::anvil::{CHAIN_ID, wall_clock};
use e2e::client::Client;
use e2e::gate::{Gate, RecordingService};
use e2e::process::wait_until;
use e2e::reverse_proxies::{self, ReverseProxyKind};
use e2e::seed::kya;
use e2e::verdict_tokens::{key_file, key_set, kid, new_key, of_algorithm, signed, signing};
use e2e::worker::{Worker, WorkerOptions};
use e2e::{http, repo, signers};
use registry_core::registry::kya::Decision;
use registry_core::token::{Jws, KeySet, VerdictClaims};
use serde_json::{Value, json};

use crate::{ISSUER, PATIENCE, ask, chain, configuration, plain};

const SITE: &str = "https://shop.example";
const JWKS: &str = "/.well-known/jwks.json";

/// Starts a Worker that signs with the first of these keys, if there are any.
async fn worker(keys: &[&Value]) -> Worker {
    let chain = chain().await;
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let options = match keys {
        [] => options,
        keys => options.var("VERDICT_KEYS", key_set(keys)).var("VERDICT_ISSUER", ISSUER),
    };
    Worker::start(options).await.unwrap()
}

/// Returns a client that names the media type of tokens.
fn for_tokens(client: &Client) -> Client {
    client.with("accept", "application/jwt")
}

/// Requests a token from a Worker, with this query.
async fn token(client: &Client, query: &str) -> String {
    let answer = for_tokens(client).get(&format!("{}{query}", kya("good"))).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/jwt"), "{}", answer.text);
    answer.text
}

/// The documented sample for the crate.
#[expect(unreachable_pub, reason = "as users write it")]
#[path = "../../signers/verdict_verifier.rs"]
mod rust_sample;

#[tokio::test(flavor = "multi_thread")]
async fn every_verifier_accepts_a_verdict_and_none_that_is_another() {
    // Install the packages first, which may take longer than the minute that a token lives.
    signers::with_package().await.unwrap();
    let [present, next, stranger] =
        [new_key().await.unwrap(), new_key().await.unwrap(), new_key().await.unwrap()];
    let worker = worker(&[&present, &next]).await;
    let client = worker.client();
    let of_worker = token(&client, &format!("?audience={SITE}")).await;
    let claims = Jws::parse(&of_worker).unwrap().claims;
    let changed = |change: fn(&mut VerdictClaims)| {
        let mut claims = claims.clone();
        change(&mut claims);
        claims
    };
    let by = |key: &Value, name: &Value, claims: &VerdictClaims| signed(key, &kid(name), claims).unwrap();
    // The second letter of the claims: changed bytes that are still base64url.
    let place = of_worker.find('.').unwrap() + 2;
    let letter = if &of_worker[place..=place] == "A" { "B" } else { "A" };
    let mut altered = of_worker.clone();
    altered.replace_range(place..=place, letter);
    let ended = changed(|claims| (claims.iat, claims.exp) = (wall_clock() - 180, wall_clock() - 120));
    let of_another = changed(|claims| claims.sub = format!("eip155:{CHAIN_ID}:0x{:040x}", 7));
    let of_another_chain = changed(|claims| claims.sub = claims.sub.replace("eip155:", "eip155:8"));
    let of_another_registry =
        changed(|claims| claims.registry = Some(format!("eip155:{CHAIN_ID}:0x{:040x}", 7)));
    let rows = [
        ("of the Worker", of_worker, true),
        ("of the next key", by(&next, &next, &claims), true),
        ("expired", by(&present, &present, &ended), false),
        ("re-signed by another key", by(&stranger, &present, &claims), false),
        ("of an unknown key", by(&stranger, &stranger, &claims), false),
        ("alg none", of_algorithm("none", &present, &claims), false),
        ("alg HS256", of_algorithm("HS256", &present, &claims), false),
        ("another audience", token(&client, "?audience=https://other.example").await, false),
        ("no audience", token(&client, "").await, false),
        ("another issuer", by(&present, &present, &changed(|claims| claims.iss += ".other")), false),
        ("a changed letter", altered, false),
        ("a denial", by(&present, &present, &changed(|claims| claims.decision = Decision::Deny)), false),
        ("another wallet", by(&present, &present, &of_another), false),
        ("another chain", by(&present, &present, &of_another_chain), false),
        ("another registry", by(&present, &present, &of_another_registry), false),
        ("no registry", by(&present, &present, &changed(|claims| claims.registry = None)), false),
    ];
    let keys = format!("{}{JWKS}", worker.url());
    let registry = claims.registry.clone().unwrap();
    let mut arguments = vec![keys.as_str(), &claims.sub, &registry];
    arguments.extend(rows.iter().map(|(_, token, _)| token.as_str()));
    let jose = signers::node("verdict-verifier.mjs", &arguments).await.unwrap();
    let pyjwt = signers::python("verify_verdicts.py", &arguments).await.unwrap();
    let published = http::client(PATIENCE).get(&keys).send().await.unwrap().json().await.unwrap();
    let page = std::fs::read_to_string(repo::root().join("docs/signed-verdicts.md")).unwrap();
    assert!(page.contains(include_str!("../../signers/verdict_verifier.rs")), "the sample is documented");
    let service = RecordingService::start().await.unwrap();
    let verifier = reverse_proxies::verdict_verifier(worker.url(), ISSUER, SITE, &registry, service.url());
    let (_envoy, envoy) = verifier.await.unwrap();
    for (index, (name, token, accepted)) in rows.iter().enumerate() {
        let rust = rust_sample::admitted(token, &claims.sub, &registry, &published);
        let request = http::client(PATIENCE).get(&envoy).header("kya-verdict", token);
        let envoy = request.send().await.unwrap().status().as_u16();
        // Envoy does not compare the wallet, which is the task of a gate before it.
        let is_anothers = matches!(*name, "another wallet" | "another chain");
        let passed = *accepted || is_anothers;
        assert_eq!((envoy == 200, service.take().len()), (passed, usize::from(passed)), "{name}: {envoy}");
        assert!(passed || matches!(envoy, 401 | 403), "{name}: {envoy}");
        for (verifier, verified) in [("jose", &jose[index]), ("Python", &pyjwt[index])] {
            assert_eq!(verified.get("error").is_none(), *accepted, "{verifier}, {name}: {verified}");
        }
        assert_eq!(rust.is_some(), *accepted, "jsonwebtoken, {name}");
        if *accepted {
            let claims = serde_json::to_value(&claims).unwrap();
            assert_eq!([&jose[index], &pyjwt[index], &rust.unwrap()], [&claims; 3], "{name}");
        }
    }
    assert!(!worker.log().contains(present["d"].as_str().unwrap()), "no private part is logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_signs_for_clients_that_name_the_media_type() {
    let key = new_key().await.unwrap();
    let worker = worker(&[&key]).await;
    let (client, path) = (worker.client(), kya("good"));
    let answer = client.get(&path).await;
    let verdict = answer.ok();
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("vary"), "Accept, Liability-Acceptance");
    let first = for_tokens(&client).get(&path).await;
    for (name, value) in [
        ("vary", "Accept, Liability-Acceptance"),
        ("cache-control", "no-store"),
        ("x-cache", "HIT"),
        ("etag", ""),
    ] {
        assert_eq!(first.header(name), value, "{name}");
    }
    let claims = Jws::parse(&first.text).unwrap().claims;
    let said = json!([claims.decision, claims.reasons, claims.as_of]);
    assert_eq!(said, json!([verdict["decision"], verdict["reasons"], verdict["asOf"]]));
    let again = Jws::parse(&token(&client, "?history=0").await).unwrap().claims;
    assert_eq!(again.exp, claims.exp, "it ends with the cached verdict");

    // Other answers have no signed form.
    let other = kya("new").rsplit('/').next().unwrap().to_owned();
    let block = format!("?block={}", chain().await.node.height().await.unwrap());
    for query in [&block, "?evidence=1", &format!(",{other}")] {
        let refused = for_tokens(&client).get(&format!("{path}{query}")).await;
        assert!(refused.error(406).contains("only the verdict on one wallet"), "{query}");
        let json = client.with("accept", "application/jwt, */*;q=0.1").get(&format!("{path}{query}")).await;
        assert_eq!((json.status, json.header("content-type")), (200, "application/json"), "{query}");
    }

    let published = client.get(JWKS).await;
    assert_eq!((published.status, published.header("content-type")), (200, "application/jwk-set+json"));
    assert_eq!(published.header("cache-control"), "public, max-age=60");
    assert!(KeySet::parse(&published.text).unwrap().find(&kid(&key)).is_some());
    assert!(!published.text.contains("\"d\""), "no private part is published");
    let unchanged = client.with("if-none-match", published.header("etag")).get(JWKS).await;
    assert_eq!(unchanged.status, 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_a_worker_says_that_it_signs_none_and_a_wrong_one_is_named() {
    let (mut key, other) = (new_key().await.unwrap(), new_key().await.unwrap());
    // The private part is another key's, which the runtime detects.
    key["d"] = other["d"].clone();
    let (without, wrong) = (worker(&[]).await, worker(&[&key]).await);
    let refused = for_tokens(&without.client()).get(&kya("good")).await;
    let message = refused.failed(406, "NOT_ACCEPTABLE");
    assert!(message.contains("VERDICT_KEYS is not set; ask for application/json"), "{message}");
    without.client().get(JWKS).await.error(404);
    let message = for_tokens(&wrong.client()).get(&kya("good")).await.error(500);
    assert_eq!(message, "Misconfigured: VERDICT_KEYS key 1: d is not the private part of x and y");
    for worker in [without, wrong] {
        worker.client().get(&kya("good")).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_signs_with_the_keys_that_its_file_has_now() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (new_key().await.unwrap(), new_key().await.unwrap());
    let file = directory.path().join("keys.json");
    key_file(&file, &key_set(&[&first])).unwrap();
    let text = configuration(ReverseProxyKind::Envoy).await + &signing(ISSUER, &file);
    let gate = Gate::start(&text).await.unwrap();
    // Returns the id of the key that signs now.
    let signs = async || {
        let answer = ask(&gate, &crate::signed("/items")).await;
        Jws::parse(answer.header("kya-verdict")[0]).unwrap().kid
    };
    assert_eq!(signs().await, kid(&first));
    let (good, report) = Gate::check(&text).await.unwrap();
    let named = format!("✓ verdict   signed by {ISSUER} with the key {}", kid(&first));
    assert!(good && report.contains(&named), "{report}");

    key_file(&file, "{\"keys\":[7]}").unwrap();
    let (good, report) = Gate::check(&text).await.unwrap();
    assert!(!good && report.contains("✗ verdict   verdict.keys: must be a JWK set"), "{report}");
    wait_until("the file's fault is logged", PATIENCE, async || gate.log().contains("must be a JWK set"))
        .await;
    assert_eq!(signs().await, kid(&first));
    key_file(&file, &key_set(&[&second, &first])).unwrap();
    wait_until("another key signs", PATIENCE, async || signs().await == kid(&second)).await;
    let published = KeySet::parse(&plain(gate.url(), JWKS).await.body).unwrap();
    assert!([&first, &second].into_iter().all(|key| published.find(&kid(key)).is_some()));
    assert!(!gate.log().contains(first["d"].as_str().unwrap()));
}
