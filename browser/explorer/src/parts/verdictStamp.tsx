/** What to do about a wallet, why, and until when. */

import { useLayoutEffect, useState } from "preact/hooks";

import type { Kya, KyaAgent, Timestamp } from "../documents";
import { duration } from "../format";
import { useNow } from "../hooks";
import { attestationEnds, REMARKS, verdictOf, WORDS, type Verdict } from "../verdict";
import { Ago, Time } from "./moment";

/** How soon an API is asked again that does not yet take a verdict for expired: at first and at most, in milliseconds. */
const [SOON, LATER] = [10_000, 3_600_000];

/** `again` asks for the verdict anew. */
export function VerdictStamp({ kya, again }: { kya: Kya; again: () => void }) {
  const verdict = verdictOf(kya);
  const { act, why } = WORDS[verdict];
  return (
    <div class="verdict" role="status" data-verdict={verdict}>
      <p class="verdict-act">{act}</p>
      <p class="verdict-why">{why}</p>
      {kya.agent && <Validity kya={kya} agent={kya.agent} verdict={verdict} again={again} />}
      <Remarks kya={kya} />
    </div>
  );
}

interface ValidityProps {
  kya: Kya;
  agent: KyaAgent;
  verdict: Verdict;
  again: () => void;
}

/** Until when the attestation is current, or since when it is not. */
function Validity({ kya, agent, verdict, again }: ValidityProps) {
  if (verdict === "renew-stopped") {
    return (
      <p class="verdict-time">
        Status {agent.status}; last attested <Time at={agent.lastAttestation} />.
      </p>
    );
  }
  const isCurrent = verdict === "provision";
  const ends = isCurrent ? kya.compliantUntil : attestationEnds(agent, false, Date.now());
  if (ends === undefined || ends === null) {
    return (
      <p class="verdict-time">
        Last attested <Time at={agent.lastAttestation} />; this registry's grace period is its own.
      </p>
    );
  }
  if (isCurrent) return <TimeLeft ends={ends} again={again} />;
  return (
    // As below: its words go on by the second in the first hour.
    <p class="verdict-time" aria-live="off">
      Attestation expired <Time at={ends} />, <Ago since={ends} />.
    </p>
  );
}

/** Asks for the verdict again once the one shown has expired. */
function TimeLeft({ ends, again }: { ends: Timestamp; again: () => void }) {
  // The last second counts as a whole.
  const moment = Date.parse(ends) + 1_000;
  const [late] = useState(() => Date.now() - moment);
  const seconds = (moment - useNow(moment)) / 1_000;
  const [isOver, left] = [seconds <= 0, duration(seconds)];
  useLayoutEffect(() => {
    if (!isOver) return undefined;
    if (late < 0) {
      again();
      return undefined;
    }
    // The API's clock is behind this one. The further it is, the less often it is asked.
    const timer = setTimeout(again, Math.min(Math.max(late, SOON), LATER));
    return () => clearTimeout(timer);
  }, [isOver]);
  return (
    // Otherwise screen readers would read out every second.
    <p class="verdict-time" aria-live="off">
      Attestation current until <Time at={ends} />,{" "}
      <strong class="left" key={left}>
        {left}
      </strong>{" "}
      left.
    </p>
  );
}

/** What else a provider should know. */
function Remarks({ kya: { reasons } }: { kya: Kya }) {
  const words = reasons.map((reason) => REMARKS[reason]).filter((remark) => remark !== undefined);
  if (words.length === 0) return null;
  return (
    <ul class="verdict-remarks" aria-label="Remarks">
      {words.map((word) => (
        <li key={word}>{word}</li>
      ))}
    </ul>
  );
}
