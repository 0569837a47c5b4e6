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
  /** How high the text is on the screen. */
  height: number;
  onChoose: (at: number) => void;
}

/** Where the text begins and how high its lines are, and how wide the list is, in pixels; the style says the same. */
const TOP = 10;
const LEFT = 52;
const LINE = 19;
const WIDTH = 320;

export function OfferList({ id, offers, chosen, line, column, scroll, height, onChoose }: Props) {
  const list = useRef<HTMLUListElement>(null);
  useLayoutEffect(() => {
    const box = list.current;
    const option = box?.children[chosen] as HTMLElement | undefined;
    if (!box || !option) return;
    // Only the list is scrolled, and not what is around it.
    const [top, bottom] = [option.offsetTop, option.offsetTop + option.offsetHeight];
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }, [chosen, offers]);
  const above = TOP + line * LINE - scroll.top;
  const isBelow = above + LINE < height / 2;
  const left = `max(8px, min(${LEFT - scroll.left}px + ${column}ch, 100% - ${WIDTH + 8}px))`;
  const place: Record<string, string> = isBelow ? { left, top: `${above + LINE}px` } : { left, bottom: `calc(100% - ${above}px)` };
  return (
    <ul
      ref={list}
      id={id}
      class="offers"
      role="listbox"
      aria-label="What could stand here"
      style={place}
      // The keys move what is chosen, and the list with it; it is no place of its own to get to by Tab.
      onWheel={(event) => {
        event.preventDefault();
        event.currentTarget.scrollTop += event.deltaY;
      }}
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
