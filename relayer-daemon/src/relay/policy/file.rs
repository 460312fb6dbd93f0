//! The policy file: TOML, read as a whole and validated field by field.

use std::{
    collections::HashSet,
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use alloy::primitives::Address;
use clap::ValueEnum as _;
use host_kit::ConfigFault;
use registry_core::eth::address;
use reqwest::Url;
use serde::Deserialize;

use super::{ApiKey, Policy, PolicyError, WithoutKey};
use crate::{
    relay::{
        functions::{RegistryFunction, RelayedFunctions},
        rate_limits::RateLimit,
    },
    signatures::{KeyHash, SHORTEST_SECRET, WebhookSecret, WebhookSecrets, short_hash},
};

/// Default share of all requests without a key together, once there are keys, percent.
const WITHOUT_KEY_SHARE: u8 = 50;
/// The longest name of a key.
const LONGEST_NAME: usize = 64;

/// The URL of a webhook, and the secret that signs its requests.
#[derive(Clone)]
pub struct WebhookTarget {
    /// `https`, or `http` on this machine.
    pub url: Url,
    /// The shared secret; several while it is exchanged.
    pub secret: WebhookSecrets,
}

impl fmt::Debug for WebhookTarget {
    /// Shows neither the secret nor the URL, which may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookTarget")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PolicyFile {
    #[serde(default)]
    without_key: Option<String>,
    #[serde(default)]
    without_key_share: Option<u8>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default, rename = "key")]
    keys: Vec<KeyTable>,
    #[serde(default)]
    decision: Option<WebhookTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KeyTable {
    name: String,
    #[serde(default)]
    hash: Option<String>,
    #[serde(default)]
    hashes: Vec<String>,
    signers: Signers,
    #[serde(default)]
    functions: Option<Vec<String>>,
    /// Requests per hour; 0, the default, is no limit.
    #[serde(default)]
    requests_per_hour: u32,
    #[serde(default)]
    gas_per_day: Option<u64>,
    #[serde(default)]
    webhook: Option<WebhookTable>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be `any` or a list of addresses")]
enum Signers {
    Word(String),
    List(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WebhookTable {
    url: String,
    #[serde(default)]
    secret_file: Option<PathBuf>,
    #[serde(default)]
    secret_files: Vec<PathBuf>,
}

fn broken(field: impl Into<String>, rule: impl Into<String>) -> PolicyError {
    PolicyError { field: field.into(), rule: rule.into() }
}

/// Reads a policy file. The error names the field and the rule.
pub(super) fn read(path: &Path) -> Result<Policy, PolicyError> {
    let text = fs::read_to_string(path)
        .map_err(|error| broken(path.display().to_string(), format!("cannot be read: {}", error.kind())))?;
    parse(&text)
}

pub(super) fn parse(text: &str) -> Result<Policy, PolicyError> {
    let file: PolicyFile = toml::from_str(text).map_err(|error| {
        let ConfigFault { place, rule } = ConfigFault::new(text, error.span(), error.message());
        broken(place, rule)
    })?;
    let without_key = match file.without_key.as_deref() {
        None | Some("limits") => WithoutKey::Limits,
        Some("off") => WithoutKey::Off,
        Some(_) => return Err(broken("without-key", "must be \"off\" or \"limits\"")),
    };
    let without_key_share = match file.without_key_share {
        None if file.keys.is_empty() => 100,
        None => WITHOUT_KEY_SHARE,
        Some(percent @ 1..=100) => percent,
        Some(_) => return Err(broken("without-key-share", "must be a percentage from 1 to 100")),
    };
    let deny = addresses("deny", &file.deny)?;
    let mut keys: Vec<Arc<ApiKey>> = Vec::with_capacity(file.keys.len());
    for table in file.keys {
        let key = api_key(table)?;
        let of = |field: &str| format!("key \"{}\": {field}", key.name);
        if keys.iter().any(|other| other.name == key.name) {
            return Err(broken(of("name"), "is used twice"));
        }
        if keys.iter().any(|other| key.hashes.iter().any(|hash| other.has(hash))) {
            return Err(broken(of("hash"), "is another key's too"));
        }
        keys.push(Arc::new(key));
    }
    let decision = file.decision.map(|table| webhook("decision", table)).transpose()?;
    let targets = keys.iter().filter_map(|key| key.webhook.as_ref()).chain(&decision);
    let marks: Vec<_> = targets.flat_map(|target| target.secret.marks()).collect();
    let parts: Vec<&[u8]> = [text.as_bytes()].into_iter().chain(marks.iter().map(AsRef::as_ref)).collect();
    let hash = short_hash(&parts);
    Ok(Policy { hash, from_file: true, without_key, without_key_share, deny, keys, decision })
}

fn api_key(table: KeyTable) -> Result<ApiKey, PolicyError> {
    let name = table.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err(broken("key: name", "must be 1 to 64 letters, digits, and -_."));
    }
    let of = |field: &str| format!("key \"{name}\": {field}");
    let hash = |text: String| {
        KeyHash::parse(&text).ok_or_else(|| {
            broken(
                of("hash"),
                "must be sha256: and 64 hexadecimal digits, as `relayer-daemon api-key` prints it",
            )
        })
    };
    let hashes: Vec<KeyHash> =
        table.hash.into_iter().chain(table.hashes).map(hash).collect::<Result<_, _>>()?;
    if hashes.is_empty() {
        return Err(broken(of("hash"), "is missing: set hash, or hashes while a key is exchanged"));
    }
    let signers = match table.signers {
        Signers::Word(word) if word == "any" => None,
        Signers::Word(_) => return Err(broken(of("signers"), "must be `any` or a list of addresses")),
        Signers::List(list) => Some(addresses(&of("signers"), &list)?),
    };
    let functions = match table.functions {
        None => RegistryFunction::ALL.to_vec(),
        Some(names) => names
            .iter()
            .map(|function| {
                RegistryFunction::from_str(function, false).map_err(|_| {
                    broken(of("functions"), format!("{function:?} is no function that is relayed"))
                })
            })
            .collect::<Result<_, _>>()?,
    };
    if table.gas_per_day == Some(0) {
        return Err(broken(of("gas-per-day"), "must be above 0; without it there is no limit"));
    }
    let webhook = table.webhook.map(|table| webhook(&of("webhook"), table)).transpose()?;
    Ok(ApiKey {
        hashes,
        signers,
        functions: RelayedFunctions::new(functions),
        rate: Arc::new(RateLimit::per_hour(table.requests_per_hour)),
        gas_per_day: table.gas_per_day,
        webhook,
        name,
    })
}

fn addresses(field: &str, list: &[String]) -> Result<HashSet<Address>, PolicyError> {
    let read = |text: &String| {
        address::parse(text).map_err(|_| {
            broken(field, format!("{text:?} is no address, with a right checksum if in mixed case"))
        })
    };
    list.iter().map(read).collect()
}

fn webhook(table_name: &str, table: WebhookTable) -> Result<WebhookTarget, PolicyError> {
    let of = |field: &str| format!("{table_name}: {field}");
    // Its text is not shown: it may hold a token.
    let url = table.url.parse().ok().filter(is_private);
    let url = url.ok_or_else(|| broken(of("url"), "must be an https URL, or http on this machine"))?;
    let read = |path: PathBuf| {
        let secret =
            WebhookSecret::from_file(&path).map_err(|error| broken(of("secret-file"), error.to_string()))?;
        let rule = format!("must hold at least {SHORTEST_SECRET} bytes, behind whsec_ in base64");
        secret.ok_or_else(|| broken(of("secret-file"), rule))
    };
    let files = table.secret_file.into_iter().chain(table.secret_files);
    let secrets: Vec<WebhookSecret> = files.map(read).collect::<Result<_, _>>()?;
    if secrets.is_empty() {
        return Err(broken(
            of("secret-file"),
            "is missing: set it, or secret-files while a secret is exchanged",
        ));
    }
    Ok(WebhookTarget { url, secret: WebhookSecrets(secrets) })
}

/// Returns whether only its receiver can read a request to this URL: over TLS, or on this machine.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    !host.is_empty() && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_error_names_the_field_and_the_rule() {
        let hash = KeyHash::of("rk_1");
        let key = |rest: &str| format!("[[key]]\nname = \"acme\"\nhash = \"{hash}\"\n{rest}");
        let any = key("signers = \"any\"");
        for (text, field, rule) in [
            (format!("{0}\n{0}", key("signers = \"any\"")), "key \"acme\": name", ""),
            (format!("{any}\n{}", any.replace("acme", "b")), "key \"b\": hash", ""),
            ("without-key = \"maybe\"".to_owned(), "without-key", "\"off\" or \"limits\""),
            ("deny = [\"0x12\"]".to_owned(), "deny", "\"0x12\" is no address"),
            ("without-key-share = 0".to_owned(), "without-key-share", "from 1 to 100"),
            ("dony = []".to_owned(), "line 1: dony", "unknown field"),
            ("without-key = ".to_owned(), "line 1: without-key", ""),
            (key(""), "line 1: [[key]]", "missing field `signers`"),
            (key("signers = \"all\""), "key \"acme\": signers", "`any` or a list"),
            (key("signers = 5"), "line 4: signers", "`any` or a list"),
            (key("signers = [\"0xzz\"]"), "key \"acme\": signers", "is no address"),
            (key("signers = \"any\"\nfunctions = [\"getAgent\"]"), "key \"acme\": functions", "\"getAgent\""),
            (key("signers = \"any\"\ngas-per-day = 0"), "key \"acme\": gas-per-day", "above 0"),
            (key("signers = \"any\"\nrequests-per-hour = -1"), "line 5: requests-per-hour", "invalid value"),
            ("[[key]]\nname = \"a b\"\nhash = \"\"\nsigners = \"any\"".to_owned(), "key: name", "letters"),
            (any.replace(&hash.to_string(), "rk_1"), "key \"acme\": hash", "sha256:"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.field.contains(field) && error.rule.contains(rule), "{text}\n{error}");
        }
    }

    #[test]
    fn webhooks_go_over_tls_or_stay_on_this_machine_and_have_a_private_secret() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        let set = |content: &str, mode| {
            fs::write(&secret, content).unwrap();
            fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        };
        set("a secret of 22 bytes..\n", 0o600);
        let decision = |url: &str| {
            parse(&format!("[decision]\nurl = \"{url}\"\nsecret-file = \"{}\"", secret.display()))
        };
        for good in
            ["https://hooks.example/x?token=1", "http://127.0.0.1:8/", "http://[::1]:8/", "http://localhost/"]
        {
            assert!(decision(good).unwrap().decision.is_some(), "{good}");
        }
        for bad in [
            "http://hooks.example/s3cr3t",
            "ftp://127.0.0.1/",
            "hooks.example",
            "https://",
            "http://10.0.0.1/",
        ] {
            let error = decision(bad).unwrap_err();
            assert_eq!(error.field, "decision: url", "{bad}");
            assert!(!error.to_string().contains("s3cr3t"));
        }
        set("short", 0o600);
        assert!(decision("https://a/").unwrap_err().rule.contains("16 bytes"));
        set("a secret of 22 bytes..", 0o644);
        assert!(decision("https://a/").unwrap_err().rule.contains("chmod 600"));
    }
}
