//! No party of a fleet delays another's relays: not a stranger with bad signatures, not a customer with a
//! dead receiver, and not a replay. `relayer-daemon/tests/store/server.rs` shows that statements read no more
//! than was asked for, with any amount of rows. Only the long runs (`docs/testing.md`) also check the times.

use std::env;

use crate::fleet::{Fleet, leases_lost, paced};
use crate::prelude::*;
use crate::webhooks::with_receivers;

/// Time within which nearly all relays are executed in spite of a flood.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn badly_signed_requests_from_ever_new_networks_hold_up_no_relay_and_cost_no_lease() {
    let (seconds, per_second) = (number("FLOOD_SECONDS", 5), number("FLOOD_PER_SECOND", 40));
    let stage =
        RelayerFixture::set().await.var("TRUSTED_PROXIES", "127.0.0.1").var("RATE_LIMIT_PER_IP", 1_000);
    let (fleet, _) = Fleet::on(stage, 3, 6, Duration::from_millis(1));
    let (_daemons, clients) = fleet.start().await;
    let victim = fleet.stage.registration("victim").signed.request;
    let forged = fleet.stage.desk.sign(&agent("mallory"), victim).body().to_string();
    let flooded = clients.clone();
    let flood = tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1) / per_second as u32);
        let mut posted = Vec::new();
        for turn in 0..seconds * per_second {
            ticks.tick().await;
            let client = flooded[turn as usize % flooded.len()]
                .forwarded_for(&format!("2001:db8:{:x}:{turn:x}::1", turn / 4));
            let forged = forged.clone();
            posted.push(tokio::spawn(async move { client.post_relay(forged).await.status }));
        }
        join_all(posted).await.into_iter().map(Result::unwrap).collect::<BTreeSet<u16>>()
    });
    let requests = fleet.stage.registrations("beside a flood", 2 * seconds as usize);
    fleet.stage.expect(&requests);
    let own: Vec<Client> = clients.iter().map(|client| client.forwarded_for("198.51.100.7")).collect();
    let [p50, p95] = paced(&own, &requests, 2).await;
    assert_eq!(flood.await.unwrap(), BTreeSet::from([401]), "of badly signed requests");
    let lost = leases_lost(&clients).await;
    println!(
        "{per_second} badly signed requests a second: executed within {p50:.0?} (p50), {p95:.0?} (p95), {lost} leases lost"
    );
    assert_eq!(lost, 0.0, "leases lost");
    assert!(p95 < SOON || env::var("FLOOD_SECONDS").is_err(), "{p95:?}");
    fleet.audit(&clients[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_dead_receiver_and_their_replay_hold_up_no_other_customers_relays() {
    let (events, relays) = (number("EVENTS", 5_000), number("EVENTS_RELAYS", 20) as usize);
    let [dead, other] = [Receiver::start().await.unwrap(), Receiver::start().await.unwrap()];
    dead.answer_by(|_| HookReply::status(503));
    let (stage, keys) = with_receivers(&[&dead, &other]).await;
    let (fleet, _) = Fleet::on(stage, 3, 3, Duration::ZERO);
    let (_daemons, clients) = fleet.start().await;
    let clients: Vec<Client> = clients.iter().map(|client| client.with_key(&keys[1])).collect();
    let stream = async |name: &str| {
        let requests = fleet.stage.registrations(name, relays);
        fleet.stage.expect(&requests);
        let times = paced(&clients, &requests, 8).await;
        println!("{name}: executed within {times:.0?} (p50, p95)");
        times
    };
    // Each connection prepares its statements once.
    stream("first").await;
    let [before, _] = stream("without events").await;
    // Four events a relay: delivered ones, and a fifth as many with the first one due, and as many given up.
    let write_events = |count: u64, due: &str, ended: &str, was_delivered: bool| {
        fleet.postgres.sql(&format!(
            "INSERT INTO s0.webhook_events
                 (id, api_key, relay, body, created_at, expires_at, due_at, ended_at, was_delivered)
             SELECT 'evt', 'key-0', sha256(int8send(n / 4 + {count})), '{{}}', now.s, now.s + 86400, {due}, {ended}, {was_delivered}
             FROM generate_series(0, {count} - 1) AS n,
                 (SELECT CAST(floor(extract(epoch FROM now())) AS BIGINT) AS s) AS now"
        ));
    };
    write_events(events, "NULL", "now.s", true);
    fleet.postgres.sql("ANALYZE s0.webhook_events");
    write_events(events / 5, "CASE WHEN n % 4 = 0 THEN now.s END", "NULL", false);
    let since = Instant::now();
    let [among, _] = stream("among events").await;
    write_events(events / 5 - 4, "NULL", "now.s", false);
    let flags = ["--api-key", "key-0", "--given-up"];
    let (printed, [beside, _]) = tokio::join!(fleet.options[0].replay(&flags), stream("beside a replay"));
    let printed = printed.unwrap();
    assert!(printed.contains(&format!("{} events are delivered once more", events / 5 - 4)), "{printed}");
    assert_eq!(leases_lost(&clients).await, 0.0, "leases lost");
    let (tried, most) = (dead.deliveries().len() as u64, 16 * (since.elapsed().as_secs() + 2));
    assert!((1..=most).contains(&tried), "the dead receiver was tried {tried} times");
    for (times, when) in [(among, "among events"), (beside, "beside a replay")] {
        assert!(times < before * 6 / 5 || env::var("EVENTS").is_err(), "{when}: {times:?}, not {before:?}");
    }
    fleet.audit(&clients[0]).await;
}
