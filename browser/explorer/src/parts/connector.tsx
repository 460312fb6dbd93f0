/** A button that connects a wallet, and the account that it gives. */

import { useState } from "preact/hooks";

import { useSignal } from "../hooks";
import { connect, wallets, type Wallet } from "../wallets";
import { Copyable } from "./address";
import { reason } from "./registrationResult";

/** An account that signs, and its wallet. */
export interface Signer {
  wallet: Wallet;
  account: string;
}

interface ConnectorProps {
  /** What the account is here. */
  who: string;
  /** Told the account that signs; `undefined` as soon as another is asked for, until there is one. */
  onConnected: (signer: Signer | undefined) => void;
}

export function Connector({ who, onConnected }: ConnectorProps) {
  const signal = useSignal();
  const [chosen, setChosen] = useState(0);
  const [outcome, setOutcome] = useState<{ account: string } | { fault: string }>();
  const known = wallets();
  const start = async (): Promise<void> => {
    onConnected(undefined);
    setOutcome(undefined);
    const now = wallets();
    const wallet = now[chosen] ?? now[0];
    if (wallet === undefined) {
      setOutcome({ fault: "This browser has no wallet. Install one, or open this page in a wallet's own browser." });
      return;
    }
    try {
      const account = await connect(wallet.provider);
      if (signal.aborted) return;
      onConnected({ wallet, account });
      setOutcome({ account });
    } catch (error) {
      if (signal.aborted) return;
      onConnected(undefined);
      setOutcome({ fault: reason(error) });
    }
  };
  return (
    <div>
      <div class="verification-row">
        <button type="button" onClick={() => void start()}>
          Connect wallet
        </button>
        {known.length > 1 && (
          <div class="field inline">
            <label for="wallet">Wallet</label>
            <select id="wallet" value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
              {known.map(({ name }, index) => (
                <option key={index} value={index}>
                  {name}
                </option>
              ))}
            </select>
          </div>
        )}
      </div>
      <div aria-live="polite" class="connected">
        {outcome === undefined ? (
          <p class="muted">Not connected.</p>
        ) : "fault" in outcome ? (
          <p role="alert" class="fault">
            {outcome.fault}
          </p>
        ) : (
          <p>
            {who} <Copyable text={outcome.account} />
          </p>
        )}
      </div>
    </div>
  );
}
