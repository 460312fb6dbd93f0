//! The local socket of a running daemon: one order per connection, one line of JSON each way. The file's mode
//! is the authorisation; the kernel says which user is at the other end.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixSocket, UnixStream},
    sync::Semaphore,
    time::timeout,
};

use super::desk::{OrderAnswer, OrderExecutor};
use crate::{
    process::shutdown::{ShutdownSignal, unless_stopped},
    store::control::Order,
};

/// The longest line, bytes.
const LONGEST: u64 = 64 * 1024;
/// Time that an order may take, its answer included.
const WITHIN: Duration = Duration::from_secs(20);
/// Number of orders that are carried out at the same time.
const AT_ONCE: usize = 8;
/// Number of connections that the kernel queues.
const BACKLOG: u32 = 16;
/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that is listened to. Its file is removed with it.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl ControlSocket {
    /// Listens at `path`, for this user alone. A file that a dead process has left is replaced.
    ///
    /// # Errors
    /// Fails if another process listens there, another file is there, or the file cannot be made.
    pub fn listen(path: &Path) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let socket = UnixSocket::new_stream()?;
        socket.bind(path)?;
        // Before it is listened to: until then no connection is made.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener: socket.listen(BACKLOG)?, path: path.to_owned() })
    }

    /// Carries out the orders that come, until shutdown.
    pub(super) async fn serve(self, desk: OrderExecutor, mut stop: ShutdownSignal) {
        let (desk, places) = (Arc::new(desk), Arc::new(Semaphore::new(AT_ONCE)));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Some(accepted) = unless_stopped(&mut stop, self.listener.accept()).await else { return };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let desk = Arc::clone(&desk);
            tokio::spawn(async move {
                match timeout(WITHIN, answer(stream, &desk)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "order not answered"),
                    Err(_) => tracing::warn!("order not answered in time"),
                }
                drop(place);
            });
        }
    }
}

async fn answer(stream: UnixStream, desk: &OrderExecutor) -> io::Result<()> {
    let operator = super::operator(stream.peer_cred()?.uid());
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(LONGEST)).read_line(&mut line).await?;
    let order: Order = serde_json::from_str(&line)?;
    let answered = desk.carry_out(order, operator.clone()).await.map_err(|error| error.to_string());
    let result = answered.as_ref().map_or_else(String::as_str, |answer| answer.text.as_str());
    tracing::info!(%operator, command = order.name(), argument = order.argument(), result, "order");
    let mut line = serde_json::to_vec(&answered)?;
    line.push(b'\n');
    write.write_all(&line).await
}

/// Has the daemon that listens at `path` carry out an order. Returns `None` if none listens, as where the
/// path is too long for a socket, or if it does not answer.
///
/// # Errors
/// Fails if the file may not be used, or the daemon could not carry out the order.
pub(super) async fn ask(path: &Path, order: &Order) -> anyhow::Result<Option<OrderAnswer>> {
    let mut stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidInput => {
                return Ok(None);
            }
            _ => anyhow::bail!("RELAYER_CONTROL_SOCKET: {}: {error}", path.display()),
        },
    };
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    let asked = async {
        stream.write_all(&line).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    match timeout(WITHIN, asked).await {
        Ok(Ok(answer)) if !answer.is_empty() => {
            let answered: Result<OrderAnswer, String> = serde_json::from_str(&answer)?;
            answered.map(Some).map_err(anyhow::Error::msg)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_of_a_dead_process_is_replaced_and_any_other_file_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = ControlSocket::listen(&path).unwrap();
        assert_eq!(ControlSocket::listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());

        fs::write(&path, "deny = []").unwrap();
        assert_eq!(ControlSocket::listen(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "deny = []");
        let link = dir.path().join("link.sock");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(ControlSocket::listen(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(link.is_symlink());
    }
}
