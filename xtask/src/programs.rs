//! The test programs of the native packages: compiled together by cargo, and run one by one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use crate::build;
use crate::run::{command, linting_cargo, root};
use crate::sources::{Reads, Sources, hash};
use crate::summary::{SuiteStep, Tally, count, without_colours};
use crate::{debian, run};

/// The step that compiles the test programs.
pub(crate) const COMPILING: &str = "compiling the tests, with clippy";
/// The prefix of the names of end-to-end steps; the test program's name follows.
const END_TO_END: &str = "end to end: ";
const TESTS: &str = "tests";
const DEVNET: &str = "devnet";
const RELAYER: &str = "relayer";
/// End-to-end tests that mostly wait, for chains of their own and for one another, and how many run at a
/// time.
const WAITING: [(&str, &str); 3] = [(RELAYER, "6"), ("read_api", "4"), ("index_worker", "3")];

/// A test program as cargo describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompiledTest {
    name: String,
    /// The directory of its package, from the root.
    package: String,
    target: TestedTarget,
    path: PathBuf,
}

/// The kind of target that is compiled into a test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestedTarget {
    /// A library, with its unit tests.
    Library,
    /// A program, with its unit tests.
    Program,
    /// Tests outside of both, or an example.
    Tests,
}

impl CompiledTest {
    /// Returns the test program of one of cargo's messages, if it is about one. Examples have one only where
    /// their manifest says so.
    fn of(message: &str) -> Option<Self> {
        let (_, profile) = message.split_once(r#""profile":{"#)?;
        let is_test = profile.split_once('}')?.0.contains(r#""test":true"#);
        let text = |text: &str, name: &str| {
            let (_, rest) = text.split_once(&format!(r#""{name}":"#))?;
            Some(rest.trim_start_matches(['[', '"']).split_once('"')?.0.to_owned())
        };
        let (_, target) = message.split_once(r#""target":{"#).filter(|_| is_test)?;
        let kind = text(target, "kind")?;
        let manifest = PathBuf::from(text(message, "manifest_path")?);
        let package = manifest.parent()?.strip_prefix(root()).ok()?.to_str()?.to_owned();
        let path = text(message, "executable").filter(|path| path.starts_with('/'))?.into();
        let name = text(target, "name")?;
        let target = match &*kind {
            "test" | "example" => TestedTarget::Tests,
            "bin" => TestedTarget::Program,
            _ => TestedTarget::Library,
        };
        Some(Self { name, package, target, path })
    }

    /// Returns whether it needs a chain, Workers or other programs.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.package == TESTS && self.target == TestedTarget::Tests
    }

    /// Returns the files that it reads while it runs.
    fn reads(&self) -> Reads {
        match (&*self.name, &*self.package) {
            ("layers", _) | (_, "xtask") => Reads::Sources,
            _ if self.package == TESTS && !self.is_end_to_end() => Reads::Sources,
            (RELAYER, TESTS) => Reads::Relayer,
            _ if self.is_end_to_end() => Reads::Documents,
            _ => Reads::Data,
        }
    }
}

/// Returns the names of the steps that compile and run test programs, from the files of the packages: a step
/// wanted by name is compiled, and nothing else has to be.
pub(crate) fn names() -> Result<Vec<String>> {
    let mut names = vec![COMPILING.to_owned()];
    for entry in fs::read_dir(root())? {
        let directory = entry?.path();
        let Ok(manifest) = fs::read_to_string(directory.join("Cargo.toml")) else { continue };
        let package = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let name = name.with_context(|| format!("{package}/Cargo.toml has no name"))?;
        names.push(step_name(&name.replace('-', "_"), &package, TestedTarget::Library));
        let programs = [name.to_owned()].into_iter().chain(targets_in(&directory.join("src/bin")));
        names.extend(programs.map(|name| step_name(&name, &package, TestedTarget::Program)));
        let tests = ["tests", "examples"].map(|tests| targets_in(&directory.join(tests)));
        let tests = tests.into_iter().flatten();
        names.extend(tests.map(|name| step_name(&name, &package, TestedTarget::Tests)));
    }
    Ok(names)
}

/// Returns the targets that cargo finds in this directory: one for each file or directory, if there is any.
fn targets_in(directory: &Path) -> Vec<String> {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let paths = paths.filter(|path| path.is_dir() || path.extension().is_some_and(|kind| kind == "rs"));
    paths.map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

/// Returns the name of a test program's step in the table. No two programs have the same.
fn step_name(name: &str, package: &str, target: TestedTarget) -> String {
    match (target, package) {
        (TestedTarget::Library, _) => format!("unit tests: {name}"),
        (TestedTarget::Program, _) => format!("unit tests: {name} (program)"),
        (TestedTarget::Tests, TESTS) => format!("{END_TO_END}{name}"),
        (TestedTarget::Tests, _) => format!("{package}: {name}"),
    }
}

/// Compiles and lints all test programs, and the programs that they start. Returns the test programs, and
/// cargo's line about each crate with warnings.
pub(crate) fn compile() -> Result<(Vec<CompiledTest>, Vec<String>)> {
    let mut compile = linting_cargo();
    compile.args(["all-test", "--no-run", "--message-format", "json-render-diagnostics"]);
    compile.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = compile.spawn().context("cargo cannot be started")?;
    let diagnostics = BufReader::new(child.stderr.take().context("a pipe")?).lines();
    let warned = thread::spawn(move || {
        let lines = diagnostics.map_while(Result::ok).inspect(|line| eprintln!("{line}"));
        lines.filter(|line| tells_of_warnings(line)).collect()
    });
    let mut compiled = Vec::new();
    for message in BufReader::new(child.stdout.take().context("a pipe")?).lines() {
        compiled.extend(CompiledTest::of(&message?));
    }
    ensure!(child.wait()?.success(), "the tests do not compile");
    run::run(linting_cargo().args(["all-build", "--quiet", "--bins", "--examples"]))?;
    Ok((compiled, warned.join().unwrap_or_else(|panic| resume_unwind(panic))))
}

/// Returns whether this line of cargo sums up the warnings about a crate, as it does at every build.
fn tells_of_warnings(line: &str) -> bool {
    let line = without_colours(line);
    line.starts_with("warning: `") && line.contains("` (") && line.contains(") generated ")
}

pub(crate) struct Program<'a> {
    compiled: CompiledTest,
    /// Fingerprint of the program and of the files that it reads.
    fingerprint: String,
    /// Programs that it may start.
    startable: Option<&'a StartablePrograms>,
}

impl<'a> Program<'a> {
    /// Returns the compiled programs, and for end-to-end tests the programs that they may start.
    pub(crate) fn all(
        compiled: Vec<CompiledTest>,
        sources: &Sources,
        startable: Option<&'a StartablePrograms>,
    ) -> Result<Vec<Self>> {
        let program = |compiled: CompiledTest| {
            let own = hash(&fs::read(&compiled.path)?);
            let read = sources.read_by(compiled.reads());
            Ok(Self { compiled, fingerprint: format!("{own:016x}{read}"), startable })
        };
        compiled.into_iter().map(program).collect()
    }

    pub(crate) fn name(&self) -> &str {
        &self.compiled.name
    }

    pub(crate) fn step(&self) -> SuiteStep {
        let CompiledTest { name, package, target, .. } = &self.compiled;
        let started = self.startable.map_or(0, |startable| {
            startable.fingerprint(fs::read_to_string(self.started()).ok().as_deref(), name == RELAYER)
        });
        let fingerprint = Some(format!("{}{started:016x}", self.fingerprint));
        SuiteStep { name: step_name(name, package, *target), fingerprint }
    }

    /// Returns the file in which it notes the programs that it starts, a line each.
    fn started(&self) -> PathBuf {
        root().join("target/xtask").join(format!("started/{}", self.compiled.name))
    }

    pub(crate) fn run(&self, output: &mut dyn Write) -> Result<Tally> {
        let CompiledTest { name, package, target, path } = &self.compiled;
        if package == "relayer-daemon" && *target == TestedTarget::Tests {
            // The relayer's store is tested on it.
            debian::install(&debian::POSTGRES)?;
        }
        let mut tests = command(path);
        let package = root().join(package);
        tests.env("CARGO_MANIFEST_DIR", &package).env("E2E_BUILT", "1").current_dir(package);
        if self.startable.is_some() {
            let started = self.started();
            fs::create_dir_all(started.parent().context("a directory")?)?;
            fs::write(&started, "")?;
            tests.env("E2E_STARTED", started);
        }
        let waiting = WAITING.iter().find(|(waits, _)| name == waits);
        if let Some((_, threads)) = waiting.filter(|_| self.compiled.is_end_to_end()) {
            tests.env("RUST_TEST_THREADS", threads);
        }
        count(&mut tests, output)
    }
}

/// Hashes of the programs that end-to-end tests start.
pub(crate) struct StartablePrograms {
    /// Hashes by name.
    programs: BTreeMap<&'static str, u64>,
    workers: u64,
}

impl StartablePrograms {
    pub(crate) fn read() -> Result<Self> {
        let target = run::target_dir().join("debug");
        let programs = ["relayer-daemon", "kya", "kya-gate", DEVNET, "examples/axum"].map(|name| {
            let path = target.join(name);
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            Ok((name.rsplit('/').next().unwrap_or(name), hash(&bytes)))
        });
        let programs = programs.into_iter().collect::<Result<_>>()?;
        Ok(Self { programs, workers: all_of(build::outputs().into_iter())? })
    }

    /// Returns the fingerprint of the programs that a test program starts, by the note of its last run; of
    /// all where it has not run yet. The relayer's starts no Worker.
    fn fingerprint(&self, noted: Option<&str>, is_relayer: bool) -> u64 {
        // Cargo tells the tests the path of devnet, so that they do not note it.
        let is_started =
            |name: &str| name == DEVNET || noted.is_none_or(|noted| noted.lines().any(|line| line == name));
        let programs = self.programs.iter().filter(|(name, _)| is_started(name));
        let mut hashes: Vec<u8> =
            programs.flat_map(|(name, hash)| [name.as_bytes(), &hash.to_le_bytes()].concat()).collect();
        hashes.extend(if is_relayer { 0 } else { self.workers }.to_le_bytes());
        hash(&hashes)
    }
}

fn all_of(files: impl Iterator<Item = PathBuf>) -> Result<u64> {
    let mut hashes = Vec::new();
    for path in files {
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        hashes.extend(hash(&bytes).to_le_bytes());
    }
    Ok(hash(&hashes))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_crate_with_warnings_is_told_by_cargos_summary_of_it() {
        for (line, tells) in [
            ("warning: `kya` (lib test) generated 1 warning (1 duplicate)", true),
            ("warning: `e2e` (bin \"devnet\") generated 2 warnings", true),
            ("\x1b[1m\x1b[33mwarning\x1b[0m: `c` (lib) generated 1 warning", true),
            ("warning: unused variable: `x`", false),
            ("warning: these words of a lint were `generated` by it", false),
        ] {
            assert_eq!(tells_of_warnings(line), tells, "{line}");
        }
    }

    #[test]
    fn steps_of_test_programs_are_named_before_these_are_compiled() {
        let names = names().unwrap();
        for name in [
            COMPILING,
            "unit tests: registry_core",
            "unit tests: kya-gate (program)",
            "unit tests: kya_gate",
            "unit tests: kya",
            "unit tests: kya (program)",
            "unit tests: e2e",
            "unit tests: devnet (program)",
            "core: layers",
            "end to end: relayer",
        ] {
            assert!(names.iter().any(|named| named == name), "{name} is not in {names:?}");
        }
        // Two steps of one name would share one stamp, and repeat each other without end.
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn an_end_to_end_test_is_repeated_where_a_program_changed_that_it_has_started() {
        let with = |relayer, gate| {
            let programs = [("relayer-daemon", relayer), ("kya-gate", gate), (DEVNET, 1)];
            StartablePrograms { programs: programs.into(), workers: 1 }
        };
        let is_repeated = |noted, changed: &StartablePrograms| {
            with(1, 1).fingerprint(noted, false) != changed.fingerprint(noted, false)
        };
        for (noted, by_relayer, by_gate) in [
            (None, true, true),
            (Some("relayer-daemon\n"), true, false),
            (Some("kya-gate\nrelayer-daemon\n"), true, true),
            (Some(""), false, false),
        ] {
            assert_eq!(is_repeated(noted, &with(2, 1)), by_relayer, "{noted:?}");
            assert_eq!(is_repeated(noted, &with(1, 2)), by_gate, "{noted:?}");
            assert!(is_repeated(noted, &StartablePrograms { workers: 2, ..with(1, 1) }));
        }
    }

    #[test]
    fn test_programs_are_found_in_cargos_messages() {
        let message = |kind: &str, executable: &str| {
            let manifest = root().join("core/Cargo.toml");
            let manifest = manifest.display();
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"layers","src_path":"/x.rs","test":true}},"profile":{{"opt_level":"0","test":true}},"features":[],"executable":{executable},"fresh":true}}"#
            )
        };
        for (kind, target) in [
            ("test", TestedTarget::Tests),
            ("example", TestedTarget::Tests),
            ("lib", TestedTarget::Library),
            ("bin", TestedTarget::Program),
        ] {
            let (name, package, path) = ("layers".to_owned(), "core".to_owned(), "/t/layers-1".into());
            let found = CompiledTest::of(&message(kind, r#""/t/layers-1""#));
            assert_eq!(found, Some(CompiledTest { name, package, target, path }));
        }
        for other in [
            message("lib", "null"),
            // A program that is not its unit tests.
            message("bin", r#""/t/layers-1""#).replace(r#""opt_level":"0","test":true"#, r#""test":false"#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ] {
            assert_eq!(CompiledTest::of(&other), None, "{other}");
        }
    }
}
