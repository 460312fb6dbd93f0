// The machine's Chromium: where it is, and how it is started. Nothing is downloaded for the tests.
//
// `node chromium.mjs` prints the path of one that runs, or fails in one line.

import { execFileSync } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

/** Debian's name, Ubuntu's, Google's. */
const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** No sandbox: CI runs as root. The other flags keep the browser from talking to other servers than the page's. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * The browser that `CHROMIUM_BIN` names, or else the first on the PATH.
 *
 * @returns {string} its path
 */
export function findChromium() {
  const named = process.env.CHROMIUM_BIN;
  if (named) return named;
  const directories = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  const found = NAMES.flatMap((name) => directories.map((directory) => join(directory, name))).find(isExecutable);
  if (!found) throw new Error(`no Chromium: ${NAMES.join(", ")} are not on the PATH, and CHROMIUM_BIN names none`);
  return found;
}

/** @type {Promise<import("playwright-core").Browser> | undefined} */
let running;

/**
 * The browser of this process's tests, headless and with a profile of its own; it starts when it is first asked for.
 *
 * @returns {Promise<import("playwright-core").Browser>}
 */
export function sharedBrowser() {
  return (running ??= chromium.launch({ executablePath: findChromium(), args: FLAGS }));
}

/** Ends the browser, if it was started. */
export async function closeBrowser() {
  await (await running)?.close();
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    const path = findChromium();
    // Some distributions put a script there that only says where to get the real one.
    execFileSync(path, ["--version"], { stdio: ["ignore", "ignore", "pipe"] });
    console.log(path);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
