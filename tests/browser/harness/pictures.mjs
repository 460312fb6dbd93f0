// Where pictures of the page go.

import { fileURLToPath } from "node:url";

/** Every run's screenshots. */
export const PICTURES = fileURLToPath(new URL("../../../target/screenshots", import.meta.url));

/** The README's. */
export const DOCS = fileURLToPath(new URL("../../../docs", import.meta.url));
