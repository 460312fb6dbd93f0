//! Verdicts as signed tokens: WebCrypto signs them, so that the Worker carries no cryptography for it.

use std::cell::RefCell;

use registry_core::{
    api::{accept::JWT_TYPE, acceptance::JudgedVerdict, error::Error},
    eth::timestamp::Timestamp,
    registry::kya::KyaAnswer,
    token::{Terms, VerdictClaims, compact, signing_input},
};
use worker::{
    Result as WorkerResult,
    js_sys::{Array, Function, JSON, Promise, Reflect, Uint8Array, global},
    wasm_bindgen::{JsCast as _, JsValue},
    wasm_bindgen_futures::JsFuture,
};

use crate::{
    http::{Content, Lifetime},
    settings::Signing,
};

/// Seconds for which the published keys may be cached: a removed key is accepted for as long.
const KEYS_MAX_AGE: u32 = 60;

thread_local! {
    /// The key that signs, once it is imported. Settings and with them the keys are those of the instance.
    static SIGNER: RefCell<Option<JsValue>> = const { RefCell::new(None) };
}

/// Signs the verdict of an answer of `/kya/:wallet` as a token for this audience, judged by an acceptance
/// where the request has one. Errors: [`Error::Misconfigured`] where the runtime refuses the key.
pub(crate) async fn sign(
    signing: &Signing,
    verdict: &Content,
    judged: Option<&JudgedVerdict>,
    registry: &str,
    audience: Option<&str>,
    now: Timestamp,
) -> Result<Content, Error> {
    let unusable =
        |_| Error::Misconfigured("VERDICT_KEYS key 1: d is not the private part of x and y".to_owned());
    let body = judged.map_or(verdict.body.as_slice(), |judged| judged.body.as_bytes());
    let answer = KyaAnswer::parse(body).ok_or(Error::NotAcceptable("this verdict is not signed"))?;
    let cached_until = verdict.made_at.as_millis().saturating_add(verdict.max_age_millis());
    let terms = Terms {
        issuer: &signing.issuer,
        chain: signing.chain_id,
        audience,
        admission: None,
        now,
        cached_until: Timestamp::from_millis(cached_until),
    };
    let signer =
        signing.keys.signer().map_err(|error| Error::Misconfigured(format!("VERDICT_KEYS {error}")))?;
    let liability = answer.liability;
    let not_after = judged.and_then(|judged| judged.not_after);
    let claims = VerdictClaims::of(answer.into(), &terms).with_liability(liability, registry, not_after);
    let input = signing_input(&signer.key().kid, &claims);
    let key = match SIGNER.with_borrow(Clone::clone) {
        Some(key) => key,
        None => {
            let key = import(&signer.jwk()).await.map_err(unusable)?;
            SIGNER.set(Some(key.clone()));
            key
        }
    };
    let signature = signature(&key, &input).await.map_err(unusable)?;
    Ok(Content::no_store(JWT_TYPE, &compact(&input, &signature), now)
        .with_source(verdict.source)
        .varying_by_request())
}

/// Returns the published keys.
pub(crate) fn published(signing: &Signing, now: Timestamp) -> Content {
    let body = signing.keys.published();
    let etag = registry_core::api::document::entity_tag(&body);
    let lifetime = Lifetime::Seconds(KEYS_MAX_AGE);
    Content::new("application/jwk-set+json", body.into_bytes(), etag, None, now, lifetime)
}

async fn import(jwk: &str) -> WorkerResult<JsValue> {
    let algorithm = JSON::parse(r#"{"name":"ECDSA","namedCurve":"P-256"}"#)?;
    let usages = Array::of1(&"sign".into());
    let key = JSON::parse(jwk)?;
    call("importKey", &Array::of5(&"jwk".into(), &key, &algorithm, &false.into(), &usages)).await
}

async fn signature(key: &JsValue, input: &str) -> WorkerResult<Vec<u8>> {
    let algorithm = JSON::parse(r#"{"name":"ECDSA","hash":"SHA-256"}"#)?;
    let input = Uint8Array::from(input.as_bytes());
    Ok(Uint8Array::new(&call("sign", &Array::of3(&algorithm, key, &input)).await?).to_vec())
}

/// Calls a method of `crypto.subtle`.
async fn call(method: &str, arguments: &Array) -> WorkerResult<JsValue> {
    let subtle = Reflect::get(&Reflect::get(&global(), &"crypto".into())?, &"subtle".into())?;
    let method: Function = Reflect::get(&subtle, &method.into())?.unchecked_into();
    let promise: Promise = Reflect::apply(&method, &subtle, arguments)?.unchecked_into();
    Ok(JsFuture::from(promise).await?)
}
