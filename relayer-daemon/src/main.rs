//! The relayer's command line: `serve` runs it, `check` says whether it could run, `drain` finishes what is
//! in flight, `ctl` gives an operator's order, `abandon` gives up what a lost key has in flight, `api-key`
//! makes a key for the policy file, `health` asks whether it lives, `replay` delivers events once more,
//! `migrate` moves a file's journal to Postgres, `completions` and `man` are for its installation.
#![deny(clippy::print_stderr, clippy::print_stdout)] // they panic where the reader is gone: `host_kit::print`

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use host_kit::{ShellFiles, health, print, say};
use relayer_daemon::{
    daemon::{
        check::{self, CheckMode},
        ctl::{self, AbandonArgs, CtlArgs},
        lifecycle,
        migrate::{self, MigrateArgs},
        replay::{self, ReplayArgs},
        settings::{Listen, Settings},
    },
    metrics::Metrics,
    process::{clock, logging},
    signatures::{KeyHash, new_api_key},
    signer,
    telemetry::{self, SpanQueue},
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The gasless relayer: forwards signed requests to the agent registry and pays their gas.
///
/// The key that pays is read from RELAYER_KEY, RELAYER_KEY_FILE, or RELAYER_KEYSTORE with
/// RELAYER_KEYSTORE_PASSWORD_FILE, several keys from the files in RELAYER_KEYS_DIR, or the key is in AWS KMS
/// (RELAYER_KEY_KMS) or in a remote signer (RELAYER_KEY_REMOTE with RELAYER_KEY_REMOTE_ADDRESS); there is no
/// flag for them.
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
    /// Deliver events to an API key's webhook once more, by the running relayer or the next one
    Replay(ReplayArgs),
    /// Give an order: pause, resume, cordon, uncordon, cancel, abandon, reload, keys, export, log
    Ctl(CtlArgs),
    /// Give up what an account with a lost, stolen or closed key has in flight: other accounts carry its
    /// relays
    Abandon(AbandonArgs),
    /// Move the journal of a stopped daemon from its file to a Postgres database
    Migrate(MigrateArgs),
    /// Ask the relayer that runs here: exit status 0 where it lives, for a container's health check
    Health {
        #[command(flatten)]
        listen: Listen,
        /// Ask whether it is ready, which the chain and its accounts decide too.
        #[arg(long)]
        ready: bool,
    },
    /// Make an API key: prints it, this once, and its hash for the policy file
    ApiKey,
    #[command(flatten)]
    ShellFiles(ShellFiles),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let settings = match &command {
        Command::Serve(settings)
        | Command::Check(settings)
        | Command::Drain(settings)
        | Command::Replay(ReplayArgs { settings, .. })
        | Command::Ctl(CtlArgs { settings, .. })
        | Command::Abandon(AbandonArgs { settings, .. })
        | Command::Migrate(MigrateArgs { settings, .. }) => Some(settings),
        Command::Health { .. } | Command::ApiKey | Command::ShellFiles(_) => None,
    };
    // Only `serve` exports spans.
    let (layer, spans) = match &command {
        Command::Serve(Settings { otlp_endpoint: Some(_), .. }) => {
            let (layer, spans) = telemetry::collect();
            (Some(layer), Some(spans))
        }
        _ => (None, None),
    };
    if let Some(settings) = settings {
        logging::init(settings.log_format, settings.log_level, layer);
    }
    // The only provider compiled in; a second call, which cannot happen, would change nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();

    // Without a handler a file at its size limit (RLIMIT_FSIZE) kills the process; with one the write fails,
    // as it does on a full disk.
    let file_size_limit = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()));
    if let Err(error) = file_size_limit {
        tracing::warn!(%error, "a file at its size limit will end this process");
    }

    match run(command, spans).await {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("relayer-daemon: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command, spans: Option<SpanQueue>) -> anyhow::Result<ExitCode> {
    let keys = async |settings: &Settings| signer::from_env(settings.signer_timeout).await;
    match command {
        Command::Serve(settings) => {
            let keys = keys(&settings).await?;
            lifecycle::serve(settings, keys, spans).await?;
        }
        Command::Drain(settings) => {
            let keys = keys(&settings).await?;
            lifecycle::drain(settings, keys).await?;
        }
        Command::Check(settings) => {
            let (keys, metrics) = (keys(&settings).await?, Metrics::new()?);
            let (report, _) = check::run(CheckMode::Look, &settings, &keys, &clock::shared(), &metrics).await;
            print(&report)?;
            if !report.is_good() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Replay(args) => {
            let count = replay::run(&args).await?;
            print(format_args!("{count} events are delivered once more\n"))?;
        }
        Command::Ctl(args) => return ctl::run(&args).await,
        Command::Abandon(args) => return ctl::run(&args.into()).await,
        Command::Migrate(args) => {
            print(format_args!("{}\n", migrate::run(&args).await?))?;
        }
        Command::Health { listen, ready } => {
            let path = if ready { "/readyz" } else { "/livez" };
            health::ask(listen.address(), path).map_err(anyhow::Error::msg)?;
        }
        Command::ApiKey => {
            let key = new_api_key();
            print(format_args!("key:  {key}\nhash: {}\n", KeyHash::of(&key)))?;
        }
        Command::ShellFiles(files) => {
            print(files.make(Cli::command())?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
