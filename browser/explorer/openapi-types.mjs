// The types of the API's answers, from its own description: `node openapi-types.mjs DESCRIPTION TYPES` writes them as TypeScript.

import { readFileSync, writeFileSync } from "node:fs";

import { compile } from "json-schema-to-typescript";

const SCHEMAS = "#/components/schemas/";
const INTEGER = { $ref: "#/definitions/Integer" };

/** A schema as the generator reads it best. Only annotations stand beside a `$ref`, and integers are those that `json.ts` makes. */
function prepared(schema) {
  if (Array.isArray(schema)) return schema.map(prepared);
  if (typeof schema !== "object" || schema === null) return schema;
  const { $ref, description } = schema;
  if (typeof $ref === "string") {
    const target = { $ref: $ref.replace(SCHEMAS, "#/definitions/") };
    return description === undefined ? target : { description, allOf: [target] };
  }
  const { type } = schema;
  if (type === "integer") return { description, allOf: [INTEGER] };
  if (Array.isArray(type) && type.includes("integer")) {
    return { description, anyOf: [INTEGER, { type: type.filter((name) => name !== "integer") }] };
  }
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, prepared(value)]));
}

const [description, output] = process.argv.slice(2);
const { components } = JSON.parse(readFileSync(description, "utf8"));
const definitions = prepared(components.schemas);
definitions.Integer = { description: components.schemas.Integer.description, tsType: "number | bigint" };
const schema = { title: "Documents", type: "object", additionalProperties: false, definitions };
const types = await compile(schema, "Documents", {
  additionalProperties: false,
  bannerComment: "/** Made from the API's description, which `cargo run -p openapi` writes. */",
  unreachableDefinitions: true,
});
writeFileSync(output, types);
