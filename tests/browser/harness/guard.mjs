// What no page of this project may do in any test: talk to third parties, break its own Content Security
// Policy, write errors to the console, throw, or open a dialog.

/** What Chromium writes to the console for an answer of 400 and above, or none. */
const FAILED_LOAD = /^Failed to load resource: /;

export class Guard {
  /** What pages did in this test that they may not do, in words. */
  problems = [];

  /** The origins that they sent requests to in this test. */
  origins = new Set();

  #allowed = new Set();
  #faultsExpected = false;

  /**
   * Begins a test.
   *
   * @param {string[]} allowed addresses of all that pages may talk to
   * @param {boolean} faultsExpected whether answers of 400 and above, and none, are part of the test
   */
  begin(allowed, faultsExpected) {
    this.problems = [];
    this.origins = new Set();
    this.#allowed = new Set(allowed.map((url) => new URL(url).origin));
    this.#faultsExpected = faultsExpected;
  }

  /** @param {import("playwright-core").BrowserContext} context */
  async watch(context) {
    await context.exposeBinding("__policyViolated", (_source, what) => this.#report("policy", what));
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) => {
        window.__policyViolated(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    context.on("request", (request) => this.#request(request.url()));
    context.on("page", (page) => {
      page.on("websocket", (socket) => this.#request(socket.url().replace(/^ws/, "http")));
      page.on("pageerror", (error) => this.#report("exception", error.stack ?? String(error)));
      page.on("dialog", async (dialog) => {
        this.#report("dialog", dialog.message());
        await dialog.dismiss();
      });
      page.on("console", (message) => {
        if (message.type() !== "error" && message.type() !== "warning") return;
        if (this.#faultsExpected && FAILED_LOAD.test(message.text())) return;
        this.#report(`console ${message.type()}`, `${message.text()} (${message.location().url})`);
      });
    });
  }

  #request(url) {
    const { protocol, origin } = new URL(url);
    if (protocol === "data:" || protocol === "blob:" || protocol === "about:") return;
    this.origins.add(origin);
    if (!this.#allowed.has(origin)) this.#report("third party", url);
  }

  #report(kind, what) {
    this.problems.push(`${kind}: ${what}`);
  }
}
