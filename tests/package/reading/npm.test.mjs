// The package as npm has it: packed, installed elsewhere, imported by its name.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { test } from "../../browser/harness/declared.mjs";
import { OPTIONS, stack } from "../setting.mjs";

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL("../../../browser/pkg", import.meta.url));

test("packed and installed it is imported by its name, whole and of the crate's version", async () => {
  const directory = await mkdtemp(join(tmpdir(), "npm-"));
  try {
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", directory], { cwd: PACKAGE });
    const [packed] = JSON.parse(stdout);
    assert.deepEqual(packed.files.map(({ path }) => path).sort(), (await readdir(PACKAGE)).sort());
    const manifest = await readFile(new URL("../../../Cargo.toml", import.meta.url), "utf8");
    assert.equal(packed.version, /^version = "(.+)"$/m.exec(manifest)[1]);

    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(directory, packed.filename)], { cwd: directory });
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
    const answer = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: directory });
    assert.deepEqual(JSON.parse(answer.stdout), [401, "header", stack.agents.kyoto.id, true, "AGENT_NOT_FOUND", true, "INVALID_EVIDENCE"]);
  } finally {
    await rm(directory, { recursive: true });
  }
});
