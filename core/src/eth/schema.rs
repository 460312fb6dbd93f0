//! Ethereum's values as JSON Schema: the twin of [`super::json`]. Behind the feature `schema`, with which the descriptions of the
//! services are made.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    json::{Checksummed, Hash, Integer},
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
pub(crate) use named;

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
