import sys; sys.path.insert(0,"TMP/bfclproto")
from look import *
def plain(t): return re.sub(r"[ ,./\-_*^]", "", t).lower().replace("'", '"')
def fits(v, g):
    if isinstance(v, bool) or isinstance(g, bool): return v is g
    if isinstance(v, str) and isinstance(g, str): return plain(v) == plain(g)
    if isinstance(v, list) and isinstance(g, list): return len(v) == len(g) and all(map(fits, v, g))
    if isinstance(v, dict) and isinstance(g, dict): return fields(v, g)
    return v == g
def fields(v, g): return all(k in g and any(fits(x, y) for y in g[k]) for k, x in v.items()) and all(k in v or "" in y for k, y in g.items())
def ok(calls,gold):
    left=list(gold)
    if len(calls)!=len(gold): return False
    for n,c in calls:
        h=next((g for g in left if g["name"]==n and fields(c,g["arguments"])),None)
        if h is None: return False
        left.remove(h)
    return True
show=sys.argv[1] if len(sys.argv)>1 else ""
for cat in("multiple","parallel"):
    n={0:[0,0,0],1:[0,0,0]}
    for l in open(f"TMP/bfclgold/{cat}.jsonl"):
        c=json.loads(l); b,info=plan(c); calls=[(b[1],x) for x in b[2]] if b else []
        good=ok(calls,c["calls"]); h=n[c["id"]%2]; h[0]+=1; h[1]+=bool(b); h[2]+=good
        if show==cat and c["id"]%2==0 and not good:
            print("##",c["id"],c["query"][:900]); t=next(t for t in c["tools"] if t["name"]==c["calls"][0]["name"]); req=t["inputSchema"].get("required",[])
            for p,s in t["inputSchema"]["properties"].items(): print("    ",("*" if p in req else " "),p,s.get("type"),(s.get("items")or{}).get("type",""),s.get("enum","")or"","|",s.get("description","")[:90],"=>","; ".join(json.dumps(x["arguments"].get(p))[:50] for x in c["calls"]))
            print("   info",info)
            for x in calls: print("   said",json.dumps(x))
            if b and b[3]: print("   left",b[3])
    print(cat,"even plans %.2f exact %.2f | odd plans %.2f exact %.2f"%tuple(x/h[0] for h in(n[0],n[1]) for x in h[1:]))
