//! JSON Schemas of the types in [`super::json`]. Behind the feature `schema`, for the descriptions of the
//! services.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    json::{Checksummed, Data, DataList, Hash, Integer, Quantity},
    timestamp::Timestamp,
};

/// Implements `JsonSchema` with this name and schema.
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

/// Implements `JsonSchema` with the schema of another type.
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
pub(crate) use like;

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

// Not `date-time`: a contract may store times that calendar libraries do not read.
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

named!(Data, "Data", {
    "description": "Bytes of any number.",
    "type": "string",
    "pattern": "^0x([0-9a-f]{2})*$",
});

named!(Quantity, "Quantity", {
    "description": "A number in hexadecimal digits, without leading zeros.",
    "type": "string",
    "pattern": "^0x(0|[1-9a-f][0-9a-f]{0,63})$",
});

like!(DataList, Vec<Data>);
