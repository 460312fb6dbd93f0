use serde_json::{Value, json};

use super::{reply::REVISION, *};
use crate::api::error::Error;

const WALLET: &str = "0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1";

/// Makes a request as clients of this revision send it, with its headers.
fn request(method: &str, mut params: Value) -> (Headers, Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().map(str::to_owned);
    let headers = Headers { version: Some(REVISION.to_owned()), method: Some(method.to_owned()), name };
    (headers, json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }))
}

fn parse(headers: &Headers, message: &Value) -> Message {
    Message::parse(headers, message.to_string().as_bytes())
}

/// Returns status and body of the answer to a message that no route answers.
fn answered(headers: &Headers, message: &Value) -> (u16, Value) {
    match parse(headers, message) {
        Message::Answered(Reply { status, body }) => {
            (status, serde_json::from_str(&body).unwrap_or_default())
        }
        other => panic!("no answer: {other:?}"),
    }
}

/// Returns status and code of a refusal.
fn refusal(headers: &Headers, message: &Value) -> (u16, i64) {
    let (status, body) = answered(headers, message);
    (status, body["error"]["code"].as_i64().unwrap())
}

fn verdict() -> (Headers, Value) {
    request("tools/call", json!({ "name": "verdict", "arguments": { "wallet": WALLET } }))
}

#[test]
fn a_call_is_a_route_and_its_answer_the_tools_result() {
    let (headers, message) = verdict();
    let Message::Call(call) = parse(&headers, &message) else { panic!("no call") };
    assert_eq!(call.route.canonical(), format!("/api/v1/kya/{WALLET}"));

    let Reply { status, body } = call.answered(br#"{"decision":"deny"}"#);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["id"], &body["jsonrpc"]), (200, &7.into(), &"2.0".into()));
    let result = &body["result"];
    assert_eq!((&result["resultType"], &result["isError"]), (&"complete".into(), &false.into()));
    assert_eq!(result["structuredContent"], json!({ "decision": "deny" }));
    assert_eq!(result["content"], json!([{ "type": "text", "text": r#"{"decision":"deny"}"# }]));
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "agent-registry");

    let Reply { status, body } = call.failed(&Error::NotFound);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["result"]["isError"]), (200, &true.into()));
    assert_eq!(body["result"]["content"][0]["text"], Error::NotFound.body());
}

#[test]
fn a_server_says_what_it_speaks_and_which_tools_it_has() {
    let (headers, message) = request("server/discover", json!({}));
    let (status, body) = answered(&headers, &message);
    let result = &body["result"];
    assert_eq!((status, &result["supportedVersions"][0]), (200, &REVISION.into()));
    assert_eq!((&result["capabilities"]["tools"], &result["cacheScope"]), (&json!({}), &"public".into()));

    let (headers, message) = request("tools/list", json!({}));
    let (_, body) = answered(&headers, &message);
    let tools = body["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["verdict", "agent", "lineage", "search", "person", "changes"]);
    assert!(tools.iter().all(|tool| tool["outputSchema"]["type"] == "object"));
}

#[test]
fn arguments_that_break_a_rule_are_told_to_the_model_and_unknown_tools_to_the_client() {
    let short = json!({ "name": "verdict", "arguments": { "wallet": "0x1" } });
    let (headers, message) = request("tools/call", short);
    let (status, body) = answered(&headers, &message);
    assert_eq!((status, &body["result"]["isError"]), (200, &true.into()));
    assert!(body["result"]["content"][0]["text"].as_str().unwrap().contains("Invalid wallet"));

    for params in [json!({ "name": "register" }), json!({ "name": "verdict", "arguments": [WALLET] })] {
        let (headers, message) = request("tools/call", params);
        assert_eq!(refusal(&headers, &message), (200, -32_602));
    }
}

#[test]
fn headers_that_do_not_say_what_the_body_says_are_refused() {
    let (headers, message) = verdict();
    let wrong = |set: fn(&mut Headers, Option<String>), texts: &[Option<&str>]| {
        for text in texts {
            let mut headers = headers.clone();
            set(&mut headers, text.map(str::to_owned));
            assert_eq!(refusal(&headers, &message), (400, -32_020), "{headers:?}");
        }
    };
    wrong(|headers, text| headers.version = text, &[None, Some("other")]);
    wrong(|headers, text| headers.method = text, &[None, Some("other"), Some("TOOLS/CALL")]);
    let names = [None, Some("other"), Some("=?base64?dmVyZGljdA?="), Some("=?base64?_?=")];
    wrong(|headers, text| headers.name = text, &names);
    let coded = Headers { name: Some("=?base64?dmVyZGljdA==?=".to_owned()), ..headers };
    assert!(matches!(parse(&coded, &message), Message::Call(_)));
}

#[test]
fn a_request_without_its_revision_or_of_another_one_is_refused_with_those_that_are_spoken() {
    let (headers, mut message) = verdict();
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1900-01-01".into();
    let old = Headers { version: Some("1900-01-01".to_owned()), ..headers.clone() };
    let (status, body) = answered(&old, &message);
    assert_eq!((status, &body["error"]["code"]), (400, &(-32_022).into()));
    let supported = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
    assert_eq!(body["error"]["data"], json!({ "supported": supported, "requested": "1900-01-01" }));
    for key in ["protocolVersion", "clientCapabilities"] {
        let (headers, mut message) = verdict();
        let meta = message["params"]["_meta"].as_object_mut().unwrap();
        meta.remove(&format!("io.modelcontextprotocol/{key}"));
        assert_eq!(refusal(&headers, &message), (400, -32_602), "{key}");
    }
}

#[test]
fn what_is_no_request_is_refused_and_a_notification_accepted() {
    let headers = Headers::default();
    let text = |body: &str| match Message::parse(&headers, body.as_bytes()) {
        Message::Answered(Reply { status, body }) => (status, body),
        other => panic!("no answer: {other:?}"),
    };
    for (body, code) in [
        ("", "-32700"),
        ("{", "-32700"),
        ("[]", "-32600"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "-32600"),
    ] {
        let (status, answer) = text(body);
        assert!(status == 400 && answer.contains(code) && answer.contains("\"id\":null"), "{body}: {answer}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(text(notification), (202, String::new()));
    let (headers, message) = request("resources/list", json!({}));
    assert_eq!(refusal(&headers, &message), (404, -32_601));
}

#[test]
fn clients_that_begin_with_a_handshake_get_the_same_tools() {
    let message = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
    let bare = Headers::default();
    for (asked, given) in
        [("2025-06-18", "2025-06-18"), ("2024-11-05", "2024-11-05"), ("1900-01-01", "2025-11-25")]
    {
        let begin = message("initialize", json!({ "protocolVersion": asked, "capabilities": {} }));
        let (status, body) = answered(&bare, &begin);
        assert_eq!((status, &body["result"]["protocolVersion"]), (200, &given.into()));
        assert_eq!(body["id"], "a");
    }
    let agreed = Headers { version: Some("2025-11-25".to_owned()), ..bare.clone() };
    // No members of the later revision: earlier clients refuse them in an empty result.
    assert_eq!(answered(&agreed, &message("ping", json!({}))).1["result"], json!({}));
    let (_, body) = answered(&agreed, &message("tools/list", json!({})));
    assert_eq!(body["result"].as_object().unwrap().len(), 1);
    assert_eq!(body["result"]["tools"].as_array().unwrap().len(), 6);
    let call = message("tools/call", json!({ "name": "agent", "arguments": { "id": 1 } }));
    let Message::Call(call) = parse(&agreed, &call) else { panic!("no call") };
    let called: Value = serde_json::from_str(&call.answered(b"{}").body).unwrap();
    let members: Vec<&String> = called["result"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["content", "isError", "structuredContent"]);
    for (method, params, code) in [
        ("resources/list", json!({}), -32_601),
        ("initialize", json!({}), -32_602),
        ("tools/list", json!({ "cursor": "next" }), -32_602),
    ] {
        assert_eq!(refusal(&agreed, &message(method, params)), (200, code), "{method}");
    }
}

#[test]
fn a_batch_is_done_message_by_message_in_the_revisions_that_have_batches() {
    let of = |version: Option<&str>, body: &str| {
        let headers = Headers { version: version.map(str::to_owned), ..Headers::default() };
        Message::parse(&headers, body.as_bytes())
    };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let call =
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"agent","arguments":{"id":1}}}"#;
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for version in [None, Some("2025-03-26"), Some("2024-11-05")] {
        let Message::Batch(messages) = of(version, &format!("[{ping},{notification},{call},7]")) else {
            panic!("no batch: {version:?}")
        };
        let replies = messages.into_iter().map(|message| match message {
            Message::Call(call) => call.answered(b"{}"),
            Message::Answered(reply) => reply,
            Message::Batch(_) => panic!("a batch in a batch"),
        });
        let Reply { status, body } = Reply::of_batch(replies.collect());
        let replies: Vec<Value> = serde_json::from_str(&body).unwrap();
        let told = replies.iter().map(|reply| (&reply["id"], reply["error"]["code"].as_i64()));
        let expected = [(&json!(1), None), (&json!(2), None), (&Value::Null, Some(-32_600))];
        assert_eq!((status, told.collect::<Vec<_>>()), (200, expected.to_vec()));
    }
    let nothing = vec![Reply { status: 202, body: String::new() }];
    assert_eq!(Reply::of_batch(nothing).status, 202);
    let many = format!("[{}{ping}]", format!("{ping},").repeat(20));
    for (version, body) in [(None, "[]"), (None, &many), (Some("2025-06-18"), &format!("[{ping}]"))] {
        let Message::Answered(Reply { status, body }) = of(version, body) else { panic!("{version:?}") };
        assert!(status == 400 && body.contains("-32600"), "{version:?}: {body}");
    }
}

#[test]
fn what_the_api_refuses_on_the_way_is_an_error_of_json_rpc() {
    let (headers, message) = verdict();
    let Message::Call(call) = parse(&headers, &message) else { panic!("no call") };
    for (call, status, error, id) in
        [(Some(&call), 429, Error::RateLimited, json!(7)), (None, 413, Error::BodyTooLarge(1), Value::Null)]
    {
        let reply = refused(call, status, &error);
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.status, &body["id"], &body["jsonrpc"]), (status, &id, &"2.0".into()));
        let told = &body["error"];
        assert_eq!((&told["code"], &told["data"]["code"]), (&(-32_000).into(), &error.code().name().into()));
        assert_eq!(told["message"], error.to_string());
    }
}
