//! Private keys in files: in hexadecimal digits, or as encrypted keystores.
//!
//! Keys are never read from the command line, where every user of the machine could see them, and never
//! logged: errors name the file and the rule, not the content.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use alloy::{primitives::B256, signers::local::PrivateKeySigner};
use serde_json::{Map, Value};

/// The variable with the directory of systemd's `LoadCredential`, which only the service can enter.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Permission bits that a private file must not have: any for group or others.
const NOT_PRIVATE: u32 = 0o077;
/// The same for a credential of systemd: from version 254 on an access control list lets the service's user
/// read it, and the list's mask shows as the group's bits. The group itself cannot read.
const NOT_PRIVATE_CREDENTIAL: u32 = 0o037;

/// The reason why a file gives no key. Names the file, never its content.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyFileError {
    /// A file that cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, io::ErrorKind),
    /// A file that others may read.
    #[error("{0} can be read by group or others: chmod 600 it")]
    Exposed(PathBuf),
    /// Not 32 bytes of hex, or no valid key.
    #[error("{0} does not hold a private key (32 bytes of hex)")]
    Invalid(String),
    /// A file that is no keystore of a known form.
    #[error("{0} is no keystore (Web3 secret storage, version 3)")]
    NoKeystore(PathBuf),
    /// A keystore that another password opens.
    #[error("{0} has another password")]
    WrongPassword(PathBuf),
}

/// Reads a file that only its owner can read. Errors: [`KeyFileError`], free of secrets.
pub fn secret_file(path: &Path) -> Result<String, KeyFileError> {
    private_file(path, |name| env::var(name).ok())
}

/// Reads such a file, with these variables in place of the environment. Errors: as for [`secret_file`].
pub fn private_file(path: &Path, var: impl Fn(&str) -> Option<String>) -> Result<String, KeyFileError> {
    let unreadable = |error: io::Error| KeyFileError::Unreadable(path.to_owned(), error.kind());
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
    let is_credential =
        var(CREDENTIALS).is_some_and(|directory| path.parent() == Some(Path::new(&directory)));
    if mode & (if is_credential { NOT_PRIVATE_CREDENTIAL } else { NOT_PRIVATE }) != 0 {
        return Err(KeyFileError::Exposed(path.to_owned()));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// Parses a key from a text of 32 bytes in hexadecimal digits.
pub fn parse_key(text: &str) -> Option<PrivateKeySigner> {
    let key: B256 = text.trim().parse().ok()?;
    PrivateKeySigner::from_bytes(&key).ok()
}

/// Reads the key in a private file. Errors: [`KeyFileError`], free of secrets.
pub fn read_key(path: &Path) -> Result<PrivateKeySigner, KeyFileError> {
    parse_key(&secret_file(path)?).ok_or_else(|| KeyFileError::Invalid(path.display().to_string()))
}

/// Decrypts a keystore by the text of its password's file. Errors: [`KeyFileError`], free of secrets.
pub fn open_keystore(path: &Path, password: &str) -> Result<PrivateKeySigner, KeyFileError> {
    let password = password.trim_end_matches(['\r', '\n']);
    let unreadable = |error: io::Error| KeyFileError::Unreadable(path.to_owned(), error.kind());
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mut keystore: Map<String, Value> =
        serde_json::from_str(&text).map_err(|_| KeyFileError::NoKeystore(path.to_owned()))?;
    if !["crypto", "Crypto"].iter().filter_map(|name| keystore.get(*name)).all(is_bounded) {
        return Err(KeyFileError::NoKeystore(path.to_owned()));
    }
    // ethers writes this member in upper case.
    let decrypted = match keystore.remove("Crypto") {
        Some(crypto) => {
            keystore.insert("crypto".to_owned(), crypto);
            let copy = TemporaryFile::new(&Value::Object(keystore).to_string()).map_err(unreadable)?;
            PrivateKeySigner::decrypt_keystore(&copy.0, password)
        }
        None => PrivateKeySigner::decrypt_keystore(path, password),
    };
    decrypted.map_err(|error| {
        // Of the errors of a keystore only this one is about the password.
        let is_password = error.to_string().contains("Mac Mismatch");
        let path = path.to_owned();
        if is_password { KeyFileError::WrongPassword(path) } else { KeyFileError::NoKeystore(path) }
    })
}

/// Returns whether deriving the key is safe: one of fewer than 32 bytes, or in over a GiB, ends the program.
fn is_bounded(crypto: &Value) -> bool {
    const MEMORY: u64 = 1 << 30;
    let parameter = |name: &str| crypto.get("kdfparams")?.get(name)?.as_u64();
    let memory = match (parameter("n"), parameter("r")) {
        (Some(n), Some(r)) => n.saturating_mul(r).saturating_mul(128),
        _ => 0,
    };
    parameter("dklen") == Some(32) && memory <= MEMORY
}

/// A private file, deleted when dropped: keystores are decrypted from files only. It holds what the keystore
/// itself holds.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(content: &str) -> io::Result<Self> {
        let file = Self(env::temp_dir().join(format!("keystore-{:x}", B256::random())));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&file.0)?.write_all(content.as_bytes())?;
        Ok(file)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keystore_whose_key_cannot_be_derived_is_refused() {
        for (dklen, n) in [(1, 2), (32, 1_u64 << 30), (64, 2)] {
            let kdf = serde_json::json!({ "dklen": dklen, "n": n, "r": 8, "p": 1, "salt": "00" });
            for member in ["crypto", "Crypto"] {
                let text = serde_json::json!({ member: { "kdf": "scrypt", "kdfparams": kdf.clone() }, "version": 3 });
                let file = TemporaryFile::new(&text.to_string()).unwrap();
                let refused = open_keystore(&file.0, "").unwrap_err();
                assert!(matches!(refused, KeyFileError::NoKeystore(_)), "{refused}");
            }
        }
        let usual =
            serde_json::json!({ "kdfparams": { "dklen": 32, "n": 262_144, "r": 8, "p": 1, "salt": "00" } });
        assert!(is_bounded(&usual));
        assert!(is_bounded(&serde_json::json!({ "kdfparams": { "dklen": 32, "c": 262_144, "salt": "00" } })));
    }
}
