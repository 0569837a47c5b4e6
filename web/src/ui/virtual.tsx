/** Lists that draw only their visible rows. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Number of rows that are drawn above and below the visible rows. */
const EXTRA_ROWS = 8;

interface Props<T> {
  items: readonly T[];
  rowHeight: number;
  row: (item: T, at: number) => ComponentChildren;
  label: string;
  /** Index of the row to scroll to. */
  shown?: number | null;
  /** True if the list scrolls to new rows at its end, unless the user has scrolled up. */
  sticksToEnd?: boolean;
  /** The initial scroll position. The list updates this value at each scroll. */
  scroll?: { top: number };
  /** Called when the user has scrolled to the last rows. */
  onEnd?: () => void;
}

export function Virtual<T>(props: Props<T>) {
  const { items, rowHeight, row, label, shown, sticksToEnd, scroll, onEnd } = props;
  const box = useRef<HTMLDivElement>(null);
  /** Number of rows at the last drawing. */
  const before = useRef(0);
  const [view, setView] = useState({ top: 0, height: 600 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => {
      if (scroll) scroll.top = element.scrollTop;
      setView({ top: element.scrollTop, height: element.clientHeight });
    };
    if (scroll) element.scrollTop = scroll.top;
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element || shown == null || shown < 0) return;
    const [top, bottom] = [shown * rowHeight, (shown + 1) * rowHeight];
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  }, [shown, rowHeight]);
  useLayoutEffect(() => {
    const element = box.current;
    const end = before.current * rowHeight;
    before.current = items.length;
    if (!sticksToEnd || !element) return;
    // A user who has scrolled up keeps the position.
    if (element.scrollTop + element.clientHeight > end - rowHeight) element.scrollTop = items.length * rowHeight;
  }, [sticksToEnd, items.length, rowHeight]);
  const isAtEnd = view.top > 0 && view.top + view.height > (items.length - EXTRA_ROWS) * rowHeight;
  useEffect(() => {
    if (isAtEnd) onEnd?.();
  }, [isAtEnd, items.length]);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - EXTRA_ROWS);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + EXTRA_ROWS);
  return (
    <div ref={box} class="virtual" role="list" aria-label={label} tabIndex={0}>
      <div class="virtual-room" role="presentation" style={{ height: `${items.length * rowHeight}px` }}>
        <div class="virtual-rows" role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {items.slice(first, last).map((item, n) => row(item, first + n))}
        </div>
      </div>
    </div>
  );
}

interface WindowedProps<T> {
  class: string;
  items: readonly T[];
  /** Draws an item as an `li`. `place` has its number and the number of all items for screen readers. */
  row: (item: T, place: { "aria-setsize"?: number; "aria-posinset"?: number }) => ComponentChildren;
}

/** Lists with at most this many rows are drawn as a whole. */
const MAX_WHOLE_LIST = 100;

/** A list in a page that scrolls as a whole. Its rows have the same height, and a long list draws only rows near the window. */
export function Windowed<T>({ class: name, items, row }: WindowedProps<T>) {
  const list = useRef<HTMLUListElement>(null);
  const isLong = items.length > MAX_WHOLE_LIST;
  const [{ first, last, height }, setView] = useState({ first: 0, last: MAX_WHOLE_LIST / 2, height: 32 });
  useLayoutEffect(() => {
    if (!isLong) return;
    const look = () => {
      const element = list.current;
      const height = element?.querySelector("li")?.offsetHeight;
      if (!element || !height) return;
      const top = element.getBoundingClientRect().top;
      const within = (it: number) => Math.min(items.length, Math.max(0, it));
      // At least one row is drawn, because its height is measured.
      const first = Math.min(items.length - 1, within(Math.floor(-top / height) - EXTRA_ROWS));
      const last = Math.max(first + 1, within(Math.ceil((innerHeight - top) / height) + EXTRA_ROWS));
      setView((old) => (old.first === first && old.last === last && old.height === height ? old : { first, last, height }));
    };
    look();
    // The list moves when any of its ancestors scrolls or changes its size.
    const observer = new ResizeObserver(look);
    for (let it: HTMLElement | null = list.current; it; it = it.parentElement) observer.observe(it);
    addEventListener("scroll", look, { capture: true, passive: true });
    return () => {
      observer.disconnect();
      removeEventListener("scroll", look, { capture: true });
    };
  }, [isLong, items]);
  if (!isLong) return <ul class={name}>{items.map((it) => row(it, {}))}</ul>;
  const begin = Math.min(first, items.length - 1);
  const end = Math.min(items.length, Math.max(last, begin + 1));
  const room = { paddingTop: `${begin * height}px`, paddingBottom: `${(items.length - end) * height}px` };
  return (
    <ul class={name} ref={list} style={room}>
      {items.slice(begin, end).map((it, n) => row(it, { "aria-setsize": items.length, "aria-posinset": begin + n + 1 }))}
    </ul>
  );
}
