//! `kya key`: makes a private key in a file, or shows the address of an existing one.

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

use crate::report::{CommandFailure, Report, Result};

/// Make a private key in a file of mode 600, or show the address of an existing one
#[derive(Clone, Debug, Args)]
pub struct NewKey {
    /// The key's file.
    file: PathBuf,
}

impl NewKey {
    /// Makes the key, unless there is one. A file is never overwritten. Errors: the file cannot be written,
    /// or holds something else.
    pub fn run(&self) -> Result<Report> {
        let name = self.file.display();
        let failed = |error: io::Error| CommandFailure::refused(format!("{name}: {error}"));
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| CommandFailure::refused("no random numbers"))?;
        let key = PrivateKeySigner::from_slice(&bytes)
            .map_err(|error| CommandFailure::refused(error.to_string()))?;
        let made: io::Result<()> = match self.file.symlink_metadata() {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => {
                let content = format!("{}\n", hex::encode_prefixed(bytes));
                self.make(&content, key.address(), |temporary, file| fs::hard_link(temporary, file))
            }
        };
        let (address, words) = match made {
            Ok(()) => {
                // Where the file system keeps no modes, others can read it, and no command accepts it.
                if let Err(error) = read_key(&self.file) {
                    let _ = fs::remove_file(&self.file);
                    return Err(CommandFailure::refused(error.to_string()));
                }
                (key.address(), "new. The file is the wallet: back it up, and keep it private")
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let key = read_key(&self.file).map_err(|error| CommandFailure::refused(error.to_string()))?;
                (key.address(), "was there, and is as it was")
            }
            Err(error) => return Err(failed(error)),
        };
        let json = json!({ "address": address.to_string(), "file": self.file });
        Ok(Report::done(format!("{address}\n{name}: {words}."), json))
    }

    /// Creates the file whole or not at all, to survive a power cut. On a file system without hard links, a
    /// power cut meanwhile leaves a part of it.
    fn make(
        &self,
        content: &str,
        address: Address,
        link: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let directory = self.file.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let temporary = directory.join(format!(".{address}.tmp"));
        let write = |path: &Path| -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
                let _ = fs::remove_file(path);
            })
        };
        write(&temporary)?;
        // Unlike a rename, a link never replaces a file.
        let linked = link(&temporary, &self.file);
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => write(&self.file)?,
            linked => linked?,
        }
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_system_without_hard_links_takes_a_key_and_keeps_the_one_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let key = NewKey { file: directory.path().join("agent.key") };
        for error in [ErrorKind::PermissionDenied, ErrorKind::Unsupported] {
            let make = |content| key.make(content, Address::ZERO, |_, _| Err(error.into()));
            make("a key").unwrap();
            assert_eq!(make("another").unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&key.file).unwrap(), "a key");
            assert_eq!(fs::metadata(&key.file).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
            fs::remove_file(&key.file).unwrap();
        }
    }
}
