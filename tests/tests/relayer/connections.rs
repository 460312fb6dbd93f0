//! Connections: a crowd of them leaves the daemon and other clients what they need.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpSocket;

use crate::prelude::*;

const OPEN: &str = "relayer_http_connections";

/// Opens silent connections to the daemon at `url` from this address of the machine.
async fn idle(url: &str, from: [u8; 4], count: usize) -> Vec<TcpStream> {
    let address: SocketAddr = url.trim_start_matches("http://").parse().unwrap();
    let mut streams = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.bind((from, 0).into()).unwrap();
        streams.push(timeout(PATIENCE, socket.connect(address)).await.expect("no room").unwrap());
    }
    streams
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true)
}

#[tokio::test]
async fn a_crowd_takes_neither_the_daemons_descriptors_nor_other_clients_places() {
    let stage =
        RelayerFixture::set().await.var("MAX_CONNECTIONS_PER_IP", 30).var("TRUSTED_PROXIES", "127.0.0.3");
    // Half of the 160 descriptors are for clients, 30 of these for one address.
    let (daemon, client) = start(&stage.options.clone().descriptors(160)).await;
    let neighbour = client.from_address(Ipv4Addr::new(127, 0, 0, 2));
    let crowd = idle(daemon.url(), [127, 0, 0, 1], 200).await;
    let proxy = idle(daemon.url(), [127, 0, 0, 3], 40).await;
    // All but 30 are refused, and fewer where the first ones were idle for too long before the last arrived.
    let closed = || crowd.iter().filter(|stream| is_closed(stream)).count();
    wait_until("refused", PATIENCE, async || closed() >= 140).await;
    let refused = neighbour.metric("relayer_http_connections_refused_total").await;
    assert!(refused <= 170.0, "the proxy's were refused");
    stage.register(&neighbour, "alice").await;
    drop((crowd, proxy));
    assert!(!daemon.log().contains("connection not accepted"), "{}", daemon.log());
    wait_until("closed", PATIENCE, async || neighbour.metric(OPEN).await == 1.0).await;

    let mut stream = idle(daemon.url(), [127, 0, 0, 1], 1).await.remove(0);
    // The answers exceed any socket's buffers.
    let requests = "GET /openapi.json HTTP/1.1\r\nhost: relayer\r\n\r\n".repeat(1_000);
    let writing = tokio::spawn(async move {
        let _ = stream.write_all(requests.as_bytes()).await;
        stream
    });
    wait_until("connected", PATIENCE, async || neighbour.metric(OPEN).await == 2.0).await;
    wait_until("closed", PATIENCE, async || neighbour.metric(OPEN).await == 1.0).await;
    let mut answers = Vec::new();
    // The connection may end or break off, but not after a thousand descriptions.
    let _ = writing.await.unwrap().read_to_end(&mut answers).await;
    let description = neighbour.get("/openapi.json").await.text;
    assert!(answers.len() < 1_000 * description.len(), "{}", answers.len());
    stage.audit(&neighbour).await;
}

#[tokio::test]
async fn a_burst_waits_until_the_daemon_has_time_and_sigterm_is_heard_though_every_place_is_taken() {
    let stage = RelayerFixture::set().await;
    let (mut daemon, _) = stage.daemon().await;
    daemon.process().signal(Signal::STOP).unwrap();
    let mut burst = idle(daemon.url(), [127, 0, 0, 1], 600).await;
    daemon.process().signal(Signal::CONT).unwrap();
    for client in &mut burst {
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: relayer\r\nConnection: close\r\n\r\n").await.unwrap();
    }
    for client in &mut burst {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    daemon.kill();

    // Several tries, since a busy machine may exceed the daemon's time limit for its end.
    let mut in_time = false;
    for _ in 0..3 {
        in_time = in_time || ends_in_time_though_every_place_is_taken().await;
    }
    assert!(in_time, "no daemon ended in time");
}

async fn ends_in_time_though_every_place_is_taken() -> bool {
    let stage = RelayerFixture::set().await.var("MAX_CONNECTIONS", 8);
    let (mut daemon, client) = stage.daemon().await;
    let posted = stage.leave_pending(&client, &stage.registration("alice")).await;
    // The last ones wait in the kernel's queue.
    let _silent = idle(daemon.url(), [127, 0, 0, 1], 12).await;
    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success(), "{status} after {took:?}");
    let log = daemon.log();
    if took > Duration::from_secs(10) || log.contains("not everything ended in time") {
        println!("ended after {took:?}: {log}");
        return false;
    }
    let told = answer(posted).await;
    assert_eq!((told.status, &told.json()["state"]), (202, &json!("pending")));
    true
}
