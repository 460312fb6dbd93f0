//! The tools, each of which is a route of the API, and their arguments as a request target.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use crate::{
    api::{error::Error, route::Route},
    eth::address::{self, AddressError},
};

/// The definitions that clients read: JSON, an array of `Tool`.
pub(super) const DEFINITIONS: &str = include_str!("tools.json");

/// A call's arguments by name, each as JSON.
pub(super) type Arguments<'a> = BTreeMap<String, &'a RawValue>;

/// A tool's route.
struct Tool {
    name: &'static str,
    /// The path, with its argument in braces.
    path: &'static str,
    /// The name of the argument in the path.
    in_path: Option<&'static str>,
    /// The names of the other arguments, which are query parameters of the same names.
    in_query: &'static [&'static str],
}

/// The argument that is a boolean here, and 1 or 0 in a query.
const FLAG: &str = "history";

const TOOLS: [Tool; 6] = [
    Tool {
        name: "verdict",
        path: "/api/v1/kya/{wallet}",
        in_path: Some("wallet"),
        in_query: &["block", FLAG],
    },
    Tool { name: "agent", path: "/api/v1/agent/{id}", in_path: Some("id"), in_query: &["block"] },
    Tool { name: "lineage", path: "/api/v1/agent/{id}/lineage", in_path: Some("id"), in_query: &[] },
    Tool {
        name: "search",
        path: "/api/v1/agents",
        in_path: None,
        in_query: &[
            "q",
            "status",
            "compliant",
            "haftungsperson",
            "creator",
            "parent",
            "sort",
            "limit",
            "cursor",
        ],
    },
    Tool {
        name: "person",
        path: "/api/v1/liable/{wallet}",
        in_path: Some("wallet"),
        in_query: &["basis", "limit", "cursor"],
    },
    Tool { name: "changes", path: "/api/v1/changes", in_path: None, in_query: &["since", "liable", "limit"] },
];

/// Parses a call of a tool to a route; `None` if there is no such tool.
pub(super) fn route(name: &str, arguments: &Arguments<'_>) -> Option<Result<Route, Error>> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    Some(tool.target(arguments).and_then(|target| Route::parse(&target)))
}

impl Tool {
    /// Returns the arguments as a request target.
    fn target(&self, arguments: &Arguments<'_>) -> Result<String, Error> {
        let known = |name: &String| self.in_path.iter().chain(self.in_query).any(|known| name == known);
        if !arguments.keys().all(known) {
            let rule = "must be those of the tool's inputSchema, and no others";
            return Err(Error::InvalidParameter { field: "arguments", rule });
        }
        let mut target = self.path.to_owned();
        if let Some(field) = self.in_path {
            let rule = "must be given";
            let text = text(arguments, field)?.ok_or(Error::InvalidParameter { field, rule })?;
            // A list of wallets in the path is another route, with an answer that is not the tool's.
            if field == "wallet" {
                let refused = |error: AddressError| Error::InvalidParameter { field, rule: error.rule() };
                address::parse(&text).map_err(refused)?;
            }
            target = target.replace(&format!("{{{field}}}"), &encoded(&text));
        }
        for field in self.in_query {
            if let Some(text) = text(arguments, field)? {
                target.push(if target.contains('?') { '&' } else { '?' });
                target.push_str(field);
                target.push('=');
                target.push_str(&encoded(&text));
            }
        }
        Ok(target)
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns an argument as the text of a parameter; `None` if it is absent or null.
fn text(arguments: &Arguments<'_>, field: &'static str) -> Result<Option<String>, Error> {
    let rule = "must be a string, a number or a boolean";
    match arguments.get(field).map(|json| json.get()) {
        None | Some("null") => Ok(None),
        Some("true") if field == FLAG => Ok(Some("1".to_owned())),
        Some("false") if field == FLAG => Ok(Some("0".to_owned())),
        Some(json) if field == FLAG && json.starts_with('"') => {
            Err(Error::InvalidParameter { field, rule: "must be true or false" })
        }
        Some(json) if json.starts_with(['[', '{']) => Err(Error::InvalidParameter { field, rule }),
        Some(json) if json.starts_with('"') => {
            serde_json::from_str(json).map(Some).map_err(|_| Error::InvalidParameter { field, rule })
        }
        Some(number_or_boolean) => Ok(Some(number_or_boolean.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn called(name: &str, arguments: &Value) -> Result<Route, Error> {
        route(name, &serde_json::from_str(&arguments.to_string()).unwrap()).unwrap()
    }

    const WALLET: &str = "0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1";

    #[test]
    fn each_definition_names_the_arguments_of_its_route() {
        let definitions: Vec<Value> = serde_json::from_str(DEFINITIONS).unwrap();
        assert_eq!(definitions.len(), TOOLS.len());
        for (tool, definition) in TOOLS.iter().zip(&definitions) {
            let schema = &definition["inputSchema"];
            let declared: BTreeSet<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let known: BTreeSet<&str> = tool.in_path.iter().chain(tool.in_query).copied().collect();
            assert_eq!((definition["name"].as_str(), declared), (Some(tool.name), known));
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            assert_eq!(required, Vec::from_iter(tool.in_path));
            assert_eq!(schema["additionalProperties"], false);
        }
    }

    #[test]
    fn arguments_become_the_routes_parameters() {
        let most = alloy_primitives::U256::MAX.to_string();
        let named = json!({ "wallet": WALLET, "basis": "named" });
        let newest = json!({ "wallet": WALLET, "block": null, "history": false });
        let search =
            json!({ "q": "data & maps", "status": "Active", "compliant": true, "sort": "-attestation" });
        for (tool, arguments, target) in [
            ("agent", json!({ "id": 7, "block": "12" }), "agent/7?block=12"),
            ("verdict", json!({ "wallet": WALLET, "history": true }), &format!("kya/{WALLET}?history=1")),
            ("verdict", newest, &format!("kya/{WALLET}")),
            ("lineage", json!({ "id": most }), &format!("agent/{most}/lineage")),
            ("search", search, "agents?status=Active&compliant=true&q=data%20maps&sort=-attestation"),
            ("search", json!({}), "agents"),
            ("person", json!({ "wallet": WALLET }), &format!("liable/{WALLET}")),
            ("person", named, &format!("liable/{WALLET}?basis=named")),
            ("changes", json!({ "liable": WALLET }), &format!("changes?liable={WALLET}")),
            ("changes", json!({ "since": "now", "limit": 5 }), "changes?since=now&limit=5"),
        ] {
            assert_eq!(called(tool, &arguments).unwrap().canonical(), format!("/api/v1/{target}"));
        }
    }

    #[test]
    fn an_argument_that_breaks_its_rule_is_named_with_the_rule() {
        for (tool, arguments, message) in [
            ("verdict", json!({}), "wallet: must be given"),
            ("verdict", json!({ "wallet": "../../agent/1" }), "wallet: "),
            ("verdict", json!({ "wallet": [WALLET] }), "wallet: must be a string"),
            ("verdict", json!({ "wallet": format!("{WALLET},{WALLET}") }), "wallet: must be 0x"),
            ("verdict", json!({ "wallet": WALLET, "history": "true" }), "history: must be true or false"),
            ("agent", json!({ "id": 1, "evidence": 1 }), "arguments: must be those"),
            ("agent", json!({ "id": 1.5 }), "id: "),
            ("agent", json!({ "id": "1?block=2" }), "id: "),
        ] {
            let refused = called(tool, &arguments).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("Invalid {message}")), "{refused}");
        }
        assert!(route("register", &Arguments::new()).is_none());
    }
}
