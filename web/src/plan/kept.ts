/** What somebody typed and has not kept yet: it waits in the tab until they come back to its address. */

export interface Kept {
  query: string;
  text: string;
}

const KEY = "faber.draft:";
/** The longest text that waits: tabs have room for about five million letters in all. */
const MOST = 1_500_000;

export function keptAt(path: string): Kept | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY + path) ?? "null") as Partial<Kept> | null;
    return found && typeof found.text === "string" ? { query: String(found.query ?? ""), text: found.text } : null;
  } catch {
    return null;
  }
}

/** Keeps it for an address, or with null lets it go. */
export function keepAt(path: string, kept: Kept | null): void {
  try {
    if (kept && kept.text.length + kept.query.length <= MOST) sessionStorage.setItem(KEY + path, JSON.stringify(kept));
    else sessionStorage.removeItem(KEY + path);
  } catch {
    // Where there is no room it is as before: it is lost with the page.
  }
}
