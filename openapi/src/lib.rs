//! Building blocks of OpenAPI 3.1 descriptions: schemas from the Rust types, errors from their closed sets,
//! the rest as JSON. The relayer describes itself with these blocks when it starts. The read API's
//! description is written to a file by this crate's program, so that the Worker carries no code for it.

use schemars::{
    JsonSchema, Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Placeholder of 2^256 - 1 in a description until [`text`] writes its digits; a `Value` keeps only the first
/// seventeen of them.
pub const UINT256_MAX: &str = "2^256 - 1";

const UINT256_MAX_DIGITS: &str =
    "115792089237316195423570985008687907853269984665640564039457584007913129639935";

/// The schemas a description refers to, each written once under `components/schemas`.
#[derive(Debug)]
pub struct Schemas(SchemaGenerator);

impl Default for Schemas {
    fn default() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self(settings.with_transform(WithoutWidths).with_transform(ClosedSets).into_generator())
    }
}

impl Schemas {
    /// Returns a schema of `T` as it is serialized: a reference, if the schema has a name.
    pub fn of<T: JsonSchema + ?Sized>(&mut self) -> Value {
        self.0.subschema_for::<T>().to_value()
    }

    /// Returns a JSON body of the example's type.
    pub fn answer<T: JsonSchema + Serialize>(&mut self, example: &T) -> Value {
        body(&self.of::<T>(), example)
    }

    /// Returns `components/schemas`.
    pub fn into_components(mut self) -> Map<String, Value> {
        self.0.take_definitions(true)
    }
}

/// Leaves out the widths of Rust's integers: `format: uint64` means nothing to readers of JSON.
#[derive(Clone, Debug)]
struct WithoutWidths;

impl Transform for WithoutWidths {
    fn transform(&mut self, schema: &mut Schema) {
        if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
            schema.remove("format");
        }
        transform_subschemas(self, schema);
    }
}

/// Writes a choice of constants as an enumeration, with the description of each beside it: generators of
/// clients make a union of types of the choice.
#[derive(Clone, Debug)]
struct ClosedSets;

impl Transform for ClosedSets {
    fn transform(&mut self, schema: &mut Schema) {
        let choices = schema.get("oneOf").and_then(Value::as_array);
        let constant = |choice: &Value| {
            let values = choice.get("enum").cloned().or_else(|| Some(json!([choice.get("const")?])))?;
            let about = choice.get("description").cloned().unwrap_or_else(|| "".into());
            Some(values.as_array()?.iter().map(|value| (value.clone(), about.clone())).collect())
        };
        let set: Option<Vec<Vec<_>>> = choices.and_then(|choices| choices.iter().map(constant).collect());
        if let Some(set) = set {
            let (values, about): (Vec<_>, Vec<_>) = set.into_iter().flatten().unzip();
            schema.remove("oneOf");
            schema.insert("type".to_owned(), "string".into());
            schema.insert("enum".to_owned(), values.into());
            schema.insert("x-enum-descriptions".to_owned(), about.into());
        }
        transform_subschemas(self, schema);
    }
}

/// Returns a response: its description, headers and body.
///
/// Each of `headers` is a name under `components/headers`, where [`header`] describes it.
#[must_use]
pub fn response(description: &str, headers: &[&str], content: &Value) -> Value {
    let headers: Map<String, Value> = headers
        .iter()
        .map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") })))
        .collect();
    let mut response = json!({ "description": description, "headers": headers });
    if !content.is_null()
        && let Some(response) = response.as_object_mut()
    {
        response.insert("content".to_owned(), content.clone());
    }
    response
}

/// Returns the response, saying that a value in its body is the `id` by which another operation asks.
#[must_use]
pub fn linked(mut response: Value, operation: &str, pointer: &str) -> Value {
    let link =
        json!({ "operationId": operation, "parameters": { "id": format!("$response.body#{pointer}") } });
    if let Some(response) = response.as_object_mut() {
        response.insert("links".to_owned(), json!({ operation: link }));
    }
    response
}

/// Returns a JSON body, and an example of it.
#[must_use]
pub fn body(schema: &Value, example: &impl Serialize) -> Value {
    json!({ "application/json": { "schema": schema, "example": example } })
}

/// Returns a header for `components/headers`; `required` where every answer that names it has it.
#[must_use]
pub fn header(description: &str, required: bool, schema: &Value, example: &Value) -> Value {
    json!({ "description": description, "required": required, "schema": schema, "example": example })
}

/// Returns the body of an error with one of these codes, `{"error": message, "code": code}`, and an example.
#[must_use]
pub fn error(codes: &[&str], example: &impl Serialize) -> Value {
    let schema = json!({
        "allOf": [{ "$ref": "#/components/schemas/Error" }],
        "properties": { "code": { "enum": codes } },
    });
    body(&schema, example)
}

/// Returns the references without a target. A valid description has none.
#[must_use]
pub fn dangling(description: &Value) -> Vec<String> {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(description, &mut found);
    let leads_nowhere = |reference: &&str| {
        reference.strip_prefix('#').and_then(|pointer| description.pointer(pointer)).is_none()
    };
    found.into_iter().filter(leads_nowhere).map(str::to_owned).collect()
}

/// Returns the description's text, ending in a newline.
#[must_use]
pub fn text(description: &Value) -> String {
    // A tree of strings, numbers and maps with string keys always has a form in JSON.
    in_digits(&serde_json::to_string_pretty(description).unwrap_or_default()) + "\n"
}

/// Returns a part of a description in one line.
#[must_use]
pub fn compact(part: &Value) -> String {
    in_digits(&part.to_string())
}

fn in_digits(text: &str) -> String {
    text.replace(&format!("\"{UINT256_MAX}\""), UINT256_MAX_DIGITS)
}
