// Where a `LocalKya` keeps its shards and segments. One of a version is valid for as long as a manifest names it: they are added, and
// a manifest is adopted once all that it names are there; then those that it does not name are deleted.

/** Keeps them in memory, for as long as the page is open. */
export class MemoryStore {
  #shards = new Map();
  #head = {};

  async read() {
    return { ...this.#head, shards: [...this.#shards.keys()] };
  }

  async shard(name) {
    return this.#shards.get(name);
  }

  async add(shards) {
    for (const [name, bytes] of shards) this.#shards.set(name, bytes);
  }

  async adopt(manifest, fetchedAt, names) {
    this.#head = { manifest, fetchedAt };
    for (const name of this.#shards.keys()) if (!names.has(name)) this.#shards.delete(name);
  }
}

/** Keeps them in the browser's IndexedDB, for the next visit, too. */
export class IndexedDbStore {
  #name;
  #database;

  constructor(name = "agent-registry") {
    this.#name = name;
  }

  async read() {
    const [head, shards] = await this.#transact("readonly", (shards, heads) => [heads.get("current"), shards.getAllKeys()]);
    return { ...head, shards };
  }

  async shard(name) {
    const [bytes] = await this.#transact("readonly", (shards) => [shards.get(name)]);
    return bytes;
  }

  async add(added) {
    await this.#transact("readwrite", (shards) => added.map(([name, bytes]) => shards.put(bytes, name)));
  }

  async adopt(manifest, fetchedAt, names) {
    await this.#transact("readwrite", (shards, heads) => {
      const all = shards.getAllKeys();
      all.onsuccess = () => all.result.filter((name) => !names.has(name)).forEach((name) => shards.delete(name));
      return [heads.put({ manifest, fetchedAt }, "current")];
    });
  }

  /** The results of the requests that `body` makes, once its transaction is complete. */
  async #transact(mode, body) {
    this.#database ??= opened(this.#name, () => (this.#database = undefined));
    const transaction = (await this.#database).transaction(["shards", "heads"], mode);
    const requests = body(transaction.objectStore("shards"), transaction.objectStore("heads"));
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    return requests.map(({ result }) => result);
  }
}

/** A database; `forget` is called where it cannot be opened, and once it is closed. */
function opened(name, forget) {
  const request = indexedDB.open(name, 1);
  return new Promise((resolve, reject) => {
    request.onupgradeneeded = () => ["shards", "heads"].forEach((store) => request.result.createObjectStore(store));
    request.onsuccess = () => {
      const database = request.result;
      database.onclose = forget;
      // It is to be deleted, which would wait for this page.
      database.onversionchange = () => {
        database.close();
        forget();
      };
      resolve(database);
    };
    request.onerror = () => {
      forget();
      reject(request.error);
    };
  });
}
