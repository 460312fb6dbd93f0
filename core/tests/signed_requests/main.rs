//! Signed requests as a gate verifies them.
//!
//! 1. The specification's vector is admitted, and each of its mutations gets the specification's code.
//! 2. Of several candidates the first that passes wins, and none hides another.
//! 3. A request that is not the one signed is never admitted.
//! 4. What the client's side signs is admitted, and its nonce is one text.
//! 5. A host's findings on account and attestation, or their lack, lead to the specification's code.
//! 6. No content of a field panics. `GATE_MUTATIONS` is the number of tries (20,000 by default),
//!    `MUTATION_SEED` the seed of the random numbers: `GATE_MUTATIONS=10000000 cargo test --release
//!    -p registry-core --test signed_requests` tries ten million.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod decision;
mod message;
mod mutations;
#[path = "../common/random.rs"]
mod random;
mod signing;

use alloy_primitives::{Address, hex, keccak256};
use base64ct::{Base64, Encoding as _};
use message::{ADDRESS, COMPONENTS, EditableRequest, parameters, rules};
use registry_core::eth::timestamp::Timestamp;
use registry_core::gate::{
    AccountQuery, AccountState, Attempts, Dialect, Links, Outcome, Posture, RefusalCode, SignatureRules,
    WithoutNonce,
};

#[test]
fn the_vector_of_the_specification_is_admitted() {
    let message = EditableRequest::vector();
    let attempt = message.verify(&rules()).unwrap();
    assert_eq!(message.base.len(), 449);
    assert_eq!(keccak256(format!("\x19Ethereum Signed Message:\n449{}", message.base)), message.hash);
    assert_eq!(attempt.hash, message.hash);
    assert_eq!((attempt.account.chain, attempt.account.address), (1, ADDRESS.parse::<Address>().unwrap()));
    assert_eq!((attempt.nonce.as_str(), attempt.valid_until), ("EjRWeJCrze8BI0VniavN7w", 1_700_000_090));
    // This test's own signer makes the same request.
    let signed = message.clone().sign(&COMPONENTS, &parameters(1_700_000_000, 1_700_000_060));
    assert_eq!(signed.field("signature-input"), message.field("signature-input"));
    assert_eq!(signed.field("signature"), message.field("signature"));
}

const NONCE: &str = r#"nonce="EjRWeJCrze8BI0VniavN7w";"#;

/// Signs the vector's request anew with these parameters.
fn signed(components: &[&str], parameters: &str) -> EditableRequest {
    EditableRequest::vector().sign(components, parameters)
}

/// Returns the parameters with the vector's times.
fn usual() -> String {
    parameters(1_700_000_000, 1_700_000_060)
}

#[test]
fn each_mutation_of_the_vector_gets_the_specifications_code() {
    use RefusalCode::{
        BadContentDigest, BadSignature, ContentDigestRequired, InsufficientCoverage, InvalidKeyid,
        InvalidNonce, InvalidTime, NoAcceptableSignature, NonceRequired, RequestExpired, RequestNotYetValid,
        RequestValidityTooLong, SignatureInputInvalid, SignatureMissing, SignatureTooLarge,
        UnsupportedAccount, UnsupportedAlgorithm, UnsupportedChain,
    };
    let vector = EditableRequest::vector;
    let input = |from: &str, to: &str| vector().input(from, to);
    let keyid = format!(r#""eip155:1:{ADDRESS}""#);
    let without =
        |name: &str| -> Vec<&str> { COMPONENTS.into_iter().filter(|other| *other != name).collect() };
    let padding = |bytes: usize| Base64::encode_string(&vec![0; bytes]);
    let many = |count: u32, piece: &str| -> String {
        (0..count).map(|number| piece.replace('#', &number.to_string())).collect()
    };
    let wrapped = hex!("6492649264926492649264926492649264926492649264926492649264926492");
    let wrapped = Base64::encode_string(&[&[0; 96], wrapped.as_slice()].concat());
    let appended = |name: &str, more: &str| vector().edit(name, |value| format!("{value}{more}"));
    let nine = many(9, &vector().field("signature-input").replacen("request", ", a#", 1));
    let undigested = || vector().set("content-digest", None);
    let mut cases = vec![
        (SignatureMissing, vector().set("signature", None)),
        (SignatureMissing, vector().set("signature-input", None)),
        (SignatureInputInvalid, vector().edit("signature", |value| value.replace("request", "other"))),
        (SignatureInputInvalid, vector().set("signature", "request=\"text\"".to_owned())),
        (SignatureTooLarge, appended("signature-input", &format!(", a=\"{}\"", "x".repeat(16 * 1024)))),
        (SignatureTooLarge, appended("signature", &format!(", a=:{}:", padding(12 * 1024)))),
        (SignatureTooLarge, vector().set("signature", format!("request=:{}:", padding(8 * 1024 + 1)))),
        (SignatureTooLarge, input(";tag", &format!("{};tag", many(12, ";a#")))),
        (SignatureTooLarge, input("(", &format!("({} ", many(26, "\"a#\" ").trim_end()))),
        (SignatureTooLarge, vector().set("signature-input", nine[2..].to_owned())),
        (NoAcceptableSignature, input("\"erc8128\"", "\"erc8128-delegated\"")),
        (NoAcceptableSignature, input("\"erc8128\"", "erc8128")),
        (NoAcceptableSignature, input(";tag=\"erc8128\"", "")),
        (InvalidKeyid, input(&keyid, &keyid.replace(":1:", ":01:"))),
        (InvalidKeyid, input(&keyid, "?1")),
        (InvalidKeyid, input(&format!(";keyid={keyid}"), "")),
        (UnsupportedChain, input("eip155:1:", "eip155:8453:")),
        (UnsupportedAccount, vector().set("signature", format!("request=:{wrapped}:"))),
        (RequestNotYetValid, EditableRequest { now: 1_699_999_969, ..vector() }),
        (RequestExpired, EditableRequest { now: 1_700_000_091, ..vector() }),
        (RequestExpired, EditableRequest { now: u64::MAX, ..vector() }),
        (RequestValidityTooLong, signed(&COMPONENTS, &parameters(1_700_000_000, 1_700_000_061))),
        (InsufficientCoverage, input("\"@query\"", "\"@query\";req")),
        (ContentDigestRequired, undigested().sign(&without("content-digest"), &usual())),
        (ContentDigestRequired, undigested()),
        (BadContentDigest, EditableRequest { content: r#"{"hello":"World"}"#.to_owned(), ..vector() }),
        (BadContentDigest, EditableRequest { content: String::new(), ..vector() }),
        (BadContentDigest, appended("content-digest", ",")),
        (NonceRequired, signed(&COMPONENTS, &usual().replace(NONCE, ""))),
        (UnsupportedAlgorithm, input(";tag", ";alg=\"ecdsa\";tag")),
        (BadSignature, EditableRequest { target: "/items?view=brief".to_owned(), ..vector() }),
    ];
    for (from, to) in [
        (";created=1700000000", ""),
        (";expires=1700000060", ""),
        ("created=1700000000", "created=\"1700000000\""),
        ("expires=1700000060", "expires=1700000060.5"),
        ("expires=1700000060", "expires=1700000000"),
        ("expires=1700000060", "expires=1699999999"),
        ("expires=1700000060", "expires=-999999999999999"),
    ] {
        cases.push((InvalidTime, input(from, to)));
    }
    for other in ["token", "1", "?1", ":AAAA:", &format!("\"{}\"", "n".repeat(129))] {
        cases.push((InvalidNonce, input(r#""EjRWeJCrze8BI0VniavN7w""#, other)));
    }
    for component in COMPONENTS {
        cases.push((InsufficientCoverage, signed(&without(component), &usual())));
    }
    for name in ["signature", "signature-input"] {
        for broken in ["", "request", "request=:/", "request=(", "request=()\u{e9}", "a=1,", "Request=()"] {
            // An empty dictionary is well-formed, and so is a member without a value.
            let is_dictionary = name == "signature-input" && ["", "request"].contains(&broken);
            let code = if is_dictionary { NoAcceptableSignature } else { SignatureInputInvalid };
            cases.push((code, vector().set(name, broken.to_owned())));
        }
    }
    for (place, (code, message)) in cases.into_iter().enumerate() {
        assert_eq!(message.verify(&rules()), Err(code), "case {place}: {message:?}");
    }
}

#[test]
fn limits_of_time_and_length_are_inclusive() {
    for now in [1_699_999_970, 1_700_000_090] {
        assert!(EditableRequest { now, ..EditableRequest::vector() }.verify(&rules()).is_ok(), "{now}");
    }
    let longer = signed(&COMPONENTS, &parameters(1_700_000_000, 1_700_000_061));
    assert!(longer.verify(&SignatureRules { longest_validity: 61, ..rules() }).is_ok());
}

#[test]
fn rules_of_a_route_refuse_or_admit() {
    let vector = EditableRequest::vector();
    let eoa_only = SignatureRules { posture: Posture::EoaOnly, ..rules() };
    for accepts in [true, false] {
        let judged = vector.verify_as(&eoa_only, Some(AccountState::Code { accepts }));
        assert_eq!(judged, Err(RefusalCode::UnsupportedAccount));
    }
    // Code is looked for in either case, and called only where it decides.
    for (rules, is_asked) in [(&eoa_only, false), (&rules(), true)] {
        let mut attempts = vector.with(|request| Attempts::of(request, rules, vector.now)).unwrap();
        let query = AccountQuery::of(&attempts.next().unwrap(), None, Timestamp::default());
        assert_eq!(query.signed.is_some(), is_asked);
    }
    let wanting = SignatureRules { components: vec!["x-order".to_owned()], ..rules() };
    assert_eq!(vector.verify(&wanting), Err(RefusalCode::InsufficientCoverage));
    let extended: Vec<&str> = COMPONENTS.into_iter().chain(["x-order"]).collect();
    let message = vector.clone().set("x-order", "7".to_owned()).sign(&extended, &usual());
    assert!(message.verify(&wanting).is_ok());
    let elsewhere = SignatureRules { without_nonce: WithoutNonce::ElsewhereOnly, ..rules() };
    let without = signed(&COMPONENTS, &usual().replace(NONCE, ""));
    assert_eq!(without.verify(&elsewhere), Err(RefusalCode::ReplayableNotAllowed));
    let principals = vec![Address::ZERO];
    let other = SignatureRules { principals, ..rules() };
    assert_eq!(vector.verify(&other), Err(RefusalCode::PrincipalNotAllowed));
    let principals = vec![Address::ZERO, ADDRESS.parse().unwrap()];
    assert!(vector.verify(&SignatureRules { principals, ..rules() }).is_ok());
}

#[test]
fn a_nonce_that_was_spent_is_refused_and_a_later_candidate_may_still_win() {
    let message = EditableRequest::vector();
    let mut attempts = message.with(|request| Attempts::of(request, &rules(), message.now)).unwrap();
    assert!(attempts.next().unwrap().judge(AccountState::NoCode).is_ok());
    attempts.refuse(RefusalCode::NonceReused);
    assert!(attempts.next().is_none());
    assert_eq!(attempts.conclude(), RefusalCode::NonceReused);
}

#[test]
fn only_the_accounts_own_signature_of_65_bytes_is_admitted() {
    let vector = EditableRequest::vector();
    let bytes = hex!(
        "fc1a444e8b24c64309eb9b9199a3543e20706f0c20eb3dc2c440c9270118444231d47c27f396752fc5e546920b1b1e2af34c9e88dba0633694b153d688f701d01b"
    );
    let with =
        |bytes: &[u8]| vector.clone().set("signature", format!("request=:{}:", Base64::encode_string(bytes)));
    assert!(with(&bytes).verify(&rules()).is_ok());
    // The tests of `forward` have more malformed signatures. Here a recovery id of 0 is not read as 27.
    for wrong in [&bytes[..64], &[&bytes[..64], &[0]].concat(), &[&bytes[..64], &[28]].concat(), &[]] {
        assert_eq!(with(wrong).verify(&rules()), Err(RefusalCode::BadSignature), "{wrong:?}");
    }
    // An account's code decides alone, whatever its key signed.
    let denied = vector.verify_as(&rules(), Some(AccountState::Code { accepts: false }));
    assert_eq!(denied, Err(RefusalCode::BadSignature));
    assert!(with(b"opaque").verify_as(&rules(), Some(AccountState::Code { accepts: true })).is_ok());
}

#[test]
fn an_account_that_cannot_be_read_is_unavailable_before_any_failure_that_no_retry_can_help() {
    let message = EditableRequest::vector();
    assert_eq!(message.verify_as(&rules(), None), Err(RefusalCode::SignatureVerificationUnavailable));
    let message = message.edit("signature-input", |input| {
        format!("{}, {input}", input.replace("request=", "first=").replace("eip155:1:", "eip155:2:"))
    });
    assert_eq!(message.verify_as(&rules(), None), Err(RefusalCode::SignatureVerificationUnavailable));
}

#[test]
fn a_failing_candidate_hides_none_behind_it() {
    let vector = EditableRequest::vector();
    let (input, signature) = (vector.field("signature-input"), vector.field("signature"));
    let inputs = [
        input.replace("request=", "unsigned="),
        input.replace("request=", "late=").replace("expires=1700000060", "expires=1700000061"),
        input.replace("request=", "forged=").replace("?view", "?other"),
        "web=(\"@authority\");created=1;keyid=\"k\";alg=\"ed25519\";tag=\"web-bot-auth\"".to_owned(),
        "item=1".to_owned(),
        input.to_owned(),
    ];
    let message = vector
        .clone()
        .set("signature-input", inputs.join(", "))
        .set("signature", format!("late=:AAAA:, forged=:AAAA:, web=:AAAA:, {signature}"));
    assert_eq!(message.verify(&rules()).unwrap().nonce, "EjRWeJCrze8BI0VniavN7w");
    // Without the last one, the refusal is the first candidate's.
    let message = message.set("signature-input", inputs[..5].join(", "));
    message.is_refused(RefusalCode::SignatureInputInvalid);
    // Several lines of a field are one dictionary.
    let mut message = vector.clone();
    message.fields.insert(0, ("signature-input".to_owned(), inputs[1].clone()));
    message.fields.insert(0, ("signature".to_owned(), "late=:AAAA:".to_owned()));
    assert!(message.verify(&rules()).is_ok());
}

#[test]
fn any_order_of_components_and_parameters_is_legal_and_kept() {
    let reversed: Vec<&str> = COMPONENTS.into_iter().rev().collect();
    let parameters = format!(
        r#";tag="erc8128";keyid="eip155:1:{ADDRESS}";nonce="n";expires=1700000060;created=1700000000"#
    );
    assert!(EditableRequest::vector().sign(&reversed, &parameters).verify(&rules()).is_ok());
}

#[test]
fn the_published_clients_dialect_is_admitted_where_it_is_on() {
    let parameters =
        format!(r#";created=1700000000;expires=1700000060;nonce="n";keyid="erc8128:1:{ADDRESS}""#);
    let published = ["@authority", "@method", "@path", "@query", "content-digest"];
    let message = EditableRequest::vector().sign(&published, &parameters);
    assert_eq!(message.verify(&rules()).unwrap().dialect, Dialect::Untagged);
    let tagged_only = SignatureRules { dialects: vec![Dialect::Tagged], ..rules() };
    assert_eq!(message.verify(&tagged_only), Err(RefusalCode::NoAcceptableSignature));
    let untagged_only = SignatureRules { dialects: vec![Dialect::Untagged], ..rules() };
    assert_eq!(EditableRequest::vector().verify(&untagged_only), Err(RefusalCode::NoAcceptableSignature));
    // Without content and query it covers neither; a query added later is not covered.
    let bare =
        EditableRequest { target: "/items".to_owned(), content: String::new(), ..EditableRequest::vector() };
    let bare = bare.set("content-digest", None).sign(&published[..3], &parameters);
    assert!(bare.verify(&rules()).is_ok());
    let queried = |target: &str| EditableRequest { target: target.to_owned(), ..bare.clone() };
    assert!(queried("/items?").verify(&rules()).is_ok(), "an empty query is none to these clients");
    queried("/items?view=full").is_refused(RefusalCode::InsufficientCoverage);
    // Another profile's tag is never read as this dialect.
    let other = EditableRequest::vector().sign(&published, &format!("{parameters};tag=\"other\""));
    other.is_refused(RefusalCode::NoAcceptableSignature);
}

#[test]
fn a_challenge_lists_what_to_sign_and_for_which_chain() {
    let elsewhere = EditableRequest::vector().input("eip155:1:", "eip155:8453:");
    let answer = elsewhere.with(|request| {
        Outcome::Refused(RefusalCode::UnsupportedChain).answer(request, &rules(), &Links::default())
    });
    let challenge = "ERC8128 error=\"unsupported_chain\", chains=\"eip155:1\"".to_owned();
    assert!(answer.headers.contains(&("www-authenticate", challenge)), "{answer:?}");
    let accept = |message: &EditableRequest, rules: &SignatureRules| {
        let outcome = Outcome::Refused(RefusalCode::SignatureMissing);
        let answer = message.with(|request| outcome.answer(request, rules, &Links::default()));
        assert_eq!(answer.status, 401);
        let (_, accept) = answer.headers.into_iter().find(|(name, _)| *name == "accept-signature").unwrap();
        accept
    };
    let bare = EditableRequest { content: String::new(), ..EditableRequest::vector() };
    let bare = bare.set("content-type", None).set("content-digest", None);
    let baseline =
        r#"request=("@scheme" "@authority" "@method" "@path" "@query");created;expires;tag="erc8128""#;
    assert_eq!(accept(&bare, &rules()), baseline);
    let rules = SignatureRules { components: vec!["x-order".to_owned()], ..rules() };
    let all = baseline.replace("\"@query\"", r#""@query" "content-digest" "content-type" "x-order""#);
    assert_eq!(accept(&EditableRequest::vector(), &rules), all);
    // What is listed for each request is not listed again for the route, and such a signature is admitted.
    let named = ["content-type", "x-order", "content-digest"].map(str::to_owned).to_vec();
    let rules = SignatureRules { components: named, ..rules };
    let ordered = EditableRequest::vector().set("x-order", "7".to_owned());
    assert_eq!(accept(&ordered, &rules), all);
    let listed: Vec<&str> = COMPONENTS.into_iter().chain(["x-order"]).collect();
    assert!(ordered.sign(&listed, &usual()).verify(&rules).is_ok());
    let untagged = SignatureRules { dialects: vec![Dialect::Untagged], components: Vec::new(), ..rules };
    let of_old = r#"request=("@authority" "@method" "@path" "@query" "content-digest");created;expires"#;
    assert_eq!(accept(&EditableRequest::vector(), &untagged), of_old);
}
