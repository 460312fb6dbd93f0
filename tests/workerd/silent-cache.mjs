// The module of a Worker whose data centre's cache does not answer.
import * as worker from "WORKER";

export * from "WORKER";
export default worker.default;

// A timer is pending, as a cache's reply would be: without one the runtime ends the request.
Cache.prototype.match = () => new Promise((answered) => setTimeout(answered, 3_600_000));
