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

/// The files that a test program reads while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// All: it checks the sources themselves.
    Sources,
    /// Data, scripts and configurations. Rust's sources are in the program.
    Data,
    /// Also documentation, with blocks that end-to-end tests run.
    Documents,
    /// The same without the files of Workers and pages, which the relayer's end-to-end tests do not use.
    Relayer,
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

    /// Returns the fingerprint of the files that a test program reads while it runs.
    pub(crate) fn read_by(&self, reads: Reads) -> String {
        const OF_WORKERS: [&str; 5] = ["browser/", "edge-", "wrangler", "tests/browser/", "tests/package/"];
        let starts_with = |file: &str, starts: &[&str]| starts.iter().any(|start| file.starts_with(start));
        self.of(|file| match (reads, file.rsplit_once('.')) {
            (Reads::Sources, _) => true,
            (_, Some((_, "rs"))) => false,
            (Reads::Relayer, _) if starts_with(file, &OF_WORKERS) => false,
            (Reads::Data, Some((_, "md"))) => false,
            (_, Some((_, "md"))) => file.contains('/') || file == "README.md",
            (Reads::Data, _) => {
                file.starts_with("tests/fixtures/") || !starts_with(file, &["tests/", "browser/"])
            }
            (Reads::Documents | Reads::Relayer, _) => true,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_that_a_page_names_is_there() {
        let files = Sources::read().unwrap().files;
        let read = |file: &String| fs::read_to_string(root().join(file)).unwrap();
        // The names of each test program's files, and of the functions and modules in them.
        let mut programs = BTreeMap::<String, Vec<String>>::new();
        for file in files.keys().filter(|file| file.ends_with(".rs")) {
            let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
            let [_, "tests", program, ..] = parts[..] else { continue };
            let text = read(file);
            let names = programs.entry(program.to_owned()).or_default();
            names.push(parts[parts.len() - 1].to_owned());
            for start in ["fn ", "mod "] {
                let rests = text.split(start).skip(1);
                names.extend(rests.map(|rest| rest.split(['(', '<', ';', ' ']).next().unwrap().to_owned()));
            }
        }
        let mut count = 0;
        for page in files.keys().filter(|file| file.ends_with(".md")) {
            for rest in read(page).split("--test ").skip(1) {
                let command = rest.split(['`', '|', '#', ';', ')', '\n']).next().unwrap();
                let (program, words) = command.split_once(' ').unwrap_or((command, ""));
                let names = programs.get(program).unwrap_or_else(|| panic!("{page}: {command}"));
                // Words in capitals are placeholders, or filters of tests in JavaScript.
                let is_name = |word: &&str| !word.starts_with('-') && word.contains(char::is_lowercase);
                if let Some(word) = words.split_whitespace().find(is_name) {
                    let mut parts = word.split("::");
                    let is_there = parts.all(|part| names.iter().any(|name| name.contains(part)));
                    assert!(is_there, "{page}: {command}");
                    count += 1;
                }
            }
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn a_program_is_repeated_where_a_file_changed_that_it_reads() {
        let repeats = |file: &str, reads| {
            let with = |hash| Sources { files: [(file.to_owned(), hash)].into(), compiler: String::new() };
            with(1).read_by(reads) != with(2).read_by(reads)
        };
        // Sources, data, documents, the relayer's end-to-end tests.
        for (file, expected) in [
            ("core/src/eth/mod.rs", [true, false, false, false]),
            ("core/tests/evidence/provision.json", [true, true, true, true]),
            ("tests/fixtures/3ad2b3d/tokens.txt", [true, true, true, true]),
            ("tests/signers/answers.mjs", [true, false, true, true]),
            ("tests/package/reading/local.test.mjs", [true, false, true, false]),
            ("wrangler.toml", [true, true, true, false]),
            ("docs/gate.md", [true, false, true, true]),
            ("CHANGELOG.md", [true, false, false, false]),
        ] {
            let of = [Reads::Sources, Reads::Data, Reads::Documents, Reads::Relayer];
            assert_eq!(of.map(|reads| repeats(file, reads)), expected, "{file}");
        }
    }
}
