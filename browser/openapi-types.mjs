// The types of the API's answers, from its description: `node openapi-types.mjs DESCRIPTION DECLARATIONS` appends them to a file of
// TypeScript declarations.

import { appendFileSync, readFileSync } from "node:fs";

import { compile } from "json-schema-to-typescript";

const SCHEMAS = "#/components/schemas/";
const INTEGER = { $ref: "#/definitions/Integer" };
const INTEGER_DESCRIPTION = "A whole number of any size: a BigInt where a double would round it.";

/** New names for schemas: theirs would collide with other declarations of the package, or say too little. */
const RENAMED = {
  Error: "ErrorBody",
  Known: "FormerAgents",
  Known2: "InactiveAncestors",
  Layout: "StorageLayout",
  Registration: "RegistrationState",
  RevenueRecord: "RevenueReport",
};

/** Integers of any size that the description does not call so: most echo a parameter. All others are counts, which a double holds. */
const LARGE = ["AgentList.page", "AgentPage.page", "Evidence.chainId", "RevenueHistory.offset"];

const renamed = (name) => RENAMED[name] ?? name;

/**
 * A schema as the generator reads it best. Only annotations stand beside a `$ref`, integers are those that `parse` makes, and an
 * optional property is absent rather than null.
 */
function prepared(schema, path) {
  if (Array.isArray(schema)) return schema.map((item) => prepared(item));
  if (typeof schema !== "object" || schema === null) return schema;
  const { $ref, description, properties, required = [], type } = schema;
  if (typeof $ref === "string") {
    const target = { $ref: `#/definitions/${renamed($ref.replace(SCHEMAS, ""))}` };
    return description === undefined ? target : { description, allOf: [target] };
  }
  if (type === "integer")
    return LARGE.includes(path) ? { description, allOf: [INTEGER] } : { description, type: "number" };
  const entries = Object.entries(schema).map(([key, value]) => [key, prepared(value)]);
  const members = Object.entries(properties ?? {}).map(([name, member]) => {
    return [name, prepared(required.includes(name) ? member : withoutNull(member), `${path}.${name}`)];
  });
  return { ...Object.fromEntries(entries), ...(properties && { properties: Object.fromEntries(members) }) };
}

/** The schema without its alternative `null`. */
function withoutNull({ type, anyOf, ...rest }) {
  if (Array.isArray(type)) return { ...rest, type: type.find((name) => name !== "null") };
  const others = anyOf?.filter((schema) => schema.type !== "null");
  if (others?.length === 1) return { ...others[0], ...rest };
  return { ...rest, ...(type && { type }), ...(anyOf && { anyOf: others }) };
}

const [description, output] = process.argv.slice(2);
const { schemas } = JSON.parse(readFileSync(description, "utf8")).components;
const unknown = [...Object.keys(RENAMED), ...LARGE].filter((path) => {
  const [schema, member] = path.split(".");
  return (member === undefined ? schemas[schema] : schemas[schema]?.properties[member]) === undefined;
});
if (unknown.length > 0) throw new Error(`the description has no ${unknown.join(", ")}`);
const definitions = Object.fromEntries(
  Object.entries(schemas).map(([name, schema]) => [renamed(name), prepared(schema, name)]),
);
definitions.AgentId = { description: schemas.AgentId.description, allOf: [INTEGER] };
definitions.Integer = { description: INTEGER_DESCRIPTION, tsType: "number | bigint" };
const schema = { title: "Documents", type: "object", additionalProperties: false, definitions };
const types = await compile(schema, "Documents", {
  additionalProperties: false,
  bannerComment: "",
  unreachableDefinitions: true,
});
// Without the generator's remark on where each type comes from, and its type of the one schema that holds them all.
const remark = /(\n \*)?\n \* This (interface|type) was referenced by [^]*?"\w+"\./g;
appendFileSync(output, types.replaceAll(remark, "").replace("export interface Documents {}\n", ""));
