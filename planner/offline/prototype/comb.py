import sys; sys.argv=["x"]
from look import *
exec(open("run.py").read().split("show=")[0].split("from look import *")[1])
rows={(r["category"],r["id"]):r for r in json.load(open("WORK/w/measure/out/bfcl-READ.json")) if not r.get("refused")}
import collections
for cat in("multiple","parallel"):
    n=collections.Counter()
    for l in open(f"TMP/bfclgold/{cat}.jsonl"):
        c=json.loads(l); b,info=plan(c); good=ok([(b[1],x) for x in b[2]] if b else [],c["calls"])
        r=rows[cat,c["id"]]; n[("odd" if c["id"]%2 else "even", "plan" if r["plan"] else "none", "doubts" if r.get("doubts") else "sure", "normal ok" if r["exact"] else "normal bad","lookup ok" if good else "lookup bad")]+=1
    for k,v in sorted(n.items()): print(cat,k,v)
