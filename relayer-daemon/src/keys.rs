//! The relayer's keys: one from the environment, from a file or from an encrypted keystore, or several from a
//! directory.
//!
//! They are never read from the command line, where every user of the machine could see them, and never
//! logged: errors name the source and the rule, not the content.

mod directory;

use std::{
    env,
    path::{Path, PathBuf},
};

use alloy::signers::local::PrivateKeySigner;
use host_kit::keys::{CREDENTIALS, KeyFileError, open_keystore, parse_key, private_file};
use thiserror::Error;

/// Names of the variables, one of which must give the keys.
pub(crate) const SOURCES: [&str; 4] =
    ["RELAYER_KEY", "RELAYER_KEY_FILE", "RELAYER_KEYSTORE", "RELAYER_KEYS_DIR"];
const PASSWORD_FILE: &str = "RELAYER_KEYSTORE_PASSWORD_FILE";

/// The reason why there is no key. Names the variable or file, never its content.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KeyLoadError {
    /// No source is set.
    #[error(
        "no key: set one of RELAYER_KEY, RELAYER_KEY_FILE, RELAYER_KEYSTORE, RELAYER_KEYS_DIR, RELAYER_KEY_KMS, \
         RELAYER_KEY_REMOTE"
    )]
    Missing,
    /// More than one source is set.
    #[error(
        "more than one source of keys: set only one of RELAYER_KEY, RELAYER_KEY_FILE, RELAYER_KEYSTORE, \
         RELAYER_KEYS_DIR"
    )]
    Ambiguous,
    /// A keystore has no password.
    #[error("a keystore needs RELAYER_KEYSTORE_PASSWORD_FILE")]
    NoPassword,
    /// A file gives no key.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// A directory holds no key.
    #[error("{0} holds no key: put one file in it for each")]
    Empty(PathBuf),
    /// Two files of a directory hold the same key.
    #[error("{0} and {1} hold the same key")]
    Twice(PathBuf, PathBuf),
}

/// Reads the keys from the source that the environment names: at least one, and each once.
///
/// # Errors
/// [`KeyLoadError`], free of secrets.
pub fn from_env() -> Result<Vec<PrivateKeySigner>, KeyLoadError> {
    load(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}

fn load(var: impl Fn(&str) -> Option<String>) -> Result<Vec<PrivateKeySigner>, KeyLoadError> {
    if SOURCES.iter().filter(|name| var(name).is_some()).count() > 1 {
        return Err(KeyLoadError::Ambiguous);
    }
    let [key, file, keystore, dir] = SOURCES.map(&var);
    if let Some(dir) = dir {
        return directory::load(Path::new(&dir), &var);
    }
    let key = if let Some(key) = key {
        parse_key(&key).ok_or_else(|| KeyFileError::Invalid("RELAYER_KEY".to_owned()))?
    } else if let Some(path) = file {
        parse_key(&private_file(Path::new(&path), &var)?).ok_or(KeyFileError::Invalid(path))?
    } else if let Some(path) = keystore {
        with_password(Path::new(&path), &var)?
    } else {
        return Err(KeyLoadError::Missing);
    };
    Ok(vec![key])
}

/// Opens a keystore with the password in the variable's file.
fn with_password(
    path: &Path,
    var: impl Fn(&str) -> Option<String>,
) -> Result<PrivateKeySigner, KeyLoadError> {
    let password = var(PASSWORD_FILE).ok_or(KeyLoadError::NoPassword)?;
    Ok(open_keystore(path, &private_file(Path::new(&password), &var)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::{Address, B256, address};
    use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt as _};

    const KEY: &str = "0x5125fcf8ffe430ef5dd26e76cbd7478e444e2153bfc39779b9196b2a83b773da";
    const ADDRESS: Address = address!("D9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0");

    fn load_from(vars: &[(&str, &str)]) -> Result<Address, KeyLoadError> {
        let vars: HashMap<_, _> = vars.iter().copied().collect();
        let keys = load(|name| vars.get(name).map(|value| (*value).to_owned()))?;
        assert_eq!(keys.len(), 1);
        Ok(keys[0].address())
    }

    /// Writes a file with these permissions, and returns its path.
    pub(super) fn file(dir: &Path, name: &str, content: &str, mode: u32) -> String {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }

    #[test]
    fn a_key_is_read_with_and_without_prefix_and_a_bad_one_is_named_but_not_shown() {
        for good in [KEY, KEY.trim_start_matches("0x")] {
            assert_eq!(load_from(&[("RELAYER_KEY", good)]), Ok(ADDRESS));
        }
        for bad in ["0x12", "hunter2", &"00".repeat(32), &"ff".repeat(32)] {
            let error = load_from(&[("RELAYER_KEY", bad)]).unwrap_err();
            assert_eq!(error, KeyFileError::Invalid("RELAYER_KEY".to_owned()).into());
            assert!(!error.to_string().contains(bad));
        }
        assert_eq!(load_from(&[]), Err(KeyLoadError::Missing));
        let both = [("RELAYER_KEY", KEY), ("RELAYER_KEY_FILE", "x")];
        assert_eq!(load_from(&both), Err(KeyLoadError::Ambiguous));
    }

    #[test]
    fn a_key_file_must_be_private_and_one_of_systemd_may_show_its_access_list_as_the_group() {
        let [elsewhere, dir] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let credentials = ("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap());
        for (dir, mode, is_good) in [
            (&elsewhere, 0o600, true),
            (&elsewhere, 0o640, false),
            (&elsewhere, 0o604, false),
            (&elsewhere, 0o620, false),
            (&elsewhere, 0o440, false),
            (&dir, 0o440, true),
            (&dir, 0o444, false),
            (&dir, 0o460, false),
        ] {
            let path = file(dir.path(), &format!("{mode:o}"), &format!("{KEY}\n"), mode);
            let expected = |is_good| {
                if is_good { Ok(ADDRESS) } else { Err(KeyFileError::Exposed(path.clone().into()).into()) }
            };
            let variable = ("RELAYER_KEY_FILE", &*path);
            assert_eq!(load_from(&[variable, credentials]), expected(is_good), "{mode:o}");
            assert_eq!(load_from(&[variable]), expected(mode == 0o600), "{mode:o} without systemd");
        }
        let missing = dir.path().join("missing").display().to_string();
        let refused = load_from(&[("RELAYER_KEY_FILE", &missing)]);
        assert!(matches!(refused, Err(KeyLoadError::File(KeyFileError::Unreadable(..)))));
    }

    #[test]
    fn a_keystore_opens_with_its_password_only() {
        let dir = tempfile::tempdir().unwrap();
        let key: B256 = KEY.parse().unwrap();
        let (_, name) =
            PrivateKeySigner::encrypt_keystore(dir.path(), &mut rand_08::thread_rng(), key, "secret", None)
                .unwrap();
        let keystore = dir.path().join(name).display().to_string();
        let right = file(dir.path(), "right", "secret\n", 0o600);
        let wrong = file(dir.path(), "wrong", "guess", 0o600);
        let with = |password: &str| load_from(&[("RELAYER_KEYSTORE", &keystore), (PASSWORD_FILE, password)]);
        assert_eq!(with(&right), Ok(ADDRESS));
        assert!(matches!(with(&wrong), Err(KeyLoadError::File(KeyFileError::WrongPassword(_)))));
        assert_eq!(load_from(&[("RELAYER_KEYSTORE", &keystore)]), Err(KeyLoadError::NoPassword));
        // As ethers writes it, and what is none.
        let text = fs::read_to_string(&keystore).unwrap();
        let ethers = file(dir.path(), "ethers", &text.replace("\"crypto\"", "\"Crypto\""), 0o600);
        let none = file(dir.path(), "none", "{\"version\": 3}", 0o600);
        let open = |path: &str| load_from(&[("RELAYER_KEYSTORE", path), (PASSWORD_FILE, &right)]);
        assert_eq!(open(&ethers), Ok(ADDRESS));
        assert!(matches!(open(&none), Err(KeyLoadError::File(KeyFileError::NoKeystore(_)))));
    }
}
