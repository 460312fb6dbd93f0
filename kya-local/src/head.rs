//! The head: the small file that says which registry is held, as of when, and where each shard lies.
//!
//! It is replaced as a whole, by renaming, after the shards that it names are on disk. Shards of a newer
//! manifest than its own may be in it: an update that was interrupted goes on with them.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use alloy_primitives::keccak256;
use registry_core::snapshot::{Manifest, ShardEntry, ShardRange, ShardVersion};

use crate::space::Extent;

const MAGIC: [u8; 4] = *b"KYAL";
const FORMAT: u8 = 1;
/// Bytes of the checksum at the end.
const CHECKSUM: usize = 8;

/// The content of a head.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadFile {
    /// The manifest and its time of receipt, unix milliseconds; `None` before the first registry is complete.
    pub(crate) manifest: Option<(Manifest, u64)>,
    /// The places of the shards.
    pub(crate) shards: Vec<(ShardEntry, Extent)>,
}

impl HeadFile {
    /// Reads a head; `None` where there is none, or it is damaged: then all is fetched anew.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file, atomically.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let fresh = Path::new(&name);
        let mut file = File::create(fresh)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(fresh, path)?;
        // The rename itself is durable once the directory is.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &[FORMAT]].concat();
        // A manifest that was decoded can be encoded again.
        let (manifest, fetched_at) = match &self.manifest {
            Some((manifest, fetched_at)) => (manifest.encode().unwrap_or_default(), *fetched_at),
            None => (Vec::new(), 0),
        };
        bytes.extend(fetched_at.to_be_bytes());
        bytes.extend((manifest.len() as u64).to_be_bytes());
        bytes.extend(manifest);
        for (ShardEntry { range, version }, extent) in &self.shards {
            bytes.extend(range.start.to_be_bytes());
            bytes.push(range.bits);
            bytes.extend(version.block.to_be_bytes());
            bytes.extend(version.tag.to_be_bytes());
            bytes.extend(extent.offset.to_be_bytes());
            bytes.extend(extent.length.to_be_bytes());
        }
        let checksum = keccak256(&bytes);
        bytes.extend(checksum.iter().take(CHECKSUM));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>()?;
        if !keccak256(content).starts_with(checksum) {
            return None;
        }
        let mut rest = content.strip_prefix(&MAGIC)?.strip_prefix(&[FORMAT])?;
        let fetched_at = u64::from_be_bytes(take(&mut rest)?);
        let length = usize::try_from(u64::from_be_bytes(take(&mut rest)?)).ok()?;
        let (manifest, mut rest) = rest.split_at_checked(length)?;
        let manifest = match manifest {
            [] => None,
            bytes => Some((Manifest::parse(bytes).ok()?, fetched_at)),
        };
        let mut shards = Vec::new();
        while !rest.is_empty() {
            let start = u64::from_be_bytes(take(&mut rest)?);
            let [bits] = take(&mut rest)?;
            let version = ShardVersion {
                block: u64::from_be_bytes(take(&mut rest)?),
                tag: u32::from_be_bytes(take(&mut rest)?),
            };
            let entry = ShardEntry { range: ShardRange { start, bits }, version };
            let offset = u64::from_be_bytes(take(&mut rest)?);
            shards.push((entry, Extent { offset, length: u32::from_be_bytes(take(&mut rest)?) }));
        }
        Some(Self { manifest, shards })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_a_changed_one_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("head");
        assert_eq!(HeadFile::read(&path).unwrap(), None);
        let entry = ShardEntry { range: ShardRange::ALL, version: ShardVersion { block: 7, tag: 9 } };
        let head = HeadFile { manifest: None, shards: vec![(entry, Extent { offset: 3, length: 4 }); 3] };
        head.write(&path).unwrap();
        assert_eq!(HeadFile::read(&path).unwrap(), Some(head));
        let bytes = fs::read(&path).unwrap();
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert_eq!(HeadFile::decode(&changed), None);
            assert_eq!(HeadFile::decode(&bytes[..index]), None);
        }
    }
}
