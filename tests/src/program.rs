//! The workspace's own programs, built by cargo when a test first starts one.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::proxy::lock;
use crate::repo;

/// Returns a program of the workspace, `["--bin", …]` or `["--example", …]`, built once a process.
pub(crate) fn compiled(program: [&'static str; 2]) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<[&str; 2], Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    let mut built = lock(&BUILT);
    let build = || find(program).map_err(|error| format!("{error:#}"));
    built.entry(program).or_insert_with(build).clone().map_err(anyhow::Error::msg)
}

/// Finds the program that `cargo xtask test` or `dev` has compiled, or else compiles it.
fn find(program: [&str; 2]) -> Result<PathBuf> {
    if env::var_os("E2E_BUILT").is_none() {
        return compile(program);
    }
    let here = env::current_exe()?;
    // Tests are in `deps`, below the programs.
    let is_program = |directory: &&Path| !directory.ends_with("deps");
    let target = here.ancestors().skip(1).find(is_program).context("a directory of cargo's")?;
    let [kind, name] = program;
    note(name)?;
    Ok(if kind == "--example" { target.join("examples").join(name) } else { target.join(name) })
}

/// Notes for `cargo xtask test` that this test program starts the program of this name: a change of any other
/// program does not make it run again.
fn note(name: &str) -> Result<()> {
    let Some(path) = env::var_os("E2E_STARTED") else { return Ok(()) };
    let mut file = File::options().append(true).open(path)?;
    Ok(file.write_all(format!("{name}\n").as_bytes())?)
}

fn compile(program: [&str; 2]) -> Result<PathBuf> {
    let mut cargo = repo::cargo();
    cargo.args(["all-build", "--quiet", "--message-format", "json"]).args(program);
    let output = cargo.output().context("cargo cannot be started")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} does not compile:\n{errors}", program[1]);
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no executable")
}
