/** A link from a request whose planning failed to a draft for it. */

import { Icon } from "../ui/icons";

/** A link to a draft that starts with the query and the tools that the planner chose for it. */
export function StartDraft({ id }: { id: string }) {
  return (
    <a class="button" href={`/new?request=${id}`}>
      <Icon name="plus" />
      Start a draft
    </a>
  );
}
