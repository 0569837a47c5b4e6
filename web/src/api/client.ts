/** Sends queries, mutations and subscriptions to the server. */

import { createClient, type Client } from "graphql-ws";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { isLost, lost, PAGE_HEADER, refused, returns, token } from "./connection";
import { PREFIX, socketUrl } from "../prefix";
import { noteClock } from "../ui/time";
import { useCell } from "./cell";
import { EXACT, type Json, type Operation } from "./generated";
import { parse, print, revive } from "./json";

/** An error of the server, with its code. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly extensions: Record<string, Json> = {},
  ) {
    super(message);
  }
}

interface Answer {
  data?: unknown;
  errors?: { message: string; extensions?: Record<string, Json> }[];
}

/** Sends one operation. Throws an `ApiError` if the operation fails or the server cannot be reached. */
export async function ask<R, V>(operation: Operation<R, V>, variables: V, signal?: AbortSignal): Promise<R> {
  const headers: Record<string, string> = { "content-type": "application/json", accept: "application/json", ...PAGE_HEADER };
  const secret = token();
  if (secret) headers.authorization = `Bearer ${secret}`;
  let response: Response;
  let text: string;
  try {
    const body = print({ query: operation, variables });
    response = await fetch(`${PREFIX}/graphql`, { method: "POST", headers, body, signal: signal ?? null });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    lost();
    throw new ApiError("the server cannot be reached", "UNREACHABLE");
  }
  noteClock(response.headers.get("date"));
  // If the user changed the token during the request, the answer concerns only the old token.
  if (response.status === 401 && !signal?.aborted && secret === token()) refused();
  const answer = read(text, response);
  const [first] = answer.errors ?? [];
  if (first) throw new ApiError(first.message, String(first.extensions?.code ?? "INTERNAL"), first.extensions);
  return answer.data as R;
}

/** Reads an answer. If a proxy answers instead of the server, the text is perhaps not JSON. */
function read(text: string, response: Response): Answer {
  try {
    return parse(text, EXACT) as unknown as Answer;
  } catch {
    const about = text.replace(/<[^>]*>/g, " ").replace(/\s+/g, " ").trim().slice(0, 200);
    throw new ApiError(`the answer is not JSON: ${response.status} ${response.statusText}${about ? `: ${about}` : ""}`, "BAD_ANSWER");
  }
}

/** The state of a query that a component shows. */
export interface Asked<R> {
  data: R | null;
  error: ApiError | null;
  isLoading: boolean;
  /** False without data, and while the data still belongs to the previous variables. */
  isCurrent: boolean;
  refresh: () => void;
}

/** Answers with more characters than this are large. The larger an answer is, the less often it is polled. */
const LARGE_ANSWER_CHARS = 200_000;
/** Maximum factor by which the poll interval of a large answer grows. */
const MAX_POLL_FACTOR = 10;

/**
 * Runs a query while a component is shown. Runs it again when the variables change, when the server is back, and every
 * `poll` milliseconds while the page is visible. Large answers are polled up to ten times less often. With null
 * variables, no query is sent. The old data stays until the new data has arrived.
 */
export function useAsk<R, V>(operation: Operation<R, V>, variables: V | null, poll?: number): Asked<R> {
  const key = print(variables);
  const epoch = useCell(returns);
  const [round, setRound] = useState(0);
  const [state, setState] = useState<{ key: string; data: R | null; error: ApiError | null; isLoading: boolean }>({
    key,
    data: null,
    error: null,
    isLoading: true,
  });
  const shown = useRef("");
  // A refresh does not abort a running query, because frequent refreshes would then prevent every answer.
  const flight = useRef({ isBusy: false, isStale: false });
  useEffect(() => {
    if (variables === null) return;
    const gone = new AbortController();
    const own = { isBusy: true, isStale: false };
    flight.current = own;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let pause = poll;
    const load = async () => {
      own.isBusy = true;
      try {
        const data = await ask(operation, variables, gone.signal);
        if (gone.signal.aborted) return;
        const text = poll ? key + print(data) : "";
        if (!poll || text !== shown.current) setState({ key, data, error: null, isLoading: false });
        shown.current = text;
        if (poll) pause = poll * Math.min(MAX_POLL_FACTOR, Math.max(1, text.length / LARGE_ANSWER_CHARS));
      } catch (error) {
        if (gone.signal.aborted) return;
        shown.current = "";
        setState((old) => ({ ...old, error: error as ApiError, isLoading: false }));
      }
      own.isBusy = false;
      if (own.isStale) setRound((it) => it + 1);
      else if (poll && !isLost.value) timer = setTimeout(again, pause);
    };
    const again = () => {
      if (document.hidden) timer = setTimeout(again, poll);
      else void load();
    };
    setState((old) => (old.isLoading ? old : { ...old, isLoading: !poll || old.key !== key }));
    void load();
    return () => {
      gone.abort();
      own.isBusy = false;
      clearTimeout(timer);
    };
  }, [operation, key, poll, epoch, round]);
  const refresh = useCallback(() => {
    if (flight.current.isBusy) flight.current.isStale = true;
    else setRound((it) => it + 1);
  }, []);
  return { data: state.data, error: state.error, isLoading: state.isLoading, isCurrent: state.data !== null && state.key === key, refresh };
}

let socket: Client | null = null;

function client(): Client {
  socket ??= createClient({
    url: socketUrl(),
    lazy: true,
    retryAttempts: 0,
    keepAlive: 10_000,
    connectionParams: () => {
      const secret = token();
      return secret ? { Authorization: `Bearer ${secret}` } : {};
    },
    jsonMessageReviver: revive,
    on: heartbeat(),
  });
  return socket;
}

/** Closes the connection if the server does not answer a ping. */
function heartbeat() {
  let open: WebSocket | undefined;
  let timer: ReturnType<typeof setTimeout>;
  return {
    opened: (it: unknown) => {
      open = it as WebSocket;
    },
    ping: (isReceived: boolean) => {
      if (!isReceived) timer = setTimeout(() => open?.close(4408, "no answer"), 5_000);
    },
    pong: (isReceived: boolean) => {
      if (isReceived) clearTimeout(timer);
    },
  };
}

/** Callbacks of a subscription. */
export interface SubscriptionHandlers<R> {
  next: (data: R) => void;
  /** The server rejected the subscription, or an answer contains an error. */
  refused?: (error: ApiError) => void;
  /** The server has ended the subscription. */
  done?: () => void;
  /**
   * Returns whether the subscription has nothing more to send. A server that stops also ends its subscriptions, so the
   * end of a subscription alone is not enough.
   */
  isDone?: () => boolean;
}

/**
 * Subscribes until the returned function is called. After a lost connection, it subscribes again with new
 * `variables()`. Let the variables name the last known position, so that no event is missed.
 */
export function follow<R, V>(operation: Operation<R, V>, variables: () => V, ear: SubscriptionHandlers<R>): () => void {
  let hasEnded = false;
  let leave: (() => void) | undefined;
  let stopListening: (() => void) | undefined;
  const broken = () => {
    if (hasEnded) return;
    lost();
    stopListening?.();
    stopListening = returns.listen(() => {
      stopListening?.();
      if (!hasEnded) begin();
    });
  };
  const begin = () => {
    leave = client().subscribe<R>(
      { query: operation, variables: variables() as Record<string, unknown> },
      {
        next: (answer) => {
          const [first] = answer.errors ?? [];
          if (first) ear.refused?.(new ApiError(first.message, String(first.extensions?.code ?? "INTERNAL")));
          if (answer.data) ear.next(answer.data);
        },
        error: (error) => {
          if (Array.isArray(error)) {
            const [first] = error as { message: string; extensions?: Record<string, Json> }[];
            ear.refused?.(new ApiError(first?.message ?? "", String(first?.extensions?.code ?? "INTERNAL")));
            return;
          }
          const code = (error as { code?: number } | null)?.code;
          if (code === 4401 || code === 4403) {
            refused();
            stopListening = returns.listen(() => {
              stopListening?.();
              if (!hasEnded) begin();
            });
          } else broken();
        },
        complete: () => {
          if (hasEnded) return;
          if (ear.isDone?.() ?? true) ear.done?.();
          else broken();
        },
      },
    );
  };
  begin();
  return () => {
    hasEnded = true;
    stopListening?.();
    leave?.();
  };
}
