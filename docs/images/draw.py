#!/usr/bin/env python3
"""Draws the pictures of two pages of docs/explanation: how-words-become-plans.md, from the output that this page shows, and
concepts.md.

    docs/images/draw.py           writes docs/images/words-*.svg and docs/images/concepts-*.svg
    docs/images/draw.py --check   fails if a picture differs

The colours follow the reader's light or dark theme.
"""

import pathlib
import re
import sys
from xml.sax.saxutils import escape

FOLDER = pathlib.Path(__file__).resolve().parent
PAGE = FOLDER.parent / "explanation/how-words-become-plans.md"
WIDTH, MARGIN, GAP, PADDING = 800, 24, 8, 8
CHAR, HEIGHT = 8.45, 28
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .verb { fill: #dafbe1; stroke: #1a7f37 }
  .value { fill: #ddf4ff; stroke: #0969da }
  .cue { fill: #ffffff; stroke: #0969da; stroke-dasharray: 2 3 }
  .doubt { fill: #fff8c5; stroke: #9a6700; stroke-dasharray: 4 3 }
  .stop { fill: #ffebe9; stroke: #cf222e }
  .bar { fill: #54aeff } .best { fill: #4ac26b }
  .line { fill: none; stroke: #57606a; stroke-width: 1.5 } .tip { fill: #57606a }
  text { fill: #1f2328; font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
  .note { fill: #57606a; font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .box { fill: #21262d; stroke: #8b949e }
    .verb { fill: #12381f; stroke: #3fb950 }
    .value { fill: #10325a; stroke: #58a6ff }
    .cue { fill: #0d1117; stroke: #58a6ff }
    .doubt { fill: #3a2d0a; stroke: #d29922 }
    .stop { fill: #4a1618; stroke: #f85149 }
    .bar { fill: #316dca } .best { fill: #238636 }
    .line { stroke: #9198a1 } .tip { fill: #9198a1 }
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
  }
"""

FIRST = ["Create", "author", "Ann", "with", "email", "ann@example.com", "today"]
SECOND = ["create", "blog", "by", "Ann", "titled", "Salt", "about", "the", "sea"]


class Picture:
    def __init__(self, name, title, height):
        self.name, self.title, self.height, self.parts = name, title, height, []

    def box(self, x, y, text, kind="box", width=None, note=None):
        """Draws a text in a box. Returns the middle of its lower edge."""
        width = width or len(text) * CHAR + 2 * PADDING
        self.parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="5"/>')
        self.text(x + width / 2, y + 19, text)
        if note:
            self.text(x + width / 2, y + HEIGHT + 16, note, "note")
        return x + width / 2, y + HEIGHT

    def text(self, x, y, text, kind="", anchor="middle"):
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{kind} x="{x:.0f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>')

    def note(self, x, y, text):
        self.text(x, y, text, "note", "start")

    def row(self, x, y, words, kinds=(), notes=()):
        """Draws words side by side. Returns the middles of their lower edges."""
        kinds, notes, middles = dict(kinds), dict(notes), []
        for place, word in enumerate(words):
            middles.append(self.box(x, y, word, kinds.get(place, "box"), note=notes.get(place)))
            x += len(word) * CHAR + 2 * PADDING + GAP
        return middles

    def arrow(self, start, end):
        (x, y), (to_x, to_y) = start, end
        bend = (y + to_y) / 2
        self.parts.append(f'<path class="line" d="M{x:.0f} {y} C{x:.0f} {bend:.0f} {to_x:.0f} {bend:.0f} {to_x:.0f} {to_y - 6}"/>')
        self.parts.append(f'<path class="tip" d="M{to_x - 5:.0f} {to_y - 8} h10 l-5 8 z"/>')

    def across(self, start, end):
        (x, y), (to_x, to_y) = start, end
        bend = (x + to_x) / 2
        self.parts.append(f'<path class="line" d="M{x:.0f} {y} C{bend:.0f} {y} {bend:.0f} {to_y} {to_x - 6:.0f} {to_y}"/>')
        self.parts.append(f'<path class="tip" d="M{to_x - 8:.0f} {to_y - 5} v10 l8 -5 z"/>')

    def bar(self, x, y, length, kind):
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{length:.0f}" height="16" rx="3"/>')

    def svg(self):
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img">'
        page = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", page, *self.parts, "</svg>\n"])


def read_scores():
    """Returns the tools and scores of each clause, from the transcript that the page shows."""
    clauses = re.search(r"(?ms)^candidates .*?\n(.*?)\n(\n|…|```)", PAGE.read_text()).group(1)
    scores = []
    for line in clauses.split("\n"):
        if found := re.fullmatch(r"    (-?[\d.]+)  (\w+)", line):
            scores[-1].append((found.group(2), float(found.group(1))))
        else:
            scores.append([])
    return scores


def tokens():
    picture = Picture("words-1-tokens", "Eighteen pieces: words, one e-mail address and one mark", 150)
    address = {5: "value"}
    picture.row(MARGIN, 24, [*FIRST, ","], address, {0: "word", 5: "e-mail address", 7: "mark"})
    picture.row(MARGIN, 90, ["then", *SECOND])
    return picture


def clauses():
    picture = Picture("words-2-clauses", "The query as two clauses. Both are orders.", 196)
    picture.note(MARGIN, 30, "clause 1: an order")
    picture.row(MARGIN, 40, FIRST, {0: "verb"}, {0: "verb"})
    picture.note(MARGIN, 116, "clause 2: an order, after clause 1 because of “then”")
    picture.row(MARGIN, 126, SECOND, {0: "verb"}, {0: "verb"})
    return picture


def tools():
    picture = Picture("words-3-tools", "The scores of the tools whose verb is create, for each clause", 186)
    clauses = read_scores()
    best = max(score for clause in clauses for _, score in clause)
    for column, (verb, clause) in enumerate(zip(("create author …", "create blog …"), clauses)):
        left = MARGIN + column * 390
        picture.note(left, 30, f"clause {column + 1}: {verb}")
        for line, (tool, score) in enumerate(clause):
            y = 46 + line * 32
            picture.text(left + 116, y + 13, tool, anchor="end")
            length = max(score, 0) / best * 160
            picture.bar(left + 126, y, max(length, 2), "bar" if line else "best")
            picture.text(left + 134 + max(length, 2), y + 13, f"{score:.2f}", anchor="start")
    return picture


def fill(picture, y, words, spans, tool, parameters):
    """Draws a clause, its tool with parameters below, and an arrow from each span to its parameter."""
    kinds = {place: kind for places, kind, _ in spans for place in places}
    middles = picture.row(MARGIN, y, words, kinds)
    below = y + 92
    picture.box(MARGIN, below, tool, "verb")
    x, targets = MARGIN + 150, {}
    for name in parameters:
        targets[name] = picture.box(x, below, name, width=150)
        x += 166
    for places, _, name in spans:
        if name:
            x = sum(middles[place][0] for place in places) / len(places)
            picture.arrow((x, middles[places[0]][1]), (targets[name][0], below))
    return middles


def values():
    picture = Picture("words-4-values", "The words of each clause, and the parameters that they fill", 340)
    spans = [([2], "value", "name"), ([3, 4], "cue", None), ([5], "value", "email"), ([6], "doubt", None)]
    middles = fill(picture, 24, FIRST, spans, "createAuthor", ["name", "email"])
    picture.note(middles[6][0] - 34, 74, "no parameter takes it")
    spans = [([2, 4], "cue", None), ([3], "value", "authorId"), ([5], "value", "title"), ([6, 7, 8], "value", "content")]
    fill(picture, 190, SECOND, spans, "createBlog", ["authorId", "title", "content"])
    return picture


def references():
    picture = Picture("words-5-references", "The second step takes the field _id from the output of the first step", 190)
    picture.note(MARGIN, 32, "step 1")
    picture.box(MARGIN, 42, "createAuthor", "verb", 150)
    picture.note(250, 32, "output, by its schema")
    for line, field in enumerate(("_id", "name: Ann", "email")):
        picture.box(250, 42 + line * 38, field, "value" if line == 0 else "box", 130)
    picture.note(530, 32, "step 2: createBlog")
    picture.box(530, 42, "authorId", "value", 130)
    picture.box(530, 80, "title: Salt", width=130)
    picture.box(530, 118, "content: …", width=130)
    picture.across((174, 56), (250, 56))
    picture.across((380, 56), (530, 56))
    picture.text(455, 46, "by Ann")
    picture.note(250, 174, "“Ann” is a value of step 1, and an author has an _id")
    return picture


def checks():
    picture = Picture("words-6-checks", "The offline planner and a model write drafts. The compiler checks each draft, the guard those of models.", 262)
    picture.box(MARGIN, 40, "offline planner", "verb", 150)
    picture.box(MARGIN, 95, "NO_PLAN_FOUND", "stop", 150)
    picture.arrow((99, 68), (99, 95))
    picture.parts.append('<path class="line" d="M99 150 V129"/><path class="tip" d="M94 131 h10 l-5 -8 z"/>')
    picture.box(MARGIN, 150, "model", "verb", 150)
    picture.box(250, 40, "compiler", width=120)
    picture.box(250, 150, "compiler", width=120)
    picture.box(446, 150, "guard", width=90)
    picture.box(610, 40, "plan", "value", 166)
    picture.box(610, 110, "plan + approval", "doubt", 166)
    picture.box(610, 180, "INVALID_PLAN", "stop", 166)
    picture.across((174, 54), (250, 54))
    picture.across((174, 164), (250, 164))
    picture.text(212, 44, "draft", "note")
    picture.text(212, 154, "draft", "note")
    picture.across((370, 54), (610, 54))
    picture.across((370, 164), (446, 164))
    picture.across((536, 164), (610, 62))
    picture.across((536, 164), (610, 124))
    picture.across((536, 164), (610, 194))
    picture.across((370, 60), (610, 118))
    picture.text(480, 44, "no doubts", "note")
    picture.text(420, 92, "doubts", "note")
    picture.parts.append('<path class="line" d="M310 178 V226 H99 V184"/>')
    picture.parts.append('<path class="tip" d="M94 186 h10 l-5 -8 z"/>')
    picture.text(204, 244, "errors go back to the model", "note")
    return picture


def parts():
    picture = Picture("concepts-1-parts", "A request has two plans. Each plan has steps, and each execution runs one plan.", 250)
    for x, heading in ((MARGIN, "request"), (226, "plans"), (490, "executions")):
        picture.note(x, 30, heading)
    picture.box(MARGIN, 40, "req_…", "value", 130, note="“Order tea and pay”")
    picture.box(226, 40, "plan_…  version 1", "value", 190)
    picture.box(226, 84, "plan_…  version 2", "value", 190)
    picture.box(490, 40, "exec_…  FAILED", "stop", 286)
    picture.box(490, 84, "exec_…  COMPLETED", "verb", 286)
    picture.across((154, 54), (226, 54))
    picture.across((154, 54), (226, 98))
    picture.across((416, 54), (490, 54))
    picture.across((416, 98), (490, 98))
    picture.note(MARGIN, 152, "the steps of version 2, and the attempts of its execution")
    steps = (("reserve", "attempt 1", "attempt 2"), ("pay", "attempt 1"), ("send_mail", "attempt 1"))
    for place, (step, *attempts) in enumerate(steps):
        left = MARGIN + place * 256
        picture.box(left, 164, step, width=240)
        for number, attempt in enumerate(attempts):
            kind = "doubt" if number + 1 < len(attempts) else "verb"
            picture.box(left + number * 122, 206, attempt, kind, 118)
        if place:
            picture.across((left - 16, 178), (left, 178))
    return picture


def roles():
    picture = Picture("concepts-2-roles", "Clients send commands to nodes. Workers in the nodes use one store and call tools.", 280)
    for x, heading in ((MARGIN, "clients"), (282, "nodes"), (600, "tools")):
        picture.note(x, 30, heading)
    for line, client in enumerate(("command line", "page, GraphQL", "MCP client")):
        picture.box(MARGIN, 40 + line * 42, client, width=150)
        picture.across((174, 54 + line * 42), (282, 54 if line < 2 else 138))
    for y, node in ((40, "node A"), (124, "node B")):
        picture.box(282, y, f"{node}: worker", "verb", 180)
        picture.across((462, y + 14), (600, 54))
        picture.across((462, y + 14), (600, 96))
        picture.across((462, y + 14), (600, 138))
    for line, tool in enumerate(("MCP servers", "OpenAPI, HTTP", "commands")):
        picture.box(600, 40 + line * 42, tool, width=176)
    picture.box(MARGIN, 216, "store: SQLite or MongoDB", "value", 752, note="logs of executions, plans, commands that wait in an inbox")
    picture.arrow((330, 152), (330, 216))
    picture.arrow((414, 152), (414, 216))
    picture.note(190, 190, "commands, claims")
    picture.note(430, 190, "events, before and after each call")
    return picture


def log_events():
    picture = Picture("concepts-3-log", "The log of an execution: node A ends during the call of pay, and node B continues", 224)
    picture.note(MARGIN, 30, "node A")
    first = ["created", "claimed", "step_started", "step_succeeded", "step_started"]
    middles = picture.row(MARGIN, 40, first, {3: "verb", 4: "doubt"}, {0: "", 2: "reserve", 3: "reserve", 4: "pay"})
    end = middles[-1][0] + 12 * CHAR / 2 + PADDING
    picture.box(end + 16, 40, "kill -9", "stop", 84)
    picture.across((end, 54), (end + 16, 54))
    picture.note(MARGIN, 124, "node B reads the log, and takes over")
    second = ["claimed", "step_failed", "finished"]
    picture.row(MARGIN, 134, second, {1: "stop"}, {1: "pay", 2: "FAILED"})
    picture.note(340, 153, "the error is tool.outcome_unknown")
    picture.note(MARGIN, 206, "pay is a ONCE tool: it started, and no result is in the log, so Faber does not call it again")
    return picture


def crash():
    picture = Picture("concepts-4-crash", "After a crash, the log and the effect of the tool decide whether a call is repeated", 250)
    picture.box(MARGIN, 40, "last event of the step", width=220)
    answers = (("none", "call the tool", "verb"), ("step_succeeded", "use the recorded output", "verb"))
    for line, (event, action, kind) in enumerate(answers):
        picture.box(320, 40 + line * 42, event, width=170)
        picture.box(560, 40 + line * 42, action, kind, 216)
        picture.across((244, 54), (320, 54 + line * 42))
        picture.across((490, 54 + line * 42), (560, 54 + line * 42))
    picture.box(320, 124, "step_started", "doubt", 170)
    picture.across((244, 54), (320, 138))
    picture.note(MARGIN, 142, "the outcome is unknown;")
    picture.note(MARGIN, 160, "the effect decides")
    picture.box(560, 124, "READ: call again", "verb", 216)
    picture.box(560, 160, "IDEMPOTENT: call again", "verb", 216)
    picture.box(560, 196, "ONCE: stop, ask", "stop", 216)
    for y in (138, 174, 210):
        picture.across((490, 138), (560, y))
    return picture


def main():
    differing = []
    for draw in (tokens, clauses, tools, values, references, checks, parts, roles, log_events, crash):
        picture = draw()
        path = FOLDER / f"{picture.name}.svg"
        if "--check" not in sys.argv:
            path.write_text(picture.svg())
        elif not path.exists() or path.read_text() != picture.svg():
            differing.append(path.name)
    if differing:
        sys.exit(f"docs/images/draw.py draws other pictures: {', '.join(differing)}")


if __name__ == "__main__":
    main()
