#!/usr/bin/env python3
"""Records the section "A plan that survives `kill -9`" of README.md in a terminal, as a moving picture.

    FABER_TEST_BINARY=target/debug/faber docs/images/record.py           writes docs/images/survives-kill.svg
    FABER_TEST_BINARY=target/debug/faber docs/images/record.py --check   fails if the picture shows other lines

The script writes the files of the section, runs its commands, and draws each line at the time at which it was printed. Long
waits are shortened. Viewers without animations show all lines. The colours follow the reader's light or dark theme.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from html import unescape
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))
import console  # noqa: E402

PICTURE = ROOT / "docs/images/survives-kill.svg"
HEADING = "## A plan that survives `kill -9`"
COLUMNS, MARGIN, LINE, CHAR = 96, 16, 19, 8.05
# Seconds: the longest wait that is shown, the time before a command, and the time before the picture starts again.
LONGEST_WAIT, BEFORE_COMMAND, END = 1.5, 1.2, 6.0
KINDS = [("$", "command"), ("✓", "good"), ("COMPLETED", "good"), ("✗", "bad"), ("Killed", "bad"), ("?", "wait")]
KINDS += [("·", "quiet"), ("↻", "quiet"), ("note", "quiet"), ("everything", "quiet")]
STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13.4px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }
  .command { fill: #0550ae; font-weight: bold } .good { fill: #116329 } .bad { fill: #a40e26; font-weight: bold }
  .wait { fill: #7d4e00; font-weight: bold } .quiet { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .command { fill: #79c0ff } .good { fill: #56d364 } .bad { fill: #ff7b72 }
    .wait { fill: #e3b341 } .quiet { fill: #9198a1 }
  }
  @media (prefers-reduced-motion: reduce) { text { animation: none !important } }
"""


def read_section():
    """Returns the files of the section, and its commands with the output that README shows."""
    section = (ROOT / "README.md").read_text().split(HEADING, 1)[1].split("\n## ", 1)[0]
    files, commands = {}, []
    for _, _, info, body in console.FENCE.findall(section):
        if title := re.search(r'title="([^"]+)"', info):
            files[title.group(1)] = body
        elif console.Page.is_run(info):
            for part in re.split(r"(?m)^\$ ", body)[1:]:
                command, _, output = part.partition("\n")
                commands.append((command, output))
    return files, commands


def run_command(command, folder, env):
    """Runs a command. Returns its lines, each with the seconds since the start of the command."""
    start, lines = time.monotonic(), []
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    for line in process.stdout:
        lines.append((time.monotonic() - start, line.rstrip("\n")))
    # An interactive shell prints this line for a command that SIGKILL ended.
    if process.wait() in (137, -9):
        lines.append((time.monotonic() - start, "Killed"))
    return lines


def record():
    """Returns the lines of the terminal, each with its time in the picture."""
    files, commands = read_section()
    names = console.Names((ROOT / "README.md").read_text())
    shown, now = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = pathlib.Path(folder, ".bin")
        bin_folder.mkdir()
        (bin_folder / "faber").symlink_to(pathlib.Path(os.environ["FABER_TEST_BINARY"]).resolve())
        env = {name: value for name, value in os.environ.items() if not name.startswith("FABER_")}
        env |= {"PATH": f"{bin_folder}:{env['PATH']}", "XDG_DATA_HOME": f"{folder}/.data", "HOSTNAME": "vm", "NO_COLOR": "1"}
        for name, body in files.items():
            pathlib.Path(folder, name).write_text(body)
        for command, expected in commands:
            command = names.of_run(command)
            now += BEFORE_COMMAND
            shown.append((now, f"$ {command}"))
            lines, last = run_command(command, folder, env), 0.0
            names.pair_ids(expected, "\n".join(line for _, line in lines))
            for at, line in lines:
                now += min(at - last, LONGEST_WAIT)
                last = at
                shown.append((now, line))
    return shown


def shorten(line):
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def draw(shown):
    total, height = shown[-1][0] + END, len(shown) * LINE + 2 * MARGIN
    frames, texts = [], []
    for number, (at, line) in enumerate(shown):
        percent = 100 * at / total
        frames.append(f"  @keyframes l{number} {{ 0%, {percent:.2f}% {{ opacity: 0 }} {percent + 0.01:.2f}%, 100% {{ opacity: 1 }} }}")
        kind = next((kind for start, kind in KINDS if line.lstrip().startswith(start)), "")
        kind = f' class="{kind}"' if kind else ""
        style = f"animation: l{number} {total:.1f}s infinite"
        y = MARGIN + number * LINE + 14
        texts.append(f'<text{kind} x="{MARGIN}" y="{y}" xml:space="preserve" style="{style}">{escape(shorten(line))}</text>')
    width = round(COLUMNS * CHAR) + 2 * MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>A terminal: a plan is killed during a call, continued, approved and completed</title>",
        f"<style>{STYLE}" + "\n".join(frames) + "\n</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>', *texts, "</svg>\n",
    ])


def normalize(lines):
    """Leaves out lines about waits, because they depend on the moment at which the command looks."""
    return [console.normalize(shorten(line)).rstrip("…") for line in lines if not line.startswith(("?", "·"))]


def main():
    shown = record()
    if "--check" not in sys.argv:
        PICTURE.write_text(draw(shown))
        return
    pictured = normalize(unescape(line) for line in re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text()))
    recorded = normalize(line for _, line in shown)
    if len(pictured) != len(recorded) or any(not new.startswith(old[:60]) for old, new in zip(pictured, recorded)):
        sys.exit("docs/images/record.py records other lines:\n" + "\n".join(recorded))


if __name__ == "__main__":
    main()
