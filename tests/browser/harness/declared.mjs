// Tests as their files declare them. `run.mjs` runs them once it has read all files: `node:test` itself can take what a module
// declares after an `await` for a test of another directory.

const tests = [];

/**
 * Declares a test, as `test` of `node:test` does.
 *
 * @param {string} name
 * @param {{ timeout?: number } | (() => unknown)} options
 * @param {() => unknown} [body]
 */
export function test(name, options, body) {
  if (typeof options === "function") [options, body] = [{}, options];
  tests.push({ name, options, body });
}

/** The tests that were declared since this was last called. */
export function takeDeclared() {
  return tests.splice(0);
}
