//! The program `kya`, run as its users run it.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Spawn, output};
use crate::{program, repo};

/// A user of the program: a directory with keys, documents and the state of operations in flight.
pub struct Kya {
    program: PathBuf,
    directory: TempDir,
}

#[derive(Debug)]
pub struct CommandOutcome {
    /// The exit status; `None` after a kill.
    pub status: Option<i32>,
    /// Standard output.
    pub text: String,
    /// Standard error.
    pub errors: String,
}

impl CommandOutcome {
    /// Returns the document of a command that succeeded.
    pub fn ok(&self) -> Value {
        self.with(0)
    }

    /// Checks the exit status, and returns the command's document.
    pub fn with(&self, status: i32) -> Value {
        assert_eq!(self.status, Some(status), "{self:?}");
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Checks the exit status, and returns the command's error message.
    pub fn error(&self, status: i32) -> String {
        self.with(status)["error"].as_str().unwrap_or_else(|| panic!("no error: {self:?}")).to_owned()
    }
}

impl Kya {
    pub fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("constitution.md"), "We do as we are told, and say when we do not.")?;
        fs::write(directory.path().join("capabilities.json"), r#"{"tools":["invoice"]}"#)?;
        Ok(Self { program: program::compiled(["--bin", "kya"])?, directory })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Runs a command in the user's directory.
    pub async fn run(&self, arguments: &[&str]) -> Result<CommandOutcome> {
        self.dying_at("", arguments).await
    }

    /// Runs a command with a crash point; none where it is empty.
    pub async fn dying_at(&self, point: &str, arguments: &[&str]) -> Result<CommandOutcome> {
        self.run_with(&[("KYA_CRASH_AT", point)], arguments).await
    }

    /// Runs a command with these environment variables.
    pub async fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Result<CommandOutcome> {
        let mut command = Command::from(repo::command(&self.program));
        command.arg("--json").args(arguments).current_dir(self.directory.path());
        command.env("KYA_STATE_DIR", self.state()).envs(variables.iter().copied()).kill_on_drop(true);
        let output = command.output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).context("text");
        Ok(CommandOutcome {
            status: output.status.code(),
            text: text(output.stdout)?,
            errors: text(output.stderr)?,
        })
    }

    /// Runs a shell script in the user's directory, with this program and Node on its path and no proxy;
    /// returns its output. An HTTP error of `curl` fails the script.
    pub async fn shell(&self, script: &str) -> Result<String> {
        let programs = self.program.parent().context("a directory of programs")?;
        let curl = "curl() { command curl --fail --silent --show-error --max-time 30 \"$@\"; }";
        let script = format!("PATH=$PROGRAMS:$PATH\n{curl}\n{script}");
        let mut bash = Command::from(repo::command("bash"));
        bash.args(["-euo", "pipefail", "-c", &script]).current_dir(self.directory.path());
        bash.env("PROGRAMS", programs).env("KYA_STATE_DIR", self.state()).envs(repo::NO_PROXY);
        bash.stdin(Stdio::null());
        Ok(String::from_utf8(output(&mut bash).await?)?)
    }

    /// Prepares a command that keeps running, with a crash point.
    pub fn spawn(&self, point: &str, arguments: &[&str]) -> Spawn {
        let spawn = Spawn::new("kya", &self.program).args(arguments).dir(self.directory.path());
        spawn.env("KYA_STATE_DIR", self.state()).env("KYA_CRASH_AT", point)
    }
}

/// Runs a command of `kya` that has to succeed, and returns its output.
pub async fn printed(arguments: &[&str]) -> Result<String> {
    let (ended, text) = run(arguments).await?;
    ensure!(ended, "{text}");
    Ok(text.trim().to_owned())
}

/// Runs `kya verify`; returns whether it succeeded and the lines that it printed.
pub async fn verify(arguments: &[&str]) -> Result<(bool, Vec<String>)> {
    let (is_right, text) = run(&[&["verify"], arguments].concat()).await?;
    Ok((is_right, text.lines().map(str::to_owned).collect()))
}

/// Runs `kya`; returns whether it succeeded and its output, with standard error after a failure.
async fn run(arguments: &[&str]) -> Result<(bool, String)> {
    let program = program::compiled(["--bin", "kya"])?;
    let output = Command::from(repo::command(program)).args(arguments).output().await?;
    let is_good = output.status.success();
    let errors = if is_good { Vec::new() } else { output.stderr };
    Ok((is_good, String::from_utf8([output.stdout, errors].concat())?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[tokio::test]
    async fn a_shell_finds_the_program_below_a_path_with_a_space() {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("a b");
        fs::create_dir(&programs).unwrap();
        symlink("/bin/sh", programs.join("kya")).unwrap();
        let user = Kya { program: programs.join("kya"), directory };
        assert_eq!(user.shell("kya -c 'echo found'").await.unwrap(), "found\n");
    }
}
