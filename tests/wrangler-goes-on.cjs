// Preloaded into wrangler (`--require`). Where a connection between its proxy and the Worker is lost, version 4.86, the last for Node 20,
// ends with an empty error: a page that is left, or one that is opened just as an idle connection is closed, can bring that about
// (cloudflare/workers-sdk#15451, #15452). Later versions say that the request has failed, and go on. So does this one, with this.

const Module = require("node:module");

const FATAL = 'this.emitErrorEvent("Error inside ProxyWorker", message.error);';
const MILD = 'logger.warn("Error inside ProxyWorker, the request has failed:", message.error.message);';

const compile = Module.prototype._compile;
Module.prototype._compile = function (content, filename, ...rest) {
  if (!filename.endsWith("wrangler-dist/cli.js")) return compile.call(this, content, filename, ...rest);
  // Another version may need another change, or none.
  if (!content.includes(FATAL)) throw new Error(`${__filename} is not for this version of wrangler`);
  return compile.call(this, content.replace(FATAL, MILD), filename, ...rest);
};
