#!/usr/bin/env python3
"""Prints every relative link of a Markdown file or of llms.txt that leads to no file or to no heading, and fails if it prints one.

    tests/docs/links.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = re.compile(r"(?ms)^[ ]*```.*?^[ ]*```")
IGNORED = {".cache", "node_modules", "target"}


def anchors(page):
    """Returns the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"(?m)^#+ (.*)$", CODE.sub("", page.read_text()))
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def problems(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: `{link}` leads to no file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: `{link}` leads to no heading"


def main():
    pages = [page for page in ROOT.rglob("*.md") if not IGNORED & set(page.relative_to(ROOT).parts)]
    pages.append(ROOT / "llms.txt")
    found = [problem for page in sorted(pages) for problem in problems(page)]
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
