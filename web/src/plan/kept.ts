/** Unsaved text. It stays in the tab's storage until the plan is stored. */

export interface Kept {
  query: string;
  text: string;
}

const KEY_PREFIX = "faber.draft:";
/** Maximum length of a text that is stored. A tab has space for about five million characters. */
const MAX_CHARS = 1_500_000;

export function readUnsaved(path: string): Kept | null {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY_PREFIX + path) ?? "null") as Partial<Kept> | null;
    return found && typeof found.text === "string" ? { query: String(found.query ?? ""), text: found.text } : null;
  } catch {
    return null;
  }
}

/** Stores unsaved text for a URL. With null, removes the stored text. */
export function storeUnsaved(path: string, kept: Kept | null): void {
  try {
    if (kept && kept.text.length + kept.query.length <= MAX_CHARS) sessionStorage.setItem(KEY_PREFIX + path, JSON.stringify(kept));
    else sessionStorage.removeItem(KEY_PREFIX + path);
  } catch {
    // If the storage is full, the text is lost when the page is closed.
  }
}
