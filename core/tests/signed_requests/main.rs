//! Signed requests as a gate verifies them.
//!
//! 1. The specification's vector is admitted, and each of its mutations gets the specification's code.
//! 2. Of several candidates the first that passes wins, and none hides another.
//! 3. A request that is not the one signed is never admitted.
//! 4. What the client's side signs is admitted, and its nonce is one text.
//! 5. No field panics, whatever is in it. `GATE_MUTATIONS` says how many are tried (50,000 if it does not),
//!    `MUTATION_SEED` where the random numbers begin: `GATE_MUTATIONS=10000000 cargo test --release
//!    -p registry-core --test signed_requests` are ten million.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod message;
mod mutations;
mod signing;
#[path = "../common/split_mix.rs"]
mod split_mix;

use alloy_primitives::{Address, hex, keccak256};
use base64ct::{Base64, Encoding as _};
use message::{ADDRESS, COMPONENTS, Message, parameters, rules};
use registry_core::gate::{
    AccountState, Attempts, Dialect, Links, Outcome, Posture, RefusalCode, SignatureRules, WithoutNonce,
};

#[test]
fn the_vector_of_the_specification_is_admitted() {
    let message = Message::vector();
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

#[test]
fn signature_missing() {
    for name in ["signature", "signature-input"] {
        Message::vector().set(name, None).is_refused(RefusalCode::SignatureMissing);
    }
}

#[test]
fn signature_input_invalid() {
    for name in ["signature", "signature-input"] {
        for broken in ["", "request", "request=:/", "request=(", "request=()\u{e9}", "a=1,", "Request=()"] {
            let refusal = Message::vector().set(name, broken.to_owned()).verify(&rules()).unwrap_err();
            // An empty dictionary is well-formed, and so is a member without a value.
            let is_dictionary = broken.is_empty() || broken == "request";
            let expected = match name {
                "signature-input" if is_dictionary => RefusalCode::NoAcceptableSignature,
                _ => RefusalCode::SignatureInputInvalid,
            };
            assert_eq!(refusal, expected, "{name}: {broken}");
        }
    }
    Message::vector()
        .edit("signature", |value| value.replace("request", "other"))
        .is_refused(RefusalCode::SignatureInputInvalid);
    Message::vector()
        .set("signature", "request=\"text\"".to_owned())
        .is_refused(RefusalCode::SignatureInputInvalid);
}

#[test]
fn signature_too_large() {
    let vector = Message::vector();
    let padding = |bytes: usize| Base64::encode_string(&vec![0; bytes]);
    for (what, message) in [
        (
            "input",
            vector
                .clone()
                .edit("signature-input", |input| format!("{input}, a=\"{}\"", "x".repeat(16 * 1024))),
        ),
        (
            "signature",
            vector.clone().edit("signature", |value| format!("{value}, a=:{}:", padding(12 * 1024))),
        ),
        ("member", vector.clone().set("signature", format!("request=:{}:", padding(8 * 1024 + 1)))),
        (
            "parameters",
            vector
                .clone()
                .input(";tag", &format!("{};tag", (0..12).map(|n| format!(";a{n}")).collect::<String>())),
        ),
        (
            "components",
            vector.clone().input(
                "(",
                &format!("({} ", (0..26).map(|n| format!("\"a{n}\"")).collect::<Vec<_>>().join(" ")),
            ),
        ),
        (
            "candidates",
            vector.clone().edit("signature-input", |input| {
                let input = input.strip_prefix("request").unwrap();
                (0..9).map(|n| format!("a{n}{input}")).collect::<Vec<_>>().join(", ")
            }),
        ),
    ] {
        assert_eq!(message.verify(&rules()), Err(RefusalCode::SignatureTooLarge), "{what}");
    }
}

#[test]
fn no_acceptable_signature() {
    Message::vector()
        .input("\"erc8128\"", "\"erc8128-delegated\"")
        .is_refused(RefusalCode::NoAcceptableSignature);
    Message::vector().input("\"erc8128\"", "erc8128").is_refused(RefusalCode::NoAcceptableSignature);
    Message::vector().input(";tag=\"erc8128\"", "").is_refused(RefusalCode::NoAcceptableSignature);
}

#[test]
fn invalid_keyid() {
    let keyid = format!(r#""eip155:1:{ADDRESS}""#);
    for (what, other) in [
        ("a leading zero", keyid.replace(":1:", ":01:")),
        ("upper case", keyid.to_uppercase().replace("EIP155", "eip155")),
        ("the other dialect's", keyid.replace("eip155", "erc8128")),
        ("a token", "eip155".to_owned()),
        ("nothing", "?1".to_owned()),
    ] {
        let refusal = Message::vector().input(&keyid, &other).verify(&rules());
        assert_eq!(refusal, Err(RefusalCode::InvalidKeyid), "{what}");
    }
    Message::vector().input(&format!(";keyid={keyid}"), "").is_refused(RefusalCode::InvalidKeyid);
}

#[test]
fn unsupported_chain() {
    let message = Message::vector().input("eip155:1:", "eip155:8453:");
    message.is_refused(RefusalCode::UnsupportedChain);
    let answer = message.with(|request| {
        Outcome::Refused(RefusalCode::UnsupportedChain).answer(request, &rules(), &Links::default())
    });
    let challenge = "ERC8128 error=\"unsupported_chain\", chains=\"eip155:1\"".to_owned();
    assert!(answer.headers.contains(&("www-authenticate", challenge)), "{answer:?}");
}

#[test]
fn unsupported_account() {
    let eoa_only = SignatureRules { posture: Posture::EoaOnly, ..rules() };
    for accepts in [true, false] {
        let judged = Message::vector().verify_as(&eoa_only, Some(AccountState::Code { accepts }));
        assert_eq!(judged, Err(RefusalCode::UnsupportedAccount));
    }
    let magic = hex!("6492649264926492649264926492649264926492649264926492649264926492");
    let wrapped = [&[0; 96], magic.as_slice()].concat();
    let wrapped =
        Message::vector().set("signature", format!("request=:{}:", Base64::encode_string(&wrapped)));
    for rules in [rules(), eoa_only] {
        assert_eq!(wrapped.verify(&rules), Err(RefusalCode::UnsupportedAccount));
    }
}

#[test]
fn invalid_time() {
    for (from, to) in [
        (";created=1700000000", ""),
        (";expires=1700000060", ""),
        ("created=1700000000", "created=\"1700000000\""),
        ("expires=1700000060", "expires=1700000060.5"),
        ("expires=1700000060", "expires=1700000000"),
        ("expires=1700000060", "expires=1699999999"),
        ("expires=1700000060", "expires=-999999999999999"),
    ] {
        Message::vector().input(from, to).is_refused(RefusalCode::InvalidTime);
    }
}

#[test]
fn request_not_yet_valid() {
    Message { now: 1_699_999_969, ..Message::vector() }.is_refused(RefusalCode::RequestNotYetValid);
    assert!(Message { now: 1_699_999_970, ..Message::vector() }.verify(&rules()).is_ok());
}

#[test]
fn request_expired() {
    Message { now: 1_700_000_091, ..Message::vector() }.is_refused(RefusalCode::RequestExpired);
    Message { now: u64::MAX, ..Message::vector() }.is_refused(RefusalCode::RequestExpired);
    assert!(Message { now: 1_700_000_090, ..Message::vector() }.verify(&rules()).is_ok());
}

#[test]
fn request_validity_too_long() {
    let message = Message::vector().sign(&COMPONENTS, &parameters(1_700_000_000, 1_700_000_061));
    message.is_refused(RefusalCode::RequestValidityTooLong);
    assert!(message.verify(&SignatureRules { longest_validity: 61, ..rules() }).is_ok());
}

#[test]
fn invalid_nonce() {
    let nonce = r#""EjRWeJCrze8BI0VniavN7w""#;
    for other in ["token", "1", "?1", ":AAAA:", &format!("\"{}\"", "n".repeat(129))] {
        Message::vector().input(nonce, other).is_refused(RefusalCode::InvalidNonce);
    }
}

#[test]
fn insufficient_coverage() {
    for component in COMPONENTS {
        let others: Vec<&str> = COMPONENTS.into_iter().filter(|other| *other != component).collect();
        let message = Message::vector().sign(&others, &parameters(1_700_000_000, 1_700_000_060));
        message.is_refused(RefusalCode::InsufficientCoverage);
    }
    Message::vector().input("\"@query\"", "\"@query\";req").is_refused(RefusalCode::InsufficientCoverage);
    let wanting = SignatureRules { components: vec!["x-order".to_owned()], ..rules() };
    assert_eq!(Message::vector().verify(&wanting), Err(RefusalCode::InsufficientCoverage));
    let extended: Vec<&str> = COMPONENTS.into_iter().chain(["x-order"]).collect();
    let message = Message::vector().set("x-order", "7".to_owned());
    let message = message.sign(&extended, &parameters(1_700_000_000, 1_700_000_060));
    assert!(message.verify(&wanting).is_ok());
}

#[test]
fn content_digest_required() {
    let covered: Vec<&str> = COMPONENTS.into_iter().filter(|name| *name != "content-digest").collect();
    let message = Message::vector().set("content-digest", None);
    // It cannot be signed where it is not sent: the refusal names what is missing first.
    message
        .clone()
        .sign(&covered, &parameters(1_700_000_000, 1_700_000_060))
        .is_refused(RefusalCode::InsufficientCoverage);
    message.is_refused(RefusalCode::ContentDigestRequired);
}

#[test]
fn bad_content_digest() {
    Message { content: r#"{"hello":"World"}"#.to_owned(), ..Message::vector() }
        .is_refused(RefusalCode::BadContentDigest);
    Message { content: String::new(), ..Message::vector() }.is_refused(RefusalCode::BadContentDigest);
    for suffix in [",", ", sha-512=:AAAA:"] {
        let message = Message::vector().edit("content-digest", |digest| format!("{digest}{suffix}"));
        message.is_refused(RefusalCode::BadContentDigest);
    }
}

#[test]
fn nonce_required() {
    let without = parameters(1_700_000_000, 1_700_000_060).replace(r#"nonce="EjRWeJCrze8BI0VniavN7w";"#, "");
    Message::vector().sign(&COMPONENTS, &without).is_refused(RefusalCode::NonceRequired);
}

#[test]
fn nonce_reused() {
    // The host spends the nonce, and says that it was spent; a later candidate may still win.
    let message = Message::vector();
    let mut attempts = message.with(|request| Attempts::of(request, &rules(), message.now)).unwrap();
    assert!(attempts.next().unwrap().judge(AccountState::NoCode).is_ok());
    attempts.refuse(RefusalCode::NonceReused);
    assert!(attempts.next().is_none());
    assert_eq!(attempts.conclude(), RefusalCode::NonceReused);
}

#[test]
fn replayable_not_allowed() {
    let without = parameters(1_700_000_000, 1_700_000_060).replace(r#"nonce="EjRWeJCrze8BI0VniavN7w";"#, "");
    let rules = SignatureRules { without_nonce: WithoutNonce::ElsewhereOnly, ..rules() };
    let message = Message::vector().sign(&COMPONENTS, &without);
    assert_eq!(message.verify(&rules), Err(RefusalCode::ReplayableNotAllowed));
}

#[test]
fn unsupported_algorithm() {
    Message::vector().input(";tag", ";alg=\"ecdsa\";tag").is_refused(RefusalCode::UnsupportedAlgorithm);
}

#[test]
fn bad_signature() {
    let vector = Message::vector();
    Message { target: "/items?view=brief".to_owned(), ..vector.clone() }
        .is_refused(RefusalCode::BadSignature);
    let bytes = hex!(
        "fc1a444e8b24c64309eb9b9199a3543e20706f0c20eb3dc2c440c9270118444231d47c27f396752fc5e546920b1b1e2af34c9e88dba0633694b153d688f701d01b"
    );
    let with =
        |bytes: &[u8]| vector.clone().set("signature", format!("request=:{}:", Base64::encode_string(bytes)));
    assert!(with(&bytes).verify(&rules()).is_ok());
    let order =
        alloy_primitives::uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);
    let s = alloy_primitives::U256::from_be_slice(&bytes[32..64]);
    let high: [u8; 32] = (order - s).to_be_bytes();
    for (what, bytes) in [
        ("64 bytes", bytes[..64].to_vec()),
        ("66 bytes", [&bytes[..], &[0]].concat()),
        ("v 0", [&bytes[..64], &[0]].concat()),
        ("v 28", [&bytes[..64], &[28]].concat()),
        ("v of a transaction", [&bytes[..64], &[37]].concat()),
        ("a high s", [&bytes[..32], &high, &[28]].concat()),
        ("r 0", [&[0; 32], &bytes[32..]].concat()),
        ("s 0", [&bytes[..32], &[0; 32], &[27]].concat()),
        ("nothing", Vec::new()),
    ] {
        assert_eq!(with(&bytes).verify(&rules()), Err(RefusalCode::BadSignature), "{what}");
    }
    // Code decides alone, whatever its key signed.
    assert_eq!(
        vector.verify_as(&rules(), Some(AccountState::Code { accepts: false })),
        Err(RefusalCode::BadSignature)
    );
    let opaque = with(b"opaque");
    assert!(opaque.verify_as(&rules(), Some(AccountState::Code { accepts: true })).is_ok());
}

#[test]
fn signature_verification_unavailable() {
    let message = Message::vector();
    assert_eq!(message.verify_as(&rules(), None), Err(RefusalCode::SignatureVerificationUnavailable));
    // It is told before the failure of an earlier candidate, which no retry can help.
    let message = message.edit("signature-input", |input| {
        format!("{}, {input}", input.replace("request=", "first=").replace("eip155:1:", "eip155:2:"))
    });
    assert_eq!(message.verify_as(&rules(), None), Err(RefusalCode::SignatureVerificationUnavailable));
}

#[test]
fn principal_not_allowed() {
    let rules = SignatureRules { principals: vec![Address::ZERO], ..rules() };
    assert_eq!(Message::vector().verify(&rules), Err(RefusalCode::PrincipalNotAllowed));
    let rules = SignatureRules { principals: vec![Address::ZERO, ADDRESS.parse().unwrap()], ..rules };
    assert!(Message::vector().verify(&rules).is_ok());
}

#[test]
fn a_failing_candidate_hides_none_behind_it() {
    let vector = Message::vector();
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
    assert!(Message::vector().sign(&reversed, &parameters).verify(&rules()).is_ok());
}

#[test]
fn the_published_clients_dialect_is_admitted_where_it_is_on() {
    let parameters =
        format!(r#";created=1700000000;expires=1700000060;nonce="n";keyid="erc8128:1:{ADDRESS}""#);
    let published = ["@authority", "@method", "@path", "@query", "content-digest"];
    let message = Message::vector().sign(&published, &parameters);
    assert_eq!(message.verify(&rules()).unwrap().dialect, Dialect::Untagged);
    let tagged_only = SignatureRules { dialects: vec![Dialect::Tagged], ..rules() };
    assert_eq!(message.verify(&tagged_only), Err(RefusalCode::NoAcceptableSignature));
    let untagged_only = SignatureRules { dialects: vec![Dialect::Untagged], ..rules() };
    assert_eq!(Message::vector().verify(&untagged_only), Err(RefusalCode::NoAcceptableSignature));
    // Without content and query it covers neither; a query added later is not covered.
    let bare = Message { target: "/items".to_owned(), content: String::new(), ..Message::vector() };
    let bare = bare.set("content-digest", None).sign(&published[..3], &parameters);
    assert!(bare.verify(&rules()).is_ok());
    for target in ["/items?", "/items?view=full"] {
        Message { target: target.to_owned(), ..bare.clone() }.is_refused(RefusalCode::InsufficientCoverage);
    }
    // Another profile's tag is never read as this dialect.
    let other = Message::vector().sign(&published, &format!("{parameters};tag=\"other\""));
    other.is_refused(RefusalCode::NoAcceptableSignature);
}

#[test]
fn a_challenge_lists_what_to_sign() {
    let accept = |message: &Message, rules: &SignatureRules| {
        let outcome = Outcome::Refused(RefusalCode::SignatureMissing);
        let answer = message.with(|request| outcome.answer(request, rules, &Links::default()));
        assert_eq!(answer.status, 401);
        let (_, accept) = answer.headers.into_iter().find(|(name, _)| *name == "accept-signature").unwrap();
        accept
    };
    let bare = Message { content: String::new(), ..Message::vector() };
    let bare = bare.set("content-type", None).set("content-digest", None);
    let baseline =
        r#"request=("@scheme" "@authority" "@method" "@path" "@query");created;expires;tag="erc8128""#;
    assert_eq!(accept(&bare, &rules()), baseline);
    let rules = SignatureRules { components: vec!["x-order".to_owned()], ..rules() };
    let all = baseline.replace("\"@query\"", r#""@query" "content-digest" "content-type" "x-order""#);
    assert_eq!(accept(&Message::vector(), &rules), all);
}
