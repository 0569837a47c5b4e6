#!/usr/bin/env python3
"""Runs the console examples of documentation pages and compares their output.

    FABER_TEST_BINARY=target/debug/faber tests/docs/console.py PAGE…           fails if an output differs
    FABER_TEST_BINARY=target/debug/faber tests/docs/console.py --bless PAGE…   writes the new outputs

Each page runs in an empty folder and one shell. A block ```LANG title="NAME" is written to that file first; `append` adds to
it. A block ```console runs line by line; ```console norun is skipped. Ids, times and durations may differ. A line `…` stands
for any lines, and a line that ends in `…` for any line that starts the same.

All outputs of a page come from one run: their times and ids lie within ten minutes, and --bless writes all of them. Every port
that a page names is replaced by a free one. After a command that ends in `&`, the script waits until its ports are open.
FABER_TEST_MONGODB is the address that replaces `mongodb://127.0.0.1/faber?replicaSet=rs0`.
"""

import calendar
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

FENCE = re.compile(r"(?ms)^([ \t]*)(```+)([^\n`]*)\n(.*?)^\1\2[ \t]*$")
IDS = re.compile(r"\b(?:plan|exec|req|call|work)_\d+_[a-z0-9]+\b|\b[0-9a-f]{24}\b")
KINDS = ("plan_", "exec_", "req_", "call_", "work_", "")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?( – \d\d:\d\d:\d\d\.\d+)?")
VARYING = [
    (IDS, "ID"),
    (TIME, "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b"), "DURATION"),
    (re.compile(r"\bnode +\S+"), "NODE"),
    (re.compile(r"\bon \w+"), "on NODE"),
    (re.compile(r"\bby \w+$", re.M), "by NODE"),
    (re.compile(r"[ \t]+"), " "),
]
PORT = re.compile(r"127\.0\.0\.1:(\d{4,5})\b")
MONGODB = "mongodb://127.0.0.1/faber?replicaSet=rs0"
# The commands of the README start with this text, which builds the binary. Their output is the output of the binary.
BUILD = "cargo run --release -- "
COLUMNS = 118
COMMAND_S = 60
PAGE_S = 240
ONE_RUN_S = 600


class Shell:
    """A bash process whose commands run one after another in `folder`. Closing the shell ends the programs that it started."""

    def __init__(self, folder, binary):
        (folder / ".bin").mkdir()
        (folder / ".bin/faber").symlink_to(binary)
        env = {name: value for name, value in os.environ.items() if not name.startswith("FABER_")}
        env |= {"PATH": f"{folder}/.bin:{env['PATH']}", "XDG_DATA_HOME": f"{folder}/.data", "HOSTNAME": "vm"}
        env |= {"NO_COLOR": "1", "TERM": "dumb"}
        self.process = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=env,
            start_new_session=True,
        )
        self.deadline, self.background = time.monotonic() + PAGE_S, []
        self.run("trap 'kill -9 0' EXIT")

    def folder(self):
        return pathlib.Path(os.readlink(f"/proc/{self.process.pid}/cwd"))

    def run(self, command):
        self.process.stdin.write(f"{command}\necho; echo FINISHED-$?-\n".encode())
        self.process.stdin.flush()
        deadline = min(self.deadline, time.monotonic() + COMMAND_S)
        output, pipe = b"", self.process.stdout.fileno()
        while not (end := re.search(rb"\nFINISHED-\d+-\n", output)):
            if not select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0]:
                raise SystemExit(f"`{command}` did not finish in time:\n{output.decode()}")
            if not (part := os.read(pipe, 65536)):
                raise SystemExit(f"`{command}` ended the shell:\n{output.decode()}")
            output += part
        if command.endswith("&"):
            self.background.append(command.removesuffix("&").strip())
        return self.without_job_notices(output[: end.start()].decode()).rstrip("\n")

    def without_job_notices(self, text):
        """Removes the lines in which bash reports the end of background programs, because an interactive shell prints other lines."""
        def shortened(match):
            _, state, job = match.groups()
            is_background = any(job.strip() in command for command in self.background)
            return "" if state == "Terminated" or is_background else f"{state}\n"
        return re.sub(r"(?m)^bash: line (\d+): +\d+ (Killed|Terminated) (.*)\n?", shortened, text)

    def wait_for_port(self, port):
        deadline = min(self.deadline, time.monotonic() + COMMAND_S)
        while time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", int(port))) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit(f"nothing listens on port {port}")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Names:
    """Maps the ids, ports and addresses of the page to those of this run."""

    def __init__(self, page):
        self.ids, self.ports, sockets = {}, {}, []
        for port in dict.fromkeys(PORT.findall(page)):
            sockets.append(free := socket.create_server(("127.0.0.1", 0)))
            self.ports[port] = str(free.getsockname()[1])
        for free in sockets:
            free.close()

    def of_run(self, text):
        if mongodb := os.environ.get("FABER_TEST_MONGODB"):
            text = text.replace(MONGODB, mongodb)
        text = IDS.sub(lambda match: self.ids.get(match.group(), match.group()), text)
        return self.replace_ports(text, self.ports)

    def of_page(self, text):
        if mongodb := os.environ.get("FABER_TEST_MONGODB"):
            text = text.replace(mongodb, MONGODB)
        return self.replace_ports(text, {free: port for port, free in self.ports.items()})

    @staticmethod
    def replace_ports(text, ports):
        return re.sub(r"\b\d{4,5}\b", lambda match: ports.get(match.group(), match.group()), text)

    def pair_ids(self, expected, actual):
        """Remembers which id of this run replaces which id of the page."""
        for kind in KINDS:
            def found(text):
                is_kind = lambda id: id.startswith(kind) if kind else "_" not in id
                return [id for id in dict.fromkeys(IDS.findall(text)) if is_kind(id)]
            for old, new in zip(found(expected), found(actual)):
                self.ids.setdefault(old, new)


def normalize(line):
    for pattern, replacement in VARYING:
        line = pattern.sub(replacement, line)
    return line.strip()


def shorten(line):
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


# An id at the end of a shortened line, even if only the first letters of its kind, such as `pl` for `plan`, remain.
CUT_ID = re.compile(r"(\b(plan|exec|req|call|work)_\w*|`(?:[0-9a-f]*|p(?:l(?:an?)?)?|e(?:x(?:ec?)?)?|r(?:eq?)?|c(?:a(?:ll?)?)?|w(?:o(?:rk?)?)?))$")


def line_matches(actual, expected):
    if not expected.endswith("…"):
        return normalize(actual) == normalize(expected)
    # The line may have been cut inside an id, and ids have different lengths.
    beginning = CUT_ID.sub("", expected.removesuffix("…"))
    return normalize(actual).startswith(normalize(beginning))


def align(actual, expected):
    """Returns the lines of `actual` in the form of `expected`, or None if they differ. A lone `…` stands for any lines."""
    if not expected:
        return None if actual else []
    if expected[0].strip() == "…":
        for skipped in range(len(actual) + 1):
            if (rest := align(actual[skipped:], expected[1:])) is not None:
                return [expected[0], *rest]
        return None
    if not actual or not line_matches(actual[0], expected[0]):
        return None
    rest = align(actual[1:], expected[1:])
    return None if rest is None else [shorten(actual[0]), *rest]


def seconds_of(text):
    """Returns the times of a text, in seconds, from its ids and dates."""
    ids = [int(second) for second in re.findall(r"\b(?:plan|exec|req|call|work)_(\d+)_", text)]
    dates = (re.sub(r"T", " ", match.group()[:19]) for match in TIME.finditer(text))
    return ids + [calendar.timegm(time.strptime(date, "%Y-%m-%d %H:%M:%S")) for date in dates]


class Page:
    """A page whose examples run, and the problems that they have."""

    def __init__(self, path, binary):
        self.path, self.text = path, path.read_text()
        self.names, self.files, self.problems = Names(self.text), {}, []
        self.must_edit = False
        with tempfile.TemporaryDirectory() as folder:
            self.shell = Shell(pathlib.Path(folder), binary)
            try:
                self.blessed = FENCE.sub(self.check_block, self.text)
            finally:
                self.shell.close()
        times = [second for _, _, info, body in FENCE.findall(self.text) if self.is_run(info) for second in seconds_of(body)]
        if times and max(times) - min(times) > ONE_RUN_S:
            self.problems.append(f"{path.name}: its outputs come from several runs")

    @staticmethod
    def is_run(info):
        return info.startswith("console") and "norun" not in info

    def check_block(self, match):
        indent, fence, info, body = match.groups()
        if title := re.search(r'title="([^"]+)"', info):
            name, body_of_run = title.group(1), self.names.of_run(body)
            with open(self.shell.folder() / name, "a" if "append" in info else "w") as file:
                file.write(body_of_run)
            self.files[name] = self.files.get(name, "") + body if "append" in info else body
            body = self.names.of_page(body_of_run)
        elif self.is_run(info):
            body = "".join(map(self.check_command, re.split(r"(?m)^(?=\$ )", body)[1:]))
        return f"{indent}{fence}{info}\n{body}{indent}{fence}"

    def check_command(self, part):
        lines = part.rstrip("\n").split("\n")
        length = next(n for n, line in enumerate(lines, 1) if not line.endswith("\\"))
        command, expected = "\n".join(lines[:length]), lines[length:]
        written = command.removeprefix("$ ").replace(BUILD, "faber ")
        output = self.names.of_page(self.shell.run(self.names.of_run(written)))
        actual = output.split("\n") if output else []
        self.names.pair_ids("\n".join(expected), output)
        if written.endswith("&"):
            self.wait_for_ports(written)
        command = self.names.of_page(self.names.of_run(command))
        if (lines := align(actual, expected)) is None:
            self.problems.append(f"{self.path.name}: {command}\n--- page\n" + "\n".join(expected) + f"\n--- now\n{output}\n")
            # Only the author of the page knows which lines `…` stands for, so --bless keeps the old output.
            self.must_edit = self.must_edit or "…" in expected
            lines = expected if "…" in expected else [shorten(line) for line in actual]
        return "\n".join([command, *lines]) + "\n"

    def wait_for_ports(self, command):
        named = command + "".join(text for name, text in self.files.items() if name in command)
        for port, free in self.names.ports.items():
            if re.search(rf"\b{port}\b", named):
                self.shell.wait_for_port(free)


def main():
    pages = [argument for argument in sys.argv[1:] if argument != "--bless"]
    bless, is_right = "--bless" in sys.argv, True
    binary = pathlib.Path(os.environ["FABER_TEST_BINARY"]).resolve()
    for path in map(pathlib.Path, pages):
        page = Page(path, binary)
        print(*page.problems, sep="\n", end="")
        if page.problems and bless:
            path.write_text(page.blessed)
        if page.must_edit:
            print(f"{path.name}: correct the block that has a line `…` by hand, then write the outputs again")
        is_right = is_right and (bless or not page.problems) and not page.must_edit
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
