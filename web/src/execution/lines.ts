/** The texts of a step: its progress reports, the errors of its attempts, and what it wrote on stderr. */

/** A progress report, an error, or a text on stderr. */
export interface Line {
  at: number;
  attempt: number;
  /** Index of the item that the text is about. */
  index: number | null;
  text: string;
  isBad: boolean;
}

/** Minimum number of the newest texts that are kept for a step. */
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
