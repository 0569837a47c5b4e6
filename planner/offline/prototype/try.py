import json
from common import *
s=Server({})
try:
    for n in ("triangle_properties.get","a_b"):
        print(s.ask("mutation($i: ToolInput!){registerTool(input:$i){name qualifiedName effect}}",{"i":{"name":n,"description":"Retrieve the dimensions, such as area and perimeter, of a triangle if lengths of three sides are given","parameters":{"type":"object","properties":{"side1":{"type":"integer"}},"required":["side1"]},"toolSet":"bfcl","effect":"READ","run":{"command":["true"]}}}))
    r=s.ask('mutation{createPlanWithRequestId(query:"get triangle properties with side1 5",options:{toolSets:["bfcl"]}){requestId planId tools{stepId toolName parameters requiresApproval} diagnostics{code message} }}'); print(r)
    rid=r["data"]["createPlanWithRequestId"]["requestId"]
    print(s.ask('query($i:ID!){request(requestId:$i){createdAt transcript{at kind}}}',{"i":rid}))
finally: print(open(s.log.name).read()[-500:]); s.close()
