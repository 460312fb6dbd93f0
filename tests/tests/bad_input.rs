//! Bad input gets a 400 that names the field and the rule, before it costs anything.
//!
//! 1. The table: each parameter of each endpoint, with what it may not be.
//! 2. What only looks bad and is not: unknown parameters, leading zeros, escaped digits.
//! 3. None of it reaches the chain.

use e2e::stage::{Exclusive, Stage};
use tokio::sync::MutexGuard;

/// One stage, for one test at a time: one of them counts.
async fn stage() -> (MutexGuard<'static, ()>, &'static Stage) {
    static STAGE: Exclusive<Stage> = Exclusive::empty();
    STAGE.take(async || Stage::showcase(|options| options).await.unwrap().0).await
}

const WHOLE_FROM_1: &str = "must be a whole number of at least 1";
const WHOLE_FROM_0: &str = "must be a whole number of at least 0";
const STATUSES: &str = "must be one of Active, Suspended, Revoked, Terminated";
const SORTS: &str =
    "must be id, registration or attestation, with a minus sign before it for the highest first";
const CURSOR: &str = "must be the `next` of an earlier answer to the same question";
const ID: &str = "must be a whole number, at most 2^256 - 1";
const ONCE: &str = "must be given once";
const BLOCK: &str = "must be a block's number, or its hash";
const WALLET: &str = "must be 0x followed by 40 hexadecimal digits";

/// One word of 201 characters.
const TOO_LONG: &str = match str::from_utf8(&[b'a'; 201]) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Paths below `/api/v1/`, with `{}` for the bad value; the field and the rule in the message; the bad
/// values.
const TABLE: &[(&str, &str, &str, &[&str])] = &[
    (
        "agents?page={}",
        "page",
        WHOLE_FROM_1,
        &["0", "-1", "1.5", "x", "", "1e3", "0x1", "+1", "%201", "NaN", "١"],
    ),
    ("agents?limit={}", "limit", WHOLE_FROM_1, &["0", "-5", "2.0", "all", "", "%00", "1,2", "1;2"]),
    ("agents?page=1&page={}", "page", ONCE, &["1", "2", ""]),
    ("agents?limit=5&x=y&limit={}", "limit", ONCE, &["5"]),
    (
        "agents?status={}",
        "status",
        STATUSES,
        &["active", "ACTIVE", "", "Deleted", "0", "Active,Revoked", "Active%20"],
    ),
    ("agents?status=Active&status={}", "status", ONCE, &["Revoked"]),
    ("agents?haftungsperson={}", "haftungsperson", WALLET, &["", "me", "0x", "%200x"]),
    ("agents?status=Active&creator={}", "creator", "EIP-55", &["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]),
    ("agents?parent={}", "parent", WHOLE_FROM_0, &["", "-1", "x", "1.5", "0x1"]),
    ("agents?generation={}", "generation", WHOLE_FROM_0, &["", "-1", "root"]),
    ("agents?compliant={}", "compliant", "must be true or false", &["", "1", "True", "yes"]),
    ("agents?sort={}", "sort", SORTS, &["", "-", "+id", "name", "id,attestation", "--id"]),
    ("agents?q={}", "q", "must hold a word, in at most 200 characters", &["", "%20", "+", "-*\"", TOO_LONG]),
    ("agents?q={}", "q", "must be UTF-8 text", &["%ff"]),
    ("agents?q=a&q={}", "q", ONCE, &["b"]),
    ("agents?cursor={}", "cursor", CURSOR, &["", "x", "-1", "1-2", "9007199254740992"]),
    ("agents?sort=attestation&cursor={}", "cursor", CURSOR, &["1", "1-", "-1", "1-2-3"]),
    ("agents/compliance?limit={}", "limit", WHOLE_FROM_1, &["0", "-1", "all", ""]),
    ("agents/compliance?limit=5&limit={}", "limit", ONCE, &["5"]),
    ("agents/compliance?cursor={}", "cursor", CURSOR, &["", "7", "7-", "-7", "1-2-3", "9007199254740992-1"]),
    ("agents?page=1&cursor={}", "cursor", "must not be given together with page", &["1"]),
    ("agents?q=a&limit=100&page={}", "page", "within the first 5000 agents", &["51", "99999999999999999999"]),
    ("agents?page={}", "page", "must be UTF-8 text", &["%ff", "%c3%28"]),
    ("agent/{}", "id", ID, &["abc", "-1", "1.0", "0x1", "", "1e3", "%31x", "%ff", "1%2F2", "१"]),
    // One digit more than 2^256 - 1 has, and one above it.
    (
        "agent/{}",
        "id",
        ID,
        &[
            "1157920892373161954235709850086879078532699846656405640394575840079131296399350",
            "115792089237316195423570985008687907853269984665640564039457584007913129639936",
        ],
    ),
    ("agent/{}/lineage", "id", ID, &["x", "-1", ""]),
    ("agent/{}/revenue", "id", ID, &["x", "-1", ""]),
    ("agent/1/revenue?limit={}", "limit", WHOLE_FROM_1, &["0", "-1", "x", ""]),
    ("agent/1/revenue?offset={}", "offset", WHOLE_FROM_0, &["-1", "x", "", "1.5"]),
    ("agent/1/revenue?offset=0&offset={}", "offset", ONCE, &["0"]),
    (
        "kya/{}",
        "wallet",
        WALLET,
        &[
            "",
            "0x",
            "me",
            "vitalik.eth",
            "5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0X5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed0",
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg",
            "%200x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0x%ff",
        ],
    ),
    (
        "kya/0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed?block={}",
        "block",
        BLOCK,
        &["", "latest", "-1", "1.5", "0x10", "1e3", "18446744073709551616"],
    ),
    ("agent/1?block={}", "block", BLOCK, &["x", "0x"]),
    ("agent/1?block=1&block={}", "block", ONCE, &["1"]),
    ("agent/{}/ancestors", "id", ID, &["x", "-1", ""]),
    (
        "kya/0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed?history={}",
        "history",
        "must be 0 or 1",
        &["", "true", "2"],
    ),
    (
        "kya/0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed?history=1&block={}",
        "history",
        "must not be asked for together with block",
        &["1"],
    ),
    ("kya/{}", "wallet", WALLET, &["me,too", ",", "0x,0x"]),
    // The address is an example of EIP-55, with one letter's case changed.
    (
        "kya/{}",
        "wallet",
        "EIP-55",
        &["0x5aaeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_value_is_refused_with_the_field_and_the_rule() {
    let (_turn, stage) = stage().await;
    let posts = stage.proxy.posts();
    for (path, field, rule, values) in TABLE {
        for value in *values {
            let path = format!("/api/v1/{}", path.replace("{}", value));
            let message = stage.client.get(&path).await.error(400);
            assert!(message.starts_with(&format!("Invalid {field}: ")), "{path}: {message}");
            assert!(message.contains(rule), "{path}: {message}");
        }
    }
    assert_eq!(stage.proxy.posts(), posts, "bad input reached the chain");
}

/// What is unusual, and fine.
const GOOD: &[&str] = &[
    "/api/v1/agents?page=01&limit=020",
    "/api/v1/agents?p%61ge=%31",
    "/api/v1/agents?page=1&utm_source=mail&utm_source=web",
    "/api/v1/agents?",
    "/api/v1/agents?&&",
    "/api/v1/agents?Page=0",
    "/api/v1/agent/01",
    "/api/v1/agent/%31",
    "/api/v1/agent/1?page=x",
    "/api/v1/stats?limit=-1",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_unusual_is_answered() {
    let (_turn, stage) = stage().await;
    for path in GOOD {
        stage.client.get(path).await.ok();
    }
}
