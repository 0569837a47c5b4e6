#!/usr/bin/env python3
"""Runs the console examples of documentation pages and compares their output.

    FABER_TEST_BINARY=target/debug/faber tests/docs/console.py PAGE…           fails if an output differs
    FABER_TEST_BINARY=target/debug/faber tests/docs/console.py --bless PAGE…   writes the new outputs

Each page runs in an empty folder and one shell. A block ```LANG title="NAME" is written to that file first; `append` adds to
it. A block ```console runs line by line; ```console norun is skipped. Ids, times and durations may differ. A line `…` stands
for any lines, and a line that ends in `…` for any line that starts the same.
"""

import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

FENCE = re.compile(r"(?ms)^(```+)([^\n`]*)\n(.*?)^\1[ \t]*$")
IDS = re.compile(r"\b(?:plan|exec|req|call|work)_\d+_[a-z0-9]+\b|\b[0-9a-f]{24}\b")
KINDS = ("plan_", "exec_", "req_", "call_", "work_", "")
VARYING = [
    (IDS, "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?( – \d\d:\d\d:\d\d\.\d+)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "DURATION"),
    (re.compile(r"\bnode +\S+"), "NODE"),
    (re.compile(r"\bon \w+"), "on NODE"),
    (re.compile(r"\bby \w+$", re.M), "by NODE"),
    (re.compile(r"[ \t]+"), " "),
]
COLUMNS = 118
TIMEOUT_S = 120


class Shell:
    """A bash process whose commands run one after another in `folder`."""

    def __init__(self, folder, binary):
        (folder / ".bin").mkdir()
        (folder / ".bin/faber").symlink_to(binary)
        env = {name: value for name, value in os.environ.items() if not name.startswith("FABER_")}
        env |= {"PATH": f"{folder}/.bin:{env['PATH']}", "XDG_DATA_HOME": f"{folder}/.data", "NO_COLOR": "1", "TERM": "dumb"}
        self.process = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=env,
            start_new_session=True,
        )

    def folder(self):
        return pathlib.Path(os.readlink(f"/proc/{self.process.pid}/cwd"))

    def run(self, command):
        self.process.stdin.write(f"{command}\necho; echo FINISHED-$?-\n".encode())
        self.process.stdin.flush()
        deadline, output, pipe = time.monotonic() + TIMEOUT_S, b"", self.process.stdout.fileno()
        while not (end := re.search(rb"\nFINISHED-\d+-\n", output)):
            if not select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
                raise SystemExit(f"`{command}` did not finish within {TIMEOUT_S} s:\n{output.decode()}")
            output += os.read(pipe, 65536)
        text = output[: end.start()].decode().rstrip("\n")
        return re.sub(r"(?m)^bash: line \d+: +\d+ Killed.*$", "Killed", text)

    def close(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def normalize(text):
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return [line.rstrip() for line in text.strip().split("\n")]


def shorten(text):
    return "\n".join(line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in text.split("\n"))


def line_matches(actual, expected):
    if expected.endswith("…"):
        return actual.startswith(expected[:-1].rstrip("ID").rstrip())
    return actual == expected


def output_matches(actual, expected):
    """Compares lines. A lone `…` in `expected` stands for any number of lines."""
    if not expected:
        return not actual
    if expected[0] == "…":
        return any(output_matches(actual[skipped:], expected[1:]) for skipped in range(len(actual) + 1))
    return bool(actual) and line_matches(actual[0], expected[0]) and output_matches(actual[1:], expected[1:])


def pair_ids(expected, actual, ids):
    """Remembers which id of this run replaces which id of the page."""
    for kind in KINDS:
        def found(text):
            is_kind = lambda id: id.startswith(kind) if kind else "_" not in id
            return [id for id in dict.fromkeys(IDS.findall(text)) if is_kind(id)]
        for old, new in zip(found(expected), found(actual)):
            ids.setdefault(old, new)


def check_page(path, binary, bless):
    """Returns the number of outputs that differ."""
    ids, failures = {}, 0

    def replace_ids(text):
        return IDS.sub(lambda match: ids.get(match.group(), match.group()), text)

    def check_command(part):
        nonlocal failures
        lines = part.split("\n")
        length = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        command, expected = "\n".join(lines[:length]), "\n".join(lines[length:]).strip("\n")
        actual = shell.run(replace_ids(command.removeprefix("$ ")))
        pair_ids(expected, actual, ids)
        if output_matches(normalize(shorten(actual)), normalize(expected)):
            return part
        failures += 1
        print(f"{path.name}: {command}\n--- page\n{expected}\n--- now\n{actual}\n")
        if not bless or "\n…\n" in f"\n{expected}\n":
            return part
        return f"{command}\n{shorten(actual)}\n" if actual else f"{command}\n"

    def check_block(match):
        fence, info, body = match.groups()
        if title := re.search(r'title="([^"]+)"', info):
            with open(shell.folder() / title.group(1), "a" if "append" in info else "w") as file:
                file.write(replace_ids(body))
        elif info.startswith("console") and "norun" not in info:
            body = "".join(map(check_command, re.split(r"(?m)^(?=\$ )", body)[1:]))
        return f"{fence}{info}\n{body}{fence}"

    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(pathlib.Path(folder), binary)
        try:
            text = FENCE.sub(check_block, path.read_text())
        finally:
            shell.close()
    if bless and failures:
        path.write_text(replace_ids(text))
    return failures


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--bless"]
    binary = pathlib.Path(os.environ["FABER_TEST_BINARY"]).resolve()
    failures = sum(check_page(pathlib.Path(page), binary, "--bless" in sys.argv) for page in arguments)
    sys.exit(failures > 0 and "--bless" not in sys.argv)


if __name__ == "__main__":
    main()
