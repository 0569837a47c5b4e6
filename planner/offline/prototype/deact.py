import time,json
from common import Server
s=Server({})
try:
    l=lambda:sorted({x["toolSet"] for x in s.ask("{ tools(activeOnly: true) { name toolSet } }")["data"]["tools"]})
    print(l(), s.ask('mutation{deactivateToolSets(names:["blog","flow"]){notFound}}'))
    for _ in range(4): print(l()); time.sleep(0.7)
    print(json.dumps(s.ask('{toolSets{name active status}}'))[:600])
    print([x["tool"]["name"] for x in s.ask('{selectTools(query:"create a blog", by:LEXICAL){tool{name}}}')["data"]["selectTools"]])
finally: s.close()
