//! Requests that the client's side signs.

use alloy_primitives::B256;
use registry_core::gate::{Account, RefusalCode, SigningTerms, Unsigned};

use crate::message::{ADDRESS, EditableRequest, rules, signature_of};

const NOW: u64 = 1_790_000_000;

fn terms(nonce: &str) -> SigningTerms<'_> {
    let account = Account { chain: 1, address: ADDRESS.parse().unwrap() };
    SigningTerms { account, created: NOW, valid_seconds: 60, nonce }
}

fn message(method: &str, target: &str, fields: &[(&str, &str)], content: &str) -> EditableRequest {
    EditableRequest {
        now: NOW + 5,
        origin: "https://api.example".to_owned(),
        method: method.to_owned(),
        target: target.to_owned(),
        fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        content: content.to_owned(),
        base: String::new(),
        hash: B256::ZERO,
    }
}

#[test]
fn what_is_signed_is_admitted_with_content_and_without() {
    let json = [("content-type", "application/json")];
    // The digest is of other content.
    let own = [("content-digest", "sha-256=:4REjxQ4yrqUVicfSKYNO/cF9zNj5ANbzgDZt3/h3Qxo=:")];
    let account = terms("").account;
    for (method, target, fields, content, count, expected) in [
        ("GET", "/items?view=full", [].as_slice(), "", 2, Ok(account)),
        ("HEAD", "/", &[], "", 2, Ok(account)),
        // Not every proxy tells its gate that there is no content, so empty content has a digest, too.
        ("DELETE", "/orders/7", &[], "", 3, Ok(account)),
        ("POST", "/orders", &json, r#"{"amount":"100"}"#, 3, Ok(account)),
        ("POST", "/orders", &own, "hello world", 2, Err(RefusalCode::BadContentDigest)),
    ] {
        let mut message = message(method, target, fields, content);
        let unsigned = message.with(|request| Unsigned::new(request, &terms("a1"))).unwrap();
        let signature = signature_of(str::from_utf8(unsigned.message()).unwrap());
        let headers = unsigned.headers(&signature);
        assert_eq!(headers.len(), count, "{method} {target}: {headers:?}");
        for (name, value) in headers {
            message = message.set(name, value);
        }
        assert_eq!(message.verify(&rules()).map(|attempt| attempt.account), expected, "{method} {target}");
    }
}

#[test]
fn a_nonce_says_nothing_but_itself() {
    let message = message("GET", "/", &[], "");
    let unsigned = |terms: &SigningTerms<'_>| message.with(|request| Unsigned::new(request, terms));
    for nonce in ["a\";tag=\"other", "a\\", "a\nb", "ä", "a\";expires=9999999999;x=\"b"] {
        assert_eq!(unsigned(&terms(nonce)), None, "{nonce}");
    }
    assert_eq!(unsigned(&SigningTerms { created: u64::MAX, ..terms("a") }), None);
}
