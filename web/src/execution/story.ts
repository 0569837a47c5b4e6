/** An execution that is followed: its plan, its events, and where in them the reader is. */

import { ask, ApiError, follow } from "../api/client";
import { Cell } from "../api/cell";
import { returns } from "../api/connection";
import {
  ExecutionPage,
  Happening,
  MoreEvents,
  type ExecutionPageResult,
  type Happened,
} from "../api/generated";
import { drawn, type Drawn } from "../graph/drawn";
import { Fold, foldTo } from "./fold";

export type About = NonNullable<ExecutionPageResult["execution"]>;
export type Step = About["plan"]["tools"][number];

export class Story {
  readonly about: About;
  /** Where its steps are drawn, once that is known. */
  readonly drawn = new Cell<Drawn | null>(null);
  readonly ids: string[];
  readonly stepOf: Map<string, Step>;
  readonly dependsOn: Map<string, readonly string[]>;
  readonly events: Happened[] = [];
  /** Changes whenever events came; at most once a frame. */
  readonly version = new Cell(0);
  /** The event up to which the past is shown; null is the present. */
  readonly scrub = new Cell<number | null>(null);
  readonly failure = new Cell<ApiError | null>(null);
  /** How often somebody said here what became of a call. Where the execution has ended, no event tells of it. */
  readonly settled = new Cell(0);
  #live: Fold;
  #past: Fold | null = null;
  #leave: (() => void) | undefined;
  #frame = 0;

  constructor(about: About) {
    this.about = about;
    const steps = about.plan.tools;
    this.ids = steps.map((it) => it.stepId);
    this.stepOf = new Map(steps.map((it) => [it.stepId, it]));
    this.dependsOn = new Map(steps.map((it) => [it.stepId, it.dependsOn]));
    this.#live = new Fold(this.ids);
  }

  static async open(id: string, signal: AbortSignal): Promise<Story | null> {
    // A large picture takes the server a moment, in which everything else can be shown.
    return Story.#read(id, signal, (it) => void it.#draw());
  }

  /** One that is a part of another, which draws it. */
  static async within(id: string, signal: AbortSignal): Promise<Story | null> {
    return Story.#read(id, signal, () => {});
  }

  static async #read(id: string, signal: AbortSignal, begin: (it: Story) => void): Promise<Story | null> {
    const { execution } = await ask(ExecutionPage, { id }, signal);
    if (!execution) return null;
    const story = new Story(execution);
    begin(story);
    await story.#catchUp(signal);
    return story;
  }

  get lastSeq(): number {
    return this.#live.length;
  }

  /** The present. */
  get live(): Fold {
    return this.#live;
  }

  /** What is shown: the present, or the moment of the past that the reader chose. */
  get fold(): Fold {
    const at = this.scrub.value;
    return at === null ? this.#live : this.#upTo(at);
  }

  /** It as it stood at a moment, which is one of another execution. */
  asOf(time: number): Fold {
    const { events } = this;
    let [first, behind] = [0, events.length];
    while (first < behind) {
      const middle = (first + behind) >> 1;
      if (Date.parse(events[middle]!.at) <= time) first = middle + 1;
      else behind = middle;
    }
    return this.#upTo(first);
  }

  #upTo(at: number): Fold {
    if (at >= this.lastSeq) return this.#live;
    const past = this.#past;
    // Forwards there is nothing to begin anew.
    if (past && past.length <= at) {
      for (const event of this.events.slice(past.length, at)) past.apply(event);
    } else if (past?.length !== at) {
      this.#past = foldTo(this.ids, this.events, at);
    }
    return this.#past!;
  }

  /** Follows what happens, until what it returns is called. */
  watch(): () => void {
    if (this.#live.isOver) return () => {};
    this.#leave = follow(Happening, () => ({ id: this.about.executionId, afterSeq: this.lastSeq }), {
      next: ({ executionEvents }) => {
        this.#take([executionEvents]);
        this.#tell();
      },
      refused: (error) => this.failure.set(error),
      isDone: () => this.#live.isOver,
    });
    return () => {
      this.#leave?.();
      cancelAnimationFrame(this.#frame);
      this.#frame = 0;
    };
  }

  #take(events: readonly Happened[]): void {
    for (const event of events) {
      // What was heard before a connection was lost may come again.
      if (event.seq <= this.lastSeq) continue;
      this.events.push(event);
      this.#live.apply(event);
    }
  }

  #tell(): void {
    if (this.#frame) return;
    const tell = () => {
      this.#frame = 0;
      this.version.set(this.version.value + 1);
    };
    // Nobody draws a page that is not seen, so that frames do not come.
    this.#frame = document.hidden ? (setTimeout(tell, 250) as unknown as number) : requestAnimationFrame(tell);
  }

  async #draw(): Promise<void> {
    try {
      this.drawn.set(await drawn(this.about.plan));
    } catch (error) {
      if ((error as ApiError).code !== "UNREACHABLE") this.failure.set(error as ApiError);
      else {
        const stop = returns.listen(() => {
          stop();
          void this.#draw();
        });
      }
    }
  }

  async #catchUp(signal: AbortSignal): Promise<void> {
    let known = -1;
    while (this.lastSeq > known && this.lastSeq < this.about.seq) {
      known = this.lastSeq;
      const more = await ask(MoreEvents, { id: this.about.executionId, afterSeq: known }, signal);
      this.#take(more.execution?.events ?? []);
    }
  }
}
