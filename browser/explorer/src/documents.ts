/** The shapes of the API's answers, as the browser package declares them, and the few values the page needs of them. */

import type { Status } from "../../pkg/index.js";

export type * from "../../pkg/index.js";

/** In the order of the contract's numbers. */
export const STATUSES: readonly Status[] = ["Active", "Suspended", "Revoked", "Terminated"];
