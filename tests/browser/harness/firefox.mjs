// The machine's Firefox, headless and with a profile of its own, by WebDriver BiDi: the other engine, for what it could know otherwise.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import WebSocket from "ws";

/**
 * Opens a page in Firefox, and runs `body` with what evaluates an expression in it: its value, once it is settled, as JSON. What
 * pages write to the console as errors, and throw, fails the test.
 *
 * @param {string} url
 * @param {(evaluate: (expression: string) => Promise<unknown>) => Promise<void>} body
 */
export async function inFirefox(url, body) {
  const profile = await mkdtemp(join(tmpdir(), "firefox-"));
  const options = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"];
  const browser = spawn("firefox-esr", options, { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: profile } });
  try {
    const socket = new WebSocket(`${await listening(browser)}/session`);
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    let id = 0;
    const send = (method, params) =>
      new Promise((resolve, reject) => {
        const own = (id += 1);
        socket.on("message", function answered(text) {
          const { id, result, error, message } = JSON.parse(text);
          if (id !== own) return;
          socket.off("message", answered);
          if (error) reject(new Error(`${error}: ${message}`));
          else resolve(result);
        });
        socket.send(JSON.stringify({ id: own, method, params }));
      });
    const errors = [];
    socket.on("message", (text) => {
      const { method, params } = JSON.parse(text);
      if (method === "log.entryAdded" && params.level === "error") errors.push(params.text);
    });
    await send("session.new", { capabilities: {} });
    await send("session.subscribe", { events: ["log.entryAdded"] });
    const { contexts } = await send("browsingContext.getTree", {});
    const [{ context }] = contexts;
    await send("browsingContext.navigate", { context, url, wait: "complete" });
    await body(async (expression) => {
      const text = `(async () => JSON.stringify(await (${expression})))()`;
      const evaluated = await send("script.evaluate", { expression: text, target: { context }, awaitPromise: true });
      if (evaluated.type !== "success") throw new Error(evaluated.exceptionDetails.text);
      return JSON.parse(evaluated.result.value ?? "null");
    });
    assert.deepEqual(errors, [], "what the page did besides");
    socket.close();
  } finally {
    const over = new Promise((resolve) => browser.once("exit", resolve));
    browser.kill("SIGKILL");
    await over;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Where the browser listens. */
function listening(browser) {
  return new Promise((resolve, reject) => {
    let said = "";
    browser.once("error", reject);
    browser.once("exit", () => reject(new Error(`Firefox has ended: ${said}`)));
    browser.stderr.on("data", (piece) => {
      said += piece;
      const [, url] = /WebDriver BiDi listening on (ws:\S+)/.exec(said) ?? [];
      if (url) resolve(url);
    });
  });
}
