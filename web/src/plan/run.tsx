/** The controls that start an execution, either immediately or after a dialog for its input and options. */

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, useAsk } from "../api/client";
import { SavedPlans, type ExecutionMode, type ExecutionOptions, type Json } from "../api/generated";
import { isFields, isNumber, parse, print, type Fields as JsonFields } from "../api/json";
import { RepeatedList } from "../execution/repeated";
import { Fields, type Schema } from "../tools/form";
import { ActButton } from "../ui/act-button";
import { Dialog } from "../ui/dialog";
import { toApiError, Refused } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Choice } from "../ui/page";
import { EarlierInput } from "./earlier-input";
import type { LastRun } from "./last-run";

/**
 * The options of a new execution. With `saved`, it runs a saved plan, so the server checks the input against the
 * plan's schema.
 */
export interface Wanted {
  options: ExecutionOptions;
  saved: string | null;
}

interface BarProps {
  isBusy: boolean;
  hasErrors: boolean;
  onRun: (options: ExecutionOptions) => void;
  onMore: (options: ExecutionOptions) => void;
  onKeep: (() => void) | null;
  onSaveAs: () => void;
}

const MODES = [
  ["PARALLEL", "Parallel"],
  ["SEQUENTIAL", "Sequential"],
] as const;

export function RunBar({ isBusy, hasErrors, onRun, onMore, onKeep, onSaveAs }: BarProps) {
  const [mode, setMode] = useState<ExecutionMode>("PARALLEL");
  const [isDry, setDry] = useState(false);
  const options = { mode, dryRun: isDry };
  return (
    <div class="buttons">
      <label class="check">
        <input type="checkbox" checked={isDry} onChange={(event) => setDry(event.currentTarget.checked)} />
        Dry run
      </label>
      <Choice label="Mode" value={mode} options={MODES} onChange={(it) => setMode(it as ExecutionMode)} />
      {onKeep && (
        <ActButton needs="revisePlan" disabled={isBusy || hasErrors} onClick={onKeep}>
          Save version
        </ActButton>
      )}
      <ActButton needs="savePlan" disabled={isBusy || hasErrors} onClick={onSaveAs}>
        Save as…
      </ActButton>
      <ActButton needs="executePlan" disabled={isBusy || hasErrors} onClick={() => onMore(options)}>
        Run with options…
      </ActButton>
      <ActButton
        needs="executePlan"
        class="primary"
        disabled={isBusy || hasErrors}
        onClick={() => onRun(options)}
      >
        <Icon name="play" />
        Run
      </ActButton>
    </div>
  );
}

/**
 * Returns the names after `input.` in a plan's templates and conditions, and an empty name for the whole input. Inline
 * plans are left out, because they have an input of their own.
 */
export function inputsOf(steps: readonly JsonFields[]): string[] {
  const names = new Set<string>();
  for (const step of steps) {
    const { inlinePlan: _, plan, ...own } = step;
    const text = print({ ...own, ...(typeof plan === "string" ? { plan } : {}) });
    const templates = [...text.matchAll(/\{\{([^{}]*)\}\}/g)].map((it) => it[1]!);
    if (typeof step.when === "string") templates.push(step.when);
    for (const it of templates) {
      for (const found of it.matchAll(/(?<![\w.\]])input(?:\.([A-Za-z_]\w*)|\[\\?"([^"\\]+)\\?"\])?/g)) names.add(found[1] ?? found[2] ?? "");
    }
  }
  return [...names];
}

/**
 * Returns the JSON Schema of a saved plan's input. The plan states either a whole schema or only its properties. In the
 * second case, properties without a default are required.
 */
export function schemaOf(inputs: Json): Schema | null {
  if (!isFields(inputs)) return null;
  if (isFields(inputs.properties) || typeof inputs.type === "string" || inputs.$ref !== undefined) return inputs;
  const required = Object.entries(inputs).flatMap(([name, it]) => (isFields(it) && it.default !== undefined ? [] : [name]));
  return { type: "object", properties: inputs, required };
}

interface AgainProps {
  last: LastRun;
  onRun: () => Promise<void>;
  onClose: () => void;
}

/** Asks for confirmation before a new execution of a plan repeats calls with effects. */
export function RunAgainDialog({ last, onRun, onClose }: AgainProps) {
  return (
    <Dialog title="Run the plan again?" action="Run" tone="bad" onClose={onClose} onDo={onRun}>
      <p>A new execution of all its steps.</p>
      <RepeatedList {...last} />
    </Dialog>
  );
}

interface DialogProps {
  /** The id of the stored plan. Null if the plan is not stored, or was changed after it was stored. */
  planId: string | null;
  /** The request whose earlier executions offer their input. */
  requestId: string | null;
  /** The names that `inputsOf` returns. */
  inputs: readonly string[];
  /** Reads the calls of the plan's last execution that a new execution would repeat. */
  readLast: (signal: AbortSignal) => Promise<LastRun | null>;
  start: ExecutionOptions;
  onRun: (wanted: Wanted) => Promise<void>;
  onClose: () => void;
}

/** The choices for `compensateOnFailure`. Any other choice sets it to null, so that the server decides by the plan. */
const COMPENSATION: Record<string, boolean> = { true: true, false: false };

/** Asks for the input and the options of a new execution. */
export function RunDialog({ planId, requestId, inputs, readLast, start, onRun, onClose }: DialogProps) {
  const asked = useAsk(SavedPlans, {});
  const last = useLast(readLast);
  /**
   * True once the page knows if the plan is a saved plan. Until then the plan cannot be run, because its input would
   * not be checked against the saved plan's schema.
   */
  const isReady = planId === null || asked.data !== null || asked.error !== null;
  const saved = planId === null ? undefined : asked.data?.savedPlans.find((it) => it.planId === planId);
  const schema = useMemo(() => schemaOf(saved?.inputs ?? null), [saved]);
  const [input, setInput] = useState<Json | undefined>(() =>
    start.input !== undefined && start.input !== null
      ? start.input
      : inputs.some((it) => it !== "")
        ? Object.fromEntries(inputs.filter((it) => it !== "").map((it) => [it, ""]))
        : undefined,
  );
  const [isTyped, setTyped] = useState(false);
  const [text, setText] = useState(() => (input === undefined ? "" : print(input, 2)));
  const [options, setOptions] = useState<ExecutionOptions>(start);
  const [deadline, setDeadline] = useState(start.deadlineMs ? String(start.deadlineMs / 1_000) : "");
  const [startAt, setStartAt] = useState("");
  const set = (change: Partial<ExecutionOptions>) => setOptions((old) => ({ ...old, ...change }));
  const run = async () => {
    let given: Json = null;
    if (schema) given = withoutGuesses(input, isTyped, schema);
    else if (text.trim() !== "") given = parse(text);
    const seconds = deadline.trim() === "" ? null : Number(deadline);
    if (seconds !== null && !(seconds > 0)) throw new ApiError("the time limit is a number of seconds, more than 0", "INVALID_ARGUMENT");
    await onRun({
      options: {
        ...options,
        input: given,
        deadlineMs: seconds === null ? null : Math.round(seconds * 1_000),
        startAt: startAt === "" ? null : new Date(startAt).toISOString(),
      },
      saved: schema ? (saved?.name ?? null) : null,
    });
  };
  const repeated = options.dryRun === true ? null : last.run;
  return (
    <Dialog title="Run the plan" action="Run it" {...(repeated ? { tone: "bad" as const } : {})} onClose={onClose} onDo={run} isReady={isReady && last.isKnown} isWide>
      {requestId !== null && (
        <EarlierInput
          requestId={requestId}
          onInput={(earlier) => {
            setTyped(true);
            setInput(earlier ?? undefined);
            setText(earlier === null ? "" : print(earlier, 2));
          }}
        />
      )}
      {schema ? (
        <fieldset>
          <legend>Input, as “{saved?.name}” takes it</legend>
          <Fields
            schema={schema}
            root={schema}
            value={isTyped ? input : undefined}
            onValue={(it) => {
              setTyped(true);
              setInput(it);
            }}
          />
        </fieldset>
      ) : (
        <label class="field">
          <span>Input, as JSON{inputs.length > 0 ? "" : " (optional)"}</span>
          <textarea class="mono" rows={Math.min(10, Math.max(3, text.split("\n").length))} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      )}
      <div class="pairs">
        <label class="field">
          <span>Mode</span>
          <select value={options.mode ?? "PARALLEL"} onChange={(event) => set({ mode: event.currentTarget.value as ExecutionMode })}>
            {MODES.map(([it, name]) => (
              <option key={it} value={it}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>Parallel steps</span>
          <input type="number" min={1} step={1} placeholder="256" value={options.maxParallel ?? ""} onInput={(event) => set({ maxParallel: event.currentTarget.value === "" ? null : Number(event.currentTarget.value) })} />
        </label>
        <label class="field">
          <span>Time limit, in seconds</span>
          <input type="text" inputMode="decimal" placeholder="none" value={deadline} onInput={(event) => setDeadline(event.currentTarget.value)} />
        </label>
        <label class="field">
          <span>Priority</span>
          <input type="number" step={1} value={options.priority ?? 0} onInput={(event) => set({ priority: Number(event.currentTarget.value) })} />
        </label>
        <label class="field">
          <span>Start at</span>
          <input type="datetime-local" step={1} value={startAt} onInput={(event) => setStartAt(event.currentTarget.value)} />
        </label>
        <label class="field">
          <span>If it fails</span>
          <select value={String(options.compensateOnFailure ?? "")} onChange={(event) => set({ compensateOnFailure: COMPENSATION[event.currentTarget.value] ?? null })}>
            <option value="">Compensate if the plan can</option>
            <option value="true">Compensate</option>
            <option value="false">Do not compensate</option>
          </select>
        </label>
      </div>
      <label class="check">
        <input type="checkbox" checked={options.dryRun === true} onChange={(event) => set({ dryRun: event.currentTarget.checked })} />
        Dry run: everything is checked, and nothing is called
      </label>
      <label class="check">
        <input type="checkbox" checked={options.strictTemplates === true} onChange={(event) => set({ strictTemplates: event.currentTarget.checked || null })} />
        Strict templates: fail on missing fields, also in tools that only read
      </label>
      {last.error && <Refused error={last.error} />}
      {repeated && <RepeatedList {...repeated} />}
    </Dialog>
  );
}

/** Reads the calls that a new execution would repeat. `isKnown` is true after the answer or an error arrived. */
function useLast(read: (signal: AbortSignal) => Promise<LastRun | null>) {
  const [state, setState] = useState<{ run: LastRun | null; error: ApiError | null; isKnown: boolean }>({ run: null, error: null, isKnown: false });
  useEffect(() => {
    const gone = new AbortController();
    read(gone.signal).then(
      (run) => gone.signal.aborted || setState({ run, error: null, isKnown: true }),
      (error: unknown) => gone.signal.aborted || setState({ run: null, error: toApiError(error), isKnown: true }),
    );
    return () => gone.abort();
  }, []);
  return state;
}

/** Returns the fields that the user filled in, or an empty object. Throws if a field for a number contains other text. */
export function withoutGuesses(input: Json | undefined, isTyped: boolean, schema: Schema): Json {
  const given = isTyped && isFields(input) ? { ...input } : {};
  const properties = isFields(schema.properties) ? schema.properties : {};
  for (const name of Object.keys(given)) {
    const kind = isFields(properties[name]) ? properties[name].type : undefined;
    if ((kind === "integer" || kind === "number") && !isNumber(given[name])) throw new SyntaxError(`\`${name}\` is a number`);
  }
  return given;
}
