//! What an operator sees: the dashboard and the alerts are about metrics that exist, and a collector gets
//! traces and metrics.
//!
//! 1. Every metric and label in `relayer-daemon/ops` is one of a running daemon's; a fleet's are on the
//!    dashboard.
//! 2. With a collector: spans of one relay in its client's trace, and the metrics of `/metrics`; no secrets.
//! 3. A collector that is down holds up no relay, and the log says so once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use e2e::daemon::Daemon;
use e2e::hooks::{Delivery, Receiver, Reply};
use e2e::process::{eventually, free_port};
use e2e::relay::RelayClient;
use e2e::repo;
use serde_json::Value;

use crate::audit::{PATIENCE, Stage, agent};

/// The labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

/// The samples of `/metrics`: each name with the values of its labels.
async fn samples(client: &RelayClient) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let mut samples: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for line in client.get("/metrics").await.text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let known = samples.entry(name.to_owned()).or_default();
        let labels =
            line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
        for pair in labels.split("\",").filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once("=\"").unwrap();
            known.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    samples
}

/// What an expression names and the daemon lacks.
fn unknown(expression: &str, samples: &BTreeMap<String, BTreeMap<String, BTreeSet<String>>>) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut labels: BTreeSet<&str> = ADDED.into();
    for (start, _) in expression.match_indices("relayer_") {
        let rest = &expression[start..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let Some(known) = samples.get(name) else {
            unknown.push(name.to_owned());
            continue;
        };
        labels.extend(known.keys().map(String::as_str));
        let matchers =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inner, _)| inner);
        for matcher in matchers.split("\",").filter(|matcher| !matcher.is_empty()) {
            let at = matcher.find(['=', '!']).unwrap();
            let (label, value) = (
                &matcher[..at],
                matcher[at..].trim_start_matches(['=', '!', '~', '"']).trim_end_matches('"'),
            );
            let Some(values) = known.get(label) else {
                if !ADDED.contains(&label) {
                    unknown.push(format!("{name}{{{label}}}"));
                }
                continue;
            };
            // Statuses appear as they come; the other sets are closed.
            if label != "status" {
                let missing = value.split('|').filter(|value| !values.contains(*value));
                unknown.extend(missing.map(|value| format!("{name}{{{label}={value}}}")));
            }
        }
    }
    for by in expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next()) {
        unknown.extend(
            by.split(", ").filter(|label| !labels.contains(label)).map(|label| format!("by {label}")),
        );
    }
    unknown
}

#[tokio::test]
async fn every_metric_in_dashboard_and_alerts_is_one_of_the_daemons() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    client.relay(&stage.desk.registration(&agent("alice"), 0)).await.ok();
    // A call without an answer, so that every result has been seen.
    stage.proxy.inject(e2e::fault::Rule::any(e2e::fault::Fault::Refuse).once());
    client.get("/status").await;
    stage.proxy.heal();
    let samples = samples(&client).await;
    let ops = repo::root().join("relayer-daemon/ops");
    let alerts = fs::read_to_string(ops.join("alerts.yaml")).unwrap();
    let mut expressions: Vec<String> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect();
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(ops.join("dashboard.json")).unwrap()).unwrap();
    let mut shown = String::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            shown.push_str(expression);
            expressions.push(expression.to_owned());
        }
    }
    for of_fleets in ["fleet_daemons{", "leases{", "leases_lost_total{", "relays_claimed_total{"] {
        assert!(shown.contains(&format!("relayer_{of_fleets}")), "{of_fleets} is on no panel");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        expressions.push(variable["query"].as_str().unwrap().to_owned());
    }
    assert!(expressions.len() > 40, "only {} expressions: what was read?", expressions.len());
    for expression in &expressions {
        assert_eq!(unknown(expression, &samples), Vec::<String>::new(), "{expression}");
    }
    // The check itself finds what is wrong.
    for (wrong, found) in [
        ("rate(relayer_relay_total[5m])", "relayer_relay_total"),
        ("relayer_relays_total{states=\"executed\"}", "relayer_relays_total{states}"),
        ("relayer_relays_total{state=\"done\"}", "relayer_relays_total{state=done}"),
        ("sum by (code) (relayer_relays_total)", "by code"),
    ] {
        assert_eq!(unknown(wrong, &samples), [found]);
    }
}

/// The spans that a collector got: name, trace, parent and attributes.
fn spans(collector: &Receiver) -> Vec<Value> {
    let posts = collector.deliveries();
    let traces = posts.iter().filter(|post| post.path == "/v1/traces").map(Delivery::json);
    traces
        .flat_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone())
        .collect()
}

fn metric_names(collector: &Receiver) -> BTreeSet<String> {
    let posts = collector.deliveries();
    let Some(last) = posts.iter().rfind(|post| post.path == "/v1/metrics") else { return BTreeSet::new() };
    let metrics = last.json()["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap().clone();
    metrics.iter().map(|metric| metric["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_collector_gets_the_spans_of_a_relay_in_its_clients_trace_and_all_metrics() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let stage = Stage::set().await;
    let collector = Receiver::start().await.unwrap();
    let options = stage
        .options
        .clone()
        .var("OTEL_EXPORTER_OTLP_ENDPOINT", collector.origin())
        .var("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer t0ken")
        .var("OTEL_SERVICE_NAME", "relayer-under-test")
        .var("OTEL_METRIC_EXPORT_INTERVAL", 500);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client().with("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01"));
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    let named = |spans: &[Value], name: &str| spans.iter().find(|span| span["name"] == name).cloned();
    let all = eventually("traced", PATIENCE, async || {
        let spans = spans(&collector);
        ["http", "relay.admit", "relay.check", "rpc", "sender.sign", "sender.send", "sender.settle"]
            .iter()
            .all(|name| named(&spans, name).is_some())
            .then_some(spans)
    })
    .await
    .unwrap();
    let http = all.iter().find(|span| span["name"] == "http" && span["traceId"] == TRACE).unwrap();
    assert_eq!((&http["parentSpanId"], &http["kind"]), (&"b7ad6b7169203331".into(), &2.into()));
    let (admit, check) = (named(&all, "relay.admit").unwrap(), named(&all, "relay.check").unwrap());
    assert_eq!((&admit["traceId"], &admit["parentSpanId"]), (&TRACE.into(), &http["spanId"]));
    assert_eq!((&check["traceId"], &check["parentSpanId"]), (&TRACE.into(), &admit["spanId"]));
    let call = all.iter().find(|span| span["name"] == "rpc" && span["parentSpanId"] == check["spanId"]);
    assert_eq!(call.unwrap()["kind"], 3);
    let id = request.id.to_string();
    for name in ["sender.sign", "sender.send", "sender.settle"] {
        assert!(named(&all, name).unwrap()["attributes"].to_string().contains(&id), "{name}");
    }
    eventually("measured", PATIENCE, async || {
        let text = client.get("/metrics").await.text;
        let families: BTreeSet<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned))
            .collect();
        (metric_names(&collector) == families).then_some(())
    })
    .await
    .unwrap();
    let posts = collector.deliveries();
    for post in &posts {
        assert_eq!(post.headers["authorization"], "Bearer t0ken");
        assert!(post.body.contains("relayer-under-test"), "{}", post.body);
    }
    let bodies: String = posts.iter().map(|post| post.body.as_str()).collect();
    let data = request.signed.request.data.to_string();
    assert!(!bodies.contains(&data[2..]), "calldata is in a span");
    let log = daemon.kill();
    assert!(!log.contains("t0ken") && !log.contains("relayer_spans"), "spans or a header are in the log");
}

#[tokio::test]
async fn a_collector_that_is_down_holds_up_no_relay_and_the_log_says_so_once() {
    let stage = Stage::set().await;
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    let options = stage
        .options
        .clone()
        .var("OTEL_EXPORTER_OTLP_ENDPOINT", dead)
        .var("OTEL_METRIC_EXPORT_INTERVAL", 100);
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let requests: Vec<_> =
        (0..5).map(|index| stage.desk.registration(&agent(&format!("{index}")), 0)).collect();
    for request in &requests {
        client.relay(request).await.ok();
    }
    daemon.logged(&["collector takes nothing", "cannot be reached"], PATIENCE).await.unwrap();
    stage.audit(&client, &requests.iter().collect::<Vec<_>>()).await;
    assert_eq!(daemon.log().matches("collector takes nothing").count(), 1);

    // One that refuses is as good as none; one that is wrong stops the start.
    let refusing = Receiver::start().await.unwrap();
    refusing.answer_by(|_| Reply::status(503));
    let options = options.var("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://s3cr3t/");
    daemon.terminate().await.unwrap();
    let refused = Daemon::refuse(&options).await.unwrap();
    assert!(refused.contains("✗ telemetry") && !refused.contains("s3cr3t"), "{refused}");
    let mut daemon =
        Daemon::start(&options.var("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.origin())).await.unwrap();
    daemon.logged(&["collector takes nothing", "status 503"], PATIENCE).await.unwrap();
}
