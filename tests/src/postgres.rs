//! A Postgres server of Debian's package for one test or test program, with its files and its socket in a
//! temporary directory.
//!
//! It ends when it is dropped, and also when the process that started it dies.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::geteuid;
use tempfile::TempDir;

const START: Duration = Duration::from_secs(300);

/// Stops the server and deletes its files once stdin, a pipe from the process that started it, ends.
const WATCH: &str = r#"
trap '' TERM INT HUP
read -r _
"$1/pg_ctl" -D "$2/data" -m immediate stop
rm -rf -- "$2"
"#;

#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    dir: TempDir,
    watch: Child,
    schemas: AtomicU32,
}

impl Postgres {
    /// Starts a server with no data. `options` are settings of `postgresql.conf`, as `name=value`.
    pub fn start(options: &[&str]) -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("postgres-").tempdir().expect("a temporary directory");
        if geteuid().is_root() {
            // Postgres refuses to run as root.
            run(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("a private directory");
        let data = dir.path().join("data");
        run(own(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"])
            .args([Path::new("-D"), &data]));
        let mut watch = own(Path::new("/bin/sh"));
        watch.args(["-c", WATCH, "postgres"]).arg(&programs).arg(dir.path());
        let watch = watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = watch.spawn().expect("a shell");
        let mut settings = String::from("listen_addresses=''\nmax_connections=200\n");
        settings.push_str(&format!("unix_socket_directories='{}'\n", dir.path().display()));
        options.iter().for_each(|option| settings.push_str(&format!("{option}\n")));
        fs::write(data.join("postgresql.auto.conf"), settings).expect("the settings");
        let server = Self { programs, dir, watch, schemas: AtomicU32::new(0) };
        server.go_on();
        server
    }

    /// Creates an empty schema, and returns its URL.
    pub fn schema(&self) -> String {
        let name = format!("s{}", self.schemas.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE SCHEMA {name}"));
        format!("postgres://postgres@{}/postgres?options=-csearch_path%3D{name}", self.host())
    }

    /// Puts a proxy with this delay each way before a schema; returns the new URL and the proxy's counts.
    pub fn behind_a_network(&self, url: &str, delay: Duration) -> (String, Arc<StatementCounts>) {
        let passed = Arc::<StatementCounts>::default();
        let port = proxy(self.dir.path().join(".s.PGSQL.5432"), delay, Arc::clone(&passed));
        (url.replace(&self.host(), &format!("127.0.0.1:{port}")), passed)
    }

    /// Returns the socket's directory, percent-encoded for a URL.
    pub fn host(&self) -> String {
        self.dir.path().display().to_string().replace('/', "%2F")
    }

    /// Runs a statement, and returns what it prints.
    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|errors| panic!("{statement}: {errors}"))
    }

    /// Runs a statement; returns its output, or the errors that it prints.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        let mut psql = own(&self.programs.join("psql"));
        psql.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"]);
        let output = psql.arg(self.dir.path()).args(["-c", statement]).output().expect("psql");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// Stops the server as a crash does, without notice to its clients.
    pub fn crash(&self) {
        run(self.pg_ctl().args(["-m", "immediate", "-w", "stop"]));
    }

    /// Starts the server on its data.
    pub fn go_on(&self) {
        let log = self.dir.path().join("log");
        let began = Instant::now();
        loop {
            let mut start = self.pg_ctl();
            start.arg("-l").arg(&log).args(["-w", "-t", "60", "start"]);
            // No pipe of this process: the server outlives the command and would hold it open.
            let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("pg_ctl");
            if status.success() {
                return;
            }
            // After a crash, processes of the previous server may hold its shared memory for a moment.
            let said = fs::read_to_string(&log).unwrap_or_default();
            assert!(began.elapsed() < START, "Postgres does not start: {said}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn pg_ctl(&self) -> Command {
        let mut command = own(&self.programs.join("pg_ctl"));
        command.arg("-D").arg(self.dir.path().join("data"));
        command
    }
}

/// Counts of the statements that clients have sent to a server.
#[derive(Debug, Default)]
pub struct StatementCounts {
    statements: AtomicI64,
    waits: AtomicI64,
}

impl StatementCounts {
    /// Returns the number of statements, and how many began when the client had all its answers.
    pub fn counts(&self) -> [i64; 2] {
        [&self.statements, &self.waits].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Starts a proxy before the server's socket; returns its port.
fn proxy(socket: PathBuf, delay: Duration, passed: Arc<StatementCounts>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&socket) else { continue };
            client.set_nodelay(true).expect("an option");
            let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            // The server's first ReadyForQuery answers the connection itself.
            let unanswered = Arc::new(AtomicI64::new(1));
            let (passed, answered) = (Arc::clone(&passed), Arc::clone(&unanswered));
            pass(from, to, false, delay, move |kind| {
                if [b'Q', b'E'].contains(&kind) {
                    passed.statements.fetch_add(1, Ordering::SeqCst);
                }
                // The server answers a query, or the Sync of an extended one, with one ReadyForQuery.
                if [b'Q', b'S'].contains(&kind) && unanswered.fetch_add(1, Ordering::SeqCst) == 0 {
                    passed.waits.fetch_add(1, Ordering::SeqCst);
                }
            });
            pass(server, client, true, delay, move |kind| {
                if kind == b'Z' {
                    answered.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    port
}

/// Passes messages on after a delay, and reports each message's type; a client's first one has none.
fn pass(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    mut has_type: bool,
    delay: Duration,
    mut seen: impl FnMut(u8) + Send + 'static,
) {
    let (arrived, arrivals) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        loop {
            let mut message = vec![0; if has_type { 5 } else { 4 }];
            if from.read_exact(&mut message).is_err() {
                return;
            }
            let (kind, size) = message.split_at(message.len() - 4);
            let size = u32::from_be_bytes(size.try_into().expect("four bytes")) as usize - 4;
            kind.iter().for_each(|kind| seen(*kind));
            has_type = true;
            let mut rest = vec![0; size];
            if from.read_exact(&mut rest).is_err() {
                return;
            }
            message.extend(rest);
            if arrived.send((Instant::now(), message)).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (at, message) in arrivals {
            thread::sleep((at + delay).saturating_duration_since(Instant::now()));
            if to.write_all(&message).is_err() {
                return;
            }
        }
    });
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The watching shell stops the server and deletes its files.
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

/// Returns the directory of the newest version's programs, as Debian installs them.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let numbered = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        Some((number, version.path().join("bin")))
    });
    let newest = numbered.filter(|(_, bin)| bin.join("initdb").exists()).max();
    newest.expect("Postgres is not installed (Debian: apt-get install postgresql)").1
}

/// Prepares a command as the server's user, in a directory that this user may enter.
fn own(program: &Path) -> Command {
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // Variables such as PGPORT: servers read them, too.
    for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) {
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("a command");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
