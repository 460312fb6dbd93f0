//! The relayer's command line: `serve` runs it, `check` says whether it could run, `drain` finishes what is
//! in flight.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use relayer_daemon::{
    daemon::{
        check::{self, CheckMode},
        lifecycle,
        settings::Settings,
    },
    keys,
    metrics::Metrics,
    process::{clock, logging},
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The gasless relayer: forwards signed requests to the agent registry and pays their gas.
///
/// The key that pays is read from RELAYER_KEY, RELAYER_KEY_FILE, or RELAYER_KEYSTORE with
/// RELAYER_KEYSTORE_PASSWORD_FILE, several keys from the files in RELAYER_KEYS_DIR; there is no flag for
/// them.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check everything, then relay until told to stop
    Serve(Settings),
    /// Check everything and print one line for each thing; changes nothing, also beside a running relayer
    Check(Settings),
    /// Wait until nothing is in flight: ask a running relayer to accept no more and end, or finish its
    /// journal
    Drain(Settings),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let (Command::Serve(settings) | Command::Check(settings) | Command::Drain(settings)) = &command;
    logging::init(settings.log_format, settings.log_level);
    // The only provider compiled in; a second call, which cannot happen, would change nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();

    // Without a handler a file at its size limit (RLIMIT_FSIZE) kills the process; with one the write fails,
    // as it does on a full disk.
    let file_size_limit = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
    if let Err(error) = file_size_limit {
        tracing::warn!(%error, "a file at its size limit will end this process");
    }

    match run(command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("relayer-daemon: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let keys = keys::from_env()?;
    match command {
        Command::Serve(settings) => lifecycle::serve(settings, keys).await?,
        Command::Drain(settings) => lifecycle::drain(settings, keys).await?,
        Command::Check(settings) => {
            let (report, _) =
                check::run(CheckMode::Look, &settings, &keys, &clock::shared(), &Metrics::new()?).await;
            print!("{report}");
            if !report.is_good() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
