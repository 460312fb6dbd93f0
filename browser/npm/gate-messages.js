// Requests as a gate reads them: their target, their content, and the headers that are the gate's alone.

/** The headers that the gate sets and no client can, each with its name in `agent`. */
export const OUTPUT = [
  ["kya-wallet", "wallet"],
  ["kya-agent-id", "agentId"],
  ["kya-decision", "decision"],
  ["kya-liable", "liable"],
  ["kya-liable-basis", "liableBasis"],
  ["kya-until", "until"],
  ["kya-verdict", "verdict"],
];

const NAMES = new Set(OUTPUT.map(([name]) => name));

/** Whether some service reads a header of this name as one of the gate's: CGI and its kin take every separator for the same. */
export const isOutput = (name) =>
  NAMES.has(
    name
      .trim()
      .toLowerCase()
      .replace(/[^0-9a-z]/g, "-"),
  );

/** Headers with the gate's in place of a client's own. */
export function replaced(headers, said) {
  const result = new Headers([...headers].filter(([name]) => !isOutput(name)));
  for (const [name, value] of Object.entries(said)) if (value) result.set(name, value);
  return result;
}

/** The path and query of a request as they are in its URL: `URL.search` forgets an empty query. */
export function targetOf(request) {
  const [whole] = request.url.split("#");
  return whole.slice(new URL(whole).origin.length);
}

/** Whether a `Request` may have content: its headers are no word about that. */
export const hasContent = (request) => request.body !== null;

/** The content of a request, of at most so many bytes; null where there is more. */
export async function contentOf(request, longest) {
  if (!request.body) return whole([new Uint8Array(await request.arrayBuffer())], longest);
  const reader = request.body.getReader();
  const content = await whole(chunksOf(reader), longest);
  // Not awaited: it ends when the request's other copy does.
  if (content === null) reader.cancel().catch(() => {});
  return content;
}

async function* chunksOf(reader) {
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

/** The bytes of all chunks together, at most so many; null where there are more, and `putBack` gets what was read. */
export async function whole(chunks, longest, putBack) {
  const read = [];
  let length = 0;
  for await (const chunk of chunks) {
    length += chunk.length;
    read.push(chunk);
    if (length > longest) break;
  }
  if (length > longest) {
    putBack?.(joined(read, length));
    return null;
  }
  return read.length === 1 ? read[0] : joined(read, length);
}

function joined(chunks, length) {
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
