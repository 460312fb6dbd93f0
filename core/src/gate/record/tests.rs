//! Records of admissions, made and verified here.

use alloy_primitives::Bytes;
use k256::ecdsa::SigningKey;

use super::*;
use crate::liability::{Liability, fixture, fixture::signed};
use crate::token::{Stated, StatedAt, Terms, compact, signing_input};

/// The base and the signature of the positive vector of ERC-8128 (commit 0f738bf), by the key 1.
const BASE: &str = r#""@scheme": https
"@authority": api.example
"@method": POST
"@path": /items
"@query": ?view=full
"content-digest": sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:
"content-type": application/json
"@signature-params": ("@scheme" "@authority" "@method" "@path" "@query" "content-digest" "content-type");created=1700000000;expires=1700000060;nonce="EjRWeJCrze8BI0VniavN7w";keyid="eip155:1:0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";tag="erc8128""#;
const SIGNATURE: &str =
    "/BpEToskxkMJ65uRmaNUPiBwbwwg6z3CxEDJJwEYREIx1Hwn85Z1L8XlRpILGx4q80yeiNugYzaUsVPWiPcB0Bs=";
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// Returns the line of an admission of this account at `now`, for this site, with a token by the key `kid`.
/// With an acceptance, the agent's liable wallet, of the same key, has accepted it.
fn line(
    account: VerifiedBy,
    wallet: &str,
    now: u64,
    audience: &str,
    kid: &str,
    acceptance: Option<&Acceptance>,
) -> String {
    use base64ct::{Base64, Encoding as _};
    let signature = Base64::decode_vec(SIGNATURE).unwrap();
    let basis = acceptance.map(|_| Basis::Accepted);
    let grounds = Grounds {
        policy: "api",
        registry: Some((REGISTRY, B256::repeat_byte(0xbb))),
        basis,
        acceptance: acceptance.map(|acceptance| (acceptance, keccak256(SCOPE))),
        account,
        signature: &signature,
        base: BASE,
        evidence: None,
    };
    let stated = Stated {
        wallet: wallet.parse().unwrap(),
        decision: Decision::Provision,
        reasons: Vec::new(),
        liable: acceptance.map(|acceptance| acceptance.haftungsperson),
        compliant_until: None,
        as_of: StatedAt::number(1),
    };
    let now = Timestamp::from_seconds(now);
    let (audience, admission) = (Some(audience), Some(grounds.id()));
    let terms = Terms { issuer: "i", chain: 1, audience, admission, now, cached_until: now };
    let liability = acceptance.map(|acceptance| Liability {
        wallet: acceptance.haftungsperson,
        basis: Basis::Accepted,
        attested_at: None,
        parent_basis: None,
    });
    let claims = VerdictClaims::of(stated, &terms).with_liability(liability, REGISTRY, None);
    let token = compact(&signing_input(kid, &claims), &[7; 64]);
    AdmissionRecord::new(now, &grounds, &token).line()
}

/// Returns an acceptance by the key 1, of its own agent, with a change under the signature.
fn acceptance(change: impl FnOnce(&mut Acceptance)) -> Acceptance {
    let (place, wallet): (_, Address) = ((1, Address::with_last_byte(0xaa)), WALLET.parse().unwrap());
    let mut acceptance = fixture::acceptance(place, 1_700_000_000, |a| {
        (a.agent_wallet, a.haftungsperson, a.not_after) = (wallet, wallet, 1_700_000_001);
    });
    change(&mut acceptance);
    signed(acceptance, SCOPE, &SigningKey::from_slice(B256::with_last_byte(1).as_slice()).unwrap())
}

const SCOPE: &str = "Sweeps the warehouse";
const REGISTRY: &str = "eip155:1:0x00000000000000000000000000000000000000aa";
const WALLET: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
const SITE: &str = "https://api.example";

fn verified(line: &str, code: bool, is_signed: bool) -> Result<Admission, RecordError> {
    let keys = KeySet::parse(KEYS).unwrap();
    let trusted = Trusted { keys: &keys, registry: None, code, blocks: &[] };
    AdmissionRecord::verify(line, &trusted, |_, _, _| is_signed)
}

#[test]
fn a_record_shows_who_asked_for_what_and_when() {
    let line = line(VerifiedBy::Key, WALLET, 1_700_000_001, SITE, "a", None);
    let admission = verified(&line, false, true).unwrap();
    assert_eq!((admission.account.chain, admission.account.address), (1, WALLET.parse().unwrap()));
    assert_eq!(admission.method, "POST");
    assert_eq!(admission.target, "https://api.example/items?view=full");
    assert_eq!((admission.policy.as_str(), admission.time.seconds()), ("api", 1_700_000_001));
    assert_eq!(admission.registry, Some(Address::with_last_byte(0xaa)));
    let (keys, trusted) = (KeySet::parse(KEYS).unwrap(), Address::with_last_byte(0xab));
    let other = Trusted { keys: &keys, registry: Some(trusted), code: false, blocks: &[] };
    let record = Address::with_last_byte(0xaa);
    let error = AdmissionRecord::verify(&line, &other, |_, _, _| true).unwrap_err();
    assert_eq!(error, RecordError::OtherRegistry { record, trusted });
    assert_eq!(verified(&line, false, false).unwrap_err(), RecordError::Issuer);
    assert_eq!(verified(&line.replacen(':', ": ", 1), false, true).unwrap_err(), RecordError::Form);
}

#[test]
fn parts_that_contradict_one_another_are_refused_with_the_reason() {
    let key = VerifiedBy::Key;
    let other = "0x7e5f4552091a69125d5dfcb7b8c2659029395bde";
    let good = line(key, WALLET, 1_700_000_001, SITE, "a", None);
    for (line, reason) in [
        (line(key, other, 1_700_000_001, SITE, "a", None), "another account"),
        (line(key, WALLET, 1_699_999_969, SITE, "a", None), "was not valid at the time"),
        (line(key, WALLET, 1_700_000_091, SITE, "a", None), "was not valid at the time"),
        (line(key, WALLET, 1_700_000_001, "http://api.example", "a", None), "for another site"),
        (line(key, WALLET, 1_700_000_001, "https://api.other", "a", None), "for another site"),
        (line(key, WALLET, 1_700_000_001, SITE, "b", None), "signed by the key \"b\", which is not"),
        (good.replace("\"policy\":\"api\"", "\"policy\":\"apj\""), "for another admission"),
        (good.replace("22:13:21", "22:13:22"), "at another time"),
        (good.replace("00aa", "00ab"), "for another admission"),
    ] {
        let error = verified(&line, false, true).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn a_record_proves_which_acceptance_it_rests_on() {
    let line =
        |acceptance: &Acceptance| line(VerifiedBy::Key, WALLET, 1_700_000_001, SITE, "a", Some(acceptance));
    let good = acceptance(|_| {});
    let admission = verified(&line(&good), false, true).unwrap();
    let proved = admission.acceptance.unwrap();
    assert_eq!((&proved.acceptance, proved.digest), (&good, good.digest(SCOPE)));
    assert_eq!((admission.basis, proved.verified_by), (Some(Basis::Accepted), VerifiedBy::Key));
    type Change = fn(&mut Acceptance);
    for (change, reason) in [
        ((|a| a.chain_id = 2) as Change, "does not hold: chainId"),
        (|a| a.registry = Address::ZERO, "does not hold: registry"),
        (|a| a.not_after = 1_700_000_000, "does not hold: time"),
        (|a| a.agent_wallet = Address::ZERO, "of another agent"),
    ] {
        let error = verified(&line(&acceptance(change)), false, true).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    // For the answer of code, there is only the issuer's word.
    let by_code = Acceptance { signature: Bytes::from_static(&[7]), ..good };
    let refused = verified(&line(&by_code), false, true).unwrap_err();
    assert_eq!(refused, RecordError::Acceptance(Problem::Signature));
    let trusted = verified(&line(&by_code), true, true).unwrap();
    assert_eq!(trusted.acceptance.unwrap().verified_by, VerifiedBy::Code);
}

#[test]
fn a_line_with_any_byte_changed_is_refused() {
    let accepted = acceptance(|_| {});
    let line = line(VerifiedBy::Key, WALLET, 1_700_000_001, SITE, "a", Some(&accepted));
    let keys = KeySet::parse(KEYS).unwrap();
    let token = line.rsplit('"').nth(1).and_then(|token| Jws::parse(token).ok()).unwrap();
    // The issuer has signed this token and no other.
    let verify = |line: &str| {
        AdmissionRecord::verify(
            line,
            &Trusted { keys: &keys, registry: None, code: true, blocks: &[] },
            |_, text, signature| text == token.signing_input && *signature == token.signature,
        )
    };
    verify(&line).unwrap();
    for place in 0..line.len() {
        for other in [line.as_bytes()[place] ^ 1, line.as_bytes()[place] ^ 32, b'0'] {
            let mut changed = line.clone().into_bytes();
            changed[place] = other;
            let Some(changed) = String::from_utf8(changed).ok().filter(|changed| *changed != line) else {
                continue;
            };
            assert!(verify(&changed).is_err(), "byte {place}: {changed}");
        }
    }
}

#[test]
fn that_code_has_signed_is_the_issuers_word_alone() {
    let line = line(VerifiedBy::Code, WALLET, 1_700_000_001, SITE, "a", None);
    assert_eq!(verified(&line, false, true).unwrap_err(), RecordError::Code);
    assert_eq!(verified(&line, true, true).unwrap().verified_by, VerifiedBy::Code);
}
