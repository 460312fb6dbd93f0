// What a relay costs the database: the messages to it, and those of them that are waited for.

use super::{Postgres, schema};
use crate::prelude::*;
use relayer_daemon::store::{DaemonId, NonceAssignment, Payer, RelayTerms};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// Counts of what has passed a proxy.
#[derive(Default)]
struct Passed {
    statements: AtomicI64,
    /// Statements that began when the client had all answers.
    waits: AtomicI64,
}

/// Passes messages on, and tells of each its type. The first one of a client has none.
fn pass(mut from: impl Read, mut to: impl Write, mut has_type: bool, mut seen: impl FnMut(u8)) {
    loop {
        let mut head = vec![0; if has_type { 5 } else { 4 }];
        if from.read_exact(&mut head).is_err() {
            return;
        }
        let (kind, size) = head.split_at(head.len() - 4);
        let size = u32::from_be_bytes(size.try_into().unwrap()) as usize - 4;
        let mut rest = vec![0; size];
        from.read_exact(&mut rest).unwrap();
        kind.iter().for_each(|kind| seen(*kind));
        has_type = true;
        if to.write_all(&[head, rest].concat()).is_err() {
            return;
        }
    }
}

/// A proxy before the server's socket; returns its port.
fn proxy(socket: String, passed: Arc<Passed>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), UnixStream::connect(&socket).unwrap());
            client.set_nodelay(true).unwrap();
            // The first answer is to the connection itself.
            let unanswered = Arc::new(AtomicI64::new(1));
            let clone = |stream: &TcpStream| stream.try_clone().unwrap();
            let (up, down) = ((clone(&client), server.try_clone().unwrap()), (server, client));
            let (passed, answered) = (Arc::clone(&passed), Arc::clone(&unanswered));
            thread::spawn(move || {
                pass(up.0, up.1, false, |kind| {
                    if [b'Q', b'E'].contains(&kind) {
                        passed.statements.fetch_add(1, SeqCst);
                    }
                    // A query, or the end of an extended one, is answered by one ReadyForQuery.
                    if [b'Q', b'S'].contains(&kind) && unanswered.fetch_add(1, SeqCst) == 0 {
                        passed.waits.fetch_add(1, SeqCst);
                    }
                })
            });
            thread::spawn(move || {
                pass(down.0, down.1, true, |kind| {
                    if kind == b'Z' {
                        answered.fetch_sub(1, SeqCst);
                    }
                })
            });
        }
    });
    port
}

/// `cargo all-test --test store messages -- --nocapture` prints the numbers.
#[test]
fn a_relay_of_a_fleet_takes_few_messages_to_the_database() {
    const RELAYS: u64 = 20;
    let server = Postgres::start(&["fsync=off"]);
    let url = server.schema();
    let passed = Arc::<Passed>::default();
    let port = proxy(format!("{}/.s.PGSQL.5432", server.host().replace("%2F", "/")), Arc::clone(&passed));
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?options=-csearch_path%3D{}", schema(&url));
    let store = Store::connect(&url).unwrap().of_daemon(DaemonId("a".into()));
    store.beat(&[ACCOUNT], false).unwrap();
    let payer = Payer { account: ACCOUNT, epoch: Some(1) };
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: u128::MAX / 2, shares };
    let cost = ExpectedCost { wei: 9, gas: 9, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    let carry_out = |number: u64| {
        let relay = NewRelay { client: Some("192.0.2.1".parse().unwrap()), ..relay(number) };
        store.charge_rate("ip 192.0.2.1".to_owned(), 1_000_000).unwrap().unwrap();
        assert_eq!(store.outcome(relay.id).unwrap(), None);
        store.charge_rate(format!("signer {}", relay.signer), 10).unwrap().unwrap();
        store.affordable(relay.signer, relay.client, 1, 1, &allowance, NOW).unwrap();
        assert_eq!(store.accept(&relay, NOW).unwrap(), Accepted::Pending);
        store.ahead_of(&relay).unwrap();
        assert_eq!(store.reserve_share(relay.id, &cost, &allowance, NOW).unwrap().denial, None);
        store.sendable(vec![relay.id]).unwrap();
        let nonce = store.next_nonce(ACCOUNT).unwrap().unwrap_or_default();
        store.record(payer, &[signed(nonce, Some(number), number)], NOW).unwrap();
        let terms = RelayTerms { id: relay.id, signer: relay.signer, ..RelayTerms::default() };
        let assignment = NonceAssignment {
            nonce,
            relay: Some(terms),
            transactions: vec![transaction(number, Relay)],
        };
        let inclusion = Inclusion { tx_hash: id(number), block: at(9) };
        let mined = Settlement { assignment, inclusion, paid_wei: 1, outcome: Some(executed(number)) };
        store.settle(payer, &mined, NOW).unwrap();
    };
    // Each connection prepares its statements once.
    (0..RELAYS).for_each(carry_out);
    let counted = || [&passed.statements, &passed.waits].map(|count| count.load(SeqCst));
    let before = counted();
    (RELAYS..2 * RELAYS).for_each(carry_out);
    let after = counted();
    let each = |index: usize| (after[index] - before[index]) as f64 / RELAYS as f64;
    println!("{:.1} messages a relay, {:.1} of them waited for", each(0), each(1));
    assert!(each(0) < 39.0, "{} messages", each(0));
}
