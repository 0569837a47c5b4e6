/** What is offered at the cursor, as a list beside it. */

import { useLayoutEffect, useRef } from "preact/hooks";

import type { Offer } from "./complete";

interface Props {
  id: string;
  offers: readonly Offer[];
  chosen: number;
  /** Where the cursor is, in letters and in pixels of what is scrolled. */
  line: number;
  column: number;
  scroll: { left: number; top: number };
  onChoose: (at: number) => void;
}

export function OfferList({ id, offers, chosen, line, column, scroll, onChoose }: Props) {
  const list = useRef<HTMLUListElement>(null);
  useLayoutEffect(() => list.current?.children[chosen]?.scrollIntoView({ block: "nearest" }), [chosen]);
  return (
    <ul
      ref={list}
      id={id}
      class="offers"
      role="listbox"
      aria-label="What could stand here"
      style={{ top: `${10 + (line + 1) * 19 - scroll.top}px`, left: `min(calc(52px + ${column}ch - ${scroll.left}px), calc(100% - 260px))` }}
    >
      {offers.map((it, at) => (
        <li
          key={it.text}
          id={`${id}-${at}`}
          role="option"
          aria-selected={at === chosen}
          // The cursor stays where it is.
          onPointerDown={(event) => {
            event.preventDefault();
            onChoose(at);
          }}
        >
          <span class="cut">{it.text}</span>
          <span class="cut faint">{it.about}</span>
        </li>
      ))}
    </ul>
  );
}
