// The read API by openapi-typescript and openapi-fetch: `node generated.mjs SETTING`, JSON of its `url`, its `description`, and of what
// it knows. The description is linted, types are generated and a program compiled with them, and every operation is called. Prints
// what was wrong, and what the program reads.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import createClient from "openapi-fetch";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const { url, description: file, wallet, id, terminated, cursor } = JSON.parse(process.argv[2]);
const problems = [];

const source = readFileSync(file, "utf8");
const linted = await lintFromString({ source, config: await createConfig({ extends: ["recommended"] }) });
problems.push(...linted.map(({ message, location: [{ pointer }] }) => `${pointer}: ${message}`));

const description = JSON.parse(source);
const PROGRAM = `
import createClient from "openapi-fetch";
import type { paths } from "./read-api";
const client = createClient<paths>();
const params = { path: { wallet: "0x" } };
const { data: verdict, error } = await client.GET("/api/v1/kya/{wallet}", { params });
export const decision: "provision" | "request_renewal" | "deny" | undefined = verdict?.decision;
export const code: string | undefined = error?.code;
export const proof: string[] | undefined = (await client.GET("/api/v1/evidence/{wallet}", { params })).data?.accountProof;
export const token: string | undefined = (await client.GET("/api/v1/token/{wallet}", { params })).data;
export const next: string | undefined = (await client.GET("/api/v1/changes")).data?.next;
export const status: string | undefined = (await client.GET("/api/v1/agent/{id}", { params: { path: { id: 1 } } })).data?.agent.status;
`;
// Beside the packages, where its imports are found.
const directory = mkdtempSync(join(import.meta.dirname, "node_modules/.generated-"));
try {
  writeFileSync(join(directory, "read-api.d.ts"), astToString(await openapiTS(source)));
  writeFileSync(join(directory, "program.ts"), PROGRAM);
  const { ES2022, ESNext } = ts.ScriptTarget;
  const module = { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, target: ES2022 ?? ESNext };
  const program = ts.createProgram([join(directory, "program.ts")], { ...module, strict: true, noEmit: true, types: [] });
  problems.push(...ts.getPreEmitDiagnostics(program).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n")));
} finally {
  rmSync(directory, { recursive: true });
}

const client = createClient({ baseUrl: url });
const known = { wallet, id, prefix: "a", since: cursor, v: "0".repeat(24), shard: "0".repeat(14), names: `${"0".repeat(14)}-${"0".repeat(24)}` };
const read = {};
for (const [path, item] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(item)) {
    const params = { path: {}, query: {} };
    for (const { name, in: place, required } of operation.parameters ?? []) {
      if (required) params[place][name] = known[name];
    }
    const [type = ""] = Object.keys(operation.responses[200].content ?? {});
    const parseAs = type.endsWith("json") ? "json" : "text";
    const body = operation.requestBody?.content["application/json"].example;
    const { data, error, response } = await client[method.toUpperCase()](path, { params, body, parseAs });
    // A version of a shard is of a manifest, which no description reads.
    const isDocumented = String(response.status) in operation.responses && (response.ok || params.query.v || params.query.names);
    if (!isDocumented) problems.push(`${operation.operationId}: ${response.status} ${JSON.stringify(error)}`);
    read[operation.operationId] = data;
  }
}
const { data } = await client.GET("/api/v1/agent/{id}", { params: { path: { id: terminated } } });
console.log(JSON.stringify({ problems, operations: Object.keys(read).length, decision: read.checkWallet.decision, status: data.agent.status }));
