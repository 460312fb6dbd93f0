use super::*;

const REGISTRY: (&str, &str) = ("REGISTRY_ADDRESS", "0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");

fn parse(variables: &[(&str, &str)]) -> Result<Settings, Error> {
    let variable = |name: &str| {
        let mut found = variables.iter().chain([&REGISTRY]).filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| (*value).to_owned())
    };
    let variables = Variables(&variable);
    Settings::parse(Rc::new(WorkerSettings::parse(&variables)?), &variables)
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = parse(&[]).unwrap();
    assert_eq!(settings.limits.client, WindowLimit { requests: 60, window_seconds: 60 });
    assert_eq!(settings.limits.site, WindowLimit { requests: 600, window_seconds: 60 });
    assert_eq!((settings.limiter_mode, settings.stream_seconds), (LimiterMode::Kv, 300));
    assert_eq!(settings.streams, LeaseLimits { per_holder: 10, per_instance: 500 });
}

#[test]
fn an_upstream_is_named_by_chain_and_endpoints_and_discloses_no_key() {
    let names = [
        &[("RPC_URL", "https://rpc.example/k3y")][..],
        &[("RPC_URL", "https://rpc.example/0ther")],
        &[("RPC_URL", "https://user:k3y@rpc.example/k3y")],
        &[("RPC_URL", "https://rpc.example/k3y"), ("CHAIN_ID", "5")],
        &[("RPC_URL", "https://rpc.example/k3y https://b.example"), ("CHAIN_ID", "5")],
    ]
    .map(|variables| parse(variables).unwrap().upstream);
    for (place, name) in names.iter().enumerate() {
        assert!(!names.iter().take(place).any(|other| other == name), "{names:?}");
        assert!(!name.contains("k3y") && !name.contains("rpc"), "{name}");
    }
    assert!(names[3].starts_with("5-"), "{}", names[3]);
}

#[test]
fn the_registrys_document_needs_the_chain() {
    let relayers = ("RELAYER_URLS", "https://a.example, https://b.example/v1");
    let document = |variables: &[_]| parse(variables).unwrap().well_known;
    assert_eq!(document(&[("RPC_URL", "https://rpc.example"), relayers]), None);
    let document = document(&[("CHAIN_ID", "84532"), relayers]).unwrap();
    assert_eq!((document.chain_id, document.relayers.len(), document.forwarder), (84_532, 2, None));
}

#[test]
fn verdicts_name_chain_and_registry_where_the_chain_is_configured() {
    let registry = |variables| parse(variables).unwrap().registry;
    assert_eq!(registry(&[]), None);
    let named = registry(&[("RPC_URL", "https://rpc.example"), ("CHAIN_ID", "5")]);
    assert_eq!(named.as_deref(), Some("eip155:5:0x2efab5b3bef49e56a6ce1dcb1a39ef63c312ea23"));
}

#[test]
fn what_breaks_a_rule_is_named_with_the_rule_and_without_its_value() {
    for (name, value, rule) in [
        ("RPC_URL", "wss://s3cret", "RPC_URL must be"),
        ("RATE_LIMIT_WINDOW_SECONDS", "0", "RATE_LIMIT_WINDOW_SECONDS must be 1 to 3600 seconds"),
        ("RATE_LIMIT_PER_MINUTE", "-1", "RATE_LIMIT_PER_MINUTE must be a whole number of at least 0"),
        ("KYA_SOURCE", "s3cret", "KYA_SOURCE must be snapshot or chain"),
        ("KYA_SOURCE", "snapshot", "KYA_SOURCE is snapshot, which the index keeps"),
        ("RATE_LIMITER", "s3cret", "RATE_LIMITER must be kv or binding"),
        ("RELAYER_URLS", "https://a.example, https://s3cret@b", "RELAYER_URLS must be http or https URLs"),
        ("DOCUMENT_URLS", "s3cret", "DOCUMENT_URLS must be http or https URLs"),
        ("FORWARDER_ADDRESS", "0xs3cret", "FORWARDER_ADDRESS: "),
        ("MCP_ORIGINS", "https://a.example,s3cret", "MCP_ORIGINS must be origins"),
    ] {
        let Err(Error::Misconfigured(message)) = parse(&[(name, value)]) else { panic!("{name}") };
        assert!(message.starts_with(rule) && !message.contains("s3cret"), "{message}");
    }
}

#[test]
fn a_limiter_needs_its_binding_alone_and_no_limit_needs_none() {
    for (mode, binding) in [("kv", KV_BINDING), ("binding", RATE_BINDING)] {
        let settings = parse(&[("RATE_LIMITER", mode)]).unwrap();
        assert_eq!(settings.check_limiter(&|bound| bound == binding), Ok(()));
        let missing = settings.check_limiter(&|bound| bound != binding).map_err(|error| error.to_string());
        let expected =
            format!("Misconfigured: RATE_LIMITER is {mode}, but the Worker has no binding {binding}");
        assert_eq!(missing, Err(expected));
    }
    assert_eq!(parse(&[("RATE_LIMIT_PER_MINUTE", "0")]).unwrap().check_limiter(&|_| false), Ok(()));
}

#[test]
fn no_limit_for_clients_is_none_for_sites_either_unless_set() {
    let off = parse(&[("RATE_LIMIT_PER_MINUTE", "0")]).unwrap().limits;
    assert_eq!((off.client.requests, off.site.requests), (0, 0));
    let site = parse(&[("RATE_LIMIT_PER_MINUTE", "0"), ("RATE_LIMIT_PER_MINUTE_IPV6_48", "7")]).unwrap();
    assert_eq!((site.limits.client.requests, site.limits.site.requests), (0, 7));
}

#[test]
fn mcp_answers_pages_of_the_operators_origins_alone_where_there_are_any() {
    for (variables, origin, taken) in [
        (&[][..], Some("https://any.example"), true),
        (&[("MCP_ORIGINS", "https://a.example, http://b:8080")], Some("http://b:8080"), true),
        (&[("MCP_ORIGINS", "https://a.example")], None, true),
        (&[("MCP_ORIGINS", "https://a.example")], Some("https://b.example"), false),
        (&[("MCP_ORIGINS", "https://a.example")], Some("null"), false),
    ] {
        assert_eq!(parse(variables).unwrap().takes_mcp_of(origin), taken, "{variables:?} {origin:?}");
    }
}

/// RFC 7515, appendix A.3.
const KEY: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}]}"#;

#[test]
fn verdicts_are_signed_by_a_key_an_issuer_and_for_a_chain() {
    let issuer = ("VERDICT_ISSUER", "https://kya.example");
    let chain = [("CHAIN_ID", "8453"), ("RPC_URL", "https://rpc.example")];
    let with = |variables: &[(&str, &str)]| parse(&[&chain[..], variables].concat());
    assert!(parse(&[]).unwrap().signing.is_none());
    let signing = with(&[("VERDICT_KEYS", KEY), issuer]).unwrap().signing.unwrap();
    assert_eq!((signing.issuer.as_str(), signing.chain_id), ("https://kya.example", 8453));
    let public = KEY.replace("\"d\"", "\"e\"");
    for (variables, rule) in [
        (vec![("VERDICT_KEYS", "s3cret"), issuer], "VERDICT_KEYS must be a JWK set"),
        (
            vec![("VERDICT_KEYS", public.as_str()), issuer],
            "VERDICT_KEYS key 1: signs, so that it needs its d",
        ),
        (vec![("VERDICT_KEYS", KEY)], "VERDICT_ISSUER is not set; where VERDICT_KEYS is set"),
        (vec![issuer], "VERDICT_KEYS is not set; where VERDICT_ISSUER is set"),
        (vec![("VERDICT_ISSUER", "s3cret")], "VERDICT_ISSUER must be an origin"),
        (vec![("VERDICT_KEYS", KEY), ("VERDICT_ISSUER", "s3cret")], "VERDICT_ISSUER must be an origin"),
    ] {
        let Err(Error::Misconfigured(message)) = with(&variables) else { panic!("{variables:?}") };
        assert!(message.starts_with(rule) && !message.contains("s3cret"), "{message}");
    }
    let Err(Error::Misconfigured(message)) = parse(&[("VERDICT_KEYS", KEY), issuer]) else { panic!() };
    assert!(message.starts_with("CHAIN_ID is not set; where VERDICT_KEYS is set"), "{message}");
}
