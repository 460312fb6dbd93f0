//! The tools of MCP: `tools.json`, with the name of a tool's operation as `outputSchema`. The schema of the
//! operation's body takes the name's place, without members that only explain.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Returns the tools as clients read them: a JSON array, a tool a line.
pub(crate) fn text(description: &Value) -> Result<String> {
    let tools: Vec<Map<String, Value>> = serde_json::from_str(include_str!("tools.json"))?;
    let completed = tools.into_iter().map(|mut tool| {
        let operation = tool.get("outputSchema").and_then(Value::as_str).context("no operation")?;
        let schema = output_schema(description, operation).with_context(|| operation.to_owned())?;
        tool.insert("outputSchema".to_owned(), schema);
        Ok(openapi::compact(&tool.into()))
    });
    Ok(format!("[\n{}\n]\n", completed.collect::<Result<Vec<_>>>()?.join(",\n")))
}

/// Returns the schema of an operation's JSON body, with all that it refers to in `$defs`.
fn output_schema(description: &Value, operation: &str) -> Option<Value> {
    let items = description["paths"].as_object()?.values();
    let mut operations = items.filter_map(Value::as_object).flat_map(Map::values);
    let operation = operations.find(|known| known["operationId"] == operation)?;
    let schema = operation.pointer("/responses/200/content/application~1json/schema")?;
    let known = description.pointer("/components/schemas")?;
    // Clients want an object at the root, and no reference.
    let schema = schema["$ref"].as_str().map_or(Some(schema), |path| known.get(path.rsplit('/').next()?))?;
    let mut named = BTreeSet::new();
    let root = bare(schema, &mut named);
    let mut definitions = Map::new();
    while let Some(name) = named.iter().find(|name| !definitions.contains_key(*name)).cloned() {
        let definition = bare(known.get(&name)?, &mut named);
        definitions.insert(name, definition);
    }
    let mut root = root.as_object()?.clone();
    root.insert("type".to_owned(), "object".into());
    root.insert("$defs".to_owned(), json!(definitions));
    Some(root.into())
}

/// Returns a schema without members that only explain; its references lead to `$defs`, with names in `named`.
fn bare(schema: &Value, named: &mut BTreeSet<String>) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(|item| bare(item, named)).collect(),
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, value) in members {
                let value = match (name.as_str(), value) {
                    ("description" | "example" | "examples" | "format" | "x-enum-descriptions", _) => {
                        continue;
                    }
                    ("$ref", Value::String(path)) => {
                        let target = path.rsplit('/').next().unwrap_or_default();
                        named.insert(target.to_owned());
                        format!("#/$defs/{target}").into()
                    }
                    ("properties", Value::Object(properties)) => {
                        properties.iter().map(|(name, value)| (name.clone(), bare(value, named))).collect()
                    }
                    _ => bare(value, named),
                };
                kept.insert(name.clone(), value);
            }
            kept.into()
        }
        _ => schema.clone(),
    }
}
