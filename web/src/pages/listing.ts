/** A list whose newest part is asked for again and again, and of which nothing is lost that was shown once. */

import { useEffect, useRef, useState } from "preact/hooks";

import { place } from "../router";

/** How often what has not ended is looked at again further down, in milliseconds. */
const EVERY = 5_000;
/** How many rows are asked for at once further down, and how often in a row. */
const PART = 200;
const ASKS = 5;

/** What can be in a list. */
export interface Entry {
  key: string;
  cursor: string;
  createdAt: string;
  isOpen: boolean;
}

/** Some neighbours of a list, the newest first. */
export interface Part<T> {
  rows: T[];
  hasMore: boolean;
}

export class Listing<T extends Entry> {
  #rows = new Map<string, T>();
  #sorted: T[] | null = null;
  /** Whether there is more behind the last row. */
  hasMore = false;
  /** The rows behind which something may be missing. It is asked for until it is there. */
  readonly gaps = new Set<T>();

  get rows(): T[] {
    this.#sorted ??= [...this.#rows.values()].sort((a, b) => (a.createdAt < b.createdAt ? 1 : a.createdAt > b.createdAt ? -1 : 0));
    return this.#sorted;
  }

  /**
   * Takes in what comes behind a row, or with null what comes first. What was there and should be among it is gone.
   * Returns whether something may be missing between it and what was known.
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
    // What reaches as far down as what was known, or further, knows what is behind it.
    if (isFirst || !end || !last || last.createdAt <= end.createdAt || !part.hasMore) this.hasMore = part.hasMore;
    return !meets;
  }
}

/** A list as it is known, and where in it somebody reads. */
interface Known<T extends Entry> {
  key: string;
  listing: Listing<T>;
  seen: Part<T> | null;
  scroll: { top: number };
}

/** The most lists that wait for somebody to come back. */
const LISTS = 10;
/** Lists that were shown, by their keys, the newest last. */
const left = new Map<string, Known<never>>();

/** Returns the list of a key: as it was left, for whoever comes back, else a new one. */
function open<T extends Entry>(key: string): Known<T> {
  const before = place.value.isBack ? (left.get(key) as Known<T> | undefined) : undefined;
  const known = before ?? { key, listing: new Listing<T>(), seen: null, scroll: { top: 0 } };
  left.delete(key);
  left.set(key, known as unknown as Known<never>);
  const [oldest] = left.keys();
  if (left.size > LISTS) left.delete(oldest!);
  return known;
}

interface Shown<T> {
  rows: T[];
  hasMore: boolean;
  isLoading: boolean;
  more: () => void;
  /** How far down it is read. */
  scroll: { top: number };
}

/** Keeps a list for as long as `key` stays. `ask` gives what comes behind a cursor. */
export function useListing<T extends Entry>(key: string, first: Part<T> | null, ask: (after: string, count: number) => Promise<Part<T>>): Shown<T> {
  const kept = useRef<Known<T>>(null!);
  const [, redraw] = useState({});
  const [isLoading, setLoading] = useState(false);
  if (kept.current?.key !== key) kept.current = open<T>(key);
  const { listing } = kept.current;
  const fetch = useRef(ask);
  fetch.current = ask;

  /** Asks for what comes behind a row. Returns the row behind which something may still be missing. */
  const fill = async (behind: T): Promise<T | null> => {
    const part = await fetch.current(behind.cursor, PART);
    if (kept.current.listing !== listing) return null;
    const isMissing = listing.take(part, behind);
    redraw({});
    return (isMissing && part.rows.at(-1)) || null;
  };
  /** Asks for what is missing behind a row, until it meets what is known. */
  const close = async (gap: T) => {
    let from: T | null = gap;
    for (let n = 0; n < ASKS && from; n += 1) {
      const next: T | null = await fill(from);
      listing.gaps.delete(from);
      if (next) listing.gaps.add(next);
      from = next;
    }
  };
  /** What cannot be had now is asked for again with the next look. */
  const closeAll = () => [...listing.gaps].forEach((it) => close(it).catch(() => {}));
  if (first && kept.current.seen !== first) {
    kept.current.seen = first;
    const last = first.rows.at(-1);
    if (listing.take(first, null) && last) {
      listing.gaps.add(last);
      closeAll();
    }
  }
  const more = async () => {
    const last = listing.rows.at(-1);
    if (!last) return;
    setLoading(true);
    try {
      await fill(last);
    } catch {
      // The page says already that the server does not answer; it can be asked for again.
    } finally {
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
    }, EVERY);
    return () => clearInterval(timer);
  }, [listing]);
  return { rows: listing.rows, hasMore: listing.hasMore, isLoading, more: () => void more(), scroll: kept.current.scroll };
}
