//! The test programs of the native packages: compiled together by cargo, and run one by one.

use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::build;
use crate::run::{cargo, command, root};
use crate::sources::{Sources, hash};
use crate::summary::{Step, Tally, count};
use crate::{debian, run};

/// The prefix of the names of end-to-end steps; the test program's name follows.
const END_TO_END: &str = "end to end: ";

/// The directory of the end-to-end tests.
const TESTS: &str = "tests";

/// A test program.
pub(crate) struct Program {
    /// The name of its target.
    pub(crate) name: String,
    /// The directory of its package, from the root.
    package: String,
    /// Whether it holds the unit tests of a library or a program.
    is_unit: bool,
    path: PathBuf,
    /// The hash of the program, or for an end-to-end test of all that it starts.
    hash: u64,
}

/// Compiles all test programs, and the programs that they start.
pub(crate) fn compile() -> Result<Vec<Program>> {
    let mut compile = cargo();
    compile.args(["all-test", "--no-run", "--color", "never"]).stderr(Stdio::piped());
    let mut child = compile.spawn().context("cargo cannot be started")?;
    let mut named = Vec::new();
    let stderr = child.stderr.take().context("a pipe")?;
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        eprintln!("{line}");
        // `  Executable unittests src/lib.rs (target/debug/deps/registry_core-0123)`
        if let Some((source, path)) =
            line.trim_start().strip_prefix("Executable ").and_then(|rest| rest.split_once(" ("))
        {
            named.push((source.to_owned(), root().join(path.trim_end_matches(')'))));
        }
    }
    ensure!(child.wait()?.success(), "the tests do not compile");
    run::run(cargo().args(["all-build", "--quiet", "--bins", "--examples"]))?;
    // What end-to-end tests start besides: every program, and the Workers.
    let started = started()?;
    let packages = packages()?;
    let program = |(source, path): (String, PathBuf)| {
        let stem = path
            .file_name()
            .and_then(|name| name.to_str()?.rsplit_once('-'))
            .map(|(stem, _)| stem.to_owned());
        let name = stem.with_context(|| format!("no name in {}", path.display()))?;
        let is_unit = source.starts_with("unittests ");
        let source = source.trim_start_matches("unittests ");
        let package = packages
            .iter()
            .find(|package| package.has(source, &name, is_unit))
            .with_context(|| format!("no package has {source} of {name}"))?;
        let own = hash(&fs::read(&path)?);
        let hash = if package.directory == TESTS && !is_unit { own ^ started } else { own };
        Ok(Program { name, package: package.directory.clone(), is_unit, path, hash })
    };
    named.into_iter().map(program).collect()
}

impl Program {
    /// Whether it needs a chain, Workers or other programs.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.package == TESTS && !self.is_unit
    }

    /// The step that runs it.
    pub(crate) fn step(&self, sources: &Sources) -> Step {
        let name = match (self.is_end_to_end(), self.is_unit) {
            (true, _) => format!("{END_TO_END}{}", self.name),
            (false, true) => format!("unit tests: {}", self.name),
            (false, false) => format!("{}: {}", self.package, self.name),
        };
        let fingerprint = format!("{:016x}-{}", self.hash, sources.read_by_tests(self.is_end_to_end()));
        Step { name, fingerprint: Some(fingerprint) }
    }

    /// Runs it as cargo would.
    pub(crate) fn run(&self, output: &mut dyn Write) -> Result<Tally> {
        if self.package == "relayer-daemon" && !self.is_unit {
            // The relayer's store is tested on it.
            debian::install(&debian::POSTGRES)?;
        }
        let mut tests = command(&self.path);
        let package = root().join(&self.package);
        tests.env("CARGO_MANIFEST_DIR", &package).env("E2E_BUILT", "1").current_dir(package);
        if self.name == "relayer" {
            // Each test has a chain of its own, and mostly waits for it.
            tests.env("RUST_TEST_THREADS", "6");
        }
        count(&mut tests, output)
    }
}

/// A package of the workspace.
struct Package {
    /// Its directory, from the root.
    directory: String,
    /// Its name as a crate's.
    crate_name: String,
}

impl Package {
    /// Whether a test program of this name is compiled from `source` of this package.
    fn has(&self, source: &str, name: &str, is_unit: bool) -> bool {
        let directory = root().join(&self.directory);
        let is_bin = || source.contains("/bin/") || source == "src/main.rs";
        directory.join(source).is_file()
            && (!is_unit || name == self.crate_name || (is_bin() && names_bin(&directory, name)))
    }
}

/// Whether a package has a program of this name: by its file, or by its manifest.
fn names_bin(directory: &Path, name: &str) -> bool {
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
    ["rs", "main.rs"].iter().any(|end| {
        let file =
            if *end == "rs" { format!("src/bin/{name}.rs") } else { format!("src/bin/{name}/main.rs") };
        directory.join(file).is_file()
    }) || manifest.contains(&format!("name = \"{}\"", name.replace('_', "-")))
}

/// The packages at the top of the workspace.
fn packages() -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(root())? {
        let path = entry?.path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let directory = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if let (Some(name), Some(directory)) = (name, directory) {
            packages.push(Package { directory, crate_name: name.replace('-', "_") });
        }
    }
    packages.sort_by(|one, other| one.directory.cmp(&other.directory));
    Ok(packages)
}

/// A hash of the programs and the Workers that end-to-end tests start.
fn started() -> Result<u64> {
    let target = run::target_dir().join("debug");
    let programs =
        ["relayer-daemon", "kya-gate", "evidence", "devnet", "examples/axum"].map(|name| target.join(name));
    let mut all = Vec::new();
    for path in programs.into_iter().chain(build::outputs()) {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        all.extend(hash(&bytes).to_le_bytes());
    }
    Ok(hash(&all))
}
