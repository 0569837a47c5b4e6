/** Unsaved text. It stays in the tab's storage until the user opens the same URL again. */

export interface Kept {
  query: string;
  text: string;
}

const KEY = "faber.draft:";
/** Maximum length of a text that is stored. A tab has space for about five million characters. */
const MOST = 1_500_000;

export function keptAt(path: string): Kept | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY + path) ?? "null") as Partial<Kept> | null;
    return found && typeof found.text === "string" ? { query: String(found.query ?? ""), text: found.text } : null;
  } catch {
    return null;
  }
}

/** Stores unsaved text for a URL. With null, removes it. */
export function keepAt(path: string, kept: Kept | null): void {
  try {
    if (kept && kept.text.length + kept.query.length <= MOST) sessionStorage.setItem(KEY + path, JSON.stringify(kept));
    else sessionStorage.removeItem(KEY + path);
  } catch {
    // If the storage is full, the text is lost when the page is closed.
  }
}
