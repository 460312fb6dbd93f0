//! The gate's command line: `serve` runs it, `check` tells whether it could run, `health` whether it does.
//! `completions` and `man` are for its installation.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use alloy_primitives::Address;
use clap::{CommandFactory as _, Parser, Subcommand};
use host_kit::{ShellFiles, health, print, say};
use kya_gate::{
    check, explain,
    logging::{self, LogFormat},
    serve,
    settings::Settings,
};
use registry_core::eth::address;
use tokio::runtime::Runtime;
use tracing::Level;

/// Admits signed requests of compliant agents, for nginx, Caddy and Envoy.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Format of log lines.
    #[arg(long, global = true, env = "LOG_FORMAT", value_enum, default_value = "json")]
    log_format: LogFormat,
    /// Least level of log lines: admitted requests are `debug`, others `info`.
    #[arg(long, global = true, env = "LOG_LEVEL", default_value = "info")]
    log_level: Level,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check everything, then answer until told to stop
    Serve {
        /// The configuration file.
        config: PathBuf,
    },
    /// Check everything and print one line for each thing
    Check {
        /// The configuration file.
        config: PathBuf,
        /// Also print the findings of each rule of each policy for this agent's wallet.
        #[arg(long, value_name = "WALLET", value_parser = address::parse)]
        explain: Option<Address>,
    },
    /// Ask the gate that runs here with this file, for a container's health check: exit status 0 if it is
    /// alive
    Health {
        /// The configuration file.
        config: PathBuf,
        /// Ask whether it is ready: for that, the chain has to answer too.
        #[arg(long)]
        ready: bool,
    },
    #[command(flatten)]
    ShellFiles(ShellFiles),
}

fn main() -> ExitCode {
    let Cli { log_format, log_level, command } = Cli::parse();
    logging::init(log_format, log_level);
    // The only provider compiled in; a second call, which does not happen, would change nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kya-gate: no threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(command));
    // A look-up of a name blocks its thread until the resolver answers, which may be never.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match done {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("kya-gate: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve { config } => serve::serve(Settings::read(&config)?).await?,
        Command::Check { config, explain } => {
            let settings = Settings::read(&config)?;
            let (report, sources) = check::run(&settings).await?;
            print(&report)?;
            if let (Some(wallet), Some(sources)) = (explain, &sources) {
                print(explain::run(&settings, sources, wallet).await?)?;
            }
            if !report.is_good() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Health { config, ready } => {
            let path = if ready { "/readyz" } else { "/livez" };
            health::ask(Settings::read(&config)?.listen, path).map_err(anyhow::Error::msg)?;
        }
        Command::ShellFiles(files) => {
            print(files.make(Cli::command())?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
