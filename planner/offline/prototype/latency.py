#!/usr/bin/env python3
"""Plans the 150 development queries over all 72 tools, three rounds, on a warm server: wall time of the mutation at the client
(one kept connection), time by the server's own transcript (`createdAt` to the last entry), processor time of the server.
    latency.py [--store memory:|sqlite:DIR/x.db] [--cpu N] [--rounds N] [--warm N]"""
import argparse, datetime, json, os, sys, time
from common import Server, percentile
Q = "WORK/shared/data/queries"
SETS = ["github", "workspace", "files", "shop", "home"]
p = argparse.ArgumentParser(); p.add_argument("--store", default="memory:"); p.add_argument("--cpu"); p.add_argument("--rounds", type=int, default=3); p.add_argument("--warm", type=int, default=1)
p.add_argument("--words", action="store_true", help="no embedder"); p.add_argument("--hundred", action="store_true"); p.add_argument("--slow", action="store_true"); args = p.parse_args()
queries = [json.loads(line) for line in open(f"{Q}/dev.jsonl")]
config = {"toolsets": [{"name": n, "description": json.load(open(f"{Q}/tools/{n}.json"))["description"], "active": True,
          "source": {"mcp": {"command": sys.executable, "args": [f"{Q}/run.py", "--stub", f"{Q}/tools/{n}.json"]}}} for n in SETS]}
M = "mutation($q: String!, $o: PlanningOptions) { createPlanWithRequestId(query: $q, options: $o) { requestId planId planner diagnostics { severity code message } tools { stepId toolName parameters dependsOn when forEach effect requiresApproval } } }"
if args.words: config["embedding"] = {"builtin": False}
stamp = lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
server = Server(config, args.store, args.cpu)
try:
    for _ in range(100):
        listed = server.ask("{ tools(activeOnly: true) { name toolSet } }")["data"]["tools"]
        count = sum(t["toolSet"] in SETS for t in listed)
        if count == 72: break
        time.sleep(0.1)
    assert count == 72, count
    def plan(q):
        cpu, began = server.cpu_ms(), time.perf_counter()
        answer = server.ask(M, {"q": q["query"], "o": {"toolSets": SETS, **({"maxTools": 100} if args.hundred else {})}})
        wall = (time.perf_counter() - began) * 1e3
        cpu = server.cpu_ms() - cpu
        made = (answer.get("data") or {}).get("createPlanWithRequestId")
        rid = made["requestId"] if made else answer["errors"][0]["extensions"]["requestId"]
        r = server.ask("query($i:ID!){request(requestId:$i){createdAt transcript{at}}}", {"i": rid})["data"]["request"]
        own = (max(stamp(t["at"]) for t in r["transcript"]) - stamp(r["createdAt"])).total_seconds() * 1e3
        return {"id": q["id"], "wall": wall, "cpu": cpu, "own": own, "plan": bool(made)}
    first = plan(queries[0])
    print("first call of the process", {k: round(v, 2) for k, v in first.items() if k in ("wall", "cpu", "own")})
    for q in queries[1:args.warm]: plan(q)
    idle = []
    for _ in range(300):
        began = time.perf_counter(); server.ask("{ __typename }"); idle.append((time.perf_counter() - began) * 1e3)
    rows = [{**plan(q), "round": r} for r in range(args.rounds) for q in queries]
finally:
    server.close()
os.makedirs("out", exist_ok=True)
json.dump(rows, open("out/latency-%s-%s%s.json" % (args.store.split(":")[0], args.cpu, "-words" if args.words else ""), "w"))
print("store", args.store, "cpu", args.cpu, "nice", os.environ.get("NICE", "10"), "n", len(rows), "plans", sum(r["plan"] for r in rows), "load", os.getloadavg())
print("trivial query wall p50 %.2f p99 %.2f" % (percentile(idle, 50), percentile(idle, 99)))
best = {}
for r in rows: best.setdefault(r["id"], []).append(r)
print("| time (ms) | rounds | p50 | p95 | p99 | max |\n| --- | --- | ---: | ---: | ---: | ---: |")
for r in rows: best.setdefault(r["id"], []).append(r)
for label, chosen in (("first: queries unseen" if args.warm < 2 else "first", {0}), ("second and later: query vectors cached", set(range(1, args.rounds))), ("all", set(range(args.rounds)))):
    for k, name in (("own", "server's transcript"), ("wall", "wall at the client"), ("cpu", "processor time of the server")):
        v = [r[k] for r in rows if r["round"] in chosen]
        print("| %s | %s | %.1f | %.1f | %.1f | %.1f |" % (name, label, *(percentile(v, s) for s in (50, 95, 99)), max(v)))
slow = sorted(best, key=lambda i: -sorted(r["cpu"] for r in best[i])[1])[:8]
text = {q["id"]: q["query"] for q in queries}
for i in slow if args.slow else []: print(i, [round(r["cpu"], 1) for r in best[i]], len(text[i].split()), "words:", text[i][:110])
