//! Signs verdicts as tokens, with keys from a file that is read again while the gate runs.
//!
//! Keys rotate without a restart, as a restarted gate refuses signatures that were made before it. New keys
//! are used once they are seen in the file; a file that cannot be used leaves the former keys in place.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use alloy_primitives::{Address, B256};
use anyhow::{Context as _, ensure};
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{Origin, Verdict, VerdictAgent},
    token::{KeySet, Terms, VerdictClaims, compact, signing_input},
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use tokio::sync::watch;

use crate::settings::SigningSettings;

/// The interval of looks at the file.
const LOOK: Duration = Duration::from_secs(2);

/// Signs verdicts.
#[derive(Debug)]
pub struct Signer {
    issuer: String,
    chain: u64,
    /// The registry of the verdicts (CAIP-10).
    registry: String,
    file: PathBuf,
    keys: RwLock<Arc<LoadedKeys>>,
}

/// The keys of the file, as last read.
struct LoadedKeys {
    text: String,
    kid: String,
    pair: EcdsaKeyPair,
    published: String,
}

impl std::fmt::Debug for LoadedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedKeys").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl Signer {
    /// Reads the keys. Errors: the fault of the keys; nothing of the file is quoted.
    pub fn new(settings: &SigningSettings, chain: u64, registry: String) -> anyhow::Result<Self> {
        let keys = read_private(&settings.keys).and_then(load).context("verdict.keys")?;
        let (issuer, file) = (settings.issuer.as_str().to_owned(), settings.keys.clone());
        Ok(Self { issuer, chain, registry, file, keys: RwLock::new(Arc::new(keys)) })
    }

    /// Signs the verdict on a wallet as a token for the site at `origin`. `fresh_for` is the time for which
    /// the gate would use the verdict without another read, `admission` the id of the admission. `None` where
    /// no signature can be made, which is logged.
    pub fn sign(
        &self,
        wallet: Address,
        verdict: &Verdict,
        fresh_for: Duration,
        origin: &Origin,
        admission: Option<B256>,
        now: Timestamp,
    ) -> Option<String> {
        let fresh = u64::try_from(fresh_for.as_millis()).unwrap_or(u64::MAX);
        let cached_until = Timestamp::from_millis(now.as_millis().saturating_add(fresh));
        let audience = format!("{}://{}", origin.scheme(), origin.authority());
        let terms = Terms {
            issuer: &self.issuer,
            chain: self.chain,
            audience: Some(&audience),
            admission,
            now,
            cached_until,
        };
        let keys = self.keys();
        let agent = verdict.agent.as_ref();
        let accepted_until = agent.and_then(VerdictAgent::accepted_until);
        let claims = VerdictClaims::of(verdict.stated(wallet), &terms).with_liability(
            agent.map(VerdictAgent::liability),
            &self.registry,
            accepted_until,
        );
        let input = signing_input(&keys.kid, &claims);
        match keys.pair.sign(&SystemRandom::new(), input.as_bytes()) {
            Ok(signature) => Some(compact(&input, signature.as_ref())),
            Err(_) => {
                tracing::error!("a verdict could not be signed: the system gives no random numbers");
                None
            }
        }
    }

    /// Returns the published keys, as JSON.
    pub fn published(&self) -> String {
        self.keys().published.clone()
    }

    /// Returns the issuer and the id of the signing key, in words.
    pub fn label(&self) -> String {
        format!("signed by {} with the key {}", self.issuer, self.keys().kid)
    }

    /// Reads the file again, and uses its keys if they changed. `failed` is the error that was logged last.
    fn look(&self, failed: &mut Option<String>) {
        let changed = read_private(&self.file).and_then(|text| match text == self.keys().text {
            true => Ok(None),
            false => load(text).map(Some),
        });
        match changed {
            Ok(None) => *failed = None,
            Ok(Some(keys)) => {
                tracing::info!(kid = keys.kid, "verdicts are signed with other keys");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                *failed = None;
            }
            Err(error) => {
                let error = format!("{error:#}");
                if failed.as_ref() != Some(&error) {
                    tracing::error!(error, "the former keys stay in use: the file of keys cannot be used");
                    *failed = Some(error);
                }
            }
        }
    }

    fn keys(&self) -> Arc<LoadedKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows changes of the file of keys until `stop` turns true.
pub async fn watch(signer: Arc<Signer>, mut stop: watch::Receiver<bool>) {
    let looking = async {
        let (mut ticks, mut failed) = (tokio::time::interval(LOOK), None);
        loop {
            ticks.tick().await;
            signer.look(&mut failed);
        }
    };
    tokio::select! {
        () = looking => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Reads a file that others cannot access. Its group may: systemd and Kubernetes hand secrets over so. Errors
/// quote nothing of it.
fn read_private(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let metadata = fs::metadata(file).with_context(|| format!("cannot read {name}"))?;
    let mode = metadata.permissions().mode() & 0o7777;
    ensure!(mode & 0o007 == 0, "{name} has mode {mode:o}: others must not access it, such as with 0600");
    fs::read_to_string(file).with_context(|| format!("cannot read {name}"))
}

fn load(text: String) -> anyhow::Result<LoadedKeys> {
    let keys = KeySet::parse(&text)?;
    let (signer, algorithm) = (keys.signer()?, &ECDSA_P256_SHA256_FIXED_SIGNING);
    let (secret, point) = (signer.secret(), signer.key().point());
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret, &point, &SystemRandom::new())
        .map_err(|_| anyhow::anyhow!("key 1: d is not the private part of x and y"))?;
    let (kid, published) = (signer.key().kid.clone(), keys.published());
    Ok(LoadedKeys { text, kid, pair, published })
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::{
        registry::kya::Decision,
        token::{Audience, Jws, StatedAt},
    };
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    /// RFC 7515, appendix A.3.
    const KEY: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI""#;

    fn set(kid: &str) -> String {
        format!("{{\"keys\":[{{\"kid\":\"{kid}\",{KEY}}}]}}")
    }

    fn write(file: &Path, text: &str) {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o640)).unwrap();
    }

    fn signer(file: &Path) -> anyhow::Result<Signer> {
        let issuer = Audience::parse("https://kya.example").unwrap();
        Signer::new(&SigningSettings { issuer, keys: file.to_owned() }, 8453, "eip155:8453:0xaa".to_owned())
    }

    fn signed(signer: &Signer) -> String {
        let verdict = Verdict {
            decision: Decision::Provision,
            reasons: Vec::new(),
            agent: None,
            compliant_until: Some(Timestamp::from_seconds(1_030)),
            as_of: StatedAt::number(1),
        };
        let (origin, now) =
            (Origin::parse("https://api.example:443").unwrap(), Timestamp::from_seconds(1_000));
        signer.sign(Address::ZERO, &verdict, Duration::from_secs(60), &origin, None, now).unwrap()
    }

    #[test]
    fn a_verdict_is_signed_for_the_site_with_the_keys_that_the_file_has_now() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.json");
        write(&file, &set("first"));
        let signer = signer(&file).unwrap();
        let token = signed(&signer);
        let jws = Jws::parse(&token).unwrap();
        assert_eq!((jws.kid.as_str(), jws.claims.iss.as_str()), ("first", "https://kya.example"));
        assert_eq!(jws.claims.aud.as_deref(), Some("https://api.example"));
        assert_eq!((jws.claims.iat, jws.claims.exp), (1_000, 1_030));
        let keys = KeySet::parse(&signer.published()).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, keys.find("first").unwrap().point());
        key.verify(jws.signing_input.as_bytes(), &jws.signature).unwrap();

        let mut failed = None;
        write(&file, "{");
        signer.look(&mut failed);
        assert!(failed.as_ref().is_some_and(|error| error.contains("JWK set")), "{failed:?}");
        assert_eq!(Jws::parse(&signed(&signer)).unwrap().kid, "first", "the former keys stay");
        write(&file, &set("second"));
        signer.look(&mut failed);
        assert_eq!((Jws::parse(&signed(&signer)).unwrap().kid.as_str(), failed), ("second", None));
        assert!(!format!("{signer:?}").contains("jpsQ"), "no private part is printed");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_fault() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.json");
        let error = |text: &str| {
            write(&file, text);
            format!("{:#}", signer(&file).unwrap_err())
        };
        let other = set("a").replace("\"d\":\"j", "\"d\":\"k");
        assert_eq!(error(&other), "verdict.keys: key 1: d is not the private part of x and y");
        assert!(error("").contains("verdict.keys: must be a JWK set"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let open = format!("{:#}", signer(&file).unwrap_err());
        assert!(open.contains("has mode 644: others must not access it"), "{open}");
        fs::remove_file(&file).unwrap();
        assert!(format!("{:#}", signer(&file).unwrap_err()).contains("cannot read"));
    }
}
