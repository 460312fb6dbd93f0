//! A request that can be changed, signed and verified.

use alloy_primitives::{B256, keccak256};
use base64ct::{Base64, Encoding as _};
use k256::ecdsa::SigningKey;
use registry_core::gate::{
    AccountState, Attempt, Attempts, Content, Dialect, Origin, Posture, RefusalCode, Request, SignatureRules,
    WithoutNonce,
};
use serde::Deserialize;

/// The account of the private key 1.
pub(crate) const ADDRESS: &str = "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf";
pub(crate) const COMPONENTS: [&str; 7] =
    ["@scheme", "@authority", "@method", "@path", "@query", "content-digest", "content-type"];

/// A request that can be changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct EditableRequest {
    #[serde(rename = "clock")]
    pub(crate) now: u64,
    pub(crate) origin: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) base: String,
    pub(crate) hash: B256,
}

impl EditableRequest {
    /// Returns the specification's positive vector.
    pub(crate) fn vector() -> Self {
        serde_json::from_str(include_str!("../vectors/erc8128.json")).unwrap()
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Request<'_>) -> T) -> T {
        let origin = Origin::parse(&self.origin).unwrap();
        let fields: Vec<(&str, &[u8])> =
            self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let (method, target, content) = (&*self.method, &*self.target, self.content.as_bytes());
        read(&Request { method, origin: &origin, target, fields: &fields, content: Content::Whole(content) })
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        &self.fields.iter().find(|(field, _)| field == name).unwrap().1
    }

    /// Sets a field, or removes it.
    pub(crate) fn set(mut self, name: &str, value: impl Into<Option<String>>) -> Self {
        self.fields.retain(|(field, _)| field != name);
        self.fields.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    pub(crate) fn edit(self, name: &str, change: impl FnOnce(&str) -> String) -> Self {
        let value = change(self.field(name));
        self.set(name, value)
    }

    /// Replaces a part that occurs once in `Signature-Input`.
    pub(crate) fn input(self, from: &str, to: &str) -> Self {
        assert_eq!(self.field("signature-input").matches(from).count(), 1, "{from}");
        self.edit("signature-input", |input| input.replace(from, to))
    }

    /// Signs a signature base of this test's own with the private key 1.
    pub(crate) fn sign(self, components: &[&str], parameters: &str) -> Self {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut base = String::new();
        for component in components {
            let value = match *component {
                "@scheme" => self.origin.split_once("://").unwrap().0.to_owned(),
                "@authority" => self.origin.split_once("://").unwrap().1.to_owned(),
                "@method" => self.method.clone(),
                "@path" => path.to_owned(),
                "@query" => format!("?{query}"),
                field => self.field(field).to_owned(),
            };
            base += &format!("\"{component}\": {value}\n");
        }
        let quoted: Vec<String> = components.iter().map(|component| format!("\"{component}\"")).collect();
        let input = format!("({}){parameters}", quoted.join(" "));
        base += &format!("\"@signature-params\": {input}");
        let bytes = signature_of(&base);
        self.set("signature-input", format!("request={input}"))
            .set("signature", format!("request=:{}:", Base64::encode_string(&bytes)))
    }

    /// Returns the first attempt that its account signed; all accounts are in this state.
    pub(crate) fn verify_as(
        &self,
        rules: &SignatureRules,
        state: Option<AccountState>,
    ) -> Result<Attempt, RefusalCode> {
        let mut attempts = self.with(|request| Attempts::of(request, rules, self.now))?;
        while let Some(attempt) = attempts.next() {
            let judged = state
                .map_or(Err(RefusalCode::SignatureVerificationUnavailable), |state| attempt.judge(state));
            match judged {
                Ok(()) => return Ok(attempt),
                Err(refusal) => attempts.refuse(refusal),
            }
        }
        Err(attempts.conclude())
    }

    pub(crate) fn verify(&self, rules: &SignatureRules) -> Result<Attempt, RefusalCode> {
        self.verify_as(rules, Some(AccountState::NoCode))
    }

    #[track_caller]
    pub(crate) fn is_refused(&self, expected: RefusalCode) {
        assert_eq!(self.verify(&rules()), Err(expected));
    }
}

/// Signs with the private key 1 (EIP-191).
pub(crate) fn signature_of(text: &str) -> Vec<u8> {
    let hash = keccak256(format!("\x19Ethereum Signed Message:\n{}{text}", text.len()));
    let key = SigningKey::from_slice(B256::with_last_byte(1).as_slice()).unwrap();
    let (signature, recovery) = key.sign_prehash_recoverable(hash.as_slice()).unwrap();
    [&signature.to_bytes()[..], &[27 + recovery.to_byte()]].concat()
}

pub(crate) fn rules() -> SignatureRules {
    SignatureRules {
        chain: 1,
        dialects: Dialect::ALL.to_vec(),
        components: Vec::new(),
        longest_validity: 60,
        posture: Posture::Universal,
        without_nonce: WithoutNonce::Unknown,
        principals: Vec::new(),
    }
}

/// Returns the parameters of the vector.
pub(crate) fn parameters(created: u64, expires: u64) -> String {
    format!(
        r#";created={created};expires={expires};nonce="EjRWeJCrze8BI0VniavN7w";keyid="eip155:1:{ADDRESS}";tag="erc8128""#
    )
}
