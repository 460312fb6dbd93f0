//! Servers of Debian's packages on local ports, started as every child process is.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::process::{PATIENCE, Process, Spawn, free_port};
use crate::repo;

/// Directory of Debian's nginx, which is on the PATH of root only.
const NGINX_PATH: &str = "/usr/sbin";

/// Starts a server, and waits until it listens on this port of 127.0.0.1.
pub(crate) async fn listening(spawn: Spawn, port: u16) -> Result<Process> {
    let mut process = spawn.start()?;
    until_listening(&mut process, port).await?;
    Ok(process)
}

pub(crate) async fn until_listening(process: &mut Process, port: u16) -> Result<()> {
    let connects = async |_: &str| TcpStream::connect(("127.0.0.1", port)).await.ok();
    process.until("listening", PATIENCE, connects).await.map(drop)
}

/// Starts nginx with the configuration that a document shows, in front of the server at `url` and not of the
/// documented one; returns a client of it.
pub async fn documented_nginx(document: &str, documented: &str, url: &str) -> Result<(Process, Client)> {
    let page = fs::read_to_string(repo::root().join(document))?;
    let locations = page.split("```").find_map(|block| block.strip_prefix("nginx\n")).context("no nginx")?;
    ensure!(locations.matches(documented).count() == 1, "{locations}");
    let port = free_port()?;
    let process = nginx_with(port, "", &locations.replace(documented, url)).await?;
    Ok((process, Client::new(&format!("http://127.0.0.1:{port}"))))
}

/// Starts nginx on this port with these directives in `http` and in `server`.
pub(crate) async fn nginx_with(port: u16, http: &str, server: &str) -> Result<Process> {
    let spawn = Spawn::new("nginx", "nginx");
    let directory = spawn.scratch().display().to_string();
    // Without a master process nginx needs no rights. Its default directories are Debian's, which only root
    // can write.
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/{name};"));
    let file = Path::new(&directory).join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {directory}/pid; error_log stderr;\nevents {{}}\n\
         http {{ access_log off; large_client_header_buffers 4 64k; {}\n{http}\
         server {{ listen 127.0.0.1:{port};\n{server}}} }}\n",
        temporary.concat(),
    );
    fs::write(&file, text)?;
    let path = format!("{}:{NGINX_PATH}", std::env::var("PATH").unwrap_or_default());
    listening(spawn.env("PATH", path).arg("-c").arg(file), port).await
}
