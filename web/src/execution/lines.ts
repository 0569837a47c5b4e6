/** What a step says while it runs: its reports of progress, and how attempts went wrong. */

/** Something that a step said. */
export interface Line {
  at: number;
  attempt: number;
  /** Which item of the step said it. */
  index: number | null;
  text: string;
  isBad: boolean;
}

/** The most that is kept of a step: the last. */
const KEPT = 1_000;
/** What a step said, the oldest first. */
export class Lines {
  readonly all: Line[] = [];
  /** How much was said before that. */
  before = 0;

  add(line: Line): void {
    this.all.push(line);
    // Taken away in one go, so that each line costs next to nothing.
    if (this.all.length < 2 * KEPT) return;
    this.all.splice(0, KEPT);
    this.before += KEPT;
  }
}
