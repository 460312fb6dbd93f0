//! `cargo xtask test`: every check, the cheap ones first.

use std::env;
use std::io::{Write, stdout};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::programs::{CompiledTest, Program, StartablePrograms};
use crate::run::{cargo, command, linting_cargo, node_tool, root, run, target_dir};
use crate::setup::WASM_TARGET;
use crate::sources::Sources;
use crate::summary::{Summary, Tally, count};
use crate::{USAGE, build, debian, dist, explorer, programs, setup};

/// The Debian packages that end-to-end tests need.
static NEEDED: [(&str, &[debian::Package]); 10] = [
    ("devnet", &[debian::CURL, debian::JQ, debian::VENV]),
    ("explorer", &[debian::CHROMIUM, debian::FIREFOX]),
    ("package", &[debian::CHROMIUM, debian::FIREFOX]),
    ("deployment", &[debian::NGINX, debian::SYSTEMD]),
    ("read_api", &[debian::NGINX, debian::VENV]),
    ("relayer", &[debian::POSTGRES, debian::VENV]),
    ("kya_cli", &[debian::VENV]),
    ("kya_gate", &[debian::CADDY, debian::LIGHTTPD, debian::NGINX, debian::REDIS, debian::VENV]),
    ("gate_in_process", &[debian::REDIS]),
    (UNDER_LOAD, &[debian::WRK]),
];

/// Returns the Debian packages of an end-to-end test.
fn needed_by(test: &str) -> impl Iterator<Item = &'static debian::Package> {
    NEEDED.iter().filter(move |(name, _)| *name == test).flat_map(|(_, packages)| *packages)
}

/// The end-to-end tests that put load on the Worker and compare the cost of answers: no other test runs
/// beside them.
const UNDER_LOAD: &str = "warm_answers";
/// The longest end-to-end tests. They start first: one that started last would run alone at the end.
const LONGEST: [&str; 8] =
    ["explorer", "index_worker", "read_api", "relayer", "kya_gate", "package", "cache", "devnet"];
/// Number of other test programs that run at a time. Their tests compute, each program in several threads.
const LANES_OF_LOWER: usize = 2;
/// Number of end-to-end test programs that run at a time. Each mostly waits: for blocks, timeouts, a Worker's
/// start.
const LANES: usize = 3;

/// Packages that are compiled to wasm.
const MODULES: [&str; 8] = [
    "edge-api",
    "edge-index",
    "registry-browser",
    "registry-browser-evidence",
    "registry-browser-snapshot",
    "registry-browser-liability",
    "registry-browser-gate",
    "registry-browser-key",
];

/// Runs all steps, or those with one of the words in their names. A step whose inputs have not changed since
/// its last success is not repeated; with `--all`, and where `CI` is set, every step runs. Fails if any step
/// failed, or none is named so.
pub(crate) fn run_all(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<String> = arguments.iter().filter(|word| *word != "--all").cloned().collect();
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        bail!("unknown: test {option}\n\n{USAGE}");
    }
    let repeats = words.len() < arguments.len() || env::var_os("CI").is_some();
    let sources = Sources::read()?;
    let repeats = repeats || !sources.are_known();
    let [mut summary, mut of_modules] = [(); 2].map(|()| Summary::new(&words, repeats));
    let runs_programs = summary.wants_any(&programs::names()?);
    // Side by side: each module is linked by one thread, and cargo locks the directory of each target alone.
    let (end_to_end, ready) = thread::scope(|scope| {
        let modules = scope.spawn(|| {
            let started = Instant::now();
            setup::setup()?;
            of_modules.took("setup", started.elapsed());
            modules(&mut of_modules, &sources, runs_programs);
            Ok(())
        });
        let end_to_end = native(&mut summary, &sources, runs_programs);
        (end_to_end, modules.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    // Without the tools nothing else can succeed.
    ready.map_err(|error: anyhow::Error| error.context("setup"))?;
    summary.append(of_modules);
    end_to_end_tests(&mut summary, &sources, end_to_end?)?;
    Ok(summary.finish())
}

/// Checks and compiles the native packages, and runs the tests that need no modules. Returns the end-to-end
/// tests.
fn native(summary: &mut Summary, sources: &Sources, runs_programs: bool) -> Result<Vec<CompiledTest>> {
    summary.step("formatting", None, || check(cargo().args(["fmt", "--all", "--check"])));
    let mut compiled = Vec::new();
    if runs_programs {
        summary.prepare(programs::COMPILING, || {
            let (programs, warnings) = programs::compile()?;
            compiled = programs;
            Ok(Tally { failed: usize::from(!warnings.is_empty()), failures: warnings, ..Tally::CHECK })
        });
    }
    // Runs while the modules' last steps leave a core idle.
    // Users build these alone, with fewer features of the dependencies.
    summary.step("kya, kya-gate and kya-local without the rest", Some(sources.fingerprint(&["."])), || {
        check(cargo().args(["check", "--quiet", "-p", "kya", "-p", "kya-gate", "-p", "kya-local"]))
    });
    summary.step("examples in the documentation", Some(sources.fingerprint(&["."])), || {
        count(linting_cargo().args(["all-test", "--doc"]), &mut stdout())
    });
    let (end_to_end, lower): (Vec<_>, Vec<_>) = compiled.into_iter().partition(CompiledTest::is_end_to_end);
    let lower = Program::all(lower, sources, None)?;
    let lower: Vec<_> = lower.iter().collect();
    summary.side_by_side(LANES_OF_LOWER, &lower, Program::step, Program::run);
    Ok(end_to_end)
}

/// Checks and builds the packages of wasm and JavaScript, and the contracts.
fn modules(summary: &mut Summary, sources: &Sources, runs_programs: bool) {
    let of = |paths: &[&str]| Some(sources.fingerprint(paths));
    let build = || build::build().map(|()| Tally::CHECK);
    if runs_programs {
        // End-to-end tests start the Workers.
        summary.prepare("build, and sizes", build);
    } else {
        summary.step("build, and sizes", None, build);
    }
    summary.step("purity of the core", of(&["core", "tests/purity"]), purity);
    let worker = ["core", "edge-shared", "host-kit", "browser/fetch"];
    // Together: linting each with its own features, with which it was built above, takes twice as long.
    let sources_of_modules =
        of(&[worker.as_slice(), &["edge-api", "edge-index", "browser", "deploy"]].concat());
    summary.step("clippy, Workers and browser package", sources_of_modules.clone(), || {
        let packages = MODULES.map(|package| ["-p", package]);
        let arguments = ["--target", WASM_TARGET, "--", "-D", "warnings"];
        check(cargo().arg("clippy").args(packages.as_flattened()).args(arguments))
    });
    // Its tests start the contracts' script, too.
    let explorer = of(&["browser", "contracts", "openapi", "edge-api/src/pages"]);
    summary.step("formatting and types of the explorer", explorer.clone(), || {
        explorer::check().map(|()| Tally::CHECK)
    });
    summary.step("unit tests of the explorer", explorer, || explorer::test().map(|()| Tally::CHECK));
    summary.step("wrangler deploy --dry-run", sources_of_modules, dry_run);
    summary.step("contracts", of(&["contracts"]), || {
        count(command(node_tool("forge")).args(["test"]).current_dir(root().join("contracts")), &mut stdout())
    });
    summary.step("artifacts of the contracts", of(&["contracts"]), || {
        run(command(node_tool("forge")).arg("build").current_dir(root().join("contracts")))?;
        check(command("node").args(["contracts/artifacts.mjs", "--check"]))
    });
    let published = ["core", "kya", "kya-gate", "kya-local", "host-kit", "browser"];
    summary.step("packages to publish", of(&published), packages);
}

/// Runs the end-to-end tests. The Workers and programs that they start are built.
fn end_to_end_tests(summary: &mut Summary, sources: &Sources, compiled: Vec<CompiledTest>) -> Result<()> {
    if compiled.is_empty() {
        return Ok(());
    }
    let startable = StartablePrograms::read()?;
    let programs = Program::all(compiled, sources, Some(&startable))?;
    let (alone, mut together): (Vec<_>, Vec<_>) =
        programs.iter().partition(|program| program.name() == UNDER_LOAD);
    together.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name()).unwrap_or(LONGEST.len())
    });
    for (lanes, programs) in [(LANES, together), (1, alone)] {
        summary.side_by_side(lanes, &programs, Program::step, end_to_end_test);
    }
    Ok(())
}

/// Runs an end-to-end test program, once the programs that it needs are installed.
fn end_to_end_test(program: &Program, output: &mut dyn Write) -> Result<Tally> {
    needed_by(program.name()).try_for_each(debian::install)?;
    program.run(output)
}

fn check(program: &mut std::process::Command) -> Result<Tally> {
    run(program).map(|()| Tally::CHECK)
}

/// Checks that a module that drives all of the core imports nothing.
fn purity() -> Result<Tally> {
    run(cargo().args(["build", "--quiet", "--package", "core-probe", "--target", WASM_TARGET]))?;
    let module = target_dir().join(WASM_TARGET).join("debug/core_probe.wasm");
    check(command("node").arg("tests/purity/imports.mjs").arg(module))
}

/// Packs what a release publishes: the crates, and the npm package that `build` has left in `browser/pkg`.
fn packages() -> Result<Tally> {
    dist::pack_crates(&target_dir())?;
    check(command("npm").args(["pack", "--dry-run"]).current_dir(root().join("browser/pkg")))
}

/// Checks the configurations, and bundles the uploads of a deployment, from the files of a release.
fn dry_run() -> Result<Tally> {
    run(command("node").arg("xtask/configurations.mjs"))?;
    dist::dry_run().map(|()| Tally::CHECK)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// Words in the sources of end-to-end tests that start a program of PyPI.
    const STARTS_PYTHON: [&str; 6] = [
        "python::programs",
        "signers::python",
        "signers::client",
        "with_package",
        "eth_account()",
        "keyholders::",
    ];

    fn below(path: PathBuf) -> Vec<PathBuf> {
        if !path.is_dir() {
            return vec![path];
        }
        let entries = fs::read_dir(path).unwrap();
        entries.flat_map(|entry| below(entry.unwrap().path())).collect()
    }

    #[test]
    fn an_unknown_option_is_refused_before_anything_runs() {
        for option in ["-all", "--help"] {
            let refused = run_all(&["--all".to_owned(), option.to_owned()]).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("unknown: test {option}\n")), "{refused}");
        }
    }

    #[test]
    fn what_debian_has_is_not_said_to_be_installed_by_setup() {
        for file in below(root().join("tests/src")) {
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines().filter(|line| line.contains("cargo xtask setup")) {
                let mut packages = NEEDED.iter().flat_map(|(_, packages)| *packages);
                assert!(!packages.any(|package| line.contains(package.name)), "{}: {line}", file.display());
            }
        }
    }

    #[test]
    fn an_end_to_end_test_that_starts_python_programs_needs_what_makes_their_environments() {
        let mut needing = 0;
        for entry in fs::read_dir(root().join("tests/tests")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let starts_python = below(path).iter().any(|file| {
                let text = fs::read_to_string(file).unwrap();
                STARTS_PYTHON.iter().any(|word| text.contains(word))
            });
            let is_listed = needed_by(&name).any(|package| package.name == debian::VENV.name);
            assert!(is_listed || !starts_python, "{name}");
            needing += usize::from(starts_python);
        }
        assert!(needing > 3, "{needing}");
    }
}
