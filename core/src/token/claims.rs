//! The claims of a verdict token.

use core::net::{Ipv4Addr, Ipv6Addr};

use alloy_primitives::{Address, B256};
use serde::{Deserialize, Serialize};

use crate::{
    eth::as_of::AsOf,
    eth::json,
    eth::timestamp::Timestamp,
    registry::kya::{Decision, KyaAnswer, Reason},
    registry::liability::Liability,
};

/// The longest host name in bytes.
const HOST_BYTES: usize = 253;

/// The claims of a verdict token. Times are unix seconds (RFC 7519, section 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictClaims {
    /// The issuer, as configured.
    pub iss: String,
    /// The wallet's account (CAIP-10), `eip155:<chain>:<address>`. The address is in lower case, so that the
    /// text is the `keyid` of the wallet's signed requests (ERC-8128).
    pub sub: String,
    /// The origin of the site that the verdict is for; absent if none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aud: Option<String>,
    /// The admission that the token was signed for, if any: 32 bytes, `0x` and hex digits.
    #[serde(default, with = "json::OptionalHash", skip_serializing_if = "Option::is_none")]
    pub jti: Option<B256>,
    /// Time of the signature.
    pub iat: u64,
    /// Time of the token's end: that of the issuer's cache or of the attestation, whichever is earlier.
    pub exp: u64,
    /// The decision.
    pub decision: Decision,
    /// Its reasons, the most important first.
    pub reasons: Vec<Reason>,
    /// The wallet of the liable person, checksummed; absent if no agent is registered.
    #[serde(default, with = "json::OptionalChecksummed", skip_serializing_if = "Option::is_none")]
    pub liable: Option<Address>,
    /// The liable wallet and the basis of its liability; absent without a registered agent, or if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liability: Option<Liability>,
    /// The registry (CAIP-10), `eip155:<chain>:<address>` in lower case; absent if it is not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// The block that the registry was read at.
    #[serde(rename = "asOf")]
    pub as_of: StatedAt,
}

/// The block of a verdict: only its number, if no more of it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatedAt {
    /// The block's number.
    pub block_number: u64,
    /// The block's timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_timestamp: Option<Timestamp>,
    /// The hash of the block before it.
    #[serde(default, with = "json::OptionalHash", skip_serializing_if = "Option::is_none")]
    pub parent_hash: Option<B256>,
}

impl StatedAt {
    /// Returns a block of which only the number is known.
    pub const fn number(block_number: u64) -> Self {
        Self { block_number, block_timestamp: None, parent_hash: None }
    }
}

impl From<AsOf> for StatedAt {
    fn from(as_of: AsOf) -> Self {
        let AsOf { block_number, block_timestamp, parent_hash } = as_of;
        Self { block_number, block_timestamp: Some(block_timestamp), parent_hash: Some(parent_hash) }
    }
}

/// The part of a verdict that a token states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// The wallet.
    pub wallet: Address,
    /// The decision.
    pub decision: Decision,
    /// Its reasons, the most important first.
    pub reasons: Vec<Reason>,
    /// The wallet of the liable person, if an agent is registered.
    pub liable: Option<Address>,
    /// The last second at which the attestation is current.
    pub compliant_until: Option<Timestamp>,
    /// The block that the registry was read at.
    pub as_of: StatedAt,
}

impl From<KyaAnswer> for Stated {
    fn from(answer: KyaAnswer) -> Self {
        Self {
            wallet: answer.wallet,
            decision: answer.decision,
            reasons: answer.reasons,
            liable: answer.agent.map(|agent| agent.haftungsperson),
            compliant_until: answer.compliant_until,
            as_of: answer.as_of.into(),
        }
    }
}

/// The terms on which a verdict is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// The chain's id (EIP-155).
    pub chain: u64,
    /// The origin of the site that the token is for.
    pub audience: Option<&'a str>,
    /// The admission that the token is signed for.
    pub admission: Option<B256>,
    /// The host's clock.
    pub now: Timestamp,
    /// Time at which the host's cache would read the verdict again.
    pub cached_until: Timestamp,
}

impl VerdictClaims {
    /// Makes the claims of a token.
    ///
    /// The token ends with the cache or with `compliantUntil`, whichever is earlier, but not before a second
    /// after its signature: a token that ends at once would be useless, and the verdict holds in its own
    /// second.
    pub fn of(stated: Stated, terms: &Terms<'_>) -> Self {
        let Stated { wallet, decision, reasons, liable, compliant_until, as_of } = stated;
        let iat = terms.now.seconds();
        let lapse = compliant_until.map_or(u64::MAX, Timestamp::seconds);
        Self {
            iss: terms.issuer.to_owned(),
            sub: format!("eip155:{}:{wallet:#x}", terms.chain),
            aud: terms.audience.map(str::to_owned),
            jti: terms.admission,
            iat,
            exp: terms.cached_until.seconds().min(lapse).max(iat.saturating_add(1)),
            decision,
            reasons,
            liable,
            liability: None,
            registry: None,
            as_of,
        }
    }

    /// Adds the liability and the registry that states it. `not_after` is the last second of an acceptance
    /// that the basis rests on: the token never ends later.
    #[must_use]
    pub fn with_liability(
        self,
        liability: Option<Liability>,
        registry: &str,
        not_after: Option<Timestamp>,
    ) -> Self {
        let exp = not_after.map_or(self.exp, |last| self.exp.min(last.seconds()));
        Self { liability, registry: Some(registry.to_owned()), exp, ..self }
    }
}

/// The origin of a site, as browsers write it (URL standard): `https://shop.example`,
/// `http://127.0.0.1:8080`. Sites compare it with their own, so another spelling would never match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Audience(String);

impl Audience {
    /// The rule of [`parse`](Self::parse).
    pub const RULE: &'static str = "must be an origin as browsers write it, in lower case, without a path and the default port: \
         https://shop.example";

    /// Parses an origin; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (site, default_port) = match text.strip_prefix("https://") {
            Some(site) => (site, 443),
            None => (text.strip_prefix("http://")?, 80),
        };
        let end =
            if site.starts_with('[') { site.find(']')? + 1 } else { site.find(':').unwrap_or(site.len()) };
        let (host, port) = site.split_at_checked(end)?;
        let is_port = |digits: &str| {
            digits.parse().is_ok_and(|port: u16| port != default_port && port.to_string() == digits)
        };
        let is_origin = is_host(host) && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        is_origin.then(|| Self(text.to_owned()))
    }

    /// Returns the origin.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether this is a host in its canonical spelling: a name in lower case, or an address.
fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|address| address.strip_suffix(']')) {
        // Browsers spell an embedded IPv4 address in another way.
        return !address.contains('.')
            && address.parse::<Ipv6Addr>().is_ok_and(|parsed| parsed.to_string() == address);
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
    };
    // Browsers read a name that ends in a number as an address.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    host.len() <= HOST_BYTES
        && host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.split('.').all(is_label)
        && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{fixture::agent, kya::Kya};
    use alloy_primitives::U256;

    fn kya(attested: u64, now: u64) -> Kya {
        let mut agent = agent(1);
        agent.last_attestation = Timestamp::from_seconds(attested);
        let as_of = AsOf { block_number: 7, ..AsOf::default() };
        let now = Timestamp::from_seconds(now);
        Kya::of(agent.agent_wallet, Some(agent), U256::from(100), now, as_of)
    }

    fn claims(kya: &Kya, now: u64, cached_until: u64) -> VerdictClaims {
        let answer = KyaAnswer::parse(&serde_json::to_vec(kya).unwrap()).unwrap();
        let terms = Terms {
            issuer: "https://kya.example",
            chain: 8453,
            audience: Some("https://shop.example"),
            admission: None,
            now: Timestamp::from_millis(now),
            cached_until: Timestamp::from_millis(cached_until),
        };
        VerdictClaims::of(answer.into(), &terms)
    }

    #[test]
    fn a_token_claims_what_the_answer_says() {
        let kya = kya(1_000, 1_010);
        let text = serde_json::to_string(&claims(&kya, 1_010_500, 1_070_900)).unwrap();
        let (wallet, liable, parent) = (kya.wallet, kya.agent.unwrap().haftungsperson, B256::ZERO);
        let expected = format!(
            r#"{{"iss":"https://kya.example","sub":"eip155:8453:{wallet:#x}","aud":"https://shop.example","iat":1010,"exp":1070,"decision":"provision","reasons":[],"liable":"{liable}","asOf":{{"blockNumber":7,"blockTimestamp":"1970-01-01T00:00:00.000Z","parentHash":"{parent:#x}"}}}}"#
        );
        assert_eq!(text, expected);
        let read: VerdictClaims = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), expected);
    }

    #[test]
    fn a_token_ends_with_the_cache_or_the_attestation_and_never_before_it_begins() {
        for (attested, now, cached_until, exp) in [
            (1_000, 1_010_000, 1_070_000, 1_070),
            (1_000, 1_090_000, 1_150_000, 1_100), // compliantUntil
            (1_000, 1_010_900, 1_010_950, 1_011), // the cache is about to end
            (1_000, 1_100_000, 1_160_000, 1_101), // the last second of compliance
            (1_000, 1_101_000, 1_161_000, 1_161), // no longer compliant: that does not lapse
        ] {
            let claims = claims(&kya(attested, now / 1_000), now, cached_until);
            assert_eq!((claims.iat, claims.exp), (now / 1_000, exp), "{now}");
        }
    }

    #[test]
    fn a_token_says_what_ties_the_liable_wallet_and_never_outlives_its_acceptance() {
        let kya = kya(1_000, 1_010);
        for (not_after, exp) in
            [(None, 1_070), (Some(2_000), 1_070), (Some(1_020), 1_020), (Some(1_010), 1_010)]
        {
            let claims = claims(&kya, 1_010_500, 1_070_900);
            let not_after = not_after.map(Timestamp::from_seconds);
            let claims = claims.with_liability(kya.liability, "eip155:8453:0x9", not_after);
            assert_eq!(claims.exp, exp);
            let json = serde_json::to_value(&claims).unwrap();
            assert_eq!(json["liability"]["basis"], "unknown");
            assert_eq!(json["registry"], "eip155:8453:0x9");
            assert_eq!(serde_json::from_value::<VerdictClaims>(json).unwrap(), claims);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let stated = Stated {
            wallet: Address::ZERO,
            decision: Decision::Deny,
            reasons: vec![Reason::NotRegistered],
            liable: None,
            compliant_until: None,
            as_of: StatedAt::number(9),
        };
        let now = Timestamp::from_seconds(1);
        let terms = Terms { issuer: "i", chain: 1, audience: None, admission: None, now, cached_until: now };
        let claims = VerdictClaims::of(stated, &terms);
        let text = serde_json::to_string(&claims).unwrap();
        let end = r#""decision":"deny","reasons":["NOT_REGISTERED"],"asOf":{"blockNumber":9}}"#;
        assert!(text.ends_with(end), "{text}");
        assert!(!text.contains("aud") && !text.contains("liable") && !text.contains("jti"), "{text}");
        assert_eq!(serde_json::from_str::<VerdictClaims>(&text).unwrap(), claims);
    }

    #[test]
    fn an_audience_is_an_origin_in_one_spelling() {
        let good = "https://shop.example http://127.0.0.1:8080 https://[::1]:8443 https://a_b.example \
                    http://localhost https://shop.example:80 http://shop.example:443 https://xn--mnchen-3ya.example";
        for good in good.split_whitespace() {
            assert_eq!(Audience::parse(good).unwrap().as_str(), good);
        }
        let long = format!("https://{}", "a".repeat(300));
        let bad = "shop.example https:// https://Shop.example https://shop.example/ https://shop.example/a * \
                   https://user@shop.example https://shop.example?x https://shop.example\" \
                   https://.example ftp://shop.example https://shop.example:443 http://shop.example:80 \
                   https://a:b:c https://[x https://[::1 https://[::1]x https://[0:0::1] https://[::ffff:1.2.3.4] \
                   https://shop.example: https://shop.example:08443 https://shop.example:65536 https://a..b \
                   https://shop.example. https://127.1 https://127.0.0.01 https://0x7f.0x1 https://256.0.0.1";
        for bad in bad.split_whitespace().chain(["", &long]) {
            assert_eq!(Audience::parse(bad), None, "{bad}");
        }
    }
}
