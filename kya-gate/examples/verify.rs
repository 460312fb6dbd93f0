//! Measures the signed requests per second of the core's verifier, on one thread: it parses fields, compares
//! digests, builds signature bases and recovers signers. Accounts count as accounts without code.
//!
//! `cargo run --profile native -p kya-gate --example verify -- REQUESTS.JSON SECONDS`, where the file has a
//! list of `{"method", "url", "headers": {...}, "body"}`.

use std::{collections::BTreeMap, fs, time::Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use registry_core::gate::{
    AccountState, Attempts, BASELINE_VALIDITY, Content, Dialect, Origin, Posture, Request, SignatureRules,
    WithoutNonce,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct SignedSample {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body: String,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().context("usage: verify REQUESTS.JSON SECONDS")?;
    let seconds: f64 = arguments.next().context("usage: verify REQUESTS.JSON SECONDS")?.parse()?;
    let signed: Vec<SignedSample> = serde_json::from_slice(&fs::read(file)?)?;
    ensure!(!signed.is_empty(), "no request");
    println!("{}", serde_json::json!({ "per_second": measure(&signed, seconds)? }));
    Ok(())
}

fn measure(signed: &[SignedSample], seconds: f64) -> Result<f64> {
    let rules = SignatureRules {
        chain: 31_337,
        dialects: Dialect::ALL.to_vec(),
        components: Vec::new(),
        longest_validity: BASELINE_VALIDITY,
        posture: Posture::Universal,
        without_nonce: WithoutNonce::Unknown,
        principals: Vec::new(),
    };
    let (began, mut verified) = (Instant::now(), 0_u32);
    let mut requests = signed.iter().cycle();
    while began.elapsed().as_secs_f64() < seconds {
        verify(requests.next().context("no request")?, &rules)?;
        verified += 1;
    }
    Ok(f64::from(verified) / began.elapsed().as_secs_f64())
}

fn verify(signed: &SignedSample, rules: &SignatureRules) -> Result<()> {
    let start = signed.url.find("://").context("a URL")? + 3;
    let (origin, target) = signed.url.split_at(signed.url[start..].find('/').context("a path")? + start);
    let origin = Origin::parse(origin).context("an origin")?;
    let fields: Vec<(&str, &[u8])> =
        signed.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let content = Content::Whole(signed.body.as_bytes());
    let request = Request { method: &signed.method, origin: &origin, target, fields: &fields, content };
    let refused = |refusal| anyhow!("{refusal:?}");
    let mut attempts = Attempts::of(&request, rules, kya_gate::http::now().seconds()).map_err(refused)?;
    let attempt = attempts.next();
    let attempt = attempt.with_context(|| format!("{:?}", attempts.conclude()))?;
    attempt.judge(AccountState::NoCode).map_err(refused)
}
