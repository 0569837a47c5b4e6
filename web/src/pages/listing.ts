/** A list that polls its newest rows. Rows that were shown once stay in the list until they are deleted. */

import { useEffect, useRef, useState } from "preact/hooks";

import { place } from "../router";

/** Poll interval of unfinished rows after the first ones, in milliseconds. */
const POLL_INTERVAL = 5_000;
/** Number of rows in each query after the first one, and the maximum number of such queries to fill one gap. */
const QUERY_ROWS = 200;
const MAX_QUERIES = 5;

/** A row of a list. */
export interface Entry {
  key: string;
  cursor: string;
  createdAt: string;
  isOpen: boolean;
}

/** Consecutive rows of a list, newest first. */
export interface Part<T> {
  rows: T[];
  hasMore: boolean;
}

export class Listing<T extends Entry> {
  #rows = new Map<string, T>();
  #sorted: T[] | null = null;
  /** True if there are rows after the last one. */
  hasMore = false;
  /** Rows after which further rows may be missing. The missing rows are queried until they arrive. */
  readonly gaps = new Set<T>();

  get rows(): T[] {
    this.#sorted ??= [...this.#rows.values()].sort((a, b) => (a.createdAt < b.createdAt ? 1 : a.createdAt > b.createdAt ? -1 : 0));
    return this.#sorted;
  }

  /**
   * Adds the rows after `behind`, or the first rows if `behind` is null. Removes known rows of the same period that are
   * not among the new rows, because they were deleted. Returns true if rows may be missing between the new rows and the
   * known rows.
   */
  take(part: Part<T>, behind: T | null): boolean {
    const last = part.rows.at(-1);
    const keys = new Set(part.rows.map((it) => it.key));
    const isFirst = this.#rows.size === 0;
    const meets = isFirst || !part.hasMore || part.rows.some((it) => this.#rows.has(it.key));
    const end = this.rows.at(-1);
    for (const it of this.rows) {
      const isBehind = behind === null || it.createdAt < behind.createdAt;
      const isBefore = !part.hasMore || (last !== undefined && it.createdAt > last.createdAt);
      if (isBehind && isBefore && !keys.has(it.key)) this.#rows.delete(it.key);
    }
    for (const it of part.rows) this.#rows.set(it.key, it);
    this.#sorted = null;
    // If the new rows reach the end of the known rows, they tell whether more rows follow.
    if (isFirst || !end || !last || last.createdAt <= end.createdAt || !part.hasMore) this.hasMore = part.hasMore;
    return !meets;
  }
}

/** A list, and the position to which the user has scrolled. */
interface Known<T extends Entry> {
  key: string;
  listing: Listing<T>;
  seen: Part<T> | null;
  scroll: { top: number };
}

/** Maximum number of lists that are kept for the Back button. */
const MAX_LISTS = 10;
/** Lists that were shown, by key, newest last. */
const left = new Map<string, Known<never>>();

/**
 * Returns the list with this key. If the Back button led here, returns the list in its old state. Otherwise returns a
 * new list.
 */
function open<T extends Entry>(key: string): Known<T> {
  const before = place.value.isBack ? (left.get(key) as Known<T> | undefined) : undefined;
  const known = before ?? { key, listing: new Listing<T>(), seen: null, scroll: { top: 0 } };
  left.delete(key);
  left.set(key, known as unknown as Known<never>);
  const [oldest] = left.keys();
  if (left.size > MAX_LISTS) left.delete(oldest!);
  return known;
}

interface Shown<T> {
  rows: T[];
  hasMore: boolean;
  isLoading: boolean;
  more: () => void;
  /** Scroll position in pixels. */
  scroll: { top: number };
}

/** Returns the list of a key. `ask` loads the rows after a cursor. */
export function useListing<T extends Entry>(key: string, first: Part<T> | null, ask: (after: string, count: number) => Promise<Part<T>>): Shown<T> {
  const kept = useRef<Known<T>>(null!);
  const [, redraw] = useState({});
  const [isLoading, setLoading] = useState(false);
  if (kept.current?.key !== key) kept.current = open<T>(key);
  const { listing } = kept.current;
  const fetch = useRef(ask);
  fetch.current = ask;

  /** Loads the rows after a row. Returns the row after which further rows may still be missing. */
  const fill = async (behind: T): Promise<T | null> => {
    const part = await fetch.current(behind.cursor, QUERY_ROWS);
    if (kept.current.listing !== listing) return null;
    const isMissing = listing.take(part, behind);
    redraw({});
    return (isMissing && part.rows.at(-1)) || null;
  };
  /** Loads the rows after a gap, until they reach known rows or `MAX_QUERIES` is reached. */
  const close = async (gap: T) => {
    let from: T | null = gap;
    for (let n = 0; n < MAX_QUERIES && from; n += 1) {
      const next: T | null = await fill(from);
      listing.gaps.delete(from);
      if (next) listing.gaps.add(next);
      from = next;
    }
  };
  /** Gaps that cannot be filled now are tried again at the next poll. */
  const closeAll = () => [...listing.gaps].forEach((it) => close(it).catch(() => {}));
  if (first && kept.current.seen !== first) {
    kept.current.seen = first;
    const last = first.rows.at(-1);
    if (listing.take(first, null) && last) {
      listing.gaps.add(last);
      closeAll();
    }
  }
  const isFilling = useRef(false);
  const more = async () => {
    const last = listing.rows.at(-1);
    if (!last || isFilling.current) return;
    isFilling.current = true;
    setLoading(true);
    try {
      await fill(last);
    } catch {
      // The page already shows that the server is unreachable. The user can try again.
    } finally {
      isFilling.current = false;
      setLoading(false);
    }
  };
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      closeAll();
      const { rows } = listing;
      const shown = kept.current.seen?.rows.length ?? 0;
      const at = rows.findIndex((it, n) => n >= shown && n > 0 && it.isOpen);
      if (at > 0) fill(rows[at - 1]!).catch(() => {});
    }, POLL_INTERVAL);
    return () => clearInterval(timer);
  }, [listing]);
  return { rows: listing.rows, hasMore: listing.hasMore, isLoading, more: () => void more(), scroll: kept.current.scroll };
}
