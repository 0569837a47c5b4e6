import json,re,collections
stop=set("the a an of for to in on and or with by from at is are was what who how much many i me my you can find give get tell".split())
def stems(t): return {re.sub(r"(ies|es|s|ing|ed|ion|or|e|y)$","",w) for w in re.findall(r"[a-z]{3,}",re.sub(r"([a-z])([A-Z])",r"\1 \2",t).lower()) if w not in stop}
for c in ("multiple","parallel"):
    cases={x["id"]:x for x in map(json.loads,open(f"data/bfcl_{c}.json"))}
    blocks=("\n"+open(f"out/bfcl-{c}-even.txt").read()).split("\n## ")[1:]
    n=collections.Counter(); ex=collections.defaultdict(list)
    for b in blocks:
        i=b.split()[0]; 
        if i not in cases: continue
        s=re.search(r"^  said   (.*)$",b,re.M).group(1); gold=json.loads(re.search(r"^  wanted (.*)$",b,re.M).group(1))
        q=cases[i]["question"][0][0]["content"]; name=list(gold[0])[0]
        f=next(f for f in cases[i]["function"] if f["name"]==name)
        first=re.match(r'\W*(\w+)',q).group(1).lower()
        n["all failing"]+=1
        whole=q.strip().startswith('"')
        if whole: n["query begins with a quotation mark"]+=1
        quest=first in ("what","who","how","when","where","which","can","could","is","are","what's","was","does","do","in","if","imagine","you")
        if "no tool fits" in s:
            n["no tool fits"]+=1
            if whole: n["ntf: whole query in quotation marks"]+=1
            elif first in ("find","get","give","provide","fetch","show","tell","i","search","look","retrieve"): n["ntf: find/get/give/I want"]+=1; ex["find"].append(i)
            elif quest: n["ntf: question or preamble"]+=1; ex["q"].append(i)
            else: n["ntf: other verb"]+=1; ex["verb"].append((i,first,name))
            ov=len(stems(q)&stems(name.replace("_"," ").replace("."," ")+" "+f["description"]))
            n[f"ntf: shares {min(ov,3)} stems with name+description"]+=1
            n["ntf: only one tool offered" if len(cases[i]["function"])==1 else "ntf: several tools"]+=1
        elif "missing in" in s:
            n["missing value"]+=1
            ps=re.findall(r"`(\w+)` \(",s); vals=[str(v) for g in gold for p in ps for v in g[name].get(p,[]) if v!=""] if all(name in g for g in gold) else []
            said=any(str(v).lower() in q.lower() for v in vals); n["missing: the allowed value stands in the query word for word"]+=said
            ex["missing"].append((i,ps,vals[:2]))
        elif s.startswith("["):
            n["planned, wrong"]+=1
            calls=json.loads(s)
            if len(calls)!=len(gold): n["wrong: number of calls"]+=1
            elif [list(x)[0] for x in calls]!=[list(x)[0] for x in gold]: n["wrong: tool"]+=1
            else:
                w=re.search(r"^  why   (.*)$",b,re.M).group(1); ex["wrong"].append((i,re.sub(r".*?(Invalid value[^.]*\.[^.]*|Optional param.*|Unexp.*|Incorrect.*)",r"\1",w)[:140]))
    print(c,json.dumps(n,indent=0)); 
    for k in ex: print("  ",k,ex[k][:45])
