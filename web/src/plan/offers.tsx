/** The list of suggestions beside the cursor. */

import { useLayoutEffect, useRef } from "preact/hooks";

import type { Offer } from "./complete";

interface Props {
  id: string;
  offers: readonly Offer[];
  chosen: number;
  /** The start of the replaced text in characters, and the scroll position of the text in pixels. */
  line: number;
  column: number;
  scroll: { left: number; top: number };
  /** Visible height of the text, in pixels. */
  height: number;
  onChoose: (at: number) => void;
}

/** Position of the first character, height of a line, and width of the list, in pixels. The style sheet has the same values. */
const TOP_SPACE = 10;
const LEFT_SPACE = 52;
const LINE_HEIGHT = 19;
const LIST_WIDTH = 320;

export function OfferList({ id, offers, chosen, line, column, scroll, height, onChoose }: Props) {
  const list = useRef<HTMLUListElement>(null);
  useLayoutEffect(() => {
    const box = list.current;
    const option = box?.children[chosen] as HTMLElement | undefined;
    if (!box || !option) return;
    // Scrolls the list itself. The browser's `scrollIntoView` would also scroll the page.
    const [top, bottom] = [option.offsetTop, option.offsetTop + option.offsetHeight];
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }, [chosen, offers]);
  const above = TOP_SPACE + line * LINE_HEIGHT - scroll.top;
  const isBelow = above + LINE_HEIGHT < height / 2;
  const left = `max(8px, min(${LEFT_SPACE - scroll.left}px + ${column}ch, 100% - ${LIST_WIDTH + 8}px))`;
  const place: Record<string, string> = isBelow ? { left, top: `${above + LINE_HEIGHT}px` } : { left, bottom: `calc(100% - ${above}px)` };
  return (
    <ul
      ref={list}
      id={id}
      class="offers"
      role="listbox"
      aria-label="Suggestions for this place"
      style={place}
      // The arrow keys select a suggestion and scroll the list, so the Tab key skips the list.
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
          // Keeps the focus in the text, so the cursor does not move.
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
