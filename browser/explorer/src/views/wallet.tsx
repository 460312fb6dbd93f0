/** The verdict on a wallet, as a provider acts on it. */

import type { Kya, KyaAgent, Liability } from "../documents";
import { Copyable, Hex } from "../parts/address";
import { AgentLink, Badge } from "../parts/agent";
import { Answered } from "../parts/answer";
import { Fact, Facts, LiableFact, TimeFact } from "../parts/facts";
import { Heading } from "../parts/heading";
import { Time } from "../parts/moment";
import { Privately } from "../parts/privately";
import { ChainText } from "../parts/text";
import { VerdictStamp } from "../parts/verdictStamp";
import { hrefTo, type Route } from "../router";
import { settings } from "../settings";
import { pastOf } from "../verdict";

export function WalletView({ route: { segments } }: { route: Route }) {
  const address = segments[1] ?? "";
  const isAddress = /^0x[0-9a-fA-F]{40}$/.test(address);
  return (
    <>
      <Heading title={isAddress ? `Wallet ${address.slice(0, 6)}…${address.slice(-4)}` : "Wallet"}>
        <span class="kicker">Wallet </span>
        <span class="heading-hex">
          <Hex text={address} />
        </span>
      </Heading>
      {settings().asksPrivately ? (
        <Privately key={address} address={address} placeholder={<Waiting />}>
          {(kya, again) => <Verdict address={address} kya={kya} again={again} />}
        </Privately>
      ) : (
        // With its past, so that a wallet revoked and registered again does not look new.
        <Answered<[Kya]> paths={[`/api/v1/kya/${encodeURIComponent(address)}?history=1`]} placeholder={<Waiting />}>
          {([{ document }], again) => <Verdict address={address} kya={document} again={again} />}
        </Answered>
      )}
    </>
  );
}

function Verdict({ address, kya, again }: { address: string; kya: Kya; again: () => void }) {
  return (
    <>
      <VerdictStamp kya={kya} again={again} />
      {kya.agent ? <Liable agent={kya.agent} liability={kya.liability} /> : <Unregistered />}
      <p>
        <a href={hrefTo(["liable", address])}>What this wallet is liable for</a>
      </p>
      <Past kya={kya} />
      <p class="muted">
        Checked <Time at={kya.checkedAt} />. An answer is kept for up to a minute.
      </p>
    </>
  );
}

function Liable({ agent, liability }: { agent: KyaAgent; liability: Liability | undefined }) {
  return (
    <Facts>
      <LiableFact liability={liability} agent={agent} />
      <Fact term="Agent">
        <AgentLink id={agent.agentId} /> <Badge status={agent.status} />
      </Fact>
      <Fact term="Operational scope">
        <ChainText text={agent.operationalScope} />
      </Fact>
      <TimeFact term="Registered" at={agent.registeredAt} />
      <TimeFact term="Last attested" at={agent.lastAttestation} />
      <Fact term="Creator">
        <Copyable text={agent.creator} />
      </Fact>
      <Fact term="Agent wallet">
        <Copyable text={agent.agentWallet} />
      </Fact>
    </Facts>
  );
}

function Unregistered() {
  return (
    <p>
      Nobody is liable for what this wallet does. Its holder can <a href={hrefTo(["register"])}>register it</a> without
      ETH.
    </p>
  );
}

/** Who had the wallet before, and which ancestors of its agent are not Active. */
function Past({ kya }: { kya: Kya }) {
  const { formerAgents, formerAgentsTruncated, ancestorsNotActive } = kya;
  const former = formerAgents === "unknown" ? [] : formerAgents;
  const ancestors = ancestorsNotActive === "unknown" ? [] : ancestorsNotActive;
  return (
    <>
      <h2>The wallet's past</h2>
      <p>
        {pastOf(kya)}
        {formerAgentsTruncated && " These are the newest of them."}
      </p>
      {former.length > 0 && (
        <ul aria-label="Former agents">
          {former.map(({ agentId, status, registeredAt }) => (
            <li key={agentId}>
              <AgentLink id={agentId} /> <Badge status={status} /> registered <Time at={registeredAt} />
            </li>
          ))}
        </ul>
      )}
      {ancestors.length > 0 && (
        <>
          <h2>Ancestors that are not Active</h2>
          <ul aria-label="Ancestors that are not Active">
            {ancestors.map(({ agentId, status }) => (
              <li key={agentId}>
                <AgentLink id={agentId} /> <Badge status={status} />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** As much room as the verdict takes. */
function Waiting() {
  return (
    <div class="verdict waiting">
      <p class="verdict-act">Asking…</p>
      <p class="verdict-why">The registry is being read.</p>
    </div>
  );
}
