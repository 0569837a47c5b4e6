/** A choice of an earlier execution, whose input the next one takes over. */

import { useState } from "preact/hooks";

import { ask, useAsk, type ApiError } from "../api/client";
import { EarlierRuns, InputOf, type Json } from "../api/generated";
import { Refused, toApiError } from "../ui/fault";
import { WORD } from "../ui/state";
import { formatAge, serverNow } from "../ui/time";

interface Props {
  requestId: string;
  onInput: (input: Json) => void;
}

export function EarlierInput({ requestId, onInput }: Props) {
  const asked = useAsk(EarlierRuns, { requestId });
  const [error, setError] = useState<ApiError | null>(null);
  const runs = asked.data?.executions.nodes ?? [];
  if (runs.length === 0) return null;
  const take = async (id: string) => {
    if (id === "") return;
    setError(null);
    try {
      const { execution } = await ask(InputOf, { id });
      if (execution) onInput(execution.input);
    } catch (error) {
      setError(toApiError(error));
    }
  };
  return (
    <label class="field">
      <span>Run with the data of</span>
      <select onChange={(event) => void take(event.currentTarget.value)}>
        <option value="">choose an earlier execution</option>
        {runs.map((run) => (
          <option key={run.executionId} value={run.executionId}>
            {run.executionId} ({WORD[run.state].toLowerCase()}, {formatAge(run.createdAt, serverNow())})
          </option>
        ))}
      </select>
      {error && <Refused error={error} />}
    </label>
  );
}
