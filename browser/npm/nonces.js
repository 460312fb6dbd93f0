// Where the nonces of admitted requests are remembered. A store has one method:
//
//   spend(key, created, keepMillis)   "spent": this call has spent the nonce; "reused": it was spent before; "unknown": it
//                                     may have been; "full": no further one can be remembered. What it throws, or what does
//                                     not come in time, is "the store is unavailable".
//
// Of any number of calls with one key within `keepMillis`, in all instances of a service, one is "spent". A store that may
// have forgotten keys answers "unknown" for all that was signed (`created`, unix seconds) before it knew everything.

const seconds = () => Math.floor(Date.now() / 1000);

/** In this process alone: for a service that runs once. What was signed before the second after its start is refused. */
export class MemoryNonces {
  #capacity;
  // The second after: signatures have no fractions. At the start of a Worker there is no time yet.
  #began = Date.now() ? seconds() + 1 : undefined;
  #keys = new Set();
  /** Keys by the second after which they are forgotten. */
  #ends = new Map();
  #swept = 0;

  constructor(capacity = 100_000) {
    this.#capacity = capacity;
  }

  spend(key, created, keepMillis) {
    const now = seconds();
    this.#began ??= now + 1;
    if (created < this.#began) return "unknown";
    this.#sweep(now);
    if (this.#keys.has(key)) return "reused";
    if (this.#keys.size >= this.#capacity) return "full";
    this.#keys.add(key);
    const end = now + Math.ceil(keepMillis / 1000);
    this.#ends.set(end, [...(this.#ends.get(end) ?? []), key]);
    return "spent";
  }

  /** Forgets what has ended, at most once a second: there are as many ends as a signature is valid for seconds. */
  #sweep(now) {
    if (now === this.#swept) return;
    this.#swept = now;
    for (const [end, keys] of this.#ends) {
      if (end >= now) continue;
      for (const key of keys) this.#keys.delete(key);
      this.#ends.delete(end);
    }
  }
}

/**
 * In a Redis server, with other instances and with daemons of the same prefix. The client is node-redis's or ioredis's. A
 * server that restarts, or that another one takes over from, may have lost nonces: what was signed before is refused.
 */
export class RedisNonces {
  #command;
  #timeoutMillis;
  /** The server's process and replication id, which is a new one after a failover. */
  #history;
  /** The second before which it may not know of nonces. */
  #began;
  /** Whether it is known to keep keys until their end. */
  #keeps = false;

  constructor(client, { prefix = "kya-gate:", timeoutMillis = 1000 } = {}) {
    this.prefix = prefix;
    this.#timeoutMillis = timeoutMillis;
    const isIoredis = typeof client.call === "function";
    this.#command = isIoredis ? (...words) => client.call(...words) : (...words) => client.sendCommand(words);
  }

  async spend(key, created, keepMillis) {
    // On one connection, so that the same server answers all of them.
    const set = this.#command("SET", this.prefix + key, "", "NX", "PX", String(keepMillis));
    // It costs more than the others, and is asked of each server once.
    const isNew = !this.#keeps;
    const sections = ["server", "replication", ...(isNew ? ["memory"] : [])];
    const infos = sections.map((section) => this.#command("INFO", section));
    const { promise: late, reject } = deferred();
    const timer = setTimeout(() => reject(new Error("Redis did not answer in time")), this.#timeoutMillis);
    try {
      const [written, ...said] = await Promise.race([Promise.all([set, ...infos]), late]);
      const info = said.join("\n");
      const since = this.#since(info);
      if (isNew) this.#checkMemory(info);
      if (created < since) return "unknown";
      return written === null ? "reused" : "spent";
    } catch (error) {
      if (String(error?.message).startsWith("OOM")) return "full";
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  #since(info) {
    const [run, replication, uptime] = valuesOf(info, ["run_id", "master_replid", "uptime_in_seconds"]);
    if (!/^\d+$/.test(uptime)) throw new Error("Redis: uptime_in_seconds of INFO is no number");
    const history = `${run} ${replication}`;
    if (history !== this.#history) {
      // The second after: the server may have begun late in one, and signatures have no fractions.
      this.#began = seconds() + 1 - (this.#history === undefined ? Number(uptime) : 0);
      this.#history = history;
      this.#keeps = false;
    }
    return this.#began;
  }

  #checkMemory(info) {
    const [most, policy] = valuesOf(info, ["maxmemory", "maxmemory_policy"]);
    if (most !== "0" && policy !== "noeviction") {
      throw new Error(`Redis forgets keys when it is full: its maxmemory-policy is ${policy}, and has to be noeviction`);
    }
    this.#keeps = true;
  }
}

/** The values of these names in a server's INFO. */
function valuesOf(info, names) {
  return names.map((name) => {
    const value = new RegExp(`^${name}:([\\w-]+)`, "m").exec(info)?.[1];
    if (value === undefined) throw new Error(`Redis: INFO does not say ${name}`);
    return value;
  });
}

function deferred() {
  let reject;
  const promise = new Promise((_, refuse) => (reject = refuse));
  promise.catch(() => {});
  return { promise, reject };
}

/** In Durable Objects of the class `NonceObject`, each with a share of the keys. Their number is not to be changed. */
export class ObjectNonces {
  #namespace;
  #objects;

  constructor(namespace, { objects = 8 } = {}) {
    this.#namespace = namespace;
    this.#objects = objects;
  }

  async spend(key, _created, keepMillis) {
    const name = `nonces ${Number.parseInt(key.slice(0, 8), 16) % this.#objects} of ${this.#objects}`;
    const object = this.#namespace.get(this.#namespace.idFromName(name));
    const body = JSON.stringify({ key, keepMillis });
    const answer = await object.fetch("https://nonces/", { method: "POST", body });
    if (!answer.ok) throw new Error(`the object of nonces: ${answer.status}`);
    return answer.text();
  }
}

/** Nonces on the disk of a Durable Object: a Worker exports this class, which its configuration names (`new_sqlite_classes`). */
export class NonceObject {
  #storage;

  constructor({ storage }) {
    this.#storage = storage;
    storage.sql.exec(
      "CREATE TABLE IF NOT EXISTS nonces (key TEXT PRIMARY KEY, ends INTEGER NOT NULL) WITHOUT ROWID;" +
        "CREATE INDEX IF NOT EXISTS ends ON nonces (ends)",
    );
  }

  async fetch(request) {
    const { key, keepMillis } = await request.json();
    const insert = "INSERT INTO nonces VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING key";
    const isNew = this.#storage.sql.exec(insert, key, Date.now() + keepMillis).toArray().length > 0;
    if (isNew && (await this.#storage.getAlarm()) === null) await this.#forgetLater();
    return new Response(isNew ? "spent" : "reused");
  }

  async alarm() {
    this.#storage.sql.exec("DELETE FROM nonces WHERE ends < ?", Date.now());
    const [{ left }] = this.#storage.sql.exec("SELECT COUNT(*) AS left FROM nonces").toArray();
    if (left > 0) await this.#forgetLater();
  }

  async #forgetLater() {
    await this.#storage.setAlarm(Date.now() + 60_000);
  }
}
