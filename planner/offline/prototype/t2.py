import json
from common import *
s=Server({})
try:
    s.ask("mutation($i: ToolInput!){registerTool(input:$i){name}}",{"i":{"name":"math.hcf","description":"Calculate the highest common factor of two numbers.","parameters":{"type":"object","properties":{"number1":{"type":"integer","description":"First number."},"number2":{"type":"integer","description":"Second number."}},"required":["number1","number2"]},"toolSet":"bfcl","effect":"READ","run":{"command":["true"]}}})
    for q in ("Find the highest common factor of 36 and 24.","Calculate the highest common factor of 36 and 24.","math hcf 36 24", "get hcf of 36 and 24"):
        print(json.dumps(s.ask('mutation($q:String!){createPlanWithRequestId(query:$q,options:{toolSets:["bfcl"]}){tools{toolName parameters}}}',{"q":q}))[:700])
finally: s.close()
