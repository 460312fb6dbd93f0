//! The client's side: what an account signs for a request, and the headers that carry it.
//!
//! Any signer does, wherever its key is:
//!
//! ```
//! use registry_core::gate::{Account, Content, Origin, Request, SigningTerms, Unsigned};
//! # fn sign_message(message: &[u8]) -> [u8; 65] { [message.len() as u8; 65] }
//!
//! let origin = Origin::parse("https://api.example").unwrap();
//! let fields: [(&str, &[u8]); 1] = [("content-type", b"application/json")];
//! let content = Content::Whole(br#"{"amount":"100"}"#);
//! let request = Request { method: "POST", origin: &origin, target: "/orders", fields: &fields, content };
//! let account = Account { chain: 8453, address: "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf".parse().unwrap() };
//! let terms = SigningTerms { account, created: 1_790_000_000, valid_seconds: 60, nonce: "128 random bits" };
//!
//! let unsigned = Unsigned::new(&request, &terms).unwrap();
//! let signature = sign_message(unsigned.message()); // EIP-191, as wallets sign messages
//! let headers = unsigned.headers(&signature); // to be sent beside `fields`
//! assert_eq!(headers.len(), 3); // content-digest, signature-input, signature
//! ```

use base64ct::{Base64, Encoding as _};
use sfv::ListEntry;
use sha2::{Digest as _, Sha256};

use super::{
    base::signature_base,
    dialect::{Account, Dialect},
    digest,
    request::{Content, Request},
    structured,
};

/// The label of the signature.
const LABEL: &str = "request";

/// What a signature says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningTerms<'a> {
    /// The account that signs.
    pub account: Account,
    /// When, in unix seconds.
    pub created: u64,
    /// For how many seconds it is valid: every gate takes 60.
    pub valid_seconds: u64,
    /// A text that the account has signed nothing else with: 128 random bits, in hexadecimal digits or
    /// base64.
    pub nonce: &'a str,
}

/// A request that its account has not signed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    message: String,
    parameters: String,
    /// The digest that the request did not have yet.
    digest: Option<String>,
}

impl Unsigned {
    /// What is to be signed for a request of the `tagged` dialect: scheme, authority, method, path and query,
    /// and the digest and the type of its content. No content has a digest, too, except for GET and HEAD: not
    /// every proxy tells its gate that there is none. `None` where one of them has a value that cannot be
    /// signed, or the nonce is not of visible ASCII characters and spaces, without quotes and backslashes.
    pub fn new(request: &Request<'_>, terms: &SigningTerms<'_>) -> Option<Self> {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if !terms.nonce.bytes().all(is_plain) {
            return None;
        }
        let digest = match request.content {
            Content::Whole(content)
                if !request.has(digest::FIELD)
                    && (!content.is_empty() || !matches!(request.method, "GET" | "HEAD")) =>
            {
                Some(format!("sha-256=:{}:", Base64::encode_string(&Sha256::digest(content))))
            }
            _ => None,
        };
        let mut fields = request.fields.to_vec();
        fields.extend(digest.as_ref().map(|digest| (digest::FIELD, digest.as_bytes())));
        let request = Request { fields: &fields, ..request.clone() };

        let components: Vec<String> =
            Dialect::Tagged.required(&request, &[]).map(|component| format!("\"{component}\"")).collect();
        let SigningTerms { account: Account { chain, address }, created, valid_seconds, nonce } = *terms;
        let expires = created.checked_add(valid_seconds)?;
        let parameters = format!(
            "({});created={created};expires={expires};nonce=\"{nonce}\";keyid=\"eip155:{chain}:{address:#x}\";tag=\"erc8128\"",
            components.join(" ")
        );
        let input = structured::dictionary(&format!("{LABEL}={parameters}"))?;
        let Some(ListEntry::InnerList(input)) = input.get(LABEL) else { return None };
        Some(Self { message: signature_base(&request, input)?, parameters, digest })
    }

    /// What the account signs as a message (EIP-191), or an account with code accepts as one (ERC-1271).
    pub const fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// The headers that make the request a signed one, with names in lower case: `content-digest` where the
    /// request needs a digest and has none, `signature-input` and `signature`.
    pub fn headers(self, signature: &[u8]) -> Vec<(&'static str, String)> {
        let digest = self.digest.map(|digest| (digest::FIELD, digest));
        let signature = Base64::encode_string(signature);
        let signed = [
            ("signature-input", format!("{LABEL}={}", self.parameters)),
            ("signature", format!("{LABEL}=:{signature}:")),
        ];
        digest.into_iter().chain(signed).collect()
    }
}
