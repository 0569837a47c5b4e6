/** The number of executions that wait for a person, for the menu. */

import { useEffect } from "preact/hooks";

import { Cell, useCell } from "../api/cell";
import { useAsk } from "../api/client";
import { NeedyCount } from "../api/generated";

const POLL_INTERVAL = 5_000;

/** Changes when the user has answered, so that the number changes without delay. */
const answers = new Cell(0);

export function refreshNeedyCount(): void {
  answers.set(answers.value + 1);
}

export function useNeedyCount(): number {
  const asked = useAsk(NeedyCount, {}, POLL_INTERVAL);
  const answered = useCell(answers);
  useEffect(() => {
    if (answered > 0) asked.refresh();
  }, [answered]);
  return asked.data?.executions.totalCount ?? 0;
}
