// node:test's results in cargo's words: a line a test, the failures in full below, and the counts in the line that
// `cargo xtask test` sums up by.

/** @param {AsyncIterable<{ type: string, data: any }>} events */
export default async function* report(events) {
  const started = performance.now();
  const failures = [];
  let passed = 0;
  for await (const { type, data } of events) {
    if (type === "test:stdout" || type === "test:stderr") yield data.message;
    if (type !== "test:pass" && type !== "test:fail") continue;
    // A suite is reported like a test; it counts only where it failed without one, in a hook for example.
    const isSuite = data.details?.type === "suite";
    const failsByItsTests = data.details?.error?.failureType === "subtestsFailed";
    if (data.skip !== undefined || (isSuite && (type === "test:pass" || failsByItsTests))) continue;
    const seconds = ((data.details?.duration_ms ?? 0) / 1000).toFixed(1);
    yield `test ${data.name} ... ${type === "test:pass" ? "ok" : "FAILED"} <${seconds}s>\n`;
    if (type === "test:pass") passed += 1;
    else failures.push({ name: data.name, error: data.details?.error });
  }
  for (const { name, error } of failures) yield `\n---- ${name} ----\n${told(error?.cause ?? error)}\n`;
  const verdict = failures.length === 0 ? "ok" : "FAILED";
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  yield `\ntest result: ${verdict}. ${passed} passed; ${failures.length} failed; finished in ${seconds}s\n`;
}

/** An error's message, with what was expected, and where it arose; then the same of its cause, such as a lost connection. */
function told(error) {
  const own = error?.stack ?? String(error);
  return error?.cause === undefined ? own : `${own}\ncaused by ${told(error.cause)}`;
}
