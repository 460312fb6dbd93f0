//! Connections: a crowd of them takes from nobody else what the daemon and other clients need.
//!
//! 1. A client that opens more connections than its share is refused the rest; others are served, and the
//!    daemon has the file descriptors it needs for its own work.
//! 2. SIGTERM is heard in a full house: who waits for a relay is told to come back, and the daemon ends in
//!    time.
//! 3. A client that does not read its answers is closed.
//! 4. Trusted proxies have no share: all clients come through them.
//! 5. A burst of clients waits in the kernel's queue while the daemon is busy, and is then served.

use std::net::Ipv4Addr;
use std::time::Duration;

use e2e::daemon::Daemon;
use e2e::process::eventually;
use e2e::relay::RelayClient;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::audit::{PATIENCE, Stage, agent, post};

/// A connection that says nothing.
async fn idle(daemon: &Daemon) -> TcpStream {
    TcpStream::connect(daemon.url().trim_start_matches("http://")).await.unwrap()
}

/// Whether the daemon has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// A metric of the daemon's that has no labels.
async fn metric(client: &RelayClient, name: &str) -> u64 {
    let metrics = client.get("/metrics").await.text;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} not in:\n{metrics}")).parse().unwrap()
}

#[tokio::test]
async fn a_crowd_of_connections_takes_neither_the_daemons_descriptors_nor_other_clients_places() {
    let stage = Stage::set().await;
    // Half of 128 are for clients, 40 of these for one address.
    let options = stage.options.clone().descriptors(128).var("MAX_CONNECTIONS_PER_IP", 40);
    let daemon = Daemon::start(&options).await.unwrap();
    let neighbour = daemon.client().from_address(Ipv4Addr::new(127, 0, 0, 2));

    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(idle(&daemon).await);
    }
    eventually("refused", PATIENCE, async || {
        (crowd.iter().filter(|stream| is_closed(stream)).count() == 160).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(metric(&neighbour, "relayer_http_connections_refused_total").await, 160);

    let requests = ["alice", "bob"].map(|name| stage.desk.registration(&agent(name), 0));
    for request in &requests {
        neighbour.relay(request).await.ok();
    }
    stage.audit(&neighbour, &[&requests[0], &requests[1]]).await;
    let log = daemon.log();
    assert!(!log.contains("connection not accepted"), "{log}");
}

#[tokio::test]
async fn a_burst_of_clients_waits_in_the_kernels_queue_until_the_daemon_has_time() {
    let stage = Stage::set().await;
    let mut daemon = Daemon::start(&stage.options).await.unwrap();
    daemon.process().signal(Signal::STOP).unwrap();
    let mut burst = Vec::new();
    for count in 0..600 {
        let connected = timeout(PATIENCE, idle(&daemon)).await;
        burst.push(connected.unwrap_or_else(|_| panic!("no room after {count} clients")));
    }
    daemon.process().signal(Signal::CONT).unwrap();
    for client in &mut burst {
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: relayer\r\nConnection: close\r\n\r\n").await.unwrap();
    }
    for client in &mut burst {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// More clients than a house of eight holds: the last ones stand in the kernel's queue.
async fn crowd(daemon: &Daemon) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..12 {
        crowd.push(idle(daemon).await);
    }
    crowd
}

#[tokio::test]
async fn sigterm_is_heard_in_a_full_house() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("MAX_CONNECTIONS", 8);
    let mut daemon = Daemon::start(&options).await.unwrap();
    let silent = crowd(&daemon).await;
    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success() && took < Duration::from_secs(3), "{status} after {took:?}:\n{}", daemon.log());
    drop(silent);

    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let _silent = crowd(&daemon).await;
    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success() && took < Duration::from_secs(5), "{status} after {took:?}");
    let answer = answer.await.unwrap().unwrap();
    assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")));
    assert!(!daemon.log().contains("not everything ended in time"), "{}", daemon.log());
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_closed() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let address = daemon.url().trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    // More answers than any socket's buffers hold.
    let requests = "GET /openapi.json HTTP/1.1\r\nhost: relayer\r\n\r\n".repeat(1_000);
    let writing = tokio::spawn(async move {
        let _ = stream.write_all(requests.as_bytes()).await;
        stream
    });
    eventually("connected", PATIENCE, async || {
        (metric(&client, "relayer_http_connections").await == 2).then_some(())
    })
    .await
    .unwrap();
    eventually("closed", PATIENCE, async || {
        (metric(&client, "relayer_http_connections").await == 1).then_some(())
    })
    .await
    .unwrap();
    let mut stream = writing.await.unwrap();
    let mut answers = Vec::new();
    // Whether it ends or breaks off: there is not a thousand times the description.
    let _ = stream.read_to_end(&mut answers).await;
    let description = client.get("/openapi.json").await.text;
    assert!(answers.len() < 1_000 * description.len(), "{}", answers.len());
}

#[tokio::test]
async fn a_trusted_proxy_has_no_share() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("MAX_CONNECTIONS_PER_IP", 4).var("TRUSTED_PROXIES", "127.0.0.1");
    let daemon = Daemon::start(&options).await.unwrap();
    let answers: Vec<_> = (0..20)
        .map(|index| {
            let client = daemon.client().forwarded_for(&format!("203.0.113.{index}"));
            post(&client, &stage.desk.registration(&agent(&format!("behind {index}")), 0))
        })
        .collect();
    for answer in answers {
        answer.await.unwrap().unwrap().ok();
    }
}
