"""Are plans over registered tools those over an MCP stub? 12 even cases of `multiple`, a server for each."""
import json,sys,re
from common import Server
src=open('bfcl.py').read(); ns={"re":re,"json":json}
exec(src[src.index("TYPES ="):src.index("def plain")],ns)
known={r["id"]:r for r in json.load(open("out/bfcl-READ.json")) if r["category"]=="multiple"}
same=0
cases=[c for c in map(json.loads,open("data/bfcl_multiple.json")) if int(c["id"].split("_")[1])%2==0][:24:2]
for c in cases:
    tools=[{"name":f["name"],"description":f["description"],"inputSchema":ns["schema"](f["parameters"]),"effect":"READ"} for f in c["function"]]
    json.dump({"tools":tools},open("out/stub.json","w"))
    s=Server({"toolsets":[{"name":"bfcl","description":"stub","active":True,"source":{"mcp":{"command":sys.executable,"args":["WORK/shared/data/queries/run.py","--stub","WORK/w/measure/out/stub.json"]}}}]})
    try:
        a=s.ask('mutation($q:String!){createPlanWithRequestId(query:$q,options:{toolSets:["bfcl"]}){tools{toolName parameters}}}',{"q":c["question"][0][0]["content"]})
        m=(a.get("data") or {}).get("createPlanWithRequestId")
        calls=[{t["toolName"].removeprefix("bfcl."):t["parameters"]} for t in m["tools"]] if m else []
        ok=calls==known[int(c["id"].split("_")[1])]["calls"]; same+=ok
        if not ok: print(c["id"],calls,known[int(c["id"].split("_")[1])]["calls"],a.get("errors"))
    finally: s.close()
print("same", same,"of",len(cases))
