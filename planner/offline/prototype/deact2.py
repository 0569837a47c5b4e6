from common import Server
s=Server({})
try: print(s.ask('mutation{deactivateToolSets(names:["ToolSet","blog","flow"]){notFound refused changed}}'), s.ask('mutation{deactivateToolSets(names:["blog"]){notFound refused changed}}'))
finally: s.close()
