use super::*;
use registry_core::{gate::Posture, registry::kya::Decision};

const MINIMAL: &str = r#"
listen = "127.0.0.1:4180"
origin = "https://api.example"

[proxy]
target = "X-Original-URI"
method-header = "X-Original-Method"

[chain]
id = 8453
rpc = ["https://rpc.example/k3y"]

[kya]
registry = "0x00000000000000000000000000000000000000aa"

[policy.api]
allow = ["provision"]
"#;

const ALLOW: &str = "allow = [\"provision\"]";

fn error(text: &str, rpc: Option<&str>) -> String {
    format!("{:#}", Settings::parse(text, rpc).unwrap_err())
}

#[test]
fn a_short_file_suffices() {
    let settings = Settings::parse(MINIMAL, None).unwrap();
    let policy = &settings.policies["api"];
    assert_eq!((policy.origin.scheme(), policy.origin.authority()), ("https", "api.example"));
    assert_eq!((policy.rules.chain, policy.rules.longest_validity), (8453, 60));
    assert_eq!(policy.rules.dialects, Dialect::ALL);
    assert_eq!((policy.rules.posture, policy.observe), (Posture::Universal, false));
    assert_eq!(policy.agents.allow, [Decision::Provision]);
    assert_eq!(settings.proxy.target, TargetSource::Header("x-original-uri".to_owned()));
    assert_eq!(settings.proxy.content, ContentSource::Withheld(None));
    assert_eq!(settings.nonces, NonceSettings::Memory { capacity: 1_000_000 });
    assert_eq!(settings.kya.cached, Duration::from_secs(60));
    assert!(settings.signing.is_none() && settings.records.is_none());
    // The policy's own origin may be the gate's, written out.
    let routes = "[policy.api]\norigin = \"https://API.example:443\"\nroutes = [\"default\"]";
    let settings = Settings::parse(&MINIMAL.replace("[policy.api]", routes), None).unwrap();
    assert_eq!(settings.policies["api"].routes, ["default"]);
}

#[test]
fn endpoints_with_keys_come_from_the_environment() {
    let without = MINIMAL.replace("rpc = [\"https://rpc.example/k3y\"]", "");
    let settings = Settings::parse(&without, Some("https://a.example/k3y, https://b.example")).unwrap();
    assert_eq!(settings.chain.rpc.len(), 2);
    assert!(error(&without, None).contains("KYA_GATE_RPC_URL"));
    let broken = error(&without, Some("k3y"));
    assert!(broken.contains("must be URLs") && !broken.contains("k3y"), "{broken}");
}

#[test]
fn errors_of_the_file_name_the_line_and_quote_no_key_of_it() {
    let redis = "[redis]\nurl = \"rediss://:k3y@redis.example/1\"";
    let rpc = "[\"https://rpc.example/k3y\"]";
    for (from, to, words) in [
        (rpc, "\"https://rpc.example/k3y\"", "line 11: rpc: invalid type: string"),
        (rpc, "[\"rpc.example/k3y\"]", "line 11: rpc: relative URL"),
        ("k3y\"]", "k3y]", "line 13: [kya]: "),
        (rpc, "[\"https://rpc.example/k3y\", 7]", "line 11: rpc: invalid type: integer"),
        ("[kya]", &format!("{redis}7\n[kya]"), "line 14: url: "),
        ("[kya]", &format!("{redis}\nprefix = 7\n[kya]"), "line 15: prefix: invalid type"),
        ("[kya]", "[redis]\nurl = [\"rediss://:k3y@redis.example/1\"]\n[kya]", "line 14: url: invalid type"),
    ] {
        assert_eq!(MINIMAL.matches(from).count(), 1, "{from}");
        let message = error(&MINIMAL.replace(from, to), None);
        assert!(message.starts_with(words) && !message.contains("k3y"), "{to}: {message}");
    }
}

#[test]
fn a_gate_inside_a_service_has_no_port_and_no_proxy() {
    let (before, rest) = MINIMAL.split_once("[proxy]").unwrap();
    let (_, after) = rest.split_once("[chain]").unwrap();
    let origin = before.replace("listen = \"127.0.0.1:4180\"\n", "");
    let settings = Settings::parse_embedded(&format!("{origin}[chain]{after}"), None).unwrap();
    assert_eq!((settings.proxy.target, settings.proxy.content), (TargetSource::Path, ContentSource::Passed));
    for (text, words) in [
        (MINIMAL, "listen: means nothing"),
        ("[proxy]\n", "proxy: means nothing"),
        ("origin = 7\n", "line 1: origin: invalid type"),
    ] {
        let message = format!("{:#}", Settings::parse_embedded(text, None).unwrap_err());
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn nonces_are_in_redis_where_it_is_named_and_its_password_is_in_no_message() {
    let shared = MINIMAL.replace("[chain]", "[redis]\nurl = \"rediss://:k3y@redis.example/1\"\n[chain]");
    let settings = Settings::parse(&shared, None).unwrap();
    let NonceSettings::Redis(redis) = &settings.nonces else { panic!("{settings:?}") };
    assert_eq!((redis.url.as_str(), redis.prefix.as_str()), ("rediss://:k3y@redis.example/1", "kya-gate:"));
    assert!(!format!("{settings:?}").contains(":k3y@"));
    let both = error(&shared.replace("listen =", "nonces = 5\nlisten ="), None);
    assert!(both.contains("nonces: means nothing"), "{both}");
}

#[test]
fn every_mistake_is_named_with_its_place() {
    for (line, words) in [
        ("longest-validity = 59", "from 60 to 3600"),
        ("liable.basis = []", "must name what counts"),
        ("wallets = []", "api: wallets: must name at least one"),
        ("liable.allow = []", "liable.allow: must name"),
        ("liable.domains = []", "liable.domains: must name"),
        ("liable.domains = [\"xn--a.example\"]", "liable.domains: "),
        ("creators.allow = []", "creators.allow: must name"),
        ("liable.allow = [\"0xcA11bde05977b3631167028862bE2a173976CA11\"]", "calls for anyone"),
        ("liable.basis = [\"proved\"]", "liable.basis"),
        ("liable.attested-days = 9", "needs liable.allow"),
        ("components = [\"@path\"]", "components"),
        ("components = [\"a\", \"b\", \"a\"]", "components: a is named twice"),
        ("alow = []", "unknown field `alow`"),
        ("routes = [\"/a*\"]", "routes: \"/a*\" must be"),
        ("routes = [\"/\", \"/\"]", "routes: / is named twice"),
        ("origin = \"http://b\"\nroutes = [\"/a\"]", "routes: are listed for the gate's own origin"),
        ("websocket-paths = [\"default\"]", "websocket-paths: \"default\" must be a path"),
    ] {
        let message = error(&MINIMAL.replace(ALLOW, &format!("{ALLOW}\n{line}")), None);
        assert!(message.contains(words), "{line}: {message}");
    }
    for (from, to, words) in [
        ("https://api.example", "https://api.example/v1", "origin: must be"),
        ("https://api.example", "https://api.example:", "origin: must be"),
        (ALLOW, "allow = []", "policy.api: allow"),
        (ALLOW, "allow = [\"serve\"]", "unknown variant `serve`"),
        ("[policy.api]", "[policy.\"a/b\"]", "policy.a/b: a name"),
        ("method-header = \"X-Original-Method\"", "", "proxy.method-header: is needed"),
        ("target = \"X-Original-URI\"", "target = \"X Original\"", "proxy.target: must be the name"),
        ("method-header", "networks = [\"0.0.0.0/0\"]\nmethod-header", "proxy.networks: \"0.0.0.0/0\" would"),
        ("registry = \"0x00000000000000000000000000000000000000aa\"", "", "kya.registry: is needed"),
        ("registry =", "follow-changes = true\nregistry =", "kya.follow-changes"),
        ("id = 8453", "id = 0", "chain.id"),
        ("id = 8453", "id = 1\nreads-in-flight = 0", "chain.reads-in-flight"),
        ("id = 8453", "id = 1\nreads-per-second = 0", "chain.reads-per-second"),
        ("listen = \"127.0.0.1:4180\"", "listen = \"127.0.0.1\"", "listen"),
        ("listen =", "nonces = 0\nlisten =", "nonces"),
        ("[chain]", "[redis]\n[chain]", "redis.url: is needed, here or in KYA_GATE_REDIS_URL"),
        ("[chain]", "[redis]\nurl = \"http://k3y@a\"\n[chain]", "redis.url: must be a URL of Redis"),
        ("[chain]", "[redis]\nport = 1\n[chain]", "unknown field `port`"),
        ("listen =", "dialects = []\nlisten =", "dialects"),
        ("[kya]", "[verdict]\nissuer = \"a\"\nkeys = \"a\"\n[kya]", "verdict.issuer: must be an origin"),
        ("[kya]", "[verdict]\nissuer = \"https://kya.example\"\n[kya]", "missing field `keys`"),
        ("[kya]", "[liable]\nrefresh-seconds = 10801\n[kya]", "refresh-seconds: must be from 1 to 10800"),
        ("[kya]", "[records]\nfile = \"a\"\n[kya]", "records: need [verdict]"),
    ] {
        assert_eq!(MINIMAL.matches(from).count(), 1, "{from}");
        let message = error(&MINIMAL.replace(from, to), None);
        assert!(message.contains(words), "{to}: {message}");
    }
}

#[test]
fn records_need_keys_and_their_evidence_a_registry() {
    let tables = "[verdict]\nissuer = \"https://kya.example\"\nkeys = \"keys.json\"\n\n[records]\nfile = \"a\"\nevidence = true\n\n[kya]";
    let text = MINIMAL.replace("[kya]", tables);
    let records = Settings::parse(&text, None).unwrap().records.unwrap();
    assert_eq!((records.file.as_path(), records.evidence), (Path::new("a"), true));
    let hash = keccak256(r#"{"allow":["provision"],"liable":{"deny":[]},"routes":[]}"#);
    let table = text.replace("[policy.api]", "[policy.api]\nroutes = []\nliable = { deny = [] }");
    assert_eq!(Settings::parse(&table, None).unwrap().policy_hashes["api"], hash);
    let with_api = text.replace("[kya]\nregistry", "[kya]\napi = \"https://a.example\"\nregistry");
    assert!(error(&with_api, None).contains("records.evidence: needs the registry itself"));
    assert!(Settings::parse(&with_api.replace("evidence = true", ""), None).is_ok());
}
