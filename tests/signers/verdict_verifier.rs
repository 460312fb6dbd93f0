// crate jsonwebtoken
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, jwk::JwkSet};
use serde_json::Value;

pub fn admitted(token: &str, keyid: &str, registry: &str, keys: &JwkSet) -> Option<Value> {
    let header = decode_header(token).ok()?;
    let key = DecodingKey::from_jwk(keys.find(&header.kid?)?).ok()?;
    let mut expected = Validation::new(Algorithm::ES256);
    expected.set_issuer(&["https://kya.example"]);
    expected.set_audience(&["https://shop.example"]);
    expected.set_required_spec_claims(&["exp", "iss", "aud"]);
    expected.leeway = 5; // 60 by default
    let claims = decode::<Value>(token, &key, &expected).ok()?.claims;
    let is_verdict = header.typ.as_deref() == Some("kya-verdict+jwt");
    let is_of = claims["sub"] == keyid && claims["registry"] == registry;
    (is_verdict && is_of && claims["decision"] == "provision").then_some(claims)
}
