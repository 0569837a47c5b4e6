/** The link from a request without a plan to a draft for it. */

import { Icon } from "../ui/icons";

/** The way to a draft that begins with the query and the tools that fit it best. */
export function StartDraft({ id }: { id: string }) {
  return (
    <a class="button" href={`/new?request=${id}`}>
      <Icon name="plus" />
      Start a draft
    </a>
  );
}
