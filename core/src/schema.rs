//! The documented values as JSON Schema: the twin of [`crate::json`] and of the hand-written `Serialize`s. Shapes
//! made of fields derive theirs. Behind the feature `schema`; descriptions of the services are made with it.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    agent::{AgentId, Status},
    changes::Cursor,
    cursor::AgentCursor,
    history::HistoryCursor,
    json::{Checksummed, Hash, Integer, Integers, IntegersByKey},
    stats::ByStatus,
    timestamp::Timestamp,
};

/// A type that is written with a name of its own, under which the schema is found once.
macro_rules! named {
    ($type:ty, $name:literal, $schema:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

named!(Checksummed, "Address", {
    "description": "An account or contract, with its EIP-55 checksum.",
    "type": "string",
    "pattern": "^0x[0-9a-fA-F]{40}$",
});

named!(Hash, "Hash", {
    "description": "32 bytes.",
    "type": "string",
    "pattern": "^0x[0-9a-f]{64}$",
});

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

// Not `date-time`: a contract may store what no calendar library reads.
named!(Timestamp, "Timestamp", {
    "description": "ISO 8601, UTC, with milliseconds. Years above 9999 have a plus sign and at least six digits.",
    "type": "string",
    "pattern": r"^(\d{4}|\+\d{6,})-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
});

named!(Integer, "Integer", {
    "description": "A whole number with all its digits, beyond what 64 bits hold.",
    "type": "integer",
    "minimum": 0,
});

/// Bytes, as JSON-RPC writes them.
pub(crate) struct Data;

named!(Data, "Data", {
    "description": "Bytes of any number.",
    "type": "string",
    "pattern": "^0x([0-9a-f]{2})*$",
});

/// A number, as JSON-RPC writes it.
pub(crate) struct Quantity;

named!(Quantity, "Quantity", {
    "description": "A number in hexadecimal digits, without leading zeros.",
    "type": "string",
    "pattern": "^0x(0|[1-9a-f][0-9a-f]{0,63})$",
});

/// A type that stands for another one's schema.
macro_rules! like {
    ($type:ty, $other:ty) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                <$other>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$other>::json_schema(generator)
            }
        }
    };
}

like!(Integers, Vec<AgentId>);
like!(IntegersByKey, BTreeMap<String, Integer>);

impl JsonSchema for ByStatus {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CountByStatus".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = Status::ALL.map(Status::name);
        let count = generator.subschema_for::<u64>();
        let properties: BTreeMap<&str, &Schema> = names.into_iter().map(|name| (name, &count)).collect();
        json_schema!({ "type": "object", "properties": properties, "required": names })
    }
}
