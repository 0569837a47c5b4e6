"""Where the first plan of a process waits."""
import json,sys,time
from common import Server
Q="WORK/shared/data/queries"; SETS=["github","workspace","files","shop","home"]
for builtin in (True, False):
    cfg={"toolsets":[{"name":n,"description":"x","active":True,"source":{"mcp":{"command":sys.executable,"args":[f"{Q}/run.py","--stub",f"{Q}/tools/{n}.json"]}}} for n in SETS]}
    if not builtin: cfg["embedding"]={"builtin":False}
    s=Server(cfg)
    try:
        time.sleep(4)
        for _ in range(3):
            c=s.cpu_ms(); t=time.perf_counter(); a=s.ask('mutation($q:String!,$o:PlanningOptions){createPlanWithRequestId(query:$q,options:$o){requestId}}',{"q":"list the open issues in acme/site","o":{"toolSets":SETS}}); w=(time.perf_counter()-t)*1e3
            r=s.ask('query($i:ID!){request(requestId:$i){createdAt transcript{at kind}}}',{"i":a["data"]["createPlanWithRequestId"]["requestId"]})["data"]["request"]
            print("builtin encoder" if builtin else "words only", "wall %.1f cpu %.1f"%(w,s.cpu_ms()-c), r["createdAt"][17:], [(e["kind"],e["at"][17:26]) for e in r["transcript"]])
    finally: s.close()
