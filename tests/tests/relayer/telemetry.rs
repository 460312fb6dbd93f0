//! What an operator sees: the dashboard and the alerts are about metrics that exist, and a collector gets
//! traces and metrics, without secrets. One that is down holds up no relay, and the log says so once.

use e2e::repo;

use crate::prelude::*;

/// The labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

/// What an expression names that is not in the daemon's metrics.
fn unknown(expression: &str, metrics: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = expression.split(|c| !is_word(c)).filter(|word| word.starts_with("relayer_"));
    let (mut unknown, mut samples) = (Vec::new(), String::new());
    for name in names {
        let found = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let found: Vec<&str> = found.collect();
        samples.push_str(&found.join("\n"));
        unknown.extend(found.is_empty().then(|| name.to_owned()));
    }
    // Statuses appear as they come; the sets of the other labels' values are closed.
    let has = |label: &str, value: &str| {
        let value = if label == "status" { "" } else { value };
        let is_sample = |before| samples.contains(&format!("{before}{label}=\"{value}"));
        ADDED.contains(&label) || is_sample('{') || is_sample(',')
    };
    let grouped = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    let grouped = grouped.flat_map(|labels| labels.split(", ")).filter(|label| !has(label, ""));
    unknown.extend(grouped.map(|label| format!("by {label}")));
    for matcher in expression.split('"').collect::<Vec<_>>().chunks_exact(2) {
        let label = matcher[0].trim_end_matches(['=', '!', '~']).rsplit(|c| !is_word(c)).next().unwrap();
        let values = matcher[1].split('|').filter(|value| !has(label, &format!("{value}\"")));
        unknown.extend(values.map(|value| format!("{label}={value}")));
    }
    unknown
}

#[tokio::test]
async fn every_metric_in_dashboard_and_alerts_is_one_of_the_daemons() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
    // A call without an answer, so that every result has been seen.
    stage.proxy.inject(Rule::any(Fault::Refuse).once());
    client.get("/status").await;
    let metrics = client.get("/metrics").await.text;
    let ops = |file: &str| fs::read_to_string(repo::root().join("relayer-daemon/ops").join(file)).unwrap();
    let (alerts, dashboard) = (ops("alerts.yaml"), ops("dashboard.json"));
    let alerts = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned));
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    for of_fleets in ["fleet_daemons{", "leases{", "leases_lost_total{", "relays_claimed_total{"] {
        assert!(shown.iter().any(|shown| shown.contains(of_fleets)), "{of_fleets} is on no panel");
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables = variables.map(|variable| variable["query"].as_str().unwrap().to_owned());
    let expressions: Vec<String> = alerts.chain(shown).chain(variables).collect();
    assert!(expressions.len() > 40, "only {} expressions: what was read?", expressions.len());
    for expression in &expressions {
        assert_eq!(unknown(expression, &metrics), Vec::<String>::new(), "{expression}");
    }
    // The check itself finds what is wrong.
    for (wrong, found) in [
        ("rate(relayer_relay_total[5m])", "relayer_relay_total"),
        ("relayer_relays_total{states=\"executed\"}", "states=executed"),
        ("relayer_relays_total{state=\"done\"}", "state=done"),
        ("sum by (code) (relayer_relays_total)", "by code"),
    ] {
        assert_eq!(unknown(wrong, &metrics), [found]);
    }
}

#[tokio::test]
async fn a_collector_gets_a_relays_spans_and_metrics_and_one_that_refuses_holds_up_no_relay() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = Receiver::start().await.unwrap();
    let stage = Stage::set().await.var("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
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
    assert!(
        spans.iter().any(|span| span["name"] == "http" && span["traceId"] == TRACE),
        "the client's trace"
    );
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
    collector.answer_by(|_| Reply::status(503));
    daemon.logged(&["collector takes nothing", "status 503"]).await.unwrap();
    stage.register(&client, "bob").await;
    stage.audit(&client).await;
    let log = daemon.kill();
    assert_eq!(log.matches("collector takes nothing").count(), 1);
    assert!(!log.contains("t0ken") && !log.contains("relayer_spans"), "spans or a header are in the log");
}
