/** The state of the connection to the server, and the access token for the server. */

import { PREFIX } from "../prefix";
import { Cell } from "./cell";

const TOKEN_KEY = "faber.token";
const SIGN_IN_KEY = "faber.signIn";
/** The server accepts a session only from requests with this header, because pages of other sites cannot send it. */
export const PAGE_HEADER = { "x-faber-page": "1" };
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

/** The sign-in through an OpenID provider. */
export interface SignIn {
  /** False if only bearer tokens of the provider give access. */
  canSignIn: boolean;
  /** The name of the user. Null without a session. */
  caller: string | null;
}

/** The state of the sign-in. Null if the server has no sign-in. */
export const signIn = new Cell<SignIn | null>(null);

/** Asks the server for the state of the sign-in. */
export async function loadSignIn(): Promise<void> {
  try {
    const answer = await fetch(`${PREFIX}/auth/status`, { headers: { accept: "application/json", ...PAGE_HEADER }, cache: "no-store" });
    const state = answer.ok ? ((await answer.json()) as SignIn) : null;
    if (state?.canSignIn) localStorage.setItem(SIGN_IN_KEY, "1");
    else localStorage.removeItem(SIGN_IN_KEY);
    signIn.set(state);
  } catch {
    signIn.set(null);
  }
}

/** Returns whether the server had a sign-in when the page last asked for its state. */
export function hasSignIn(): boolean {
  return localStorage.getItem(SIGN_IN_KEY) !== null;
}

/** Returns the address that starts a sign-in and comes back to the current page. */
export function signInUrl(): string {
  return `${PREFIX}/auth/login?return_to=${encodeURIComponent(location.pathname + location.search)}`;
}

/** Ends the session in this browser. */
export async function signOut(): Promise<void> {
  await fetch(`${PREFIX}/auth/logout`, { method: "POST", headers: PAGE_HEADER });
  location.reload();
}

/** Notes that the server rejected the token, or wants one. */
export function refused(): void {
  wantsToken.set(token() ? "The server does not know this token." : "The server requires an access token.");
  void loadSignIn();
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
