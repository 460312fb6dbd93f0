//! `kya`: an agent's and a liable person's companion. docs/kya.md describes it.
#![deny(clippy::print_stderr)] // it panics where the reader is gone: `report::say`

use std::{ffi::OsStr, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use host_kit::ShellFiles;
use kya::{
    accept, attest, domain, key, register,
    report::{CommandFailure, Exit, Report, Result, say},
    sign, status,
    submit::crash_point,
    terminate, verify,
};
use serde_json::json;

/// An agent's and a liable person's companion: registers, attests, signs requests, accepts, verifies.
///
/// Exit status: 0 done, 1 refused or not so, 2 wrong arguments, 3 try again later, 4 sent and not settled yet
/// (repeat the command: nothing is sent twice), 5 not confirmed.
#[derive(Debug, Parser)]
#[command(name = "kya", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document for programs.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // one of them, once
enum Command {
    Key(key::NewKey),
    Register(register::Register),
    Attest(attest::Attest),
    Status(status::Status),
    Sign(sign::Sign),
    Accept(accept::Accept),
    Domain(domain::Domain),
    #[command(subcommand)]
    Verify(verify::Verify),
    Terminate(terminate::Terminate),
    #[command(flatten)]
    ShellFiles(ShellFiles),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The only provider compiled in; a second call, which cannot happen, would change nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let matches = without_empty_variables(Arguments::command()).try_get_matches();
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { command, json } = match parsed {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            say(&error);
            print(&json!({ "error": error.kind().to_string(), "exit": 2 }).to_string());
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let exit = match run(command).await {
        Ok(Report { text, json: document, exit, told }) => {
            crash_point("before_print");
            match (print(&if json { document.to_string() } else { text }), told) {
                // The journal keeps what was not printed, for a repetition.
                (false, Some(_)) => Exit::TryAgain,
                (false, None) => Exit::Refused,
                (true, told) => {
                    if let Some(Err(failure)) = told.map(|told| told.forget()) {
                        say(format_args!("kya: {failure}\n"));
                    }
                    exit
                }
            }
        }
        Err(failure) => {
            say(format_args!("kya: {failure}\n"));
            if json {
                print(&failure.json().to_string());
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

/// An environment variable that is set to nothing counts as not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|argument| match argument.get_env().is_some_and(is_empty) {
        true => argument.env(None::<&'static str>),
        false => argument,
    });
    command.mut_subcommands(without_empty_variables)
}

/// Prints a line, and returns whether that succeeded. A closed pipe undoes nothing of what was done.
fn print(line: &str) -> bool {
    let printed = host_kit::print(format_args!("{line}\n"));
    if let Err(error) = &printed {
        say(format_args!("kya: standard output: {error}. It would have had: {line}\n"));
    }
    printed.is_ok()
}

async fn run(command: Command) -> Result<Report> {
    match command {
        Command::Key(arguments) => arguments.run(),
        Command::Register(arguments) => arguments.run().await,
        Command::Attest(arguments) => arguments.run().await,
        Command::Status(arguments) => arguments.run().await,
        Command::Sign(arguments) => arguments.run().await,
        Command::Accept(arguments) => accept::run(&arguments).await,
        Command::Domain(arguments) => domain::run(&arguments).await,
        Command::Verify(command) => verify::run(&command),
        Command::Terminate(arguments) => arguments.run().await,
        Command::ShellFiles(files) => match files.make(Arguments::command()) {
            Ok(text) => Ok(Report::document(text)),
            Err(error) => Err(CommandFailure::refused(error.to_string())),
        },
    }
}
