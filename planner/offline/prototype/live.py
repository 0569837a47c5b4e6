#!/usr/bin/env python3
"""LiveMCPBench: 95 tasks, 527 tools of 70 servers; recall@5 of `selectTools(by: …)`. A name that several servers have counts as found if any of them is selected."""
import argparse, json, re, sys
from common import Server, percentile
import time
p = argparse.ArgumentParser(); p.add_argument("--show", action="store_true"); p.add_argument("--steps", action="store_true"); args = p.parse_args()
tasks = json.load(open("data/live_annotations.json"))
tools = [(sn, t) for s in json.load(open("data/live_tools.json")) for sn, srv in s["tools"].items() for t in srv["tools"]]
known = {t["name"] for _, t in tools}
gold = [list(dict.fromkeys(re.sub(r"^\s*\d+[.)]\s*", "", l).strip() for l in e["Annotator Metadata"]["Tools"].split("\n") if l.strip())) for e in tasks]
R = "mutation($i: ToolInput!){registerTool(input:$i){qualifiedName}}"
S = "query($q: String!, $b: SelectionCriterion!, $n: Int!){selectTools(query:$q, by:$b, limit:$n){tool{name toolSet} score}}"
server = Server({})
def mended(s):
    """Draft 4 writes `exclusiveMinimum: true`; Faber refuses such a schema (one tool: read_pdf)."""
    if isinstance(s, dict): return {k: mended(v) for k, v in s.items() if not (k in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(v, bool))}
    return [mended(x) for x in s] if isinstance(s, list) else s
out = {}
try:
    refused = []
    for sn, t in tools:
        a = server.ask(R, {"i": {"name": t["name"], "description": t.get("description") or t["name"], "parameters": mended(t["inputSchema"]), "toolSet": re.sub(r"[^A-Za-z0-9_-]", "_", sn), "run": {"command": ["true"]}}})
        if "errors" in a: refused.append((sn, t["name"], a["errors"][0]["message"][:200]))
    mine = {re.sub(r"[^A-Za-z0-9_-]", "_", sn) for sn, _ in tools}
    listed = [x for x in server.ask("{ tools(activeOnly: true) { name toolSet } }")["data"]["tools"]]
    others = sorted({x["toolSet"] for x in server.ask("{ tools(activeOnly: true) { name toolSet } }")["data"]["tools"]} - {re.sub(r"[^A-Za-z0-9_-]", "_", sn) for sn, _ in tools})
    print("deactivate", others, server.ask("mutation($n: [String!]!){deactivateToolSets(names:$n){notFound}}", {"n": ["blog"]}))
    print("tools registered", sum(x["toolSet"] in mine for x in listed), "others active", [(x["toolSet"], x["name"]) for x in listed if x["toolSet"] not in mine][:20], "refused", refused)
    if "--steps" in sys.argv:  # how much is in the splitting: the annotators' own steps, one question each, best of each in turn
        found = []
        for e, g in zip(tasks, gold):
            parts = [re.sub(r"^\s*\d+[.)]\s*", "", l).strip() for l in e["Annotator Metadata"]["Steps"].split("\n") if l.strip()]
            lists = []
            for q in parts:
                m = server.ask(S, {"q": q, "b": "HYBRID", "n": 10})["data"]["selectTools"]; lists.append([x["tool"]["name"] for x in m])
            merged = []
            for place in range(10):
                for l in lists:
                    if place < len(l) and l[place] not in merged: merged.append(l[place])
            found.append((sum(n in merged[:5] for n in g) / len(g), sum(n in merged[:10] for n in g) / len(g)))
        print("annotators' steps as queries, merged in turn: recall@5 %.3f, @10 %.3f" % tuple(sum(x[i] for x in found) / len(found) for i in (0, 1)))
    fast = []
    server.ask(S, {"q": "warm", "b": "HYBRID", "n": 5})
    for e in tasks:
        began = time.perf_counter(); cpu = server.cpu_ms(); server.ask(S, {"q": e["Question"], "b": "HYBRID", "n": 5}); fast.append(((time.perf_counter() - began) * 1e3, server.cpu_ms() - cpu))
    print("HYBRID, limit 5, unseen queries: wall p50 %.1f p99 %.1f ms; processor p50 %.1f p99 %.1f ms" % tuple(percentile([f[i] for f in fast], s) for i in (0, 1) for s in (50, 99)))
    for by in ("HYBRID", "LEXICAL", "DESCRIPTION"):
        server.ask(S, {"q": "warm", "b": by, "n": 5})
        rows = []
        for e, g in zip(tasks, gold):
            began = time.perf_counter()
            a = server.ask(S, {"q": e["Question"], "b": by, "n": 1000})
            ms = (time.perf_counter() - began) * 1e3
            if "errors" in a: print(a["errors"][0]["message"]); break
            m = [(x["tool"]["name"], x["tool"]["toolSet"]) for x in a["data"]["selectTools"]]
            m = [x for x in m if x[1] in mine]
            rows.append({"task": e["task_id"], "category": e["category"], "gold": g, "names": [n for n, _ in m], "sets": [s for _, s in m], "ms": ms})
        out[by] = rows
finally:
    server.close()
json.dump(out, open("out/live.json", "w"))
def recall(r, k, only_known):
    g = [n for n in r["gold"] if n in known] if only_known else r["gold"]
    return sum(n in r["names"][:k] for n in g) / len(g) if g else None
mean = lambda v: sum(v) / len(v)
print("annotated tools", sum(map(len, gold)), "of them unknown", sum(n not in known for g in gold for n in g))
print("ceiling of recall@5 (tasks with more than 5 tools)", round(mean([min(5, len(g)) / len(g) for g in gold]), 3))
print("| by | recall@5, all annotated | recall@5, known names only | micro recall@5 | recall@10 | recall@20 | hit@1 | any in 5 | p50 ms | p99 ms |\n| --- |" + " ---: |" * 9)
for by, rows in out.items():
    if len(rows) < 95: continue
    k = lambda n, o=False: mean([x for x in (recall(r, n, o) for r in rows) if x is not None])
    micro = sum(n in r["names"][:5] for r in rows for n in r["gold"]) / sum(len(r["gold"]) for r in rows)
    ms = [r["ms"] for r in rows]
    print("| %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.1f | %.1f |" % (by, k(5), k(5, True), micro, k(10), k(20), mean([r["names"][0] in r["gold"] for r in rows]), mean([any(n in r["names"][:5] for n in r["gold"]) for r in rows]), percentile(ms, 50), percentile(ms, 99)))
rows = out["HYBRID"]
for c in sorted({r["category"] for r in rows}):
    v = [r for r in rows if r["category"] == c]; print("  ", c, len(v), round(mean([recall(r, 5, False) for r in v]), 3))
for half in (0, 1):
    print("tasks at", "even" if half == 0 else "odd", "places:", round(mean([recall(r, 5, False) for r in rows[half::2]]), 3))
if args.show:
    for i, (r, e) in enumerate(zip(rows, tasks)):
        if i % 2 == 0 and recall(r, 5, False) < 1:
            print("##", i, e["Question"][:300].replace("\n", " ")); print("   gold", [(n, r["names"].index(n) + 1 if n in r["names"] else None) for n in r["gold"]]); print("   five", list(zip(r["sets"], r["names"]))[:5])
