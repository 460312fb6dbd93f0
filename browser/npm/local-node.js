// For Node, where `fetch` reads no files and there is no IndexedDB: `await init()` reads the wasm from beside this file, and
// shards are kept in a folder.
import { randomUUID } from "node:crypto";
import { mkdir, open, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { loaded } from "./error.js";
import init from "./snapshot.js";

export * from "./local.js";

const start = async (source) =>
  init(source ?? { module_or_path: await readFile(new URL("./snapshot_bg.wasm", import.meta.url)) });

export default (source) => loaded(start(source));

const HEAD = "manifest";
const HOUR = 3_600_000;

/** Keeps shards in a folder, each in a file by its name; a crash at any time leaves the last manifest with all its shards. */
export class FolderStore {
  #folder;

  /** @param {string} folder of its own; it is made where there is none */
  constructor(folder) {
    this.#folder = folder;
  }

  async read() {
    await mkdir(this.#folder, { recursive: true });
    const names = await readdir(this.#folder);
    const shards = names.filter((name) => /^[0-9a-f]{14}-[0-9a-f]{24}$/.test(name));
    await Promise.all(names.filter((name) => name.endsWith(".new")).map((name) => this.#removeLeftOver(name)));
    const head = await this.#file(HEAD);
    if (head === undefined || head.length < 8) return { shards };
    return { manifest: head.subarray(8), fetchedAt: Number(head.readBigUInt64BE()), shards };
  }

  async shard(name) {
    return this.#file(name);
  }

  async add(shards) {
    await Promise.all(shards.map(([name, bytes]) => this.#replace(name, bytes)));
  }

  async adopt(manifest, fetchedAt, names) {
    const time = Buffer.alloc(8);
    time.writeBigUInt64BE(BigInt(fetchedAt));
    await this.#replace(HEAD, Buffer.concat([time, manifest]));
    const { shards } = await this.read();
    const old = shards.filter((name) => !names.has(name));
    await Promise.all(old.map((name) => rm(join(this.#folder, name), { force: true })));
  }

  /** Removes what a crash left of a replacement; one that another program writes now is younger. */
  async #removeLeftOver(name) {
    const path = join(this.#folder, name);
    const { mtimeMs = Infinity } = await stat(path).catch(() => ({}));
    if (mtimeMs < Date.now() - HOUR) await rm(path, { force: true });
  }

  /** A file's bytes; undefined where there is none. */
  async #file(name) {
    try {
      return await readFile(join(this.#folder, name));
    } catch (error) {
      if (error.code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Replaces a file, atomically, once its bytes are on the disk. Another program may be at the same. */
  async #replace(name, bytes) {
    const [path, fresh] = [name, `${randomUUID()}.new`].map((file) => join(this.#folder, file));
    try {
      const file = await open(fresh, "w");
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(fresh, path);
    } catch (error) {
      await rm(fresh, { force: true });
      throw error;
    }
  }
}
