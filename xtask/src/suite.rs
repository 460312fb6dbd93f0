//! `cargo xtask test`: every check, the cheap ones first.

use std::env;
use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Result;

use crate::programs::Program;
use crate::run::{cargo, command, node_tool, root, run, target_dir, without_paths};
use crate::setup::WASM_TARGET;
use crate::sources::Sources;
use crate::summary::{Summary, Tally, count};
use crate::{build, debian, explorer, programs, setup};

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

/// Runs all steps, or those with one of the words in their names. A step whose inputs have not changed since its
/// last success is not repeated; with `--all`, and where `CI` is set, every step runs. Fails if any step failed.
pub(crate) fn run_all(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<String> = arguments.iter().filter(|word| *word != "--all").cloned().collect();
    let repeats = words.len() < arguments.len() || env::var_os("CI").is_some();
    let mut summary = Summary::new(&words, repeats);
    summary.step("setup", None, || setup::setup().map(|()| Tally::CHECK));
    let sources = Sources::read()?;
    let of = |paths: &[&str]| Some(sources.fingerprint(paths));

    summary.step("formatting", None, || check(cargo().args(["fmt", "--all", "--check"])));
    summary.step("clippy", of(&["."]), || {
        check(cargo().args(["all-clippy", "--all-targets", "--", "-D", "warnings"]))
    });
    for (name, package, directories) in [
        ("clippy, Worker", "edge-api", ["edge-api", "host-kit"]),
        ("clippy, Worker of the index", "edge-index", ["edge-index", "host-kit"]),
        ("clippy, browser package", "registry-browser", ["browser", "host-kit"]),
        ("clippy, browser package: evidence", "registry-browser-evidence", ["browser", "host-kit"]),
        ("clippy, browser package: snapshot", "registry-browser-snapshot", ["browser", "host-kit"]),
    ] {
        // One by one: a common build would unify their features.
        summary.step(name, of(&[&["core"], directories.as_slice()].concat()), || {
            let arguments = ["-p", package, "--target", WASM_TARGET, "--", "-D", "warnings"];
            check(cargo().arg("clippy").args(arguments))
        });
    }
    summary.step("purity of the core", of(&["core", "tests/purity"]), purity);
    summary.step("build, and sizes", None, || build::build().map(|()| Tally::CHECK));
    let explorer = of(&["browser", "openapi", "edge-api/src/pages"]);
    summary.step("formatting and types of the explorer", explorer.clone(), || {
        explorer::check().map(|()| Tally::CHECK)
    });
    summary.step("unit tests of the explorer", explorer, || explorer::test().map(|()| Tally::CHECK));
    let workers = ["core", "edge-api", "edge-index", "host-kit", "browser"];
    summary.step("wrangler deploy --dry-run", of(&workers), dry_run);
    summary.step("contracts", of(&["contracts"]), || {
        count(command(node_tool("forge")).args(["test"]).current_dir(root().join("contracts")), &mut stdout())
    });
    summary.step("artifacts of the contracts", of(&["contracts"]), || {
        run(command(node_tool("forge")).arg("build").current_dir(root().join("contracts")))?;
        check(command("node").args(["contracts/artifacts.mjs", "--check"]))
    });
    let published = ["core", "evidence", "kya-gate", "kya-local", "host-kit", "browser"];
    summary.step("packages to publish", of(&published), packages);

    let mut compiled = Ok(Vec::new());
    summary.step("compiling the tests", None, || {
        compiled = programs::compile();
        compiled.as_ref().map(|_| Tally::CHECK).map_err(|error| anyhow::anyhow!("{error:#}"))
    });
    let compiled = compiled.unwrap_or_default();
    let (end_to_end, lower): (Vec<_>, Vec<_>) = compiled.iter().partition(|program| program.is_end_to_end());
    summary.side_by_side(2, &lower, |program| program.step(&sources), |program, output| program.run(output));
    // Alone, as the Workers are built: a common build would unify their features with the other packages'.
    for package in ["edge-api", "edge-index"] {
        summary.step(&format!("unit tests: {package}"), of(&["core", "host-kit", package]), || {
            count(cargo().args(["test", "--no-fail-fast", "-p", package, "--lib"]), &mut stdout())
        });
    }
    summary.step("examples in the documentation", of(&["."]), || {
        count(cargo().args(["all-test", "--doc"]), &mut stdout())
    });
    let (alone, mut together): (Vec<_>, Vec<_>) =
        end_to_end.into_iter().partition(|program| program.name == UNDER_LOAD);
    together.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    for (lanes, programs) in [(LANES, together), (1, alone)] {
        summary.side_by_side(lanes, &programs, |program| program.step(&sources), end_to_end_tests);
    }
    Ok(summary.finish())
}

/// Runs an end-to-end test program, once the programs that it needs are installed.
fn end_to_end_tests(program: &Program, output: &mut dyn Write) -> Result<Tally> {
    for (_, package) in NEEDED.iter().filter(|(test, _)| *test == program.name) {
        debian::install(package)?;
    }
    program.run(output)
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
