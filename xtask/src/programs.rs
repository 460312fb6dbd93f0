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

/// The relayer's end-to-end tests.
const RELAYER: &str = "relayer";

/// End-to-end tests that mostly wait, for chains of their own and for one another, and how many run at a
/// time.
const WAITING: [(&str, &str); 2] = [(RELAYER, "6"), ("read_api", "4")];

/// A test program as cargo names it.
pub(crate) struct Compiled {
    /// `tests/engine/main.rs`, or `unittests src/lib.rs`.
    source: String,
    path: PathBuf,
}

/// Compiles all test programs, and the programs that they start.
pub(crate) fn compile() -> Result<Vec<Compiled>> {
    let mut compile = cargo();
    compile.args(["all-test", "--no-run", "--color", "never"]).stderr(Stdio::piped());
    let mut child = compile.spawn().context("cargo cannot be started")?;
    let mut compiled = Vec::new();
    for line in BufReader::new(child.stderr.take().context("a pipe")?).lines() {
        let line = line?;
        eprintln!("{line}");
        // `  Executable unittests src/lib.rs (target/debug/deps/registry_core-0123)`
        let executable = line.trim_start().strip_prefix("Executable ");
        // Examples are compiled, and have no tests.
        let program = executable
            .and_then(|rest| rest.split_once(" ("))
            .filter(|(source, _)| !source.contains("examples/"));
        if let Some((source, path)) = program {
            let path = root().join(path.trim_end_matches(')'));
            compiled.push(Compiled { source: source.to_owned(), path });
        }
    }
    ensure!(child.wait()?.success(), "the tests do not compile");
    run::run(cargo().args(["all-build", "--quiet", "--bins", "--examples"]))?;
    Ok(compiled)
}

/// A test program.
pub(crate) struct Program {
    /// The name of its target.
    pub(crate) name: String,
    /// The directory of its package, from the root.
    package: String,
    /// True for the unit tests of a library or a program.
    is_unit: bool,
    path: PathBuf,
    /// Of the program, of what it starts and of what it reads.
    fingerprint: String,
}

impl Program {
    /// The programs that were compiled. The Workers have to be built.
    pub(crate) fn all(compiled: Vec<Compiled>, sources: &Sources) -> Result<Vec<Self>> {
        if compiled.is_empty() {
            return Ok(Vec::new());
        }
        let packages = packages()?;
        let started = Started::read()?;
        let program = |compiled| Self::of(compiled, &packages, &started, sources);
        compiled.into_iter().map(program).collect()
    }

    fn of(
        Compiled { source, path }: Compiled,
        packages: &[Package],
        started: &Started,
        sources: &Sources,
    ) -> Result<Self> {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (name, _) = file.rsplit_once('-').with_context(|| format!("no name in {file}"))?;
        let is_unit = source.starts_with("unittests ");
        let source = source.trim_start_matches("unittests ");
        let package = packages
            .iter()
            .find(|package| package.has(source, name, is_unit))
            .with_context(|| format!("no package has {source} of {name}"))?;
        let own = hash(&fs::read(&path)?);
        let end_to_end = package.directory == TESTS && !is_unit;
        let is_relayer = name == RELAYER;
        let others = if end_to_end { started.by(is_relayer) } else { 0 };
        let read = sources.read_by(end_to_end, is_relayer);
        let (name, package) = (name.to_owned(), package.directory.clone());
        Ok(Self { name, package, is_unit, path, fingerprint: format!("{own:016x}{others:016x}{read}") })
    }

    /// Returns whether it needs a chain, Workers or other programs.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.package == TESTS && !self.is_unit
    }

    /// The step that runs it.
    pub(crate) fn step(&self) -> Step {
        let name = match (self.is_end_to_end(), self.is_unit) {
            (true, _) => format!("{END_TO_END}{}", self.name),
            (false, true) => format!("unit tests: {}", self.name),
            (false, false) => format!("{}: {}", self.package, self.name),
        };
        Step { name, fingerprint: Some(self.fingerprint.clone()) }
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
        let waiting = WAITING.iter().find(|(name, _)| self.name == *name);
        if let Some((_, threads)) = waiting.filter(|_| self.is_end_to_end()) {
            tests.env("RUST_TEST_THREADS", threads);
        }
        count(&mut tests, output)
    }
}

/// Hashes of what end-to-end tests start.
struct Started {
    programs: u64,
    workers: u64,
}

impl Started {
    fn read() -> Result<Self> {
        let target = run::target_dir().join("debug");
        let programs = ["relayer-daemon", "kya-gate", "evidence", "devnet", "examples/axum"];
        let programs = all_of(programs.into_iter().map(|name| target.join(name)))?;
        Ok(Self { programs, workers: all_of(build::outputs().into_iter())? })
    }

    /// Of what a test program starts; the relayer's starts no Worker.
    fn by(&self, is_relayer: bool) -> u64 {
        self.programs ^ if is_relayer { 0 } else { self.workers }
    }
}

/// A hash of some files.
fn all_of(files: impl Iterator<Item = PathBuf>) -> Result<u64> {
    let mut hashes = Vec::new();
    for path in files {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        hashes.extend(hash(&bytes).to_le_bytes());
    }
    Ok(hash(&hashes))
}

/// A package of the workspace.
struct Package {
    /// Its directory, from the root.
    directory: String,
    /// Its name as a crate's.
    crate_name: String,
}

impl Package {
    /// Returns whether a test program of this name is compiled from `source` of this package.
    fn has(&self, source: &str, name: &str, is_unit: bool) -> bool {
        let directory = root().join(&self.directory);
        let is_bin = || source.contains("/bin/") || source == "src/main.rs";
        directory.join(source).is_file()
            && (!is_unit || name == self.crate_name || (is_bin() && names_bin(&directory, name)))
    }
}

/// Returns whether a package has a program of this name: by its file, or by its manifest.
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
