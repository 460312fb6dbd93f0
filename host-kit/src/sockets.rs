//! Listening sockets, and the number of connections that a process has file descriptors for.

use std::{io, net::SocketAddr};

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// File descriptors reserved for files, other sockets and logs.
const RESERVED_DESCRIPTORS: u64 = 256;
/// Number of new connections that the kernel queues, at most `net.core.somaxconn`. With the usual 128 the
/// kernel would drop the first attempts of a burst, and its clients would connect seconds later.
const BACKLOG: u32 = 4_096;

/// Listens on `address`. Errors: the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart does not wait for the TIME_WAIT of earlier connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns the number of files that the process may open: the soft limit (`RLIMIT_NOFILE`, systemd's
/// `LimitNOFILE`), `u64::MAX` without one.
pub fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the number of connections, of `wanted`, that leave 256 of `descriptors` for other files, or half
/// of them below 512; at least one.
pub fn connections_within(wanted: usize, descriptors: u64) -> usize {
    let available = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2);
    wanted.min(usize::try_from(available).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_other_files() {
        for (descriptors, connections) in [(8_192, 1_024), (1_024, 768), (64, 32), (0, 1)] {
            assert_eq!(connections_within(1_024, descriptors), connections, "{descriptors}");
        }
    }
}
