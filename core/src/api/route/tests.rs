use alloy_primitives::U256;
use proptest::prelude::*;

use super::*;
use crate::{api::error::Error, eth::address::AddressError, registry::cursor::AgentCursor};

const KYA: &str = "/api/v1/kya/0x1111111111111111111111111111111111111111";
/// An example of EIP-55.
const CHECKSUMMED: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

fn agents(number: u64, limit: u64, status: Option<Status>) -> Route {
    Route::Agents { page: Page { number, limit }, status }
}

fn canonical(target: &str) -> String {
    let route = Route::parse(target).unwrap();
    let canonical = route.canonical();
    assert_eq!(Route::parse(&canonical), Ok(route), "{target}");
    canonical
}

#[test]
fn every_documented_route_is_known_and_has_its_time_to_live() {
    let id = AgentId(U256::from(7));
    let wallet = Address::repeat_byte(0x11);
    let revenue = Route::Revenue { id, offset: 0, limit: 100 };
    let liable = format!("/api/v1/liable/{wallet}");
    let history = Route::History { id, limit: HISTORY_LIMIT_DEFAULT, cursor: None };
    for (target, seconds, route) in [
        ("/health", 0, Route::Health),
        ("/api/v1/stats", 300, Route::Stats),
        ("/api/v1/stats/detailed", 300, Route::DetailedStats),
        ("/api/v1/agent/7", 300, Route::Agent { id, block: None }),
        ("/api/v1/agents", 300, agents(1, 20, None)),
        ("/api/v1/agents?status=Active", 300, agents(1, 20, Some(Status::Active))),
        ("/api/v1/agents/compliance", 300, Route::Compliance(None)),
        ("/api/v1/agent/7/lineage", 600, Route::Lineage(id)),
        ("/api/v1/agent/7/revenue", 0, revenue),
        ("/api/v1/revenue/aggregate", 300, Route::RevenueAggregate),
        (KYA, 60, Route::Kya { wallet, block: None, history: false }),
        (&liable, 300, Route::Liable { person: wallet, limit: 20, cursor: None, basis: None }),
        ("/api/v1/agent/7/ancestors", 300, Route::Ancestors(id)),
        ("/api/v1/agent/7/history", 300, history),
        ("/api/v1/changes", 60, Route::Changes { since: Since::Oldest, limit: 100, liable: None }),
    ] {
        assert_eq!(Route::parse(target), Ok(route.clone()), "{target}");
        assert_eq!(route.canonical(), target);
        assert_eq!(route.cache_scope().default_seconds(), seconds, "{target}");
        let pattern = route.pattern().replace(":id", "7").replace(":wallet", &wallet.to_string());
        assert_eq!(target.split('?').next(), Some(&*pattern));
    }
}

#[test]
fn unknown_routes_are_not_found() {
    let unknown = "/ /api/v1 /api/v1/ /api/v2/stats /api/v1/stats/ /api/v1/stats/more /health/ /api/v1/agent \
                   /api/v1/agent/7/ /api/v1/agent/7/lineage/x /api/v1/agents/x /API/v1/stats //health /agents";
    for target in unknown.split(' ').chain([""]) {
        assert_eq!(Route::parse(target), Err(Error::NotFound), "{target}");
    }
}

#[test]
fn spellings_of_one_question_share_its_canonical_form() {
    let hash = format!("0x{}", "Ab".repeat(32));
    let (most, wallet) = ("9007199254740991", &KYA["/api/v1/kya/".len()..]);
    for (asked, expected) in [
        ("agents?limit=20&page=1", "agents"),
        ("agents?", "agents"),
        ("agents?&&Page=0", "agents"),
        ("agents?page=01&utm=x&utm=y", "agents"),
        ("agents?p%61ge=%31&limit=020", "agents"),
        ("agents?limit=99999999999999999999999", "agents?limit=100"),
        ("agents?status=Revoked&limit=5&page=3", "agents?page=3&limit=5&status=Revoked"),
        ("agents/compliance?x=1", "agents/compliance"),
        ("agents/compliance?limit=500", "agents/compliance?limit=100"),
        ("agents/compliance?cursor=0-0", "agents/compliance?limit=20&cursor=0-0"),
        ("agents/compliance?cursor={most}-{most}&limit=1", "agents/compliance?limit=1&cursor={most}-{most}"),
        ("agents/compliance?cursor=1800000000-7&limit=3", "agents/compliance?limit=3&cursor=1800000000-7"),
        ("agent/7/history?limit=50&cursor=5-{most}-0-3", "agent/7/history?cursor=5-{most}-0-3"),
        ("agent/7/history?limit=101&x=y&cursor=0-9-7-0", "agent/7/history?limit=100&cursor=0-9-7-0"),
        ("changes?limit=100&since=now", "changes?since=now"),
        ("changes?limit=20&since=newest", "changes?since=newest&limit=20"),
        ("changes?limit=5&x=y&since=1800000000123-42", "changes?since=1800000000123-42&limit=5"),
        ("changes?limit=501", "changes?limit=500"),
        ("stats?limit=-1", "stats"),
        ("agent/%30%31?page=x", "agent/1"),
        ("kya/range/%61B", "kya/range/ab"),
        ("kya/{wallet}?history=1&x", "kya/{wallet}?history=1"),
        ("kya/{wallet}?history=0", "kya/{wallet}"),
        ("kya/{wallet}?utm=x&evidence=1", "kya/{wallet}?evidence=1"),
        ("kya/{wallet}?evidence=0", "kya/{wallet}"),
        ("kya/{wallet}?audience=https://shop.example", "kya/{wallet}"),
        ("kya/{wallet}?history=1&audience=http%3A%2F%2Fa:8080", "kya/{wallet}?history=1"),
    ] {
        let [asked, expected] = [asked, expected]
            .map(|path| format!("/api/v1/{}", path.replace("{most}", most).replace("{wallet}", wallet)));
        assert_eq!(canonical(&asked), expected);
    }
    assert_eq!(Route::parse(&format!("{KYA}?evidence=1")), Ok(Route::Evidence(Address::repeat_byte(0x11))));
    // Each form of an answer has a path of its own.
    for (path, same, media_type) in [
        (format!("evidence/{wallet}"), format!("kya/{wallet}?evidence=1"), None),
        (format!("token/{wallet}?history=1"), format!("kya/{wallet}?history=1"), Some("application/jwt")),
        ("changes/stream?since=now".to_owned(), "changes?since=now".to_owned(), Some("text/event-stream")),
    ] {
        let target = format!("/api/v1/{path}");
        assert_eq!((canonical(&target), Route::media_type(&target)), (format!("/api/v1/{same}"), media_type));
        assert_eq!(Route::media_type(&format!("/api/v1/{same}")), None);
    }
    let upper = format!("0x{}", CHECKSUMMED[2..].to_uppercase());
    for wallet in [CHECKSUMMED, &CHECKSUMMED.to_lowercase(), &upper] {
        assert_eq!(canonical(&format!("/api/v1/kya/{wallet}")), format!("/api/v1/kya/{CHECKSUMMED}"));
    }
    // A block is part of the question.
    for block in ["0", "18446744073709551615", &hash] {
        for path in ["/api/v1/agent/7", KYA] {
            let asked = format!("{path}?x=1&block={block}");
            assert_eq!(canonical(&asked), format!("{path}?block={}", block.to_lowercase()));
            assert_eq!(Route::parse(&asked).unwrap().block(), BlockId::parse(block));
        }
    }
    let most = Route::Agent { id: AgentId(U256::MAX), block: None };
    assert_eq!(Route::parse(&format!("/api/v1/agent/{}", U256::MAX)), Ok(most));
    assert!(Route::parse("/api/v1/agents?q=a&limit=100&page=50").is_ok());
}

#[test]
fn a_parameter_that_breaks_its_rule_is_named_with_the_rule() {
    let (at_least_one, flag) = ("must be a whole number of at least 1", "must be 0 or 1");
    let (whole, once) = ("must be a whole number of at least 0", "must be given once");
    let (wallet, shape) = ("must be 0x followed by", "40 hexadecimal digits");
    let (cursor, block) = (AgentCursor::RULE, "must be a block's number");
    let status = "must be one of Active, Suspended, Revoked, Terminated";
    let since = "must be the `next` of an earlier answer, now or newest";
    let no_count = ["0", "-1", "", "x", "1.5", "1e3", "0x1", "+1", "%201", "NaN", "1,2", "1;2", "%00", "١"];
    let above = U256::MAX.to_string().replace("935", "936");
    let hash = "ab".repeat(32);
    let long = "a".repeat(201);
    let typo = CHECKSUMMED.replace("5aAe", "5aae");
    let (longer, many) = (format!("{CHECKSUMMED}0"), vec![CHECKSUMMED; 21].join(","));
    for (target, field, rule, values) in [
        ("agents?page={}", "page", at_least_one, &no_count[..]),
        ("agents?limit={}", "limit", at_least_one, &no_count),
        ("agents/compliance?limit={}", "limit", at_least_one, &["0"]),
        ("agent/1/revenue?limit={}", "limit", at_least_one, &no_count),
        ("agent/1/revenue?offset={}", "offset", whole, &["-1"]),
        ("agents?page=1&page={}", "page", once, &["2"]),
        ("agents?page={}", "page", "must be UTF-8 text", &["%ff"]),
        ("agents?status={}", "status", status, &["active"]),
        ("agents?q=a&status={}", "status", status, &["", "0", "Active,Revoked", "Active%20"]),
        ("agents?haftungsperson={}", "haftungsperson", wallet, &["", "me", "0x", "%200x"]),
        ("agents?creator={}", "creator", "EIP-55", &["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]),
        ("agents?parent={}", "parent", whole, &["", "-1", "x", "1.5", "0x1"]),
        ("agents?generation={}", "generation", whole, &["", "-1", "root"]),
        ("agents?compliant={}", "compliant", "must be true or false", &["", "1", "True", "yes"]),
        ("agents?sort={}", "sort", "must be id, registration", &["", "-", "+id", "name", "id,id", "--id"]),
        ("agents?q={}", "q", "must hold a word, in at most 200", &["", "%20", "+", "-*\"", &*long]),
        ("agents?q={}", "q", "must be UTF-8 text", &["%ff"]),
        ("agents?q=a&q={}", "q", once, &["b"]),
        ("agents?cursor={}", "cursor", cursor, &["", "x", "-1", "%2B1", "1.0", "1-2", "9007199254740992"]),
        ("agents?cursor={}", "cursor", cursor, &["99999999999999999999999"]),
        ("agents?sort=attestation&cursor={}", "cursor", cursor, &["1", "1-", "-1", "1-2-3"]),
        ("agents?page=1&cursor={}", "cursor", "must not be given together with page", &["1"]),
        ("agents?q=a&limit=100&page={}", "page", "within the first 5000", &["51", "99999999999999999999"]),
        ("agents/compliance?cursor={}", "cursor", cursor, &["", "7", "-7", "1-", "1-2-3"]),
        ("agent/7/history?cursor={}", "cursor", cursor, &["", "7", "1-2-3", "1-2-3-", "1-2-3-4-5"]),
        ("agent/7/history?cursor={}", "cursor", cursor, &["%2B1-2-3-4", "a-b-c-d", "1-2-3-9007199254740992"]),
        ("agent/{}/history", "id", "", &["x"]),
        ("agent/{}", "id", "", &["abc", "-1", "1.0", "0x1", "", "%ff", "1%2F2", "١", &above]),
        ("agent/7?block={}", "block", block, &["", "latest", "-1", "%2B1", "1.0", "0x", "0x10", "1e3"]),
        ("agent/7?block={}", "block", block, &["18446744073709551616", &hash, &format!("0x{}", &hash[1..])]),
        ("changes?since={}", "since", since, &["", "NOW", "7", "1-", "-1", "1-2-3", "9007199254740992-1"]),
        ("changes?since={}", "since", since, &["latest", "1800000000123%2d", "%2B1-2", "1-9007199254740992"]),
        ("changes?since=now&since={}", "since", once, &["now"]),
        ("changes?limit={}", "limit", at_least_one, &["0"]),
        ("kya/{}", "wallet", "EIP-55", &[&typo]),
        ("kya/{}", "wallet", shape, &["", "0x", "me", &CHECKSUMMED[2..], &CHECKSUMMED[..41], &longer, "0xg"]),
        ("kya/{}", "wallet", shape, &["me,too"]),
        ("kya/{}", "wallet", "at most 20 wallets", &[&many]),
        (&format!("{}?evidence={{}}", &KYA[8..]), "evidence", flag, &["", "2", "true", "01"]),
        (&format!("{}?evidence=1&{{}}", &KYA[8..]), "evidence", "must not", &["block=7", "history=1"]),
        (&format!("{}?history={{}}", &KYA[8..]), "history", flag, &["yes"]),
        (&format!("{}?history=1&{{}}", &KYA[8..]), "history", "must not be", &["block=7"]),
    ] {
        for value in values {
            let target = target.replace("{}", value);
            let message = match Route::parse(&format!("/api/v1/{target}")) {
                Err(error @ Error::InvalidParameter { .. }) => error.to_string(),
                other => panic!("{target}: {other:?}"),
            };
            let is_named = message.starts_with(&format!("Invalid {field}"));
            assert!(is_named && message.contains(rule), "{target}: {message}");
        }
    }
}

#[test]
fn an_audience_is_checked() {
    let audience = |query: &str| Route::audience(&format!("{KYA}{query}"));
    assert_eq!(audience("?audience=http%3A%2F%2Fa:8080").unwrap().unwrap().as_str(), "http://a:8080");
    assert_eq!(audience("?history=1"), Ok(None));
    for bad in ["", "shop.example", "https://shop.example/", "*"] {
        let error = audience(&format!("?audience={bad}")).unwrap_err().to_string();
        assert!(error.starts_with("Invalid audience: must be an origin"), "{error}");
    }
}

fn malformed(text: &str) -> WalletInput {
    WalletInput::Malformed { text: text.into(), error: AddressError::Shape }
}

#[test]
fn a_list_keeps_its_order_and_what_is_malformed_in_its_place() {
    let (one, two) = (Address::repeat_byte(0x11), Address::repeat_byte(0x22));
    let path = format!("/api/v1/kya/{two},me%2Ftoo,{one},");
    let Ok(Route::KyaList { wallets, .. }) = Route::parse(&path) else { panic!("{path}") };
    let expected = [WalletInput::Wallet(two), malformed("me/too"), WalletInput::Wallet(one), malformed("")];
    assert_eq!(wallets, expected);
    for comma in ["%2C", "%2c"] {
        let encoded = path.replace(',', comma);
        assert_eq!(Route::parse(&encoded), Route::parse(&path), "{encoded}");
    }
    assert!(Route::parse(&format!("/api/v1/kya/{}", vec![CHECKSUMMED; 20].join(","))).is_ok());
}

#[test]
fn what_may_take_many_calls_counts_as_many_requests() {
    for (target, cost) in [
        ("/api/v1/agent/1", 1),
        (KYA, 1),
        (&format!("{KYA}?evidence=1"), 2),
        (&format!("{KYA}?history=1"), 5),
        ("/api/v1/agent/1?block=7", 3),
        (&format!("{KYA}?block=7"), 3),
        ("/api/v1/kya/range/a7", 2),
        ("/api/v1/agent/1/lineage", 5),
        ("/api/v1/agent/1/history", 5),
    ] {
        assert_eq!(Route::parse(target).unwrap().cost(), cost, "{target}");
    }
}

#[test]
fn a_body_is_a_list_of_one_to_a_hundred_wallets() {
    let post = |body: &str| Route::parse_post("/api/v1/kya", body.as_bytes());
    let wallet = Address::repeat_byte(0x11);
    let list = |count| format!("{{\"wallets\": {:?}}}", vec![wallet.to_string(); count]);
    for (count, cost) in [(1, 1), (10, 1), (11, 2), (100, 10)] {
        let route = post(&list(count)).unwrap();
        assert_eq!(route.cost(), cost, "{count} wallets");
        assert_eq!(route, Route::KyaList { wallets: vec![WalletInput::Wallet(wallet); count], block: None });
    }
    let Ok(Route::KyaList { wallets, .. }) = post("{\"wallets\": [\"me\", \"\"]}") else { panic!() };
    assert_eq!(wallets, ["me", ""].map(malformed));
    let message = |body: &str| post(body).unwrap_err().to_string();
    for bad in ["", "[]", "{}", "{\"wallets\": 7}", "{\"wallets\": [7]}", "{\"wallets\": [}", "\u{1}"] {
        assert!(message(bad).starts_with("Invalid body: must be JSON of the form"), "{bad}");
    }
    for count in [0, 101] {
        assert_eq!(message(&list(count)), "Invalid wallets: must be a list of 1 to 100 wallets");
    }
    assert_eq!(post(&" ".repeat(KYA_BODY_BYTES_MAX + 1)), Err(Error::BodyTooLarge(KYA_BODY_BYTES_MAX)));
    assert_eq!(Route::parse_post(KYA, b"{}"), Err(Error::MethodNotAllowed));
    assert!(matches!(Route::parse("/api/v1/kya"), Err(Error::PostOnly(_))));
}

proptest! {
    #[test]
    fn any_target_is_answered_and_canonical_forms_are_stable(target in "(/api/v1/)?[ -~é]{0,40}") {
        if let Ok(route) = Route::parse(&target) {
            prop_assert_eq!(Route::parse(&route.canonical()), Ok(route));
        }
    }

    #[test]
    fn any_page_has_one_canonical_form(number in 1u64.., limit in 1u64..200, status in prop::option::of(0usize..4)) {
        let status = status.map(|index| Status::ALL[index]);
        let route = agents(number, limit.min(100), status);
        prop_assert_eq!(Route::parse(&route.canonical()), Ok(route));
    }
}
