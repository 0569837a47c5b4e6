/** The theme: light, dark, or the theme of the system. */

const KEY = "faber.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export type Theme = "light" | "dark";

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  if (kept === "light" || kept === "dark") return kept;
  return system.matches ? "dark" : "light";
}

/** Stores the chosen theme, unless it is the theme of the system. */
export function setTheme(value: Theme): void {
  if ((value === "dark") === system.matches) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, value);
  apply();
}

/** Applies the theme, now and after each change of the system's theme. */
export function followTheme(): void {
  system.addEventListener("change", apply);
  apply();
}

function apply(): void {
  document.documentElement.setAttribute("data-theme", theme());
  dispatchEvent(new Event("faber:theme"));
}
