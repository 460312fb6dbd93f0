//! Several keys: a directory with one file for each, with the key in hex or as an encrypted keystore.
//!
//! Hidden files are ignored, so that a directory that Kubernetes mounts can be used as it is. In systemd's
//! directory of credentials, where a service has all of them, only those from `LoadCredential=keys:…` are
//! keys. All keystores have the one password of `RELAYER_KEYSTORE_PASSWORD_FILE`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use alloy::{primitives::Address, signers::local::PrivateKeySigner};

use super::{CREDENTIALS, KeyFileError, KeyLoadError, parse_key, private_file, with_password};

/// Loads the keys of a directory, in the order of their files' names.
pub(super) fn load(
    dir: &Path,
    var: impl Fn(&str) -> Option<String>,
) -> Result<Vec<PrivateKeySigner>, KeyLoadError> {
    let unreadable = |error: std::io::Error| KeyFileError::Unreadable(dir.to_owned(), error.kind());
    let is_of_systemd = var(CREDENTIALS).is_some_and(|credentials| Path::new(&credentials) == dir);
    let prefix: &[u8] = if is_of_systemd { b"keys_" } else { b"" };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b".") && name.as_encoded_bytes().starts_with(prefix) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut known: BTreeMap<Address, PathBuf> = BTreeMap::new();
    let mut keys = Vec::with_capacity(paths.len());
    for path in paths {
        let key = key(&path, &var)?;
        if let Some(other) = known.insert(key.address(), path.clone()) {
            return Err(KeyLoadError::Twice(other, path));
        }
        keys.push(key);
    }
    if keys.is_empty() { Err(KeyLoadError::Empty(dir.to_owned())) } else { Ok(keys) }
}

fn key(path: &Path, var: impl Fn(&str) -> Option<String>) -> Result<PrivateKeySigner, KeyLoadError> {
    let text = private_file(path, &var)?;
    if text.trim_start().starts_with('{') {
        return with_password(path, var);
    }
    parse_key(&text).ok_or_else(|| KeyFileError::Invalid(path.display().to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};
    use alloy::primitives::{B256, hex};

    fn put(dir: &Path, name: &str, content: &str) -> PathBuf {
        file(dir, name, content, 0o600).into()
    }

    fn hex_key(byte: u8) -> String {
        hex::encode_prefixed([byte; 32])
    }

    fn address(byte: u8) -> Address {
        PrivateKeySigner::from_bytes(&B256::repeat_byte(byte)).unwrap().address()
    }

    fn addresses(dir: &Path) -> Result<Vec<Address>, KeyLoadError> {
        Ok(load(dir, |_| None)?.iter().map(PrivateKeySigner::address).collect())
    }

    #[test]
    fn each_file_is_a_key_in_the_order_of_their_names_and_a_keystore_may_stand_among_them() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "3", &hex_key(3));
        put(dir.path(), "1", &format!("{}\n", hex_key(1)));
        put(dir.path(), ".hidden", "no key");
        assert_eq!(addresses(dir.path()), Ok(vec![address(1), address(3)]));
        let mut random = rand_08::thread_rng();
        let key = B256::repeat_byte(2);
        PrivateKeySigner::encrypt_keystore(dir.path(), &mut random, key, "secret", Some("2")).unwrap();
        let keystore = fs::read_to_string(dir.path().join("2")).unwrap();
        put(dir.path(), "2", &keystore);
        assert_eq!(addresses(dir.path()), Err(KeyLoadError::NoPassword));
        let elsewhere = tempfile::tempdir().unwrap();
        let password = put(elsewhere.path(), "password", "secret\n").display().to_string();
        let keys = load(dir.path(), |name| (name == super::super::PASSWORD_FILE).then(|| password.clone()));
        let found: Vec<Address> = keys.unwrap().iter().map(PrivateKeySigner::address).collect();
        assert_eq!(found, [address(1), address(2), address(3)]);
    }

    #[test]
    fn of_the_credentials_of_a_service_those_named_so_are_keys() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "keys_1", &hex_key(1));
        put(dir.path(), "webhooks_acme", "a secret of a webhook");
        let credentials = dir.path().display().to_string();
        let keys = load(dir.path(), |name| (name == CREDENTIALS).then(|| credentials.clone())).unwrap();
        assert_eq!(keys.iter().map(PrivateKeySigner::address).collect::<Vec<_>>(), [address(1)]);
    }

    #[test]
    fn what_is_no_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(addresses(&path), Err(KeyLoadError::Empty(path.clone())));
        let first = put(&path, "1", &hex_key(1));
        let second = put(&path, "2", &hex_key(1));
        assert_eq!(addresses(&path), Err(KeyLoadError::Twice(first, second.clone())));
        put(&path, "2", "hunter2");
        assert_eq!(addresses(&path), Err(KeyFileError::Invalid(second.display().to_string()).into()));
        file(&path, "2", "hunter2", 0o640);
        assert_eq!(addresses(&path), Err(KeyFileError::Exposed(second).into()));
        let missing = path.join("missing");
        assert!(matches!(addresses(&missing), Err(KeyLoadError::File(KeyFileError::Unreadable(..)))));
    }
}
