/** Who uses the page, and what the role of this caller permits. */

import { useEffect } from "preact/hooks";

import { Cell, useCell } from "./cell";
import { ask } from "./client";
import { returns, wantsToken } from "./connection";
import { WhoAmI, type WhoAmIResult } from "./generated";

export type Caller = WhoAmIResult["caller"];

/** Null until it is known. Then no control is disabled, because the server checks every operation anyway. */
export const caller = new Cell<Caller | null>(null);

/** Asks for the caller now, and again after a change of the token. */
export function useCaller(): Caller | null {
  const epoch = useCell(returns);
  const wanted = useCell(wantsToken);
  useEffect(() => {
    if (wanted !== null) return caller.set(null);
    ask(WhoAmI, {}).then(
      (answer) => caller.set(answer.caller),
      () => caller.set(null),
    );
  }, [epoch, wanted]);
  return useCell(caller);
}

/** The mutations of the page that need an admin. All others need an operator. */
const ADMIN_MUTATIONS: ReadonlySet<string> = new Set(["bulkControl", "savePlan", "removeSavedPlan", "activateToolSets"]);

/** Returns the reason why the caller may not use a mutation. Null if the role permits it. */
export function useDenial(mutation: string): string | null {
  const known = useCell(caller);
  if (known === null || known.role === "ADMIN") return null;
  const needed = ADMIN_MUTATIONS.has(mutation) ? "admin" : "operator";
  if (known.role === "OPERATOR" && needed === "operator") return null;
  return `This needs the role ${needed}. Your role is ${known.role.toLowerCase()}.`;
}
