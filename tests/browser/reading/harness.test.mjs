// The harness itself: what the other tests stand on.
//
// 1. A page that talks to third parties, breaks its policy, writes errors, throws or opens a dialog is found out.
// 2. The front passes everything on as it is, and lies, fails and falls silent where it is told to.
// 3. To the Worker each request through the front is another client's.
// 4. The wallet signs as its account, says no as a user does, and asks the chain for everything else.

import assert from "node:assert/strict";
import { createServer } from "node:http";

import { verifyTypedData } from "ethers";

import { test } from "../harness/declared.mjs";
import { sharedBrowser } from "../harness/chromium.mjs";
import { eventually } from "../harness/eventually.mjs";
import { Front } from "../harness/front.mjs";
import { Guard } from "../harness/guard.mjs";
import { stack } from "../harness/stack.mjs";
import { BrowserWallet } from "../harness/wallet.mjs";

/** Serves one page under a strict policy, to `body` with its address. */
async function served(html, body) {
  const policy = "default-src 'none'; script-src 'self'; img-src data:; connect-src *; require-trusted-types-for 'script'";
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.setHeader("content-security-policy", policy);
    if (request.url === "/missing") response.statusCode = 404;
    response.end(isScript ? html.script : `<!doctype html><title>Page</title><link rel="icon" href="data:,">${html.body}`);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  try {
    return await body(`http://127.0.0.1:${server.address().port}/`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Gives `body` a page, and closes it. */
async function withPage(body) {
  const context = await (await sharedBrowser()).newContext();
  try {
    return await body(context);
  } finally {
    await context.close();
  }
}

/** `body` gets a function that loads a page, and returns what a guard says of it once it says something that matches. */
function guarded(body) {
  return withPage(async (context) => {
    const guard = new Guard();
    await guard.watch(context);
    const page = await context.newPage();
    await body(({ body = "", script = "" }, expected, faults = false) =>
      served({ body: `${body}<script src="page.js"></script>`, script }, async (url) => {
        guard.begin([url], faults);
        await page.goto(url);
        await eventually(() => assert.match(guard.problems.join("\n"), expected));
        return guard.problems;
      }),
    );
  });
}

test("a page that misbehaves is found out", () => guarded(async (found) => {
  await found({ script: `fetch("http://127.0.0.2:1/").catch(() => {})` }, /^third party: http:\/\/127\.0\.0\.2:1\//m);
  await found({ script: `new WebSocket("ws://127.0.0.2:1/")` }, /^third party: http:\/\/127\.0\.0\.2:1\//m);
  await found({ body: `<script>window.ran = true</script>` }, /^policy: script-src-elem inline/m);
  await found({ body: `<p style="color: red">x` }, /^policy: style-src-attr inline/m);
  await found({ script: `document.head.innerHTML = "<b>x</b>"` }, /^policy: require-trusted-types-for/m);
  await found({ script: `console.error("oh no")` }, /^console error: oh no/m);
  await found({ script: `console.warn("hm")` }, /^console warning: hm/m);
  await found({ script: `setTimeout(() => { throw new Error("thrown") })` }, /^exception: Error: thrown/m);
  await found({ script: `Promise.reject(new Error("rejected"))` }, /^exception: Error: rejected/m);
  await found({ script: `alert("hello")` }, /^dialog: hello/m);
  await found({ script: `fetch("missing")` }, /^console error: Failed to load resource/m);
}));

test("a fault that belongs to the test is no problem of the page's", () => guarded(async (found) => {
  const script = `fetch("missing").then(() => console.error("the end"))`;
  const problems = await found({ script }, /the end/, true);
  assert.equal(problems.length, 1, problems.join("\n"));
}));

test("the front passes on what the Worker says, and changes it where it is told to", async () => {
  const front = await Front.start(stack.worker);
  try {
    // No part of this answer moves with the time.
    const path = "/api/v1/agents?limit=3";
    const ask = async () => {
      const answer = await fetch(`${front.url}${path}`);
      return { status: answer.status, headers: answer.headers, body: await answer.text() };
    };
    const direct = await fetch(`${stack.worker}${path}`);
    const plain = await ask();
    assert.equal(plain.body, await direct.text());
    assert.equal(plain.headers.get("etag"), direct.headers.get("etag"));

    front.on(/\/agents/, { rewrite: (body) => body.replace('"status":"Active"', '"status":"Revoked"') });
    const lie = await ask();
    assert.equal(lie.status, 200);
    assert.equal(lie.body, plain.body.replace('"status":"Active"', '"status":"Revoked"'));
    assert.notEqual(lie.body, plain.body);

    front.on(/\/agents/, { answer: { status: 429, body: "{}", headers: { "retry-after": "7" } } });
    const refused = await ask();
    assert.deepEqual([refused.status, refused.headers.get("retry-after"), refused.body], [429, "7", "{}"]);

    front.on(/\/agents/, { close: true });
    await assert.rejects(ask());

    let release;
    front.on(/\/agents/, { hold: new Promise((done) => (release = done)) });
    const held = ask();
    const asked = front.requests.length;
    await eventually(() => assert.equal(front.requests.length, asked + 1));
    release();
    assert.equal((await held).body, plain.body);

    front.heal();
    assert.equal((await ask()).body, plain.body);
  } finally {
    await front.close();
  }
});

test("to the Worker each request is another client's", async () => {
  const front = await Front.start(stack.worker);
  const remaining = async () => Number((await fetch(`${front.url}/api/v1/stats`)).headers.get("x-ratelimit-remaining"));
  try {
    assert.deepEqual([await remaining(), await remaining()], [59, 59]);
  } finally {
    await front.close();
  }
});

for (const where of ["window.ethereum", "EIP-6963"]) {
  test(`a wallet in ${where} signs, says no, and asks the chain for the rest`, async () => {
    const wallet = new BrowserWallet(stack.rpc);
    await served({ body: "", script: "" }, (url) => withPage(async (context) => {
      await wallet.install(context, where);
      const page = await context.newPage();
      await page.goto(url);
      const ask = (method, params) =>
        page.evaluate(
          async ([method, params]) => {
            const announced = new Promise((done) => {
              if (window.ethereum) done(window.ethereum);
              addEventListener("eip6963:announceProvider", ({ detail }) => done(detail.provider));
              dispatchEvent(new Event("eip6963:requestProvider"));
            });
            const provider = await announced;
            return provider.request({ method, params }).then(
              (result) => ({ result }),
              ({ code, message, name }) => ({ code, message, name }),
            );
          },
          [method, params],
        );

      assert.deepEqual(await ask("eth_requestAccounts"), { result: [wallet.address] });
      assert.deepEqual(await ask("eth_chainId"), { result: "0x7a69" });
      assert.deepEqual(await ask("eth_getBalance", [wallet.address, "latest"]), { result: "0x0" });
      assert.equal((await ask("eth_nonsense")).code, -32601);

      const domain = { name: "Test", version: "1", chainId: "31337", verifyingContract: stack.registry };
      const types = { Letter: [{ name: "text", type: "string" }, { name: "pages", type: "uint256" }] };
      const message = { text: "hello", pages: "3" };
      const own = [{ name: "name", type: "string" }];
      const typed = { domain, types: { ...types, EIP712Domain: own }, primaryType: "Letter", message };
      const { result } = await ask("eth_signTypedData_v4", [wallet.address, JSON.stringify(typed)]);
      assert.equal(verifyTypedData(domain, types, message, result), wallet.address);

      wallet.chainId = 5;
      assert.deepEqual(await ask("eth_chainId"), { result: "0x5" });
      wallet.rejects.add("eth_signTypedData_v4");
      const no = await ask("eth_signTypedData_v4", [wallet.address, JSON.stringify(typed)]);
      assert.deepEqual(no, { code: 4001, message: "User rejected the request.", name: "Error" });
    }));
  });
}
