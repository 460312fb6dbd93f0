//! The sources of the repository, by their content: fingerprints of steps are made of them.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Result;

use crate::run::{command, output_of, root};

/// A hash of each file that git knows or would add, by its path from the root.
pub(crate) struct Sources {
    files: BTreeMap<String, u64>,
    /// The compiler's version. Those of other tools are in lock files.
    compiler: String,
}

impl Sources {
    pub(crate) fn read() -> Result<Self> {
        let listed = output_of(command("git").args(["ls-files", "-z", "-co", "--exclude-standard"]));
        let listed = listed.unwrap_or_default();
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // A file that was deleted and is not yet committed has no content.
            if let Ok(bytes) = fs::read(root().join(path)) {
                files.insert(path.to_owned(), hash(&bytes));
            }
        }
        let compiler = output_of(command("rustc").arg("--version")).unwrap_or_default();
        Ok(Self { files, compiler })
    }

    /// Returns whether git has listed them; without a checkout of its own it lists none.
    pub(crate) fn are_known(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns the fingerprint of everything below these paths (`.` is everything), of the files at the root,
    /// of `xtask` and of the compiler. Texts at the root are no inputs.
    pub(crate) fn fingerprint(&self, paths: &[&str]) -> String {
        let is_below = |file: &str, directory: &&str| {
            *directory == "." || file.strip_prefix(*directory).is_some_and(|rest| rest.starts_with('/'))
        };
        self.of(|file| match file.split_once('/') {
            None => !file.ends_with(".md"),
            Some(("xtask" | ".cargo", _)) => true,
            Some(_) => paths.iter().any(|directory| is_below(file, directory)),
        })
    }

    /// Returns the fingerprint of the files that test programs read while they run: data, scripts and
    /// configurations. Rust's sources are in the programs. Documentation, with blocks that end-to-end tests
    /// run, counts for `end_to_end` alone, and files that the relayer's tests do not use, for the others.
    pub(crate) fn read_by(&self, end_to_end: bool, is_relayer: bool) -> String {
        const OF_WORKERS: [&str; 5] = ["browser/", "edge-", "wrangler", "tests/browser/", "tests/package/"];
        self.of(|file| {
            let is_read = match file.rsplit_once('.') {
                Some((_, "rs")) => false,
                Some((_, "md")) => end_to_end && (file.contains('/') || file == "README.md"),
                _ => end_to_end || !(file.starts_with("tests/") || file.starts_with("browser/")),
            };
            is_read && !(is_relayer && OF_WORKERS.iter().any(|start| file.starts_with(start)))
        })
    }

    fn of(&self, is_input: impl Fn(&str) -> bool) -> String {
        let mut hasher = DefaultHasher::new();
        self.compiler.hash(&mut hasher);
        for (file, hash) in self.files.iter().filter(|(file, _)| is_input(file)) {
            (file, hash).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
