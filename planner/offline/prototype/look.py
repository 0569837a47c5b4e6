from p import *
W=dict(verb=3.0,noun=2.0,typed=.8,cue=1.0,prep=.6,foreign=.5,required=1.0,missing=1.5,unplaced=.8,about=.3,choice=1.0,form=.8,near=.4,bare=.4,quoted=.6,length=.02)
class M: pass
class F:
    def __init__(s,q,ts,tool): s.q=q;s.ts=ts;s.tool=tool;s.mom=moments(ts)
    def at(s,i,ws): return 0<=i<len(s.ts) and s.ts[i].kind!="Quoted" and s.ts[i].lower in ws
    def filler(s,t): return t.kind=="Word" and t.lower in fill
    def prepn(s,t): return t.kind=="Word" and t.lower in PREP
    def sep(s,t): return t.value=="," and t.kind=="Mark" or (t.kind=="Word" and t.lower=="and") or t.value=="&"
    def toolword(s,w): return s.tool.verb==w or any(same(n,w) for n in s.tool.nouns) or w in s.tool.about
    def mentions(s):
        out=[];i=0
        while i<len(s.ts):
            r=s.read(i)
            if r and s.ismeta(i,r,out): i=r[3]; continue
            if not r: i+=1; continue
            m=M(); m.said,m.val,m.share,end=r; m.a=i;m.b=end;m.near=[];m.joined=False;m.before=None; out.append(m); i=end
        for k,m in enumerate(out):
            b=out[k-1].b if k else 0; a=out[k+1].a if k+1<len(out) else len(s.ts)
            m.joined=k>0 and all(s.sep(t) or t.lower in("the","a","an","for","in") and t.kind=="Word" for t in s.ts[b:m.a]) and any(s.sep(t) for t in s.ts[b:m.a]) and (out[k-1].said==m.said or {out[k-1].said,m.said}=={"Name","Text"})
            m.near=s.nearw(m,b,a); m.before=s.pbefore(m.a)
        for k,m in enumerate(out):
            if not m.joined: continue
            p=out[k-1].before; nx=s.ts[m.b] if m.b<len(s.ts) else None
            if p is not None and nx is not None and s.prepn(nx) and s.ts[p].lower==nx.lower: m.joined=False
            comma=m.a-out[k-1].b==1 and s.ts[m.a-1].value==","
            if comma and m.said=="Name" and not out[k-1].joined and not(k+1<len(out) and out[k+1].joined and out[k+1].said==m.said): m.joined=False; m.pair=True
        for k in range(1,len(out)):
            if out[k].joined: out[k].before=out[k-1].before; out[k].near=out[k-1].near+out[k].near
        for k in range(len(out)-1,0,-1):
            if out[k].joined: out[k-1].near=list(out[k].near)
        return out
    def ismeta(s,i,r,out):
        said,_,_,e=r; ts=s.ts[i:e]; first=ts[0]
        if said not in("Name","Text"): return False
        norm=lambda x:re.sub(r"\W|_","",x.lower())
        if norm(first.value)==norm(s.tool.name) or norm(first.value)==norm(s.tool.name.rpartition(".")[2]): return True
        if first.kind=="Quoted": return False
        if all(s.toolword(t.stem) or any(t.stem in sl.words for sl in s.tool.slots) for t in ts): return True
        if i>0 and s.ts[i-1].value=="(" and e<len(s.ts) and s.ts[e].value==")" and said=="Name" and e==i+1: return True
        if out and out[-1].b==i and out[-1].said=="Fig" and e==i+1:  # a unit
            return first.kind in("Slug","Path") or len(first.value)<=2 or any(first.stem in sl.about for sl in s.tool.slots)
        return False
    def pbefore(s,a):
        for i in range(a-1,-1,-1):
            if not s.at(i,("the","a","an","my","our")): return i
    def read(s,i):
        t=s.ts[i]
        if i in s.mom: return ("Day",s.mom[i][1],False,s.mom[i][0])
        if re.match(r"^\d{1,4}/\d{1,2}/\d{1,4}$",t.value): return ("Day",None,False,i+1)
        if t.kind=="Mark" and t.value in"[(" and any(x.list for x in s.tool.slots):
            d=0
            for e in range(i,len(s.ts)):
                if s.ts[e].kind=="Mark":
                    d+=s.ts[e].value in"[("; d-=s.ts[e].value in"])"
                if d==0: break
            txt=s.q[t.start:s.ts[e].end].replace("(","[").replace(")","]").replace("'",'"')
            try: l=json.loads(txt)
            except Exception: return None
            return ("List",l,False,e+1) if isinstance(l,list) and (len(l)>1 or t.value=="[" and l) else None
        f=s.fig(i)
        if f: return ("Fig",f[0],f[1],f[2])
        if t.kind=="Mark": return None
        if t.kind in("Word","Code"):
            e=s.rname(i)
            if e and e>i+1 and any(t.stem in sl.words for sl in s.tool.slots) and s.ts[i+1].kind=="Code": return None
            if e: return ("Name",None,False,e)
            return ("Text",None,False,i+1) if t.kind=="Code" else None
        return ("Text",None,False,i+1)
    def fig(s,i):
        t=s.ts[i]
        if t.kind not in("Number","Word","Code","Slug","Path"): return None
        if i+1<len(s.ts) and s.ts[i+1].value in(".",")") and (i==0 or s.ts[i-1].value=="\n"): return None
        if re.search(r"\dx",t.lower): return None
        if t.lower in NUM: 
            k=NUM.index(t.lower); return (k,False,i+1) if t.kind=="Word" and k>1 else None
        m=re.match(r"^(\d+)-([a-z]+)$",t.lower)
        if m: return int(m.group(1)),False,i+1
        d=t.lower.rstrip("%"); m=re.match(r"^[\d.,+$€£#-]*",d); e=m.end(); unit=d[e:].lstrip("²³°")
        v=number(t.lower); v=v if v is not None else number(d[:e])
        if v is None: return None
        if t.kind!="Number" and not re.match(r"^[^\W\d_/]*[\w/^²³]*$",unit) or len(unit)>6: return None
        if t.kind!="Number" and not unit and e<len(d): return None
        nx=s.ts[i+1] if i+1<len(s.ts) else None
        def sc(w): return 1000 if w=="thousand" or w=="k" and t.lower[0]=="$" else 10**6 if w=="million" or w=="m" and (t.lower[0]=="$" or t.value[-1]=="M") else 10**9 if w=="billion" or w=="b" else 1
        bw=sc(nx.lower) if nx and len(nx.lower)>1 else 1; fct=bw*sc(unit)
        share=t.lower.endswith("%") or bool(nx and nx.lower in("%","percent"))
        if fct>1: v=v*fct; v=int(round(v)) if abs(v-round(v))<1e-6 else v
        return v,share,i+1+(bw>1)
    def nword(s,i):
        if not 0<=i<len(s.ts): return False
        t=s.ts[i]
        if t.kind not in("Word","Code") or not t.value[:1].isupper() or t.lower in("no","i","id"): return False
        return not s.filler(t) or (not s.begins(i) and s.nword(i+1))
    def region(s,i): return 0<=i<len(s.ts) and re.match(r"^[A-Z]{2}$",s.ts[i].value)
    def begins(s,i): return i==0 or (s.ts[i-1].kind=="Mark" and s.ts[i-1].value in(".","!","?","\n",":",'"'))
    def common(s,i): return s.ts[i].stem in verbs or s.toolword(s.ts[i].stem)
    def rname(s,i):
        if not s.nword(i): return None
        if s.begins(i) and not(s.nword(i+1) and not s.common(i)): return None
        e=i+1
        while e<len(s.ts):
            if re.search(r"['’]s$",s.ts[e-1].value): break
            g=1 if s.at(e,("of","the","de","von","&","-")) else 0
            if not s.nword(e+g) or (g==0 and e in s.mom): break
            e+=g+1
        return e
    def nearw(s,m,b,a):
        out=[];w=1.0
        for t in list(reversed(s.ts[b:m.a]))[:8]:
            if t.kind=="Mark" and t.value in(".","?","!","\n"): break
            if t.value==",": w*=.85*.85
            if t.kind=="Word" and not s.filler(t): out.append((t.stem,w)); w*=.85
        w=1.0
        for t in s.ts[m.b:a][:4]:
            if t.kind!="Word" or s.sep(t) or s.prepn(t) and t.lower!="of": break
            if not s.filler(t): out.append((t.stem,w)); w*=.85
        if m.said=="Fig":
            f=s.ts[m.a]; nx=s.ts[m.b] if m.b<len(s.ts) else None
            unit=nx is not None and nx.kind=="Word" and not s.filler(nx) and not s.sep(nx)
            if len(f.value)==4 and isinstance(m.val,int) and 1000<=m.val<2200 and not unit: out.append((stem("year"),1.0))
            if m.share: out+= [(stem("rate"),1.0),(stem("percentage"),1.0)]
            h=re.match(r"^\d+-([a-z]+)$",f.lower)
            if h: out.append((stem(h.group(1)),1.0))
            u=re.sub(r"^[\d.,+$-]*","",f.lower) or (nx.lower if nx and nx.kind!="Mark" else "")
            m.unit=u
            if f.value[:1]=="$": out+=[(stem("dollar"),1.0),(stem("amount"),1.0)]
        return out
    def text(s,a,b):
        if b-a==1: t=s.ts[a].value
        else: t=s.q[s.ts[a].start:s.ts[b-1].end]
        return t if s.ts[b-1].kind=="Quoted" else re.sub(r"['’]s$","",t)
    def announces(s,p,slot):
        if p in("for","of","with"): return False
        return p in slot.words or any(stem(n)==slot.head or stem(n)==slot.words[0] and len(slot.words)>1 and slot.words[-1]!=slot.head or (n=="moment" and slot.kind=="Moment") for n in PREP.get(p,[]))
    def wordfit(s,w,slot):
        inn=lambda x:any(alike(o,w) or same(o,w) for o in x.words)
        int_=lambda x:any(alike(o,w) for o in x.gist)
        if inn(slot):
            hd=alike(slot.head,w) or same(slot.head,w)
            return (1.0 if hd else .6)*W["cue"]/sum(inn(x) for x in s.tool.slots)
        if int_(slot): return W["near"]/sum(inn(x) or int_(x) for x in s.tool.slots)
        return 0
    def evidence(s,m,slot):
        e=min(sum(w*s.wordfit(x,slot) for x,w in m.near),W["cue"]+W["prep"]); a=0
        if m.said=="Name" and any(alike(t.stem,w) for t in s.ts[m.a:m.b] if t.kind=="Word" for w in slot.words): e+=W["prep"]
        if m.said=="Fig" and getattr(m,"unit","") and re.search(r"(^|[\s(,])"+re.escape(m.unit)+r"([\s),.;]|$)",slot.desc.lower()): e+=W["near"]
        if m.before is not None:
            p=s.ts[m.before]
            if s.prepn(p):
                if s.announces(p.lower,slot): a=W["prep"]
                elif any(s.announces(p.lower,o) for o in s.tool.slots): a=-W["foreign"]
        return e+a
    def fit(s,m,slot):
        ev=s.evidence(m,slot); ty=W["typed"]; f=s.ts[m.a]
        dated=slot.kind=="Moment" or any(w in KINDS["moment"] for w in slot.words)
        if m.said=="List":
            return (m.val,ty+W["form"]+ev) if slot.list else None
        if m.said=="Fig" and slot.numeric:
            isy=m.near and (stem("year"),1.0) in m.near and isinstance(m.val,int) and 1000<=m.val<2200 and len(f.value)==4
            fo=W["foreign"] if isy and not alike("year",slot.head) or f.value[:1]=="$" and alike("year",slot.head) else 0
            if f.lower in NUM:
                nx=s.ts[m.b] if m.b<len(s.ts) else None
                if not nx or not any(alike(w,nx.stem) for w in slot.words): return None
            v=m.val
            if m.share and not slot.whole and not any(x.startswith("percent") for x in slot.about): v=round(v/100,9)
            if slot.whole and not isinstance(v,int): return None
            return v,ty+ev-fo
        if slot.numeric: return None
        if m.said=="Fig":
            return (f.value.lstrip("#"),ty+ev) if slot.kind=="Id" or ev>W["cue"] else None
        if m.said=="Day":
            return (m.val or s.text(m.a,m.b),ty+W["form"]+ev) if dated else None
        if slot.kind=="Moment": return None
        if any(o is not slot and s.text(m.a,m.b).lower() in [c.lower() for c in o.choices] for o in s.tool.slots): return None
        if slot.kind in("Email","Url"):
            if f.kind!=slot.kind: return None
            x=W["form"]
        elif f.kind=="Quoted": x=W["quoted"]
        elif slot.kind=="Id" and f.kind in("Code","Id"): x=W["form"]
        elif f.kind in("Path","Url"): x=-W["form"]
        else: x=0
        own=all(s.toolword(t.stem) for t in s.ts[m.a:m.b]) and f.kind!="Quoted"
        return s.text(m.a,m.b),ty+x+ev-(W["cue"] if own else 0)
    def cands(s,ms):
        C=[]
        def add(slot,v,a,b,score,guess=False,link=None,said=None):
            sl=s.tool.slots[slot]
            if sl.list and not isinstance(v,list): v=[v]
            C.append((slot,v,a,b,score,guess,link,said))
        for k,sl in enumerate(s.tool.slots):
            if sl.kind=="Choice": s.choices(k,sl,add)
            elif sl.kind=="Flag": s.flags(k,sl,add)
            elif sl.object: pass
            elif sl.kind=="Moment": s.addm(k,sl,ms,add); s.options(k,sl,add); s.relday(k,sl,add)
            else:
                s.addm(k,sl,ms,add)
                if sl.free or sl.kind=="Id" and not sl.numeric: s.options(k,sl,add); s.words(k,sl,ms,add)
        return C
    def saidat(s,i,ws): return i+len(ws)<=len(s.ts) and all(s.ts[i+j].kind in("Word","Code","Quoted") and (s.ts[i+j].stem==w or stem(s.ts[i+j].lower)==w) for j,w in enumerate(ws))
    def choices(s,k,sl,add):
        for c in sl.choices:
            ws=[stem(x.lower()) for x in re.split(r"[_\- ]",c)]
            for i in range(len(s.ts)):
                if s.saidat(i,ws): add(k,c,i,i+len(ws),W["choice"])
    def addm(s,k,sl,ms,add):
        fits=[s.fit(m,sl) for m in ms]
        for i,f in enumerate(fits):
            if not f: continue
            v,sc=f; m=ms[i]; bare=sc<=W["typed"]
            if not sl.req and sc<W["typed"]+(W["prep"] if m.said=="Name" else W["near"]): continue
            if m.said=="Name" and i and s.region(m.a) and m.a-ms[i-1].b==1 and s.ts[m.a-1].value=="," and "state" not in sl.words+sl.about: continue
            link=ms[i-1].b if m.joined else None
            add(k,v,m.a,m.b,sc,bare,link,m.said)
            if m.said=="Name" and i+1<len(ms):
                n=ms[i+1]; g=n.a-m.b
                if (g==0 and n.said=="Fig") or (g==1 and s.region(n.a) and not s.at(n.a-1,("and",))): add(k,s.text(m.a,n.b),m.a,n.b,sc+W["prep"],bare,link,m.said)
                elif getattr(n,"pair",False): add(k,s.text(m.a,n.b),m.a,n.b,sc+W["near"],bare,link,m.said)
            if sl.list and not isinstance(v,list):
                items=[v];tot=sc;j=i+1
                while j<len(ms) and ms[j].joined and fits[j]:
                    items=items+[fits[j][0]]; tot+=fits[j][1]+W["required"]; add(k,items,m.a,ms[j].b,tot,bare,link); j+=1
    def options(s,k,sl,add):
        for o in sl.options:
            if o.lower() in fill or o.lower() in LEX["references"]["loops"]: continue
            ws=[stem(x.lower()) for x in re.split(r"[ _]",o)]
            for i in range(len(s.ts)):
                if o in sl.quoted and len(o)>=3 and s.ts[i].kind=="Word" and not s.saidat(i,ws) and s.ts[i].lower.startswith(o) and len(ws)==1: add(k,o,i,i+1,W["choice"]+W["near"])
                if s.saidat(i,ws):
                    add(k,o if o in sl.quoted else s.text(i,i+len(ws)),i,i+len(ws),W["choice"]+W["form"])
    def relday(s,k,sl,add):
        for i,t in enumerate(s.ts):
            if t.lower in("today","tomorrow","tonight","yesterday","weekend","monday","tuesday","wednesday","thursday","friday","saturday","sunday"):
                a=i-1 if s.at(i-1,("next","this","last")) else i
                add(k,s.text(a,i+1),a,i+1,W["typed"]+W["form"])
    def flags(s,k,sl,add):
        ws=[w for w in sl.words if w not in fill and w not in verbs and w not in("includ","with","is","option")]
        if not ws: return
        for i,t in enumerate(s.ts):
            if t.kind!="Word" or not alike(t.stem,ws[-1]): continue
            said=sum(any(x.kind=="Word" and alike(x.stem,w) for x in s.ts) for w in ws)
            if said<len(ws) and not sl.req: continue
            neg=any(s.at(j,("not","no","without","don't","exclude")) for j in range(max(0,i-5),i))
            add(k,not neg,i,i+1,W["near"])
    def words(s,k,sl,ms,add):
        free=[t.kind=="Word" and not s.filler(t) and not s.sep(t) and t.lower not in("should","next","respectively","least","using","such") for t in s.ts]
        for m in ms:
            for i in range(m.a,m.b): free[i]=False
        for a in range(1,len(s.ts)):
            for b in range(a+1,min(a+3,len(s.ts))+1):
                if not free[b-1]: break
                own=sum(s.toolword(t.stem) or t.stem in sl.words or t.stem in sl.about or t.stem in verbs or t.lower.endswith(("ing","ed")) for t in s.ts[a:b])
                p=next((i+1 for i in range(a-1,-1,-1) if not free[i] and not s.at(i,("the","a","an"))),0)
                m=M(); m.said="Name";m.a=a;m.b=b;m.before=s.pbefore(a);m.joined=False
                m.near=s.nearw(m,p,min(b+1,len(s.ts))); ev=s.evidence(m,sl)
                if not sl.req and not sl.list: continue
                if not sl.req and ev<W["prep"]: continue
                pr=W["near"] if m.before is not None and s.prepn(s.ts[m.before]) else 0
                link=a-1 if a>1 and s.at(a-1,("and",",")) else None
                sc=ev+pr-W["foreign"]-W["foreign"]*own+W["length"]*(b-a)
                add(k,s.text(a,b),a,b,sc,ev<W["prep"],link,"Words")
                if sl.list and (b==len(s.ts) or not free[b]) and not free[a-1]:
                    items=[s.text(a,b)];e=b
                    while True:
                        g=e
                        while g<len(s.ts) and s.sep(s.ts[g]): g+=1
                        x=g
                        while x<len(s.ts) and free[x] and x-g<3: x+=1
                        if g==e or x==g: break
                        items=items+[s.text(g,x)]; e=x
                        add(k,items,a,e,sc+W["near"]*(len(items)-1),False,link,"Words")
    def choose(s,C,ms):
        n=len(s.ts); cost=[0]*n
        for m in ms: cost[m.a]=0 if m.said=="Fig" and s.ts[m.a].lower in NUM else W["unplaced"]*(1.5 if m.said!="Name" else 1)
        by=[[] for _ in range(n+1)]
        for i,c in enumerate(C): by[c[2]].append(i)
        st=[[] for _ in range(n+1)]; st[0]=[(0.0,(0,)*len(s.tool.slots),())]
        for i in range(n):
            L=sorted(st[i],key=lambda x:-x[0]); seen=set(); K=[]
            for x in L:
                if x[1] in seen: continue
                seen.add(x[1]); K.append(x)
                if len(K)==32: break
            for sc,ct,ch in K:
                for ci in by[i]:
                    g=s.gain(ct,ch,C,ci)
                    if g is None: continue
                    k=C[ci][0]; st[C[ci][3]].append((sc+g,ct[:k]+(ct[k]+1,)+ct[k+1:],ch+(ci,)))
                st[i+1].append((sc-cost[i],ct,ch))
        def settle(x):
            sc,ct,ch=x
            miss=sum(sl.req and c==0 for sl,c in zip(s.tool.slots,ct)); mx=max(ct,default=0)
            return sc-W["missing"]*miss-W["foreign"]*sum(1<c<mx for c in ct),ct,ch
        return max(map(settle,st[n]),key=lambda x:x[0])
    def gain(s,ct,ch,C,ci):
        c=C[ci];k=c[0];sl=s.tool.slots[k]
        if ct[k]==0:
            sk=sum(ct[j]==0 and o.req and o.kind==sl.kind for j,o in enumerate(s.tool.slots[:k]))
            return c[4]+(W["required"] if sl.req else 0)-W["length"]*sk
        if sl.kind=="Flag" or ct[k]>=16: return None
        joined=ch and C[ch[-1]][0]==k and c[6] is not None and c[6]==C[ch[-1]][3]
        if sl.choices: return c[4]-W["bare"]
        if joined and c[7]!="Words": return c[4]-W["typed"]+W["near"]/2
        if c[7]=="Words": return c[4]+W["foreign"] if joined else c[4]-W["cue"]
        last=C[ch[-1]][0] if ch else k
        if last!=k and any(C[x][0]==last and C[y][0]==k for x,y in zip(ch,ch[1:])): return c[4]-W["typed"]+W["near"]
        if last!=k and C[ch[0]][0]==k: return c[4]-W["typed"]-W["near"]/2
        return c[4]-W["typed"]-(W["foreign"] if c[7]=="Fig" else W["cue"])
    def look(s):
        ms=s.mentions(); C=s.cands(ms); sc,ct,ch=s.choose(C,ms); vals={}
        placed=set()
        for ci in ch:
            k,v,a,b=C[ci][:4]; vals.setdefault(k,[]).append((a,v)); placed|=set(range(a,b))
        miss=[sl.name for k,sl in enumerate(s.tool.slots) if sl.req and k not in vals]
        calls=s.spread(vals)
        return sc,miss,calls,[s.text(m.a,m.b) for m in ms if m.a not in placed]
    def spread(s,vals):
        many=[v for _,v in sorted(vals.items()) if len(v)>1]
        pair=any(t.lower=="respectively" for t in s.ts)
        turn=any(a[0][0]<b[-1][0] and b[0][0]<a[-1][0] for i,a in enumerate(many) for b in many[i+1:])
        rows=[]
        if len(many)<2 or pair or turn:
            lead=max(many,key=len) if many else None; n=len(lead) if lead else 1
            for c in range(n):
                end=lead[c+1][0] if lead and c+1<n else 10**9; row={}
                for k,v in sorted(vals.items()):
                    x=v[c] if len(v)==n else next((y for y in reversed(v) if y[0]<end),v[0])
                    row[k]=x[1]
                rows.append(row)
        else:
            rows=[{}]
            for k,v in sorted(vals.items()): rows=[{**r,k:x[1]} for r in rows for x in v]
        out=[]
        for r in rows[:16]:
            c={s.tool.slots[k].name:v for k,v in r.items()}
            if c not in out: out.append(c)
        return out
def shared(ts,tool,tools):
    ws={t.stem for t in ts if t.kind=="Word" and t.lower not in fill}
    inn=lambda t,w:any(same(n,w) for n in t.nouns) or t.verb==w or w in t.topics
    int_=lambda t,w:w in t.about or any(w in s.words or w in s.about for s in t.slots)
    return sum((W["noun"] if inn(tool,w) else W["cue"] if int_(tool,w) else 0)/max(1,sum(inn(o,w) or int_(o,w) for o in tools)) for w in ws)
def plan(case):
    q=case["query"]; ts=unquoted(q); tools=[tool(t) for t in case["tools"]]
    r=sorted(((shared(ts,t,tools),-i,t) for i,t in enumerate(tools)),key=lambda x:(-x[0],-x[1]))[:3]
    best=None;info=[]
    for sh,_,t in r:
        if sh<=0 and len(tools)>4: continue
        sc,miss,calls,left=F(q,ts,t).look(); info.append((t.name,round(sh,2),round(sc,2),miss))
        tot=sh+.5*sc
        if not miss and (best is None or tot>best[0]): best=(tot,t.name,calls,left)
    return best,info
