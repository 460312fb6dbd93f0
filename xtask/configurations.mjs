// Reads wrangler.toml and wrangler.index.toml as wrangler does, for each environment, and checks what a deployment would get wrong.
// Run by `cargo xtask test wrangler`.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { unstable_readConfig as readConfig } from "wrangler";

const root = fileURLToPath(new URL("..", import.meta.url));
const [API, INDEX] = ["wrangler.toml", "wrangler.index.toml"];
/** What makes comments of the lines that docs/operating.md names. */
const COMMENTED = /^# (?=(?:routes|REGISTRY_ADDRESS|CHAIN_ID) = )|(?<=^routes = )\[\] # /gm;

/** The patterns of `routes`, or of `route`, which are strings or have one. */
const patternsOf = ({ route, routes }) => (routes ?? (route ? [route] : [])).map((one) => one.pattern ?? one);

/** Checks the configurations of a folder, and returns what reads them. */
function check(folder) {
  const read = (config, env) => readConfig({ config: folder + config, env }, { hideWarnings: true });
  for (const env of [undefined, "base-sepolia"]) {
    const [api, index] = [read(API, env), read(INDEX, env)];
    assert.deepEqual(index.vars, api.vars, `both Workers have the same settings in ${env ?? "production"}`);
    const bound = api.durable_objects.bindings.find(({ name }) => name === "REGISTRY_INDEX");
    assert.equal(bound?.script_name, index.name, "the API's Worker is bound to the index's");
    assert.equal(index.workers_dev, false, "the index's Worker is not reached from outside");
  }

  for (const env of [undefined, "base-sepolia", "free"]) {
    const { ratelimits, vars } = read(API, env);
    const { name, simple } = ratelimits[0];
    assert.equal(name, "CLIENT_RATE", `RATE_LIMITER=binding can be set in ${env ?? "production"}`);
    const stated = [vars.RATE_LIMIT_PER_MINUTE ?? 60, vars.RATE_LIMIT_WINDOW_SECONDS ?? 60].map(Number);
    assert.deepEqual([simple.limit, simple.period], stated, "the limiter's limit is the one that clients are told");
  }
  for (const config of [API, INDEX]) {
    for (const env of [undefined, "base-sepolia", ...(config === API ? ["free"] : [])]) {
      const { vars } = read(config, env);
      for (const secret of ["RPC_URL", "VERDICT_KEYS"]) {
        assert.equal(vars[secret], undefined, `${secret} is a secret and no variable, in ${config} ${env ?? "production"}`);
      }
      const issuer = vars.VERDICT_ISSUER;
      if (issuer) assert.equal(new URL(issuer).origin, issuer, "VERDICT_ISSUER is an origin, as tokens have it");
    }
  }

  // The same Workers without Cloudflare.
  const selfHosted = readFileSync(`${root}deploy/edge/edge.capnp`, "utf8");
  for (const [worker, config] of [["api", API], ["index", INDEX]]) {
    const [, text] = selfHosted.split(`const ${worker} :`);
    const [, date, flags] = /compatibilityDate = "(.+)",\s+compatibilityFlags = (.+),/.exec(text);
    const { compatibility_date, compatibility_flags } = read(config);
    assert.deepEqual([date, JSON.parse(flags)], [compatibility_date, compatibility_flags], `deploy/edge/edge.capnp: ${worker}`);
  }

  const namespaces = [undefined, "base-sepolia", "free"].map((env) => read(API, env).ratelimits[0].namespace_id);
  assert.equal(new Set(namespaces).size, namespaces.length, "environments do not count together");

  const free = read(API, "free");
  assert.equal(free.limits?.cpu_ms, undefined, "the free plan refuses a limit of CPU time (code 100328)");
  assert.deepEqual([free.vars.INDEX, free.vars.RATE_LIMITER], ["off", "binding"], "what fits into the free plan");

  const production = patternsOf(read(API));
  for (const env of ["base-sepolia", "free"]) {
    const taken = patternsOf(read(API, env)).filter((pattern) => production.includes(pattern));
    assert.deepEqual(taken, [], `${env} takes no host name of production over`);
  }
  return read;
}

/** Whether nothing is filled in, and each line that docs/operating.md names is there to be filled in. */
function isTemplate(folder, read) {
  const lines = [API, INDEX].flatMap((config) => readFileSync(folder + config, "utf8").match(COMMENTED) ?? []);
  const isFilledIn = (config) => patternsOf(config).length > 0 || config.vars.REGISTRY_ADDRESS || config.vars.CHAIN_ID;
  return lines.length === 8 && !isFilledIn(read(API)) && !isFilledIn(read(API, "free"));
}

/** Writes edited configurations, and returns their folder. */
function edited(edit) {
  const folder = `${root}target/xtask/filled/`;
  mkdirSync(folder, { recursive: true });
  for (const config of [API, INDEX]) writeFileSync(folder + config, edit(readFileSync(root + config, "utf8")));
  return folder;
}

if (isTemplate(root, check(root))) {
  const read = check(edited((text) => text.replace(COMMENTED, "")));
  for (const env of [undefined, "free"]) {
    const { routes, vars } = read(API, env);
    assert.equal(routes.length, 1, `a host name can be filled in for ${env ?? "production"}`);
    assert.ok(vars.REGISTRY_ADDRESS && vars.CHAIN_ID, `so can the registry and its chain for ${env ?? "production"}`);
  }
  // As deployments fill it in otherwise.
  for (const [line, own] of [
    [/^routes = \[\] #.+/m, 'routes = [{ pattern = "a.example", custom_domain = true }, { pattern = "b.example", custom_domain = true }]'],
    [/^routes = \[\] #.+/m, "routes = []"],
    [/^routes = \[\] #.+/m, 'route = "a.example/*"'],
    [/^routes = \[\] #.+/m, ""],
    [/^(?=INDEX = "off")/m, 'REGISTRY_ADDRESS = "0x..."\n'],
    [/^(?=INDEX = "off")/m, 'CHAIN_ID = "1"\n'],
  ]) {
    const folder = edited((text) => text.replace(line, own));
    assert.ok(!isTemplate(folder, check(folder)), `filled in: ${own}`);
  }
  for (const [ours, free, passes] of [
    ['routes = ["a.example/*"]', 'routes = ["b.example/*"]', true],
    ['routes = ["a.example/*"]', 'routes = ["b.example/*", { pattern = "a.example/*", zone_name = "a.example" }]', false],
    ['route = "a.example/*"', 'route = "a.example/*"', false],
  ]) {
    const checked = () => check(edited((text) => text.replace(/^# routes = .+/m, ours).replace(/^routes = \[\] #.+/m, free)));
    assert[passes ? "doesNotThrow" : "throws"](checked, /takes no host name/, `${ours}, ${free}`);
  }
}
