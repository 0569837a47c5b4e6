/** The state of the connection to the server, and the access token for the server. */

import { Cell } from "./cell";

const TOKEN_KEY = "faber.token";
/** Delay before the first attempt to reach the server again, in milliseconds. */
const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 4_000;

/** True while the server cannot be reached. */
export const isLost = new Cell(false);
/** Counts when the server comes back or the token changes. Components use it to run their queries again. */
export const returns = new Cell(0);
/** The reason why the page must ask for a token. Null if no token is needed. */
export const wantsToken = new Cell<string | null>(null);

/** Returns the access token, which the browser keeps until the tab is closed. */
export function token(): string | null {
  return sessionStorage.getItem(TOKEN_KEY);
}

/** Stores a token, and runs all queries again. */
export function setToken(value: string | null): void {
  if (value) sessionStorage.setItem(TOKEN_KEY, value);
  else sessionStorage.removeItem(TOKEN_KEY);
  wantsToken.set(null);
  returns.set(returns.value + 1);
}

/** Notes that the server rejected the token, or wants one. */
export function refused(): void {
  wantsToken.set(token() ? "The server does not know this token." : "The server requires an access token.");
}

/** Notes that the server did not answer, and polls it until it answers. */
export function lost(): void {
  if (isLost.value) return;
  isLost.set(true);
  void waitForServer();
}

async function waitForServer(): Promise<void> {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 1.6, MAX_WAIT_MS)) {
    await waitForRetry(wait);
    try {
      const answer = await fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(5_000) });
      if (answer.ok) break;
    } catch {
      // The server still does not answer.
    }
  }
  isLost.set(false);
  returns.set(returns.value + 1);
}

/** Waits for this time, or until the user looks at the page again or the network returns. */
function waitForRetry(milliseconds: number): Promise<void> {
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
