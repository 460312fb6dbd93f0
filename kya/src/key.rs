//! `kya key`: makes a private key in a file, or tells the address of the one that is there.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use alloy::{primitives::hex, signers::local::PrivateKeySigner};
use clap::Args;
use host_kit::keys::read_key;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;

use crate::report::{Failure, Report, Result};

/// Make a private key in a file of mode 600; of a file that is there, tell the address
#[derive(Clone, Debug, Args)]
pub struct NewKey {
    /// The file.
    file: PathBuf,
}

impl NewKey {
    /// Makes the key, unless there is one. A file is never overwritten.
    ///
    /// # Errors
    /// The file cannot be written, or is another one.
    pub fn run(&self) -> Result<Report> {
        let name = self.file.display();
        let failed = |error: std::io::Error| Failure::refused(format!("{name}: {error}"));
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::refused("no random numbers"))?;
        let key =
            PrivateKeySigner::from_slice(&bytes).map_err(|error| Failure::refused(error.to_string()))?;
        let (address, words) =
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file) {
                Ok(mut file) => {
                    file.write_all(format!("{}\n", hex::encode_prefixed(bytes)).as_bytes())
                        .map_err(failed)?;
                    file.sync_all().map_err(failed)?;
                    (key.address(), "new. The file is the wallet: back it up, and keep it private")
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    let key = read_key(&self.file).map_err(|error| Failure::refused(error.to_string()))?;
                    (key.address(), "was there, and is as it was")
                }
                Err(error) => return Err(failed(error)),
            };
        let json = json!({ "address": address.to_string(), "file": self.file });
        Ok(Report::done(format!("{address}\n{name}: {words}."), json))
    }
}
