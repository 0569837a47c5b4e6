import json,re,sys,yaml,snowballstemmer,functools
S=snowballstemmer.stemmer("english")
@functools.lru_cache(None)
def stem(w):
    w=re.sub(r"('s|')$","",w); return S.stemWord(w)
LEX=yaml.safe_load(open("WORK/w/bfcl/planner/offline/lexicon.en.yml").read().replace(" on:"," \"on\":"))
verbs={}
for c,ws in LEX["verbs"].items():
    for w in ws+[c]: 
        k=stem(w) if ' ' not in w else stem(w.split()[0])+" "+w.split(' ',1)[1]
        verbs.setdefault(k,set()).add(" ".join(stem(x) for x in c.split()))
nouns={}
for i,g in enumerate(LEX["nouns"]):
    for w in g: nouns.setdefault(" ".join(stem(x) for x in w.split()),i)
fill=set(LEX["fillers"])|set(map(str,LEX["prepositions"]))|set(LEX["joins"])|set(LEX["references"]["pronouns"])|set(LEX["moods"]["questions"])|set(LEX["references"]["soft"])|set(LEX["references"]["ranks"])
fill={f for f in fill if ' ' not in f}
PREP={str(k):v for k,v in LEX["prepositions"].items()}
KINDS=LEX["kinds"]
NUM=LEX["forms"]["numbers"]
def same(a,b): return a==b or (a in nouns and nouns.get(a)==nouns.get(b))
def alike(a,b):
    s,l=(a,b) if len(a)<len(b) else (b,a)
    return s==l or (len(s)>=4 and l.startswith(s) and len(l)<=len(s)+4)
class T: pass
def is_num(t):
    t=t.lstrip("$€£#").rstrip("%€$£"); d=t[1:] if t[:1] in "+-" else t
    return bool(re.match(r"^\d[\d.,eE-]*$",d)) 
def number(t):
    t=t.lstrip("$€£#").rstrip("%€$£").replace(",","").lstrip("+")
    if not re.match(r"^-?\d",t): return None
    try: return int(t)
    except: pass
    try: return float(t)
    except: return None
def tokens(q):
    out=[];at=0;uncl=set()
    n=len(q)
    while at<n:
        c=q[at]
        close={'"':'"','`':'`',"'":"'",'“':'”','«':'»','‘':'’'}.get(c)
        done=False
        if close and c not in uncl:
            prev=c; found=None; empty=False
            for j in range(at+1,n):
                ch=q[j]
                ap=c in "'‘" and j+1<n and q[j+1].isalnum()
                if ch==close and prev!='\\' and not ap:
                    found=j; break
                prev=ch
            if found is None: uncl.add(c)
            elif found>at+1:
                out.append(mk("Quoted",at,found+1,q[at+1:found])); at=found+1; done=True
        if done: continue
        if c=='\n' or not c.isspace():
            end=max(chunk_end(q,at),at+1); text=q[at:end]
            out.append(mk(classify(text),at,end,text)); at=end
        else: at+=1
    return out
def mk(kind,a,b,v):
    t=T(); t.kind=kind;t.start=a;t.end=b;t.value=v;t.lower=v.lower().replace('’',"'"); t.stem=stem(t.lower) if kind=="Word" else t.lower
    return t
def chunk_end(q,at):
    rest=q[at:]; url=bool(re.match(r"https?://|ftp://|www\.",rest.lower())); end=len(q)
    for o,ch in enumerate(rest):
        h=at+o
        btw=h>at and q[h-1].isdigit() and h+1<len(q) and q[h+1].isdigit()
        if ch==',': stop=not(btw and len(re.match(r"\d*",rest[o+1:]).group())==3)
        elif ch==':': stop=not url and not btw
        elif ch in '=&?!([': stop=not url
        elif ch in ';)]<>"“”«»': stop=True
        else: stop=ch.isspace()
        if stop: end=h;break
    chunk=q[at:end]
    return at+len(chunk.rstrip(".:!?,'…"))
def classify(t):
    if re.match(r"https?://|www\.",t.lower()): return "Url"
    if '@' in t and '.' in t.split('@',1)[1].strip('.') and t[0]!='@': return "Email"
    if re.match(r"^\d{4}-\d\d-\d\d([Tt].*)?$",t): return "Date"
    if re.match(r"^\d{1,2}(:\d\d)+([ap]m)?$|^\d{1,2}[ap]m$",t.lower()): return "Time"
    if is_num(t) and number(t) is not None: return "Number"
    if re.match(r"^[\w.-]+/[\w.-]+$",t): return "Slug"
    if ('/' in t and len(t)>1) or re.match(r"^.+[^.]\.(?=[A-Za-z0-9]{1,7}$)[A-Za-z0-9]*[A-Za-z][A-Za-z0-9]*$",t): return "Path"
    hd=any(c.isdigit() for c in t); hl=any(c.isalpha() for c in t)
    plain=bool(re.match(r"^[A-Za-z0-9_-]+$",t)); j='-' in t or '_' in t; up=len(t)>1 and t==t.upper()
    if plain and hl and not re.match(r"^\d+(st|nd|rd|th)$",t) and ((hd and (j or len(t)>5 or up)) or (j and up)): return "Code"
    if any(c.isalnum() for c in t): return "Word"
    return "Mark"
def unquoted(q):
    w=tokens(q)
    if len(w)==1 and w[0].kind=="Quoted" and ' ' in w[0].value:
        s=w[0].start+1; r=tokens(w[0].value)
        for t in r: t.start+=s;t.end+=s
        return r
    return w
MONTH="january february march april may june july august september october november december".split()
MON={m:i+1 for i,m in enumerate(MONTH)}|{m[:3]:i+1 for i,m in enumerate(MONTH)}
def moments(ts):
    out={};at=0
    while at<len(ts):
        m=named(ts,at)
        if ts[at].kind=="Date": m=(ts[at].value[:10],1)
        if m: out[at]=(at+m[1],m[0]); at+=m[1]
        else: at+=1
    return out
def named(ts,at):
    def w(a): return ts[a] if 0<=a<len(ts) and ts[a].kind!="Quoted" else None
    def day(a):
        t=w(a)
        if not t: return None
        m=re.match(r"^(\d{1,2})[a-z]{0,2}$",t.lower); return int(m.group(1)) if m and 1<=int(m.group(1))<=31 else None
    def mon(a):
        t=w(a); return MON.get(t.lower.rstrip('.')) if t and t.value[:1].isupper() else None
    if mon(at):
        m=mon(at);d=day(at+1);e=at+2
        if not d: return None
    else:
        d=day(at)
        if not d: return None
        a=at+1+(1 if w(at+1) and w(at+1).lower=="of" else 0); m=mon(a); e=a+1
        if not m: return None
    c=1 if e<len(ts) and ts[e].value=="," else 0
    y=w(e+c); y=int(y.lower) if y and re.match(r"^(1\d|2[01])\d\d$",y.lower) else None
    if y: e+=c+1
    return (f"{y}-{m:02}-{d:02}" if y else None, e-at)
def name_words(n):
    n=re.sub(r"([a-z0-9])([A-Z])",r"\1 \2",n); return [w.lower() for w in re.split(r"[\W_]+",n) if w]
def dwords(t): return [stem(w.lower()) for w in re.split(r"[\W_]+",t) if w][:40]
def readverb(words,about):
    first=about[0] if about else ""
    if not words: return first,0
    h=stem(words[0]); isv=h in verbs or h==first
    if not isv and (len(words)==1 or h in nouns): return first,0
    return h,1
def examples(d):
    if "e.g." not in d: return []
    r=re.split(r"[;().]",d.split("e.g.",1)[1])[0]
    return [x.strip().strip('"').lower() for x in r.split(',') if x.strip()]
def shown(d):
    out=[]
    for m in re.finditer(r"(?:[Ee]\.g\.?|[Ss]uch as|[Ff]or example|[Ll]ike),? ([^.;()]*)|\(([^()]*,[^()]*)\)",d):
        for x in re.split(r",| or | and ",m.group(1) or m.group(2)):
            x=x.strip().strip("'\"").lower()
            if x and len(x)<=30 and len(x.split())<=3 and x!="etc": out.append(x)
    return out
class Slot: pass
def kindof(s,sch):
    last=s.words[-1] if s.words else ""
    isk=lambda k:any(stem(x)==last for x in KINDS[k])
    tells=lambda *w:any(x in s.about for x in w)
    f=sch.get("format","")
    if s.choices: return "Choice"
    if sch.get("type")=="boolean": return "Flag"
    isid=isk("id") or (s.about[:1]==["id"])
    if s.numeric: return "Id" if isid else "Number"
    mom=last=="date" or tells("date","time","iso","yyyi","yyyy","day")
    for c,k in [(f=="email","Email"),(f in("date","date-time"),"Moment"),(isk("query"),"Query"),(isk("pattern"),"Pattern"),(isk("moment") and mom,"Moment"),(isk("path"),"Path"),(isk("email") or (tells("email") and tells("address")),"Email"),(isk("url"),"Url"),(isk("text"),"Text"),(isid,"Id"),(isk("title"),"Title")]:
        if c: return k
    return "Word"
def tool(t):
    o=T(); o.name=t["name"]; pre,_,short=("."+t["name"]).rpartition("."); 
    w=name_words(short); o.topics=[stem(x) for x in name_words(pre)]
    o.about=dwords(re.split(r"[.\n]",t["description"])[0]); o.verb,c=readverb(w,o.about)
    o.nouns=[stem(x) for x in w[c:] if x not in fill]
    o.slots=[]; sch=t["inputSchema"]; req=sch.get("required",[])
    for n,v in sch.get("properties",{}).items():
        s=Slot(); s.name=n; s.list=v.get("type")=="array"; of=v.get("items",{}) if s.list else v
        s.desc=v.get("description",""); s.words=[stem(x) for x in name_words(n)]; s.about=dwords(s.desc)
        s.choices=[c for c in of.get("enum",[]) if isinstance(c,str)]
        s.numeric=of.get("type") in("integer","number"); s.whole=of.get("type")=="integer"
        s.examples=examples(s.desc); s.quoted=[x for x in re.split(r"['\"‘’]",s.desc)[1::2] if x and len(x)<=30 and x[0].isalnum()]
        s.options=s.quoted+shown(s.desc); s.head=next((w for w in reversed(s.words) if w not in("name","id","number","titl") and not w.isdigit()),s.words[-1] if s.words else ""); s.head=s.head.rstrip("0123456789") or s.head; s.gist=dwords(re.split(r"[.;] ",s.desc)[0])
        s.kind=kindof(s,of); s.free=s.kind in("Query","Title","Text","Word")
        if s.list and s.free: s.kind="Word"
        s.req=n in req; s.default=v.get("default"); s.object=of.get("type")=="object"; o.slots.append(s)
    return o
