/** What becomes of a signed request: an answer that is lost says nothing of it, so the relayer is asked for it by its id. */

import { ServiceError, TIME_LIMIT } from "./api";
import type { Relay } from "./relayer";

/** The polling interval, and how long the relayer may say nothing of a request, in milliseconds. */
const POLL = 2_000;
const PATIENCE = 120_000;

/** Refusals of a request that was carried out, or may have been. */
const MAY_BE_DONE = new Set(["ALREADY_RELAYED", "SUPERSEDED"]);

/** A relayer, as far as it is needed here. It answers or fails within the time limit of an exchange. */
interface Relaying {
  relay(signed: unknown): Promise<Relay>;
  state(id: string): Promise<Relay>;
}

/** The request was sent, and whether it was carried out is not known. */
export class Unsettled extends Error {
  constructor(
    /** The relay's id. */
    readonly id: string,
  ) {
    super(`The relayer has not said what became of ${id}.`);
  }
}

/**
 * Has a signed request carried out: sends it, asks for it by its id where no answer says what became of it, and sends the same bytes
 * again where the relayer does not know it. Throws a `ServiceError` where the relayer says that it was not carried out, and
 * `Unsettled` where it does not say so for two minutes; while a relay is pending it goes on.
 */
export async function settle(
  relayer: Relaying,
  id: string,
  signed: unknown,
  pause: (milliseconds: number) => Promise<void>,
): Promise<Relay> {
  // Whether the relayer may have the request: it is asked for it then, and sent it otherwise.
  let mayHave = false;
  let refusal: ServiceError | undefined;
  let left = PATIENCE;
  for (;;) {
    const began = performance.now();
    const asked: Promise<Relay> = mayHave ? relayer.state(id) : relayer.relay(signed);
    const answer = await asked.catch(serviceError);
    let seconds = 0;
    if (!(answer instanceof ServiceError)) {
      const { txHash, state = txHash === undefined ? "pending" : "executed" } = answer;
      if (state === "executed") return answer;
      if (state !== "pending") {
        const { error = "The relay was not executed.", code = "" } = answer;
        throw MAY_BE_DONE.has(code) ? new Unsettled(id) : new ServiceError(error, 200, code, undefined);
      }
      [mayHave, left] = [true, PATIENCE];
    } else if (!mayHave) {
      if (isFinal(answer)) throw answer;
      [mayHave, refusal] = [true, answer];
    } else {
      mayHave = answer.code !== "RELAY_NOT_FOUND";
      seconds = (mayHave ? answer : refusal)?.retryAfter ?? 0;
    }
    const wait = Math.max(POLL, seconds * 1_000);
    // A page that was suspended meanwhile has waited no longer than the limit.
    left -= wait + Math.min(performance.now() - began, TIME_LIMIT);
    if (left < 0) throw mayHave || refusal === undefined || MAY_BE_DONE.has(refusal.code) ? new Unsettled(id) : refusal;
    await pause(wait);
  }
}

function serviceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error;
  throw error;
}

/** Whether the relayer itself refuses a request that is sent, for good. */
function isFinal({ status, code }: ServiceError): boolean {
  const isRefused = status >= 400 && status < 500 && status !== 408 && status !== 429;
  return code === "CALL_REVERTED" || (isRefused && code !== "" && !MAY_BE_DONE.has(code));
}
