//! JSON Schemas of the types with a hand-written `Serialize`; the others derive theirs. They are behind the
//! feature `schema`, for the descriptions of the services.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    agent::{AgentId, Status},
    changes::Cursor,
    cursor::AgentCursor,
    history::HistoryCursor,
    stats::ByStatus,
};
use crate::eth::{
    json::{Integer, Integers, IntegersByKey, OptionalInteger},
    schema::{like, named},
};

named!(AgentId, "AgentId", {
    "description": "An agent's number, counted from 1; up to 2^256 - 1, and written with all its digits.",
    "type": "integer",
    "minimum": 0,
});

named!(AgentCursor, "Cursor", {
    "description": "Where a list goes on: the value of the parameter `cursor`.",
    "type": "string",
    "pattern": r"^([0-9]{1,16}-)?[0-9]{1,16}$",
});

named!(HistoryCursor, "HistoryCursor", {
    "description": "Where a history goes on: the value of the parameter `cursor`.",
    "type": "string",
    "pattern": r"^[0-9]{1,16}(-[0-9]{1,16}){3}$",
});

named!(Cursor, "ChangeCursor", {
    "description": "A place in the list of changes.",
    "type": "string",
    "pattern": "^[0-9]{1,16}-[0-9]{1,16}$",
});

like!(Integers, Vec<AgentId>);
like!(OptionalInteger, Integer);
like!(IntegersByKey, BTreeMap<String, Integer>);

impl JsonSchema for ByStatus {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CountByStatus".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
        let count = generator.subschema_for::<u64>();
        let properties: BTreeMap<&str, &Schema> = names.iter().map(|name| (*name, &count)).collect();
        json_schema!({ "type": "object", "properties": properties, "required": names })
    }
}
