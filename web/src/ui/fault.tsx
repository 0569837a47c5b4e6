/** Shows errors: first the cause, then the meaning of the code and what to do. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { CODES } from "../api/codes";
import { ApiError } from "../api/client";
import type { Json } from "../api/generated";
import { Num } from "../api/json";
import { CopyButton } from "./copy-button";
import { Plain } from "./plain";
import { Words } from "./words";

/** Maximum number of characters of a cause. The trace contains the rest. */
const MAX_CAUSE_CHARS = 300;

/** Splits a message into the line with the cause and the whole text. The trace is null if it would only repeat the cause. */
export function partsOf(message: string): { cause: string; trace: string | null } {
  const text = message.trimEnd();
  const line = causeIn(text.split("\n").filter((line) => line.trim() !== ""));
  const cause = line.length > MAX_CAUSE_CHARS ? `${line.slice(0, MAX_CAUSE_CHARS)}…` : line;
  return { cause, trace: cause === text.trim() ? null : text };
}

/**
 * Returns the line of a trace with the cause. This is the last `Caused by:`. Without it, this is the last error, and
 * without an error the last line that is not a stack frame.
 */
function causeIn(lines: readonly string[]): string {
  const inner = lines.findLastIndex((line) => /^\s*Caused by:/.test(line));
  if (inner >= 0) {
    const said = lines[inner]!.replace(/^\s*Caused by:/, "").trim();
    // Some formats list the causes in the lines below, innermost last.
    const below = lines.slice(inner + 1).filter((_, at, all) => all.slice(0, at + 1).every((one) => /^\s/.test(one) && !FRAME.test(one)));
    if (said !== "" || below.length > 0) return said || below.at(-1)!.trim().replace(/^\d+:\s*/, "");
  }
  for (const line of lines.toReversed()) {
    const said = ERROR.exec(line)?.[1];
    // The word `Error` alone contains no information, so it is removed.
    if (said && !/^\s/.test(line)) return lines.length === 1 ? line.trim() : said.trim().replace(/^[Ee]rror: /, "");
  }
  return (lines.findLast((line) => !/^\s/.test(line) && !FRAME.test(line) && !LEFTOVER.test(line)) ?? lines.at(-1) ?? "").trim();
}

/** Matches a line with an error: `ValueError: …`, `java.io.IOException: …`, `Error [ERR_X]: …`. */
const ERROR = /(?:^|: )((?:Uncaught )?[\w.$]*(?:Error|Exception)(?: \[\w+\])?: .+)$/;
/** Matches stack frames of Java, JavaScript, Rust and Go. */
const FRAME = /^\s*(?:at .+[:)]|\.\.\. \d+ more|\d+: +[\w<].*::|\S+\.go:\d+|goroutine \d+ )/;
/** Matches lines that runtimes print after the cause. */
const LEFTOVER = /^(?:Node\.js v\d|exit status \d|note: |stack backtrace:|[\w./*()]+\(.*\)$|created by )/;

/** Returns the cause of a failure in one line. */
export function causeOf(message: string): string {
  return partsOf(message).cause;
}

interface FaultProps {
  code: string;
  message: string;
  /** The cause, if a finding names it better than the message. */
  cause?: string;
  /** The place of the error, such as a step. */
  at?: string;
  note?: string;
  /** Buttons for actions that help against the error. */
  actions?: ComponentChildren;
  children?: ComponentChildren;
}

/** An error. Every page shows errors in this form. */
export function Fault({ code, message, cause: known, at, note, actions, children }: FaultProps) {
  const [means, help] = CODES[code] ?? [];
  // A message that is contained in the cause is not shown twice.
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

/** The whole message. Its end is visible at first. */
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

/** An error, with its diagnostics. */
export function Refused({ error, actions }: { error: ApiError; actions?: ComponentChildren }) {
  const diagnostics = error.extensions.diagnostics;
  return (
    <div class="refused" role="alert">
      <Fault code={error.code} message={error.message} actions={actions} />
      {Array.isArray(diagnostics) && <Problems problems={diagnostics as unknown as Problem[]} />}
    </div>
  );
}

/** Converts anything that was thrown into an `ApiError`. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(error instanceof Error ? error.message : String(error), "");
}

/** A page that shows only an error. */
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

/** Maximum number of diagnostics that are shown. */
const MAX_DIAGNOSTICS = 200;

/** Diagnostics of a plan. A click on a path calls `onGo`. */
export function Problems({ problems, onGo }: { problems: readonly Problem[]; onGo?: (path: string) => void }) {
  return (
    <ul class="problems" aria-label="Diagnostics">
      {problems.slice(0, MAX_DIAGNOSTICS).map((it, at) => (
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
      {problems.length > MAX_DIAGNOSTICS && <li class="faint">and {problems.length - MAX_DIAGNOSTICS} more</li>}
    </ul>
  );
}

/** Returns whether a value is not empty. */
export function isNotEmpty(value: Json | undefined): boolean {
  if (value === null || value === undefined) return false;
  return typeof value !== "object" || value instanceof Num || Object.keys(value).length > 0;
}
