/** Whether the server answers, and who we are to it. */

import { Cell } from "./cell";

const KEY = "faber.token";
/** How long to wait before asking again whether the server is back, in milliseconds. */
const FIRST_WAIT = 250;
const LONGEST_WAIT = 4_000;

/** Whether the server can be reached. */
export const isLost = new Cell(false);
/** Counts how often the server came back: what was shown is asked for again. */
export const returns = new Cell(0);
/** Why a token is wanted; null where none is. */
export const wantsToken = new Cell<string | null>(null);

/** The access token, for as long as the tab is open. */
export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

/** Takes a token, and asks for everything again. */
export function setToken(value: string | null): void {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
  wantsToken.set(null);
  returns.set(returns.value + 1);
}

/** Says that the server wants a token, or another one. */
export function refused(): void {
  wantsToken.set(token() ? "The server does not know this token." : "The server wants an access token.");
}

/** Says that the server did not answer: from now on it is asked until it does. */
export function lost(): void {
  if (isLost.value) return;
  isLost.set(true);
  void untilBack();
}

async function untilBack(): Promise<void> {
  for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 1.6, LONGEST_WAIT)) {
    await pause(wait);
    try {
      const answer = await fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(5_000) });
      if (answer.ok) break;
    } catch {
      // Not yet.
    }
  }
  isLost.set(false);
  returns.set(returns.value + 1);
}

/** Waits, but no longer than until somebody looks at the page again or the network returns. */
function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      document.removeEventListener("visibilitychange", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end);
    document.addEventListener("visibilitychange", end);
  });
}
