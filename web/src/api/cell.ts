/** A value that tells its listeners about each change. */

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

  /** Calls `listener` after every change. The returned function removes the listener. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** Returns the value of a cell, and redraws the component when the value changes. */
export function useCell<T>(cell: Cell<T>): T {
  const [, redraw] = useState({});
  const drawn = cell.value;
  useEffect(() => {
    const stop = cell.listen(() => redraw({}));
    // The value has perhaps changed between the first drawing and this effect.
    if (!Object.is(drawn, cell.value)) redraw({});
    return stop;
  }, [cell]);
  return drawn;
}
