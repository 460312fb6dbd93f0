//! The real gate as a child process, and a service behind it that records the requests that reach it.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc;
use std::{fs, thread};

use alloy::hex;
use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::hooks::{Delivery, HookReply, Receiver};
use crate::process::{PATIENCE, Process, Spawn, eventually, free_port};
use crate::servers::listening;
use crate::usage::Usage;
use crate::{http, program, repo};

/// Code of an account that accepts every signature: `mstore(0, shl(224, 0x1626ba7e)) return(0, 32)`.
pub const ACCEPT: &[u8] = &hex!("631626ba7e60e01b60005260206000f3");
/// Code of an account that accepts no signature.
pub const REVERT: &[u8] = &hex!("60006000fd");
/// The origin of the services that the tests' gates guard.
pub const ORIGIN: &str = "http://api.example";

#[derive(Debug)]
pub struct Gate {
    process: Process,
    url: String,
}

impl Gate {
    /// Starts `kya-gate serve` with this configuration, on any free port, and waits until it listens.
    pub async fn start(configuration: &str) -> Result<Self> {
        Self::announced(gate("serve", configuration)?).await
    }

    /// Starts another build of the gate in the same way.
    pub async fn start_program(program: PathBuf, configuration: &str) -> Result<Self> {
        Self::announced(configured(program, &["serve"], configuration)?).await
    }

    /// Starts `kya-gate serve` with only the certificate authorities of this PEM file trusted.
    pub async fn start_trusting(authorities: &Path, configuration: &str) -> Result<Self> {
        Self::announced(gate("serve", configuration)?.env("SSL_CERT_FILE", authorities)).await
    }

    /// Starts `kya-gate serve` in a process that may open this many files.
    pub async fn start_with_descriptors(descriptors: u32, configuration: &str) -> Result<Self> {
        let program = program::compiled(["--bin", "kya-gate"])?;
        let limit = format!("--nofile={descriptors}");
        let program = program.to_str().context("a path that is text")?;
        Self::announced(configured("prlimit".into(), &[&limit, program, "serve"], configuration)?).await
    }

    /// Starts `kya-gate serve` without waiting until it listens.
    pub fn starting(configuration: &str) -> Result<Process> {
        gate("serve", configuration)?.start()
    }

    async fn announced(spawn: Spawn) -> Result<Self> {
        let mut process = spawn.start()?;
        let url = process.announced("kya-gate listening on ", PATIENCE).await?;
        Ok(Self { process, url })
    }

    /// Runs `kya-gate check`; returns whether it succeeded and all that it printed.
    pub async fn check(configuration: &str) -> Result<(bool, String)> {
        Self::checked(configuration, &[]).await
    }

    /// Runs `kya-gate check --explain` for this wallet, and returns all that it printed.
    pub async fn explain(configuration: &str, wallet: &str) -> Result<String> {
        Ok(Self::checked(configuration, &["--explain", wallet]).await?.1)
    }

    async fn checked(configuration: &str, arguments: &[&str]) -> Result<(bool, String)> {
        let mut process = gate("check", configuration)?.args(arguments).start()?;
        let status = process.exited(PATIENCE).await?;
        Ok((status.success(), process.log()))
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    pub fn usage(&self) -> Result<Usage> {
        Usage::of(&self.process, "kya-gate")
    }

    /// Returns the value of the metric line that begins with these words.
    pub async fn metric(&self, words: &str) -> Option<f64> {
        let answer = http::client(PATIENCE).get(format!("{}/metrics", self.url)).send().await.ok()?;
        let text = answer.text().await.ok()?;
        text.lines().find_map(|line| line.strip_prefix(words)?.trim().parse().ok())
    }

    pub async fn terminate(mut self) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.exited(PATIENCE).await
    }
}

/// Starts a gate with Redis; retries where Redis answered too late on a busy machine.
pub async fn start_with_redis(start: impl AsyncFn() -> Result<Gate>) -> Result<Gate> {
    let is_late = |error: &str| ["no answer in time", "timed out"].iter().any(|words| error.contains(words));
    let started = eventually("started", PATIENCE, async || match start().await {
        Err(error) if is_late(&format!("{error:#}")) => None,
        started => Some(started),
    });
    started.await?
}

fn gate(command: &str, configuration: &str) -> Result<Spawn> {
    configured(program::compiled(["--bin", "kya-gate"])?, &[command], configuration)
}

fn configured(program: PathBuf, arguments: &[&str], configuration: &str) -> Result<Spawn> {
    let spawn = Spawn::new("kya-gate", program).env("LOG_LEVEL", "debug");
    let file = spawn.scratch().join("gate.toml");
    fs::write(&file, configuration)?;
    Ok(spawn.args(arguments).arg(file))
}

/// Turns a daemon's configuration into one of an embedded gate: without `listen` and `[proxy]`.
pub fn embedded(daemon: &str) -> Result<String> {
    let (before, rest) = daemon.split_once("[proxy]").context("a proxy")?;
    let (_, after) = rest.split_once("[chain]").context("a chain")?;
    let lines: Vec<&str> = before.lines().filter(|line| !line.starts_with("listen")).collect();
    Ok(format!("{}\n[chain]{after}", lines.join("\n")))
}

/// Starts the gate's axum example, a service with the gate in its own process, on any free port; returns its
/// URL.
pub async fn start_example(configuration: &str) -> Result<(Process, String)> {
    let program = program::compiled(["--example", "axum"])?;
    let mut process = configured(program, &[], configuration)?.arg("127.0.0.1:0").start()?;
    let url = process.announced("listening on ", PATIENCE).await?;
    Ok((process, url))
}

/// A service from `tests/services` with the header naming rules of WSGI, CGI or Express. It answers with the
/// headers that it reads as the gate's, one a line.
pub struct HeaderReader {
    pub name: &'static str,
    pub url: String,
    _process: Process,
}

impl HeaderReader {
    /// Starts WSGI on Python's own server, CGI on lighttpd, and Express.
    pub async fn start_all() -> Result<[Self; 3]> {
        let services = repo::root().join("tests/services");
        let [wsgi, express] = [("python3", "wsgi.py"), ("node", "express.mjs")];
        let start = async |(program, file): (&'static str, &str)| {
            let mut process = Spawn::new(file, program).arg(services.join(file)).start()?;
            let url = process.announced("listening on ", PATIENCE).await?;
            anyhow::Ok(Self { name: program, url, _process: process })
        };
        let (port, spawn) = (free_port()?, Spawn::new("lighttpd", "lighttpd"));
        let file = spawn.scratch().join("lighttpd.conf");
        let text = format!(
            "server.modules = (\"mod_cgi\")\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             server.document-root = \"{0}\"\nserver.error-handler-404 = \"/cgi.sh\"\ncgi.assign = (\".sh\" => \"\")\n",
            services.display(),
        );
        fs::write(&file, text)?;
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let process = listening(spawn.env("PATH", path).arg("-D").arg("-f").arg(file), port).await?;
        let cgi = Self { name: "CGI", url: format!("http://127.0.0.1:{port}"), _process: process };
        Ok([start(wsgi).await?, cgi, start(express).await?])
    }
}

/// A service that answers every request with 200, with CORS for one other site alone, and records them.
pub struct RecordingService(Receiver);

impl RecordingService {
    pub async fn start() -> Result<Self> {
        let receiver = Receiver::start().await?;
        let header = Some(("access-control-allow-origin", "https://other.example".to_owned()));
        receiver.answer_by(move |_| HookReply {
            body: "served".to_owned(),
            header: header.clone(),
            ..HookReply::status(200)
        });
        Ok(Self(receiver))
    }

    pub fn url(&self) -> &str {
        self.0.url()
    }

    pub fn take(&self) -> Vec<Delivery> {
        self.0.take()
    }
}

/// A stand-in for a gate that records requests byte by byte. It answers 401 below `/gate/`, else 200, and
/// reads each connection to its end.
#[derive(Debug)]
pub struct RawGate {
    url: String,
    asked: mpsc::Receiver<String>,
}

impl RawGate {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let (send, asked) = mpsc::channel();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(bytes) = connection.and_then(Self::answer) else { continue };
                if send.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { url, asked })
    }

    fn answer(mut connection: TcpStream) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte)?;
            bytes.extend(byte);
        }
        let path = bytes.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let status = if path.starts_with(b"/gate/") { "401 Unauthorized" } else { "200 OK" };
        write!(connection, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
        connection.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the next request; returns it with all bytes that followed it.
    pub fn next(&self) -> Result<String> {
        Ok(self.asked.recv_timeout(PATIENCE)?)
    }
}
