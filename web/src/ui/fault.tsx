/** What went wrong: the cause first, what its code means, and what to do. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { CODES } from "../api/codes";
import { ApiError } from "../api/client";
import type { Json } from "../api/generated";
import { Num } from "../api/json";
import { CopyButton } from "./json";
import { Plain } from "./plain";
import { Words } from "./words";

/** The most letters of a cause; more of it is in the trace. */
const CAUSE = 300;

/** A message in its parts: one line is the cause, and all of it the trace. */
export function partsOf(message: string): { cause: string; trace: string | null } {
  const text = message.trimEnd();
  const line = causeIn(text.split("\n").filter((line) => line.trim() !== ""));
  const cause = line.length > CAUSE ? `${line.slice(0, CAUSE)}…` : line;
  return { cause, trace: cause === text.trim() ? null : text };
}

/** The line of a trace that says why: `Caused by:` and `Error:` win, else it is the last that is no frame. */
function causeIn(lines: readonly string[]): string {
  const inner = lines.findLastIndex((line) => /^\s*Caused by:/.test(line));
  if (inner >= 0) {
    const said = lines[inner]!.replace(/^\s*Caused by:/, "").trim();
    // Some name the causes below, the innermost last.
    const below = lines.slice(inner + 1).filter((_, at, all) => all.slice(0, at + 1).every((one) => /^\s/.test(one) && !FRAME.test(one)));
    if (said !== "" || below.length > 0) return said || below.at(-1)!.trim().replace(/^\d+:\s*/, "");
  }
  for (const line of lines.toReversed()) {
    const said = ERROR.exec(line)?.[1];
    // `Error` alone says nothing.
    if (said && !/^\s/.test(line)) return lines.length === 1 ? line.trim() : said.trim().replace(/^[Ee]rror: /, "");
  }
  return (lines.findLast((line) => !/^\s/.test(line) && !FRAME.test(line) && !LEFTOVER.test(line)) ?? lines.at(-1) ?? "").trim();
}

/** A line that names an error: `ValueError: …`, `java.io.IOException: …`, `Error [ERR_X]: …`. */
const ERROR = /(?:^|: )((?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?: .+)$/;
/** A place in the code: of Java and JavaScript, Rust, Go. */
const FRAME = /^\s*(?:at .+[:)]|\.\.\. \d+ more|\d+: +[\w<].*::|\S+\.go:\d+|goroutine \d+ )/;
/** What runtimes write behind the cause. */
const LEFTOVER = /^(?:Node\.js v\d|exit status \d|note: |stack backtrace:|[\w./*()]+\(.*\)$|created by )/;

/** The cause of a failure, for places that have one line. */
export function causeOf(message: string): string {
  return partsOf(message).cause;
}

interface FaultProps {
  code: string;
  message: string;
  /** The cause, where it is known better than from the message. */
  cause?: string;
  /** Where it went wrong. */
  at?: string;
  note?: string;
  /** What can be done about it. */
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

/** A failure. Every place of the page shows failures like this. */
export function Fault({ code, message, cause: known, at, note, actions, children }: FaultProps) {
  const [means, help] = CODES[code] ?? [];
  // A message that the cause has all of is not shown twice.
  const { cause, trace } = known === undefined ? partsOf(message) : { cause: known, trace: known.includes(message.trim()) ? null : message.trimEnd() };
  return (
    <div class="fault">
      <div class="fault-head">
        {at && <strong>{at}</strong>}
        {code !== "" && (
          <code>
            <Plain text={code} />
          </code>
        )}
        {note && <span class="faint">{note}</span>}
        <CopyButton text={() => (code === "" ? message : `${code}: ${message}`)} label="Copy the error" />
      </div>
      <p class="fault-message">
        <Words text={cause} />
      </p>
      {means && (
        <p class="fault-help">
          {sentence(means)} {help && help !== "nothing" && <strong>{sentence(help)}</strong>}
        </p>
      )}
      {children}
      {actions && <div class="buttons">{actions}</div>}
      {trace !== null && <Trace text={trace} />}
    </div>
  );
}

/** The whole message, of which the end is seen. */
function Trace({ text }: { text: string }) {
  const box = useRef<HTMLPreElement>(null);
  const [isWhole, setWhole] = useState(false);
  useLayoutEffect(() => {
    const element = box.current;
    if (element && !isWhole) element.scrollTop = element.scrollHeight;
  }, [text, isWhole]);
  const lines = text.split("\n").length;
  return (
    <>
      <pre ref={box} class={`fault-trace${isWhole ? " is-whole" : ""}`} tabIndex={0} aria-label="Whole message">
        <Plain text={text} />
      </pre>
      <button type="button" class="link" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
        {isWhole ? "Show the end only" : lines > 1 ? `Show all ${lines} lines` : "Show all of it"}
      </button>
    </>
  );
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** A question that the server refused to answer. */
export function Refused({ error, actions }: { error: ApiError; actions?: ComponentChildren }) {
  const diagnostics = error.extensions.diagnostics;
  return (
    <div class="refused" role="alert">
      <Fault code={error.code} message={error.message} actions={actions} />
      {Array.isArray(diagnostics) && <Problems problems={diagnostics as unknown as Problem[]} />}
    </div>
  );
}

/** Anything that was thrown, as the refusal that it is or with its own words. */
export function asRefusal(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(error instanceof Error ? error.message : String(error), "");
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
