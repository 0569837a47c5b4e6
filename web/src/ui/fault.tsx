/** What went wrong, what its code means, and what to do. */

import { CODES } from "../api/codes";
import { ApiError } from "../api/client";
import type { Json } from "../api/generated";
import { Num } from "../api/json";
import { Plain } from "./plain";
import { Words } from "./words";

export function Fault({ code, message, note }: { code: string; message: string; note?: string }) {
  const [means, help] = CODES[code] ?? [];
  return (
    <div class="fault">
      <p class="fault-head">
        <code>
          <Plain text={code} />
        </code>
        {note && <span class="faint">{note}</span>}
      </p>
      <p class="fault-message">
        <Words text={message.length > 4_000 ? `${message.slice(0, 4_000)}…` : message} />
      </p>
      {means && (
        <p class="fault-help">
          {sentence(means)} {help && help !== "nothing" && <strong>{sentence(help)}</strong>}
        </p>
      )}
    </div>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** A question that the server refused to answer. */
export function Refused({ error }: { error: ApiError }) {
  const diagnostics = error.extensions.diagnostics;
  return (
    <div class="refused" role="alert">
      <Fault code={error.code} message={error.message} />
      {Array.isArray(diagnostics) && <Problems problems={diagnostics as unknown as Problem[]} />}
    </div>
  );
}

/** A page of which nothing could be shown. */
export function RefusedPage({ title, error }: { title: string; error: ApiError }) {
  return (
    <div class="page">
      <header class="head">
        <h1 tabIndex={-1}>{title}</h1>
      </header>
      <Refused error={error} />
    </div>
  );
}

export interface Problem {
  severity: string;
  code: string;
  path: string;
  message: string;
  help?: string | null;
}

/** The most diagnostics that are shown at once. */
const MOST = 200;

/** Diagnostics of a plan; a path may be followed to its place. */
export function Problems({ problems, onGo }: { problems: readonly Problem[]; onGo?: (path: string) => void }) {
  return (
    <ul class="problems" aria-label="Diagnostics">
      {problems.slice(0, MOST).map((it, at) => (
        <li key={at} class={`problem-row tone-${it.severity === "ERROR" ? "bad" : "waiting"}`}>
          <p>
            <code class="problem-code">{it.code}</code>
            {it.path &&
              (onGo ? (
                <button type="button" class="link mono" onClick={() => onGo(it.path)}>
                  {it.path}
                </button>
              ) : (
                <span class="mono faint">{it.path}</span>
              ))}
          </p>
          <p>
            <Words text={it.message} />
          </p>
          {it.help && (
            <p class="faint">
              <Words text={it.help} />
            </p>
          )}
        </li>
      ))}
      {problems.length > MOST && <li class="faint">and {problems.length - MOST} more</li>}
    </ul>
  );
}

/** Whether a value has something in it. */
export function hasSomething(value: Json | undefined): boolean {
  if (value === null || value === undefined) return false;
  return typeof value !== "object" || value instanceof Num || Object.keys(value).length > 0;
}
