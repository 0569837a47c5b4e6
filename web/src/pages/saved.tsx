/** The saved plans: their list, and for each plan its input form and its history. */

import { useMemo, useState } from "preact/hooks";

import { ApiError, ask, useAsk } from "../api/client";
import { RemoveSavedPlan, RequestRuns, RunSavedPlan, SavedPlanList, SavedPlanOne, type Json, type SavedPlanOneResult } from "../api/generated";
import { isFields, parse, print, type Fields as JsonFields } from "../api/json";
import { inputsOf, schemaOf, withoutGuesses } from "../plan/run";
import { go } from "../router";
import { Fields } from "../tools/form";
import { ActButton } from "../ui/act-button";
import { Dialog } from "../ui/dialog";
import { Refused, RefusedPage, toApiError } from "../ui/fault";
import { Icon } from "../ui/icons";
import { Crumbs, Empty, Loading, useTitle } from "../ui/page";
import { Plain } from "../ui/plain";
import { formatAge, formatDateTime, useNow } from "../ui/time";
import { countText } from "../ui/words";
import { useListing } from "./listing";
import { rowOf, Rows } from "./rows";

const PAGE_SIZE = 200;
const HISTORY_POLL = 2_000;
const HISTORY_ROWS = 20;

export function SavedPage({ name }: { name: string | null }) {
  return name === null ? <SavedList /> : <SavedPlan key={name} name={name} />;
}

function SavedList() {
  useTitle("Saved plans");
  const asked = useAsk(SavedPlanList, { first: PAGE_SIZE, after: null });
  const now = useNow(30_000);
  const plans = asked.data?.savedPlans;
  return (
    <div class="page">
      <header class="head">
        <div class="head-line">
          <h1 tabIndex={-1}>Saved plans</h1>
          <a class="button primary" href="/new">
            <Icon name="plus" />
            New plan
          </a>
        </div>
      </header>
      <div class="scroll">
        {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
        {!plans && !asked.error && <Loading />}
        {plans?.length === 0 && (
          <Empty title="No saved plans yet">
            <p>A saved plan has a name. People run it with a form, and steps of other plans run it by its name.</p>
            <p>
              Open a plan and choose <strong>Save as…</strong>
            </p>
          </Empty>
        )}
        {plans && plans.length > 0 && (
          <ul class="cards" aria-label="Saved plans">
            {plans.map((saved) => (
              <li key={saved.name}>
                <a class="card" href={`/saved/${encodeURIComponent(saved.name)}`}>
                  <strong>
                    <Plain text={saved.name} />
                  </strong>
                  <span class="cut">
                    <Plain text={saved.plan?.query ?? saved.planId} />
                  </span>
                  <span class="grow" />
                  {saved.plan && <span class="faint">{countText(saved.plan.executionOrder.length, "step")}</span>}
                  <span class="faint">{isFields(saved.inputs) ? "with a form" : "any input"}</span>
                  <span class="faint" title={formatDateTime(saved.savedAt)}>
                    saved {formatAge(saved.savedAt, now)}
                  </span>
                </a>
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}

type Saved = NonNullable<SavedPlanOneResult["savedPlan"]>;

function SavedPlan({ name }: { name: string }) {
  useTitle(name);
  const asked = useAsk(SavedPlanOne, { name });
  const saved = asked.data?.savedPlan;
  const [isRemoving, setRemoving] = useState(false);
  if (asked.error && asked.error.code !== "UNREACHABLE") return <RefusedPage title="Saved plan" error={asked.error} />;
  if (saved === null) {
    return (
      <Empty isPage title="There is no such saved plan">
        <a href="/saved">To the saved plans</a>
      </Empty>
    );
  }
  if (!saved) return <Loading isPage />;
  return (
    <div class="page">
      <header class="head">
        <Crumbs trail={[["Saved plans", "/saved"]]} here={name} />
        <div class="head-line">
          <h1 class="cut" tabIndex={-1}>
            <Plain text={name} />
          </h1>
          <div class="buttons">
            <a class="button" href={`/plans/${saved.planId}`}>
              <Icon name="fork" />
              Open the plan
            </a>
            <ActButton needs="removeSavedPlan" class="danger" onClick={() => setRemoving(true)}>
              Remove
            </ActButton>
          </div>
        </div>
        <p class="facts">
          {saved.plan && (
            <>
              <span>
                <Plain text={saved.plan.query} />
              </span>
              <span>version {saved.plan.version}</span>
              <span>{countText(saved.plan.tools.length, "step")}</span>
            </>
          )}
          <span>saved {formatDateTime(saved.savedAt)}</span>
        </p>
      </header>
      <div class="scroll saved-parts">
        <RunForm saved={saved} />
        <History planId={saved.planId} />
      </div>
      {isRemoving && (
        <Dialog
          title={`Remove “${name}”?`}
          action="Remove"
          tone="bad"
          onClose={() => setRemoving(false)}
          onDo={async () => {
            await ask(RemoveSavedPlan, { name });
            go("/saved");
          }}
        >
          <p>The plan and its executions stay. Plans whose steps run it by this name cannot run any more.</p>
        </Dialog>
      )}
    </div>
  );
}

/** The form for the plan's input. Without a schema, the input is JSON. */
function RunForm({ saved }: { saved: Saved }) {
  const schema = useMemo(() => schemaOf(saved.inputs), [saved]);
  const names = useMemo(() => inputsOf((saved.plan?.tools ?? []) as unknown as JsonFields[]).filter((name) => name !== ""), [saved]);
  const [input, setInput] = useState<Json | undefined>(undefined);
  const [text, setText] = useState(() => (names.length > 0 ? print(Object.fromEntries(names.map((name) => [name, ""])), 2) : ""));
  const [error, setError] = useState<ApiError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const run = async (dryRun: boolean) => {
    setBusy(true);
    setError(null);
    try {
      const given: Json = schema ? withoutGuesses(input, input !== undefined, schema) : text.trim() === "" ? null : parse(text);
      const { runSavedPlan } = await ask(RunSavedPlan, { name: saved.name, input: given, options: { dryRun } });
      go(`/executions/${runSavedPlan.executionId}`);
    } catch (error) {
      setError(toApiError(error));
      setBusy(false);
    }
  };
  return (
    <section class="section" aria-labelledby="run-it">
      <h2 id="run-it">Run it</h2>
      <form
        class="saved-form"
        onSubmit={(event) => {
          event.preventDefault();
          void run(false);
        }}
      >
        {schema ? (
          <Fields schema={schema} root={schema} value={input} onValue={setInput} />
        ) : (
          <label class="field">
            <span>Input, as JSON{names.length > 0 ? "" : " (optional)"}</span>
            <textarea class="mono" rows={Math.min(10, Math.max(2, text.split("\n").length))} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
        )}
        {error && <Refused error={error} />}
        <div class="buttons">
          <ActButton needs="runSavedPlan" type="submit" class="primary" disabled={isBusy}>
            <Icon name="play" />
            Run
          </ActButton>
          <ActButton needs="runSavedPlan" disabled={isBusy} onClick={() => void run(true)}>
            Dry run
          </ActButton>
        </div>
      </form>
    </section>
  );
}

/** The executions of the plan, newest first. */
function History({ planId }: { planId: string }) {
  const filter = { planId, parts: false };
  const asked = useAsk(RequestRuns, { filter, first: HISTORY_ROWS }, HISTORY_POLL);
  const part = asked.data?.executions;
  const first = useMemo(() => part && { rows: part.edges.map(({ cursor, node }) => rowOf(cursor, node, node.executionId, node.dryRun ? "dry run" : "")), hasMore: part.pageInfo.hasNextPage }, [part]);
  const list = useListing(`saved ${planId}`, asked.isCurrent ? (first ?? null) : null, async (after, count) => {
    const { executions } = await ask(RequestRuns, { filter, first: count, after });
    return { rows: executions.edges.map(({ cursor, node }) => rowOf(cursor, node, node.executionId, "")), hasMore: executions.pageInfo.hasNextPage };
  });
  return (
    <section class="section saved-history" aria-labelledby="history">
      <h2 id="history">History</h2>
      {asked.error && asked.error.code !== "UNREACHABLE" && <Refused error={asked.error} />}
      {!asked.data && !asked.error && <Loading />}
      {asked.data && <Rows label="Executions" {...list} empty={<p class="faint">It was never executed in this version.</p>} />}
    </section>
  );
}
