/** Sets the chosen theme before the first paint: a script of its own, loaded without waiting for the rest. */

try {
  const chosen = localStorage.getItem("agent-registry.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
} catch {
  // Storage is switched off: the system's theme it is.
}

export {};
