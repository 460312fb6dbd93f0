//! The domain behind a liable wallet: the file that it serves, and the wallets that sign for it.

use std::{collections::BTreeSet, fmt};

use alloy_primitives::{Address, B256, Bytes, U256};
use serde::Serialize;

use super::{
    acceptance::{Acceptance, DecimalId},
    signed::{self, LiableDomain, Moment, Problem},
};
use crate::eth::{
    json,
    members::{FirstError, MemberError, Members},
    typed_data::TypedData,
};

/// Path of the file.
pub const WELL_KNOWN: &str = "/.well-known/kya-liable.json";

/// The largest file, in bytes: about 280 acceptances.
pub const MAX_FILE_BYTES: usize = 256 * 1024;

/// A domain name in lower case, with A-labels (RFC 5890): not an address, without port and final dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// The rule of [`parse`](Self::parse).
    pub const RULE: &str =
        "must be a domain name in lower case, international labels as xn--…, without a port";

    /// Parses a name of at least two labels (RFC 1123, section 2.1).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_label = |label: &str| {
            let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            (1..=63).contains(&label.len())
                && label.bytes().all(is_allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // The last label of a name has a letter, that of an IPv4 address has none.
        let top = text.rsplit('.').next()?;
        let is_name = text.len() <= 253
            && text.contains('.')
            && text.split('.').all(is_label)
            && !top.bytes().all(|byte| byte.is_ascii_digit());
        is_name.then(|| Self(text.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A wallet that a domain names, with the wallet's signature for the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiableWallet {
    /// The chain's id.
    pub chain_id: u64,
    /// The registry.
    pub registry: Address,
    /// The liable wallet.
    pub wallet: Address,
    /// The first second at which the signature holds, in unix seconds.
    pub not_before: u64,
    /// The last second at which the signature holds, in unix seconds.
    pub not_after: u64,
    /// The wallet's signature of a [`LiableDomain`].
    pub signature: Bytes,
    /// The company's name, as the domain claims it.
    pub legal_name: Option<String>,
    /// The company's Legal Entity Identifier (ISO 17442), as the domain claims it.
    pub lei: Option<String>,
}

impl LiableWallet {
    fn read(mut members: Members<'_>) -> Self {
        let text = |members: &mut Members<'_>, name| members.has(name).then(|| members.text(name));
        let wallet = Self {
            chain_id: members.number("chainId", u64::MAX),
            registry: members.spelled("registry"),
            wallet: members.spelled("wallet"),
            not_before: members.number("notBefore", u64::MAX),
            not_after: members.number("notAfter", u64::MAX),
            signature: members.spelled("signature"),
            legal_name: text(&mut members, "legalName"),
            lei: text(&mut members, "lei"),
        };
        members.end();
        wallet
    }

    /// Returns the payload of `eth_signTypedData_v4` for the wallet's signature for a domain.
    #[must_use]
    pub fn typed_data(&self, domain: &DomainName) -> String {
        let (domain, not_before, not_after) = (domain.as_str(), self.not_before, self.not_after);
        let message = DomainMessage { haftungsperson: self.wallet, domain, not_before, not_after };
        let separator = signed::domain(self.chain_id, self.registry);
        json::text(&TypedData::new::<LiableDomain>(&separator, message), 1_024)
    }

    /// Returns the EIP-712 digest that the wallet signs for a domain.
    #[must_use]
    pub fn digest(&self, domain: &DomainName) -> B256 {
        let message = LiableDomain {
            haftungsperson: self.wallet,
            domain: domain.as_str().to_owned(),
            notBefore: self.not_before,
            notAfter: self.not_after,
        };
        signed::digest(&message, self.chain_id, self.registry)
    }

    /// Checks that the signature holds at a moment.
    ///
    /// # Errors
    ///
    /// [`Problem::Time`], or [`Problem::Member`] if `notAfter` is before `notBefore` or too long after it.
    pub fn check_time(&self, moment: Moment) -> Result<(), Problem> {
        moment.check(self.not_before, self.not_after)
    }

    /// Checks the signature of a wallet without code. A wallet with code is called (ERC-1271).
    ///
    /// # Errors
    ///
    /// [`Problem::Signature`].
    pub fn check_signature(&self, domain: &DomainName) -> Result<(), Problem> {
        signed::check_signer(self.digest(domain), &self.signature, self.wallet)
    }
}

/// A statement for a domain as the EIP-712 message that wallets show.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DomainMessage<'a> {
    #[serde(with = "json::Checksummed")]
    haftungsperson: Address,
    domain: &'a str,
    not_before: u64,
    not_after: u64,
}

/// The file of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainFile {
    /// The wallets that the domain names.
    pub liable: Vec<LiableWallet>,
    /// Acceptances by these wallets.
    pub acceptances: Vec<Acceptance>,
    /// Digests of acceptances that no longer hold, from any source.
    pub withdrawn: BTreeSet<B256>,
    /// Agents that name one of these wallets but are not the domain's, whatever else is known of them.
    pub not_ours: BTreeSet<U256>,
}

impl DomainFile {
    /// Parses the file. `acceptances`, `withdrawn` and `notOurs` may be absent.
    ///
    /// # Errors
    ///
    /// The first member that breaks a rule. A file with an error is refused as a whole: the unreadable part
    /// may be its withdrawals.
    pub fn read(text: &str) -> Result<Self, MemberError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(MemberError { path: "it".to_owned(), rule: "must have at most 256 KiB" });
        }
        let errors = FirstError::default();
        let mut members = Members::of_written(text, &errors);
        let file = Self {
            liable: members.objects("liable").into_iter().map(LiableWallet::read).collect(),
            acceptances: optional(&mut members, "acceptances", |members, name| {
                members.objects(name).into_iter().map(Acceptance::read).collect()
            }),
            withdrawn: optional(&mut members, "withdrawn", Members::list).into_iter().collect(),
            not_ours: optional(&mut members, "notOurs", Members::list::<DecimalId>)
                .into_iter()
                .map(|id| id.0)
                .collect(),
        };
        members.end();
        errors.end()?;
        Ok(file)
    }

    /// Returns the wallets of a registry that the file names.
    pub fn wallets(&self, chain_id: u64, registry: Address) -> impl Iterator<Item = &LiableWallet> {
        self.liable.iter().filter(move |liable| liable.chain_id == chain_id && liable.registry == registry)
    }
}

/// Reads a list that may be absent.
fn optional<'a, T>(
    members: &mut Members<'a>,
    name: &'static str,
    read: impl FnOnce(&mut Members<'a>, &str) -> Vec<T>,
) -> Vec<T> {
    if members.has(name) { read(members, name) } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_name_has_one_spelling() {
        let long = format!("{}.example", "a".repeat(64));
        for (text, is_name) in [
            ("acme.example", true),
            ("xn--mller-kva.example", true),
            ("a.b.c.example", true),
            ("127.0.0.1", false),
            ("localhost", false),
            ("Acme.example", false),
            ("müller.example", false),
            ("acme.example.", false),
            ("acme.example:443", false),
            ("*.acme.example", false),
            ("-acme.example", false),
            (&long, false),
            ("", false),
        ] {
            assert_eq!(DomainName::parse(text).is_some(), is_name, "{text}");
        }
    }

    const FILE: &str = r#"{"liable":[{"chainId":8453,"registry":"0x2efab5b3bef49e56a6ce1dcb1a39ef63c312ea23",
        "wallet":"0x7e5f4552091a69125d5dfcb7b8c2659029395bdf","notBefore":1,"notAfter":2,"signature":"0x00",
        "legalName":"M\u00fcller \"GmbH\"","lei":"5299000J2N45DDNE4Y28"}],
        "withdrawn":["0x00000000000000000000000000000000000000000000000000000000000000aa"],"notOurs":["7","12"]}"#;

    #[test]
    fn a_file_names_its_wallets_and_what_is_not_its_own() {
        let file = DomainFile::read(FILE).unwrap();
        assert_eq!(file.liable[0].legal_name.as_deref(), Some("Müller \"GmbH\""));
        assert!(file.not_ours.contains(&U256::from(12)) && file.withdrawn.len() == 1);
        let registry = file.liable[0].registry;
        assert_eq!((file.wallets(8_453, registry).count(), file.wallets(1, registry).count()), (1, 0));
        assert_eq!(DomainFile::read(r#"{"liable":[]}"#), Ok(DomainFile::default()));
        for (from, to, path) in [
            ("\"liable\"", "\"Liable\"", "liable"),
            ("\"notOurs\"", "\"notours\"", "notours"),
            ("\"12\"", "12", "notOurs[1]"),
            ("0x00000000", "0x0000000", "withdrawn[0]"),
            ("[\"0x", "[\"0X", "withdrawn[0]"),
            ("[\"0x", "[\"", "withdrawn[0]"),
            ("\"0x00\"", "\"0x0x00\"", "liable[0].signature"),
            ("\"0x00\"", "\"0X00\"", "liable[0].signature"),
            ("\"notAfter\":2", "\"notAfter\":\"2\"", "liable[0].notAfter"),
            ("\"lei\"", "\"wallet\"", "liable[0]"),
        ] {
            assert_eq!(DomainFile::read(&FILE.replacen(from, to, 1)).unwrap_err().path, path);
        }
        let large = format!("{{\"liable\":[]{}}}", " ".repeat(MAX_FILE_BYTES));
        assert_eq!(DomainFile::read(&large).unwrap_err().rule, "must have at most 256 KiB");
    }
}
