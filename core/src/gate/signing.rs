//! The client's side: the message that an account signs for a request, and the headers of the signed request.
//!
//! Any signer of EIP-191 messages will do:
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

/// The parameters of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningTerms<'a> {
    /// The account that signs.
    pub account: Account,
    /// Time of signing, in unix seconds.
    pub created: u64,
    /// Seconds for which the signature is valid: every gate accepts 60.
    pub valid_seconds: u64,
    /// A text that no other signature of the account has: 128 random bits, in hexadecimal digits or base64.
    pub nonce: &'a str,
}

/// A request that its account has not signed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    message: String,
    parameters: String,
    /// The digest to add, where the request has none.
    digest: Option<String>,
}

impl Unsigned {
    /// Prepares a request for a signature of the `tagged` dialect, over scheme, authority, method, path,
    /// query, and the content's digest and type. Empty content gets a digest too, except with GET and HEAD:
    /// not every proxy tells its gate that there is none. `None` where one of these cannot be signed, or the
    /// nonce has a character that is not visible ASCII or a space, or is a quote or a backslash.
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

    /// Returns the message that the account signs (EIP-191), or that an account's code accepts (ERC-1271).
    pub const fn message(&self) -> &[u8] {
        self.message.as_bytes()
    }

    /// Returns the headers to add to the request, with names in lower case: `content-digest` where it needs a
    /// digest and has none, `signature-input` and `signature`.
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
