//! The options of `cargo xtask dev`, which checks them before it builds anything. The program that it
//! executes includes this file as well.

use std::net::TcpListener;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) const DEV_USAGE: &str = "usage: cargo xtask dev [--chain-port PORT] [--worker-port PORT] [--relayer-port PORT] [--guarded-port PORT]; port 0 is any free one";

/// Listeners, by the name in the option of their port, and their default ports.
const LISTENERS: [(&str, u16); 4] = [("chain", 8545), ("worker", 3000), ("relayer", 3001), ("guarded", 3002)];

/// Returns the ports of [`LISTENERS`]; fails with the first one that is taken, be it by another of them.
pub(crate) fn ports(mut arguments: &[&str]) -> Result<[u16; 4]> {
    let mut ports = LISTENERS.map(|(_, port)| port);
    while let [name, value, rest @ ..] = arguments {
        let what = name.strip_prefix("--").and_then(|name| name.strip_suffix("-port"));
        let place = LISTENERS.iter().position(|(listener, _)| Some(*listener) == what);
        let port = place.and_then(|place| ports.get_mut(place)).context(DEV_USAGE)?;
        *port = value.parse().with_context(|| format!("{name}: {value} is no port"))?;
        arguments = rest;
    }
    ensure!(arguments.is_empty(), "{DEV_USAGE}");
    let mut held = Vec::new();
    for ((what, _), port) in LISTENERS.iter().zip(ports).filter(|(_, port)| *port != 0) {
        let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) else {
            bail!("port {port} is taken: end what listens there, or choose another with --{what}-port");
        };
        held.push(listener);
    }
    Ok(ports)
}
