#!/usr/bin/env python3
"""BFCL v4 `multiple` and `parallel` with the offline planner, judged by BFCL's own ast_checker.py (unchanged).
    bfcl.py [--effect READ|ONCE|IDEMPOTENT] [--show multiple|parallel]     failures are printed for even ids only"""
import argparse, collections, copy, json, os, re, sys, time, types
from common import Server, percentile
p = argparse.ArgumentParser(); p.add_argument("--effect", default="READ"); p.add_argument("--show"); p.add_argument("--gold", action="store_true"); p.add_argument("--strip", action="store_true", help="even ids only, without quotation marks around the whole query")
args = p.parse_args()
# the checker's imports: one model without underscore_to_dot, Python's types only
import enum
class Language(enum.Enum): PYTHON = "python"; JAVA = "java"; JAVASCRIPT = "javascript"
def module(name, **things):
    m = types.ModuleType(name); m.__dict__.update(things); sys.modules[name] = m
class Keeps:
    underscore_to_dot = False
for n in ("bfcl_eval", "bfcl_eval.constants", "bfcl_eval.eval_checker", "bfcl_eval.eval_checker.ast_eval", "bfcl_eval.eval_checker.ast_eval.type_convertor"): module(n, __path__=[])
module("bfcl_eval.constants.enums", Language=Language)
module("bfcl_eval.constants.model_config", MODEL_CONFIG_MAPPING={"faber": Keeps})
module("bfcl_eval.constants.type_mappings", JAVA_TYPE_CONVERSION={}, JS_TYPE_CONVERSION={})
module("bfcl_eval.eval_checker.ast_eval.type_convertor.java_type_converter", java_type_converter=None)
module("bfcl_eval.eval_checker.ast_eval.type_convertor.js_type_converter", js_type_converter=None)
sys.path.insert(0, "data")
from ast_checker import ast_checker
TYPES = {"float": "number", "dict": "object", "tuple": "array", "any": "string", "list": "array", "bool": "boolean", "double": "number"}
def schema(s):
    if isinstance(s, list): return [schema(x) for x in s]
    if not isinstance(s, dict): return s
    out = {}
    for k, v in s.items():
        if k == "type" and isinstance(v, str): out[k] = TYPES.get(v, v)
        elif k == "properties": out[k] = {n: schema(x) for n, x in v.items()}
        elif k == "items": out[k] = schema(v)
        elif k == "optional" or (k == "required" and isinstance(v, bool)): continue
        else: out[k] = v
    return out
def plain(t): return re.sub(r"[ ,./\-_*^]", "", t).lower().replace("'", '"')
def fits(v, g):
    """planner/offline/examples/gold.rs: as BFCL, but 5 is 5.0 inside lists, too, and objects are compared deeply."""
    if isinstance(v, bool) or isinstance(g, bool): return v is g
    if isinstance(v, str) and isinstance(g, str): return plain(v) == plain(g)
    if isinstance(v, list) and isinstance(g, list): return len(v) == len(g) and all(map(fits, v, g))
    if isinstance(v, dict) and isinstance(g, dict): return fields(v, g)
    return v == g
def fields(v, g): return all(k in g and any(fits(x, y) for y in g[k]) for k, x in v.items()) and all(k in v or "" in y for k, y in g.items())
def loose(calls, gold):
    left = list(calls)
    for g in gold:
        hit = next((c for c in left if list(c) == list(g) and fields(*(list(x.values())[0] for x in (c, g)))), None)
        if hit is None: return False
        left.remove(hit)
    return not left
R = "mutation($i: ToolInput!){registerTool(input:$i){qualifiedName}}"
M = "mutation($q: String!, $o: PlanningOptions) { createPlanWithRequestId(query: $q, options: $o) { diagnostics { code message } tools { stepId toolName parameters when forEach requiresApproval } } }"
server = Server({})
rows = []
try:
    for category in ("multiple", "parallel"):
        cases = [json.loads(l) for l in open(f"data/bfcl_{category}.json")]
        golds = {g["id"]: g["ground_truth"] for g in map(json.loads, open(f"data/bfcl_{category}_answer.json"))}
        for case in cases:
            number = int(case["id"].rsplit("_", 1)[1]); gold = golds[case["id"]]
            turns = case["question"][0]; query = "\n".join(t["content"] for t in turns if t["role"] == "user")
            if args.strip:
                if number % 2: continue
                query = query.strip(); query = query[1:-1] if query[0] == query[-1] == '"' and query.count('"') == 2 else query
            names = {}
            for f in case["function"]:
                fit = re.sub(r"[^A-Za-z0-9_.-]", "_", f["name"]); names[fit] = f["name"]
                a = server.ask(R, {"i": {"name": fit, "description": f["description"], "parameters": schema(f["parameters"]), "toolSet": "bfcl", "effect": args.effect, "run": {"command": ["true"]}}})
                if "errors" in a: rows.append({"refused": True, "odd": number % 2, "category": category, "error": a["errors"][0]["message"]})
            began = time.perf_counter()
            a = server.ask(M, {"q": query, "o": {"toolSets": ["bfcl"], "planner": "offline"}})
            took = (time.perf_counter() - began) * 1e3
            for fit in names:
                server.ask("mutation($n: String!){removeTool(name:$n)}", {"n": "bfcl." + fit})
            made = (a.get("data") or {}).get("createPlanWithRequestId")
            calls, row = [], {"category": category, "id": number, "odd": number % 2, "ms": took, "plan": bool(made), "code": None}
            if made:
                for t in made["tools"]:
                    n = t["toolName"]; n = n[5:] if n.startswith("bfcl.") else n
                    calls.append({names.get(n, n): t["parameters"] or {}})
                row["asks"] = any(t["requiresApproval"] for t in made["tools"]); row["doubts"] = len(made["diagnostics"])
            else:
                row["code"] = a["errors"][0]["extensions"].get("code"); message = a["errors"][0]["message"]
            if args.gold:  # tests this script: the first allowed values must be judged right
                def first(x): return [v for v in x if v != ""][0] if any(v != "" for v in x) else None
                def build(x):
                    v = first(x)
                    if isinstance(v, dict): return {k: build(y) for k, y in v.items() if any(z != "" for z in y)}
                    if isinstance(v, list) and v and isinstance(v[0], dict): return [{k: build(y) for k, y in z.items() if any(w != "" for w in y)} for z in v]
                    return v
                calls = [{n: {k: build(v) for k, v in ps.items() if any(z != "" for z in v)} for n, ps in g.items()} for g in gold]
            try:
                verdict = ast_checker(case["function"], copy.deepcopy(calls), gold, Language.PYTHON, category, "faber")
            except Exception as e:
                verdict = {"valid": False, "error": [repr(e)], "error_type": "checker:" + type(e).__name__}
            row["exact"] = verdict["valid"]; row["loose"] = loose(calls, gold); row["calls"] = calls
            row["names"] = sorted(n for c in calls for n in c) == sorted(n for g in gold for n in g)
            row["type"] = verdict.get("error_type")
            rows.append(row)
            if args.show == category and number % 2 == 0 and not row["exact"]:
                print("##", case["id"], query); print("  wanted", json.dumps(gold)); print("  said  ", json.dumps(calls) if made else message)
                if made: print("  doubts", [d["message"] for d in made["diagnostics"]])
                print("  why   ", row["type"], str(verdict["error"])[:300])
finally:
    server.close()
json.dump(rows, open(f"out/bfcl-{args.effect}{'-strip' if args.strip else ''}.json", "w"))
bad = [r for r in rows if r.get("refused")]
if bad: print("tools that could not be registered:", len(bad), collections.Counter((r["category"], "odd" if r["odd"] else "even") for r in bad), {r["error"][:160] for r in bad if not r["odd"]})
rows = [r for r in rows if not r.get("refused")]
print(f"effect {args.effect}")
print("| category | ids | n | plans | names right | exact | exact (gold.rs) | exact of plans | plans that ask | p50 ms | p99 ms |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
for c in ("multiple", "parallel"):
    for odd in (0, 1):
        v = [r for r in rows if r["category"] == c and r["odd"] == odd]; n = len(v)
        if not n: continue
        plans = sum(r["plan"] for r in v)
        print("| %s | %s | %d | %.3f | %.3f | %.3f | %.3f | %.3f | %d | %.1f | %.1f |" % (c, "odd" if odd else "even", n, plans / n, sum(r["names"] for r in v) / n, sum(r["exact"] for r in v) / n, sum(r["loose"] for r in v) / n, sum(r["exact"] for r in v) / max(1, plans), sum(r.get("asks", False) for r in v), percentile([r["ms"] for r in v], 50), percentile([r["ms"] for r in v], 99)))
    print("  even, why:", collections.Counter((r["type"] if r["plan"] else r["code"]) for r in rows if r["category"] == c and not r["odd"] and not r["exact"]))
