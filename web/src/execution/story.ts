/** An execution that the page follows: its plan, its events, and the position that is shown. */

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
import { queryLayout, type Drawn } from "../graph/drawn";
import { Fold, foldTo } from "./fold";

export type About = NonNullable<ExecutionPageResult["execution"]>;
export type Step = About["plan"]["tools"][number];

export class Story {
  readonly about: About;
  /** The positions of the nodes. Null until the server has computed them. */
  readonly drawn = new Cell<Drawn | null>(null);
  readonly ids: string[];
  readonly stepOf: Map<string, Step>;
  readonly dependsOn: Map<string, readonly string[]>;
  readonly events: Happened[] = [];
  /** Changes when new events have arrived, at most once for each frame. */
  readonly version = new Cell(0);
  /** Position of the last event that is shown. Null shows the present. */
  readonly scrub = new Cell<number | null>(null);
  readonly failure = new Cell<ApiError | null>(null);
  /** Counts the calls that the user settled on this page. After the end of an execution, no event reports a settlement. */
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
    // The server needs time for a large drawing. The rest of the page is shown meanwhile.
    return Story.#read(id, signal, (it) => void it.#draw());
  }

  /** Opens a child execution. The drawing of its parent contains it, so it needs none itself. */
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

  /** The present state. */
  get live(): Fold {
    return this.#live;
  }

  /** The state that is shown: the present, or the position that the user chose. */
  get fold(): Fold {
    const at = this.scrub.value;
    return at === null ? this.#live : this.#upTo(at);
  }

  /** Returns the state at a time. The time can come from another execution. */
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
    // For a later position, the computation continues from the last state. For an earlier position, it starts again.
    if (past && past.length <= at) {
      for (const event of this.events.slice(past.length, at)) past.apply(event);
    } else if (past?.length !== at) {
      this.#past = foldTo(this.ids, this.events, at);
    }
    return this.#past!;
  }

  /** Follows new events until the returned function is called. */
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
      // After a lost connection, the server can send known events again.
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
    // A hidden page gets no animation frames, so a timer replaces the frame.
    this.#frame = document.hidden ? (setTimeout(tell, 250) as unknown as number) : requestAnimationFrame(tell);
  }

  async #draw(): Promise<void> {
    try {
      this.drawn.set(await queryLayout(this.about.plan));
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
