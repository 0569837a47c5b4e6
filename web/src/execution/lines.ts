/** The texts of a step: its progress reports, and the errors of its attempts. */

/** A progress report or an error. */
export interface Line {
  at: number;
  attempt: number;
  /** Index of the item that the text is about. */
  index: number | null;
  text: string;
  isBad: boolean;
}

/** Number of the newest texts that are kept for a step. */
const MAX_LINES = 1_000;
/** The texts of a step, oldest first. */
export class Lines {
  readonly all: Line[] = [];
  /** Number of older texts that were dropped. */
  before = 0;

  add(line: Line): void {
    this.all.push(line);
    // Old texts are dropped in large groups, which costs little for each text.
    if (this.all.length < 2 * MAX_LINES) return;
    this.all.splice(0, MAX_LINES);
    this.before += MAX_LINES;
  }
}
