/** The bar above a list for an action on the chosen rows, or on all executions that match the filter. */

import { useState } from "preact/hooks";

import type { BulkAction, ExecutionFilter } from "../api/generated";
import { ActButton } from "../ui/act-button";
import { Icon, type IconName } from "../ui/icons";
import { ACTION_WORDS, BulkDialog } from "./dialog";

const ACTIONS: readonly (readonly [BulkAction, IconName])[] = [
  ["RETRY", "retry"],
  ["PAUSE", "pause"],
  ["RESUME", "play"],
  ["CANCEL", "stop"],
];

/** The largest number of ids in a filter. */
export const MAX_CHOSEN = 1_000;

interface Props {
  chosen: ReadonlySet<string>;
  /** The filter of the list. */
  filter: ExecutionFilter;
  /** Number of executions that match the filter. Null until it is known. */
  total: number | null;
  onChoose: (ids: ReadonlySet<string>) => void;
}

export function BulkBar({ chosen, filter, total, onChoose }: Props) {
  const [isAll, setAll] = useState(false);
  const [action, setAction] = useState<BulkAction | null>(null);
  if (chosen.size === 0) return null;
  const wanted: ExecutionFilter = isAll ? filter : { executionIds: [...chosen] };
  const clear = () => {
    setAll(false);
    onChoose(new Set());
  };
  return (
    <div class="bulk-bar" role="group" aria-label="Actions on the chosen executions">
      <span role="status">
        {isAll ? `All ${total?.toLocaleString("en") ?? ""} that match` : `${chosen.size.toLocaleString("en")} chosen`}
      </span>
      {!isAll && total !== null && total > chosen.size && (
        <button type="button" class="link" onClick={() => setAll(true)}>
          Choose all {total.toLocaleString("en")} that match
        </button>
      )}
      <button type="button" class="link" onClick={clear}>
        Clear
      </button>
      {!isAll && chosen.size === 2 && (
        <a class="link" href={`/compare?a=${[...chosen][0]}&b=${[...chosen][1]}`}>
          Compare
        </a>
      )}
      <span class="grow" />
      {ACTIONS.map(([name, icon]) => (
        <ActButton needs="bulkControl" key={name} class={name === "CANCEL" ? "danger" : ""} onClick={() => setAction(name)}>
          <Icon name={icon} />
          {ACTION_WORDS[name].verb}
        </ActButton>
      ))}
      {action && <BulkDialog action={action} filter={wanted} onClose={() => setAction(null)} />}
    </div>
  );
}
