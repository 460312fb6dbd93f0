/** The visitor's own endpoints and the theme. A link may fill the form in, but only the visitor saves it. */

import { useState } from "preact/hooks";

import { addressRule, optional, useForm } from "../form";
import { Check } from "../parts/check";
import { Field } from "../parts/field";
import { Form } from "../parts/form";
import { Heading } from "../parts/heading";
import { Select } from "../parts/select";
import type { Route } from "../router";
import { chooseTheme, save, settings as stored, theme, urlFault, type Theme } from "../settings";

const THEMES: [Theme, string][] = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];

export function SettingsView({ route: { query } }: { route: Route }) {
  return (
    <>
      <Heading title="Settings" />
      <p class="lead">Kept in this browser, and used for nothing but to reach these services.</p>
      {/* Another link fills in another form. */}
      <SettingsForm key={query.toString()} query={query} />
    </>
  );
}

function SettingsForm({ query }: { query: URLSearchParams }) {
  const form = useForm(
    () => {
      const current = stored();
      return {
        rpc: query.get("rpc") ?? current.rpcUrl,
        relayer: query.get("relayer") ?? current.relayerUrl,
        registry: query.get("registry") ?? current.registry,
      };
    },
    { rpc: optional(urlFault), relayer: optional(urlFault), registry: optional(addressRule) },
  );
  const [asksPrivately, setAsksPrivately] = useState(() => stored().asksPrivately);
  const [saved, setSaved] = useState<{ isKept: boolean }>();
  const submit = (): void => {
    if (!form.check()) return setSaved(undefined);
    const isKept = save({
      rpcUrl: form.text("rpc"),
      relayerUrl: form.text("relayer").replace(/\/+$/, ""),
      registry: form.text("registry"),
      asksPrivately,
    });
    setSaved({ isKept });
  };
  return (
    <Form class="form" onSubmit={submit}>
      {["rpc", "relayer", "registry"].some((name) => query.has(name)) && (
        <p class="note">Filled in by the link you followed. Nothing is kept until you save.</p>
      )}
      <Field
        {...form.bind("rpc")}
        id="rpc"
        label="RPC URL"
        help="A JSON-RPC endpoint of the registry's chain that you trust, and that web pages may ask (CORS). The API's answers are verified with it."
        placeholder="https://"
      />
      <Field
        {...form.bind("relayer")}
        id="relayer"
        label="Relayer URL"
        help="Where signed registrations go. The relayer pays for them."
        placeholder="https://"
      />
      <Field
        {...form.bind("registry")}
        id="registry"
        label="Registry address"
        help="The registry you know to be the right one. Left empty, the one the API names is believed."
        placeholder="0x"
      />
      <Check
        id="privately"
        label="Ask privately"
        help="A wallet's verdict is looked up in a range of wallets: the service learns the range, and not the wallet. It takes a service with an index."
        checked={asksPrivately}
        onChecked={setAsksPrivately}
      />
      <ThemeChoice />
      <button type="submit" class="primary">
        Save settings
      </button>
      <div class="outcome">
        {/* A new element each time, which screen readers read out again. */}
        {saved && <Outcome key={saved} isKept={saved.isKept} />}
      </div>
    </Form>
  );
}

function ThemeChoice() {
  const [chosen, setChosen] = useState(theme);
  return (
    <Select
      id="theme"
      label="Theme"
      options={THEMES}
      value={chosen}
      onValue={(next) => {
        setChosen(next);
        chooseTheme(next);
      }}
    />
  );
}

function Outcome({ isKept }: { isKept: boolean }) {
  return isKept ? (
    <p role="status" class="good">
      Saved in this browser.
    </p>
  ) : (
    <p role="alert">This browser does not let the page keep anything: its storage is switched off.</p>
  );
}
