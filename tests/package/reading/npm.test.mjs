// The package as npm has it: packed, installed elsewhere, imported by its name in Node, Deno and Bun.

import assert from "node:assert/strict";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { test } from "../../browser/harness/declared.mjs";
import { PACKAGE, installed, run } from "../installed.mjs";
import { OPTIONS, stack } from "../setting.mjs";

/** A program that an npm package has for this machine. */
async function binary(scope, path) {
  const folder = fileURLToPath(new URL(`../../clients/node_modules/${scope}/`, import.meta.url));
  const [machine] = (await readdir(folder)).sort();
  return join(folder, machine, path);
}

test("packed and installed it is imported by its name in Node, Deno and Bun, whole and of the crate's version", () =>
  installed(async (directory, { files, version }) => {
    assert.deepEqual(files.map(({ path }) => path).sort(), (await readdir(PACKAGE)).sort());
    const manifest = await readFile(new URL("../../../Cargo.toml", import.meta.url), "utf8");
    assert.equal(version, /^version = "(.+)"$/m.exec(manifest)[1]);
    const program = `
      import init, { Registry, RegistryError } from "agent-registry";
      import initEvidence, { verifyEvidence } from "agent-registry/evidence";
      import initLiability, { checkAcceptance } from "agent-registry/liability";
      import initGate, { LocalGate } from "agent-registry/gate";
      await init();
      const registry = new Registry(${JSON.stringify(OPTIONS)});
      const { agent } = await registry.kya(${JSON.stringify(stack.agents.kyoto.wallet)});
      const error = await registry.agent(4711).catch((error) => error);
      await initEvidence();
      const refused = await Promise.resolve({ blockHash: ${JSON.stringify(`0x${"0".repeat(64)}`)} })
        .then((options) => verifyEvidence("{}", options)).catch((error) => error);
      await initLiability();
      const checked = checkAcceptance("", agent, { chainId: 1, registry: agent.creator });
      await initGate();
      const settings = 'origin = "https://a.example"\\nchain = { id = 1, rpc = ["http://127.0.0.1:1"] }\\n' +
        'kya.registry = "0x00000000000000000000000000000000000000aa"\\npolicy.api.allow = ["provision"]';
      const gated = await new LocalGate({ settings, policy: "api" }).admit(new Request("https://a.example"));
      console.log(JSON.stringify([gated.response.status, checked.problem, agent.agentId, ...[error, refused].flatMap((e) => [e instanceof RegistryError, e.code])]));
    `;
    await writeFile(join(directory, "program.mjs"), program);
    const runtimes = [
      [process.execPath],
      [await binary("@deno", "deno"), "run", "--no-prompt", "--allow-read", "--allow-net", "--allow-env"],
      [await binary("@oven", "bin/bun")],
    ];
    for (const [runtime, ...options] of runtimes) {
      const { stdout } = await run(runtime, [...options, "program.mjs"], { cwd: directory });
      const expected = [401, "header", stack.agents.kyoto.id, true, "AGENT_NOT_FOUND", true, "INVALID_EVIDENCE"];
      assert.deepEqual(JSON.parse(stdout), expected, runtime);
    }
  }));
