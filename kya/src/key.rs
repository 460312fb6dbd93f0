//! `kya key`: makes a private key in a file, or tells the address of the one that is there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use alloy::{
    primitives::{Address, hex},
    signers::local::PrivateKeySigner,
};
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
        let failed = |error: io::Error| Failure::refused(format!("{name}: {error}"));
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| Failure::refused("no random numbers"))?;
        let key =
            PrivateKeySigner::from_slice(&bytes).map_err(|error| Failure::refused(error.to_string()))?;
        let made: io::Result<()> = match self.file.symlink_metadata() {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => self.make(&format!("{}\n", hex::encode_prefixed(bytes)), key.address()),
        };
        let (address, words) = match made {
            Ok(()) => (key.address(), "new. The file is the wallet: back it up, and keep it private"),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let key = read_key(&self.file).map_err(|error| Failure::refused(error.to_string()))?;
                (key.address(), "was there, and is as it was")
            }
            Err(error) => return Err(failed(error)),
        };
        let json = json!({ "address": address.to_string(), "file": self.file });
        Ok(Report::done(format!("{address}\n{name}: {words}."), json))
    }

    /// Makes the file whole or not at all, to stay over a power cut.
    fn make(&self, content: &str, address: Address) -> io::Result<()> {
        let directory = self.file.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let temporary = directory.join(format!(".{address}.tmp"));
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            // Unlike a renamed file, a link replaces none.
            fs::hard_link(&temporary, &self.file)
        };
        let written = write();
        let _ = fs::remove_file(&temporary);
        written?;
        File::open(directory)?.sync_all()
    }
}
