#!/usr/bin/env python3
"""Writes `llms.txt`, the list of pages for assistants (https://llmstxt.org), and one text of all pages.

    docs/llms.py               writes llms.txt in the root of the repository
    docs/llms.py --check       fails if llms.txt differs, or if a page of docs is in no list
    docs/llms.py --full FILE   writes the text of README and all pages into one file

The order and the groups are those of docs/README.md. A page is described by the first sentence of its text.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INDEX = ROOT / "docs/README.md"
LIST = ROOT / "llms.txt"
LINK = re.compile(r"\]\(([^)\s#]+\.md)(?:#[^)]*)?\)")
SUMMARY = (
    "Faber is a durable workflow engine for tool calls. It checks and executes plans (JSON, YAML, or made from words by a "
    "planner or a model) over MCP, OpenAPI, GraphQL, HTTP, commands and Rust, and continues after a crash."
)


def find_groups():
    """Returns the groups of docs/README.md with their pages, each page only once."""
    seen, groups = {INDEX}, [("Start", [ROOT / "README.md"])]
    for part in re.split(r"(?m)^## ", INDEX.read_text())[1:]:
        title, body = part.split("\n", 1)
        pages = []
        for link in LINK.findall(body):
            page = (INDEX.parent / link).resolve()
            if page not in seen:
                seen.add(page)
                pages.append(page)
        groups.append((title, pages))
    groups.append(("Optional", sorted((ROOT / "docs/design").glob("*.md")) + [INDEX.parent / "glossary.md"]))
    return groups


def describe(page):
    """Returns the title of a page and the first sentence below it, without links."""
    text = page.read_text()
    title = re.search(r"(?m)^# (.*)$", text).group(1)
    paragraph = next(part for part in text.split("\n\n")[1:] if part.strip() and part[0] not in "#|`!<")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())).replace("**", "")
    sentence = re.match(r".*?[.!?](?=\s|$)|.*", plain).group()
    return title, re.sub(r"^This (page|guide|tutorial) is for", "For", sentence)


def list_pages(groups):
    lines = ["# Faber", "", f"> {SUMMARY}"]
    for title, pages in groups:
        lines += ["", f"## {title}", ""]
        for page in pages:
            name, sentence = describe(page)
            lines.append(f"- [{name}]({page.relative_to(ROOT)}): {sentence}")
    return "\n".join(lines) + "\n"


def join_pages(groups):
    pages = [page for _, pages in groups for page in pages]
    return "\n\n".join(f"<!-- {page.relative_to(ROOT)} -->\n\n{page.read_text().strip()}" for page in pages) + "\n"


def find_missing(groups):
    listed = {page for _, pages in groups for page in pages} | {INDEX}
    return sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if page not in listed)


def main():
    groups = find_groups()
    if "--full" in sys.argv:
        target = pathlib.Path(sys.argv[sys.argv.index("--full") + 1])
        target.write_text(join_pages(groups))
        print(f"{target}: {target.stat().st_size} bytes")
    elif "--check" not in sys.argv:
        LIST.write_text(list_pages(groups))
    elif missing := find_missing(groups):
        sys.exit(f"docs/README.md links to none of these pages: {', '.join(missing)}")
    elif not LIST.exists() or LIST.read_text() != list_pages(groups):
        sys.exit("llms.txt is out of date: docs/llms.py writes it")


if __name__ == "__main__":
    main()
