/** A value that says when it changes. */

import { useEffect, useState } from "preact/hooks";

export class Cell<T> {
  #listeners = new Set<() => void>();
  #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Calls `listener` after every change, until what it returns is called. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** The value of a cell, in a component that is drawn anew when it changes. */
export function useCell<T>(cell: Cell<T>): T {
  const [, redraw] = useState({});
  const drawn = cell.value;
  useEffect(() => {
    const stop = cell.listen(() => redraw({}));
    // It may have changed between the drawing and now: nobody listened then.
    if (!Object.is(drawn, cell.value)) redraw({});
    return stop;
  }, [cell]);
  return drawn;
}
