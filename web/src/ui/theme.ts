/** Light, dark, or as the system has it. */

const KEY = "faber.theme";
export type Theme = "system" | "light" | "dark";

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function setTheme(value: Theme): void {
  if (value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, value);
  applyTheme();
}

export function applyTheme(): void {
  const value = theme();
  if (value === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", value);
  dispatchEvent(new Event("faber:theme"));
}

export function isDark(): boolean {
  const value = theme();
  return value === "dark" || (value === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
}
