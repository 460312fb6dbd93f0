//! `cargo xtask test`: every check, the cheap ones first.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::run::{cargo, command, node_tool, root, run, target_dir, without_paths};
use crate::setup::WASM_TARGET;
use crate::summary::{Summary, Tally, count};
use crate::{build, debian, explorer, setup};

/// The prefix of the names of end-to-end steps; the test program's name follows.
const END_TO_END: &str = "end to end: ";

/// The Debian packages that end-to-end tests need.
const NEEDED: [(&str, &debian::Package); 10] = [
    ("explorer", &debian::CHROMIUM),
    ("package", &debian::CHROMIUM),
    ("deployment", &debian::NGINX),
    ("deployment", &debian::SYSTEMD),
    ("relayer", &debian::POSTGRES),
    ("gate_clients", &debian::NGINX),
    ("gate_proxies", &debian::CADDY),
    ("gate_proxies", &debian::NGINX),
    ("gate_redis", &debian::REDIS),
    (UNDER_LOAD, &debian::WRK),
];

/// The end-to-end tests that put load on the Worker and compare the cost of answers: no other test runs
/// beside them.
const UNDER_LOAD: &str = "warm_answers";

/// The longest end-to-end tests. They start first: one that started last would run alone at the end.
const LONGEST: [&str; 2] = ["explorer", "relayer"];

/// How many end-to-end test programs run at a time. Each mostly waits: for blocks, timeouts, a Worker's
/// start.
const LANES: usize = 3;

/// Runs all steps, or those with one of the words in their names. Fails if any step failed.
pub(crate) fn run_all(only: &[String]) -> Result<ExitCode> {
    let mut fast = Vec::new();
    for package in ["core", "evidence", "kya-gate", "kya-local", "openapi", "relayer-daemon", "xtask"] {
        fast.extend(integration_tests(&root().join(package))?);
    }
    let end_to_end = integration_tests(&root().join("tests"))?;
    if let Some(name) = end_to_end.iter().find(|name| fast.contains(name)) {
        bail!("two test programs are called {name}: `cargo test --test {name}` runs both");
    }

    setup::setup()?;
    let mut summary = Summary::new(only);
    summary.step("formatting", || check(cargo().args(["fmt", "--all", "--check"])));
    summary.step("clippy", || check(cargo().args(["all-clippy", "--all-targets", "--", "-D", "warnings"])));
    for (name, package, features) in [
        ("clippy, Worker", "edge-api", ""),
        ("clippy, Worker of the index", "edge-api", "index-object"),
        ("clippy, browser package", "registry-browser", ""),
        ("clippy, browser package: evidence", "registry-browser-evidence", ""),
        ("clippy, browser package: snapshot", "registry-browser-snapshot", ""),
    ] {
        // One by one: a common build would unify their features.
        summary.step(name, || {
            let arguments = ["-p", package, "--features", features, "--target", WASM_TARGET];
            check(cargo().arg("clippy").args(arguments).args(["--", "-D", "warnings"]))
        });
    }
    summary.step("purity of the core", purity);
    summary.step("build, and sizes", || build::build().map(|()| Tally::CHECK));
    summary.step("formatting and types of the explorer", || explorer::check().map(|()| Tally::CHECK));
    summary.step("unit tests of the explorer", || explorer::test().map(|()| Tally::CHECK));
    summary.step("wrangler deploy --dry-run", dry_run);
    summary.step("contracts", || {
        count(command(node_tool("forge")).args(["test"]).current_dir(root().join("contracts")), &mut stdout())
    });
    summary.step("artifacts of the contracts", || {
        run(command(node_tool("forge")).arg("build").current_dir(root().join("contracts")))?;
        check(command("node").args(["contracts/artifacts.mjs", "--check"]))
    });
    summary.step("packages to publish", packages);

    summary.step("compiling the tests", || check(cargo().args(["all-test", "--no-run"])));
    summary.step("unit and property tests", || {
        // The relayer's store is tested on it.
        debian::install(&debian::POSTGRES)?;
        let mut tests = cargo();
        tests.args(["all-test", "--no-fail-fast", "--lib", "--bins", "--examples"]);
        for name in &fast {
            tests.args(["--test", name]);
        }
        count(&mut tests, &mut stdout())
    });
    // Alone, as the Worker is built: a common build would unify its features with the other packages'.
    summary.step("unit tests of the Worker", || {
        count(cargo().args(["test", "--no-fail-fast", "-p", "edge-api", "--lib"]), &mut stdout())
    });
    summary
        .step("examples in the documentation", || count(cargo().args(["all-test", "--doc"]), &mut stdout()));
    let (alone, mut together): (Vec<_>, Vec<_>) = end_to_end
        .iter()
        .map(|name| format!("{END_TO_END}{name}"))
        .partition(|step| step.ends_with(UNDER_LOAD));
    together.sort_by_key(|step| !LONGEST.iter().any(|name| step.ends_with(name)));
    summary.side_by_side(LANES, &together, end_to_end_tests);
    summary.side_by_side(1, &alone, end_to_end_tests);
    Ok(summary.finish())
}

/// Runs the end-to-end test program that the step is named after.
fn end_to_end_tests(step: &str, output: &mut dyn Write) -> Result<Tally> {
    let name = step.trim_start_matches(END_TO_END);
    for (_, package) in NEEDED.iter().filter(|(test, _)| *test == name) {
        debian::install(package)?;
    }
    let mut tests = cargo();
    tests.args(["all-test", "--no-fail-fast", "--test", name]);
    if name == "relayer" {
        // Each test has a chain of its own, and mostly waits for it.
        tests.env("RUST_TEST_THREADS", "6");
    }
    count(&mut tests, output)
}

fn check(program: &mut std::process::Command) -> Result<Tally> {
    run(program).map(|()| Tally::CHECK)
}

/// A module that drives all of the core imports nothing.
fn purity() -> Result<Tally> {
    let build = ["build", "--quiet", "--release", "--package", "core-probe", "--target", WASM_TARGET];
    // As the Workers are built: cargo would compile the core twice.
    run(without_paths(&mut cargo()).args(build))?;
    let module = target_dir().join(WASM_TARGET).join("release/core_probe.wasm");
    check(command("node").arg("tests/purity/imports.mjs").arg(module))
}

/// Packs what a release publishes: the crates, and the npm package that `build` has left in `browser/pkg`.
fn packages() -> Result<Tally> {
    let crates = ["-p", "registry-core", "-p", "registry-evidence", "-p", "kya-local", "-p", "kya-gate"];
    run(cargo().args(["package", "--quiet", "--no-verify", "--allow-dirty"]).args(crates))?;
    check(command("npm").args(["pack", "--dry-run"]).current_dir(root().join("browser/pkg")))
}

/// Checks the configurations, and bundles what a deployment uploads for each of them and each environment.
/// Needs no account.
fn dry_run() -> Result<Tally> {
    run(command("node").arg("xtask/configurations.mjs"))?;
    let outdir = root().join("target/xtask/dry-run");
    // The free plan has no index.
    for (config, environment) in [
        ("wrangler.toml", ""),
        ("wrangler.toml", "base-sepolia"),
        ("wrangler.toml", "free"),
        ("wrangler.index.toml", ""),
        ("wrangler.index.toml", "base-sepolia"),
    ] {
        run(command(node_tool("wrangler"))
            .args(["deploy", "--dry-run", "--config", config, "--env", environment, "--outdir"])
            .arg(&outdir)
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false"))?;
    }
    Ok(Tally::CHECK)
}

/// The integration tests of a package, by name.
fn integration_tests(package: &Path) -> Result<Vec<String>> {
    let directory = package.join("tests");
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_test =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file();
        names.extend(path.file_stem().filter(|_| is_test).map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}
