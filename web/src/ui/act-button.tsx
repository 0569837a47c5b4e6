/** A button that is disabled, with the reason, if the role of the caller does not permit its action. */

import type { ComponentProps } from "preact";

import { useDenial } from "../api/caller";

type Props = ComponentProps<"button"> & {
  /** Name of the mutation that the button sends, in the end. */
  needs: string;
};

export function ActButton({ needs, children, disabled, title, ...rest }: Props) {
  const denial = useDenial(needs);
  if (denial === null) {
    return (
      <button type="button" disabled={disabled ?? false} {...(title === undefined ? {} : { title })} {...rest}>
        {children}
      </button>
    );
  }
  return (
    <button type="button" {...rest} disabled title={denial}>
      {children}
      <span class="unseen">. {denial}</span>
    </button>
  );
}
