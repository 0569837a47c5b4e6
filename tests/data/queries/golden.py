#!/usr/bin/env python3
"""Writes the class of each query, as `score.py --json VERDICTS.jsonl` found it, into NAME.golden.txt: golden.py NAME VERDICTS.jsonl"""
import json, os, sys

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{sys.argv[1]}.golden.txt")
classes = {row["id"]: row["class"] for row in map(json.loads, open(sys.argv[2], encoding="utf-8"))}
lines = [line.split(" | ", 1) for line in open(path, encoding="utf-8")]
with open(path, "w", encoding="utf-8") as sink:
    for head, outcome in lines:
        ident = int(head.split()[0])
        sink.write(f"{ident} {classes[ident]} | {outcome}")
