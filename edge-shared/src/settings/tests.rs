use super::*;

const REGISTRY: (&str, &str) = ("REGISTRY_ADDRESS", "0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");

fn parse(variables: &[(&str, &str)]) -> Result<WorkerSettings, Error> {
    let variable = |name: &str| {
        let mut found = variables.iter().chain([&REGISTRY]).filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| (*value).to_owned())
    };
    WorkerSettings::parse(&Variables(&variable))
}

#[test]
fn defaults_are_the_documented_ones() {
    let settings = parse(&[("RPC_URL", " ")]).unwrap();
    assert_eq!(settings.public_rpc, "https://sepolia.base.org");
    assert_eq!(settings.max_head_age_seconds, 60);
    assert_eq!((settings.rpc_timeout_seconds, settings.rpc_deadline_seconds), (4, 15));
    assert_eq!((settings.index_mode, settings.hedges), (IndexMode::Off, true));
    assert_eq!((settings.index_location, settings.spot_checks), (None, 2));
    assert_eq!(parse(&[("INDEX_LOCATION_HINT", "weur")]).unwrap().index_location, Some("weur"));
    assert_eq!((settings.chain_id, settings.follow_seconds()), (None, 10));
    let short = |ttl: &str| parse(&[("KYA_TTL_SECONDS", ttl)]).unwrap().follow_seconds();
    assert_eq!(["0", "4", "11"].map(short), [1, 4, 10]);
    let scopes = [CacheScope::Agent, CacheScope::Lineage, CacheScope::Kya, CacheScope::None];
    assert_eq!(scopes.map(|scope| settings.time_to_live(scope)), [300, 600, 60, 0]);
}

#[test]
fn what_breaks_a_rule_is_named_with_the_rule_and_without_its_value() {
    for (name, value, rule) in [
        ("RPC_URL", "wss://s3cret", "RPC_URL must be"),
        ("REGISTRY_ADDRESS", "0x12s3cret", "REGISTRY_ADDRESS: "),
        ("REGISTRY_ADDRESS", " ", "REGISTRY_ADDRESS is not set"),
        ("MULTICALL3_ADDRESS", "s3cret", "MULTICALL3_ADDRESS: "),
        ("AGENT_TTL_SECONDS", "-3", "AGENT_TTL_SECONDS must be a whole number"),
        ("CHAIN_ID", "0", "CHAIN_ID must be a whole number of at least 1"),
        ("RPC_TIMEOUT_SECONDS", "0", "RPC_TIMEOUT_SECONDS must be 1 to 3600 seconds"),
        ("RPC_HEDGING", "s3cret", "RPC_HEDGING must be on or off"),
        ("INDEX_LOCATION_HINT", "s3cret", "INDEX_LOCATION_HINT must be wnam, enam, sam, weur, eeur, apac,"),
        ("INDEX", "s3cret", "INDEX must be durable-object or off"),
        ("CHAIN_ID", "8453", "RPC_URL is not set; set the secret before you deploy"),
        ("EVIDENCE_LAYOUT", "{\"s3cret\":1}", "EVIDENCE_LAYOUT must be JSON"),
        ("INDEX_SELF_CONTAINED_CODE", "0xs3cret", "INDEX_SELF_CONTAINED_CODE must be 0x and 64 hex digits"),
        ("INDEX_SPOT_CHECKS", "21", "INDEX_SPOT_CHECKS must be 0 to 20"),
        ("RPC_URL", "https://s3cret.example https://b.example", "CHAIN_ID is not set"),
        ("INDEX", "durable-object", "CHAIN_ID is not set; where INDEX is durable-object"),
    ] {
        let Err(Error::Misconfigured(message)) = parse(&[(name, value)]) else { panic!("{name}") };
        assert!(message.starts_with(rule) && !message.contains("s3cret"), "{message}");
    }
}

#[test]
fn an_index_needs_its_binding_alone() {
    let rpc = ("RPC_URL", "https://rpc.example");
    let indexed = parse(&[("INDEX", "durable-object"), ("CHAIN_ID", "1"), rpc]).unwrap();
    assert_eq!(indexed.index_name().as_deref(), Some("1/0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23/15"));
    assert_eq!(indexed.check_binding(&|binding| binding == INDEX_BINDING), Ok(()));
    let missing = indexed.check_binding(&|_| false).map_err(|error| error.to_string());
    assert!(missing.is_err_and(|message| message.contains(INDEX_BINDING)));
    assert_eq!(parse(&[]).unwrap().check_binding(&|_| false), Ok(()));
}

#[test]
fn a_variable_of_another_type_is_refused_by_name_and_one_that_is_no_setting_is_told() {
    let check = |name: &str, kind| check_variables([(name.to_owned(), kind)].into_iter());
    let text = || VariableKind::Text("1".to_owned());
    assert_eq!(check("CHAIN_ID", text()), Ok(Vec::new()));
    assert_eq!(check("RATE_COUNTERS", VariableKind::Binding), Ok(Vec::new()));
    for (kind, problem) in
        [(VariableKind::Other("a boolean"), "a boolean"), (VariableKind::Binding, "a table or a list")]
    {
        let rule = format!("CHAIN_ID must be a text or a whole number, and is {problem}");
        assert_eq!(check("CHAIN_ID", kind), Err(Error::Misconfigured(rule)));
    }
    for kind in [text(), VariableKind::Other("a boolean")] {
        let warnings = check("RATE_LIMITTER", kind).unwrap();
        assert!(warnings[0].starts_with("RATE_LIMITTER is no setting"), "{warnings:?}");
    }
}

#[test]
fn the_documents_table_has_every_setting() {
    let operating = include_str!("../../../docs/operating.md");
    let (_, table) = operating.split_once("| variable | default | meaning |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let cells = table.lines().filter_map(|row| row.split(" | ").next()?.strip_prefix("| `"));
    let mut documented: Vec<&str> =
        cells.flat_map(|cell| cell.split(", ").map(|name| name.trim_matches('`'))).collect();
    let mut names = NAMES.to_vec();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(documented, names);
}

#[test]
fn the_self_hosted_edge_passes_on_every_setting() {
    let config = include_str!("../../../deploy/edge/edge.capnp");
    for name in NAMES {
        let binding = format!("(name = \"{name}\", fromEnvironment = \"{name}\")");
        assert!(config.contains(&binding), "{binding}");
    }
}
