//! The operator's view: dashboard and alerts name existing metrics, and a collector gets traces and metrics
//! without secrets. A collector that is down delays no relay, and the log reports it once.

use e2e::ops::{expressions, unknown};

use crate::prelude::*;

#[tokio::test]
async fn every_metric_in_dashboard_and_alerts_is_one_of_the_daemons() {
    let stage = RelayerFixture::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
    // A call without an answer, so that every result has a sample.
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse).once());
    client.get("/status").await;
    let metrics = client.get("/metrics").await.text;
    let expressions = expressions("relayer-daemon").unwrap();
    for of_fleets in ["fleet_daemons{", "leases{", "leases_lost_total{", "relays_claimed_total{"] {
        assert!(expressions.iter().any(|shown| shown.contains(of_fleets)), "{of_fleets} is on no panel");
    }
    assert!(expressions.len() > 40, "only {} expressions: what was read?", expressions.len());
    for expression in &expressions {
        assert_eq!(unknown(expression, &metrics, "relayer_"), Vec::<String>::new(), "{expression}");
    }
    // The check itself detects wrong expressions.
    for (wrong, found) in [
        ("rate(relayer_relay_total[5m])", "relayer_relay_total"),
        ("relayer_relays_total{states=\"executed\"}", "states=executed"),
        ("relayer_relays_total{state=\"done\"}", "state=done"),
        ("sum by (code) (relayer_relays_total)", "by code"),
    ] {
        assert_eq!(unknown(wrong, &metrics, "relayer_"), [found]);
    }
}

#[tokio::test]
async fn a_collector_gets_a_relays_spans_and_metrics_and_one_that_refuses_holds_up_no_relay() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = Receiver::start().await.unwrap();
    let stage = RelayerFixture::set().await.var("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let stage = stage.var("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer t0ken");
    let stage = stage.var("OTEL_SERVICE_NAME", "relayer-under-test").var("OTEL_METRIC_EXPORT_INTERVAL", 500);
    let (mut daemon, client) = stage.daemon().await;
    let traced = client.with("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01"));
    let request = stage.registration("alice");
    stage.relay(&traced, &request).await;
    let bodies = |path: &'static str| {
        let posts = collector.deliveries().into_iter().filter(move |post| post.path == path);
        posts.map(|post| post.json()).collect::<Vec<_>>()
    };
    let names = ["relay.admit", "relay.check", "rpc", "sender.sign", "sender.send", "sender.settle"];
    let spans = eventually("traced", PATIENCE, async || {
        let spans =
            |body: &Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        let spans: Vec<Value> = bodies("/v1/traces").iter().flat_map(spans).collect();
        names.iter().all(|name| spans.iter().any(|span| span["name"] == *name)).then_some(spans)
    })
    .await
    .unwrap();
    let id = request.id.to_string();
    let is_of_client = |span: &Value| span["name"] == "http" && span["traceId"] == TRACE;
    assert!(spans.iter().any(is_of_client), "the client's trace");
    for name in &names[3..] {
        let is_about = |span: &Value| span["name"] == *name && span["attributes"].to_string().contains(&id);
        assert!(spans.iter().any(is_about), "{name}");
    }
    let is_measured = |body: &Value| body.to_string().contains("relayer_relays_total");
    wait_until("measured", PATIENCE, async || bodies("/v1/metrics").iter().any(is_measured)).await;
    let data = request.signed.request.data.to_string();
    for post in collector.deliveries() {
        assert_eq!(post.header("authorization"), "Bearer t0ken");
        assert!(post.body.contains("relayer-under-test"), "{}", post.body);
        assert!(!post.body.contains(&data[2..]), "calldata is in a span");
    }
    collector.answer_by(|_| HookReply::status(503));
    daemon.logged(&["collector takes nothing", "status 503"]).await.unwrap();
    stage.register(&client, "bob").await;
    stage.audit(&client).await;
    let log = daemon.kill();
    assert_eq!(log.matches("collector takes nothing").count(), 1);
    assert!(!log.contains("t0ken") && !log.contains("relayer_spans"), "spans or a header are in the log");
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let collector = Receiver::start().await.unwrap();
    collector.answer_by(|_| HookReply { after: PATIENCE, ..HookReply::status(200) });
    let stage = RelayerFixture::set().await.var("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let (mut daemon, _) = stage.var("OTEL_METRIC_EXPORT_INTERVAL", 500).daemon().await;
    collector.take();
    wait_until("asked again", PATIENCE, async || !collector.take().is_empty()).await;
    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success(), "{status} after {took:?}");
    // An export's time-out is longer than the limit for all parts to end.
    assert!(!daemon.log().contains("not everything ended in time"), "{}", daemon.log());
}
