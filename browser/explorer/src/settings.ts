/** What the visitor chose, kept in this browser alone. */

export type Theme = "system" | "light" | "dark";

export interface Settings {
  /** JSON-RPC endpoint to verify answers with; empty for none. */
  rpcUrl: string;
  /** Relayer to register through; empty for none. */
  relayerUrl: string;
  /** The registry the visitor knows to be the right one; empty to believe the API. */
  registry: string;
  /** Whether the API is asked for ranges of wallets in place of the one looked up. */
  asksPrivately: boolean;
}

const KEY = "agent-registry.settings";
/** `theme.ts` reads this one before the first paint. */
const THEME_KEY = "agent-registry.theme";

const NOTHING: Settings = { rpcUrl: "", relayerUrl: "", registry: "", asksPrivately: false };

/** The settings as saved; empty ones where there are none, or where storage is switched off. */
export function settings(): Settings {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const value = (name: keyof Settings): unknown =>
      (stored as Partial<Record<keyof Settings, unknown>> | null)?.[name];
    const of = (name: keyof Settings): string => {
      const text = value(name);
      return typeof text === "string" ? text : "";
    };
    // What was stored by hand, or by an older page, is checked as what is typed in.
    const url = (text: string): string => (urlFault(text) === undefined ? text : "");
    return {
      rpcUrl: url(of("rpcUrl")),
      relayerUrl: url(of("relayerUrl")),
      registry: of("registry"),
      asksPrivately: value("asksPrivately") === true,
    };
  } catch {
    return NOTHING;
  }
}

/** Keeps the settings. False where the browser does not allow it. */
export function save(chosen: Settings): boolean {
  return store(KEY, JSON.stringify(chosen));
}

/** The theme as chosen. */
export function theme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** Shows a theme, and keeps it. */
export function chooseTheme(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
  store(THEME_KEY, chosen);
}

/** What is wrong with a service's address, or nothing. */
export function urlFault(text: string): string | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return "must be a whole address, such as https://rpc.example.org";
  }
  const local = ["127.0.0.1", "localhost"].includes(url.hostname);
  if (url.protocol !== "https:" && !(local && url.protocol === "http:")) {
    return "must begin with https:// (or http:// on this computer)";
  }
  if (url.username !== "" || url.password !== "") return "must not hold a user name or password";
  return undefined;
}

function store(key: string, value: string): boolean {
  try {
    localStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}
