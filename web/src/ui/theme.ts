/** Light, dark, or as the system has it. */

const KEY = "faber.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export type Theme = "light" | "dark";

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  if (kept === "light" || kept === "dark") return kept;
  return system.matches ? "dark" : "light";
}

/** Keeps a choice, unless it is the system's own. */
export function setTheme(value: Theme): void {
  if ((value === "dark") === system.matches) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, value);
  apply();
}

/** Shows the page in its colours, now and whenever the system changes them. */
export function followTheme(): void {
  system.addEventListener("change", apply);
  apply();
}

function apply(): void {
  document.documentElement.setAttribute("data-theme", theme());
  dispatchEvent(new Event("faber:theme"));
}
