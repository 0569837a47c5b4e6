import json,re,collections
# even ids only: classes of refusal messages
for c in ("multiple","parallel"):
    cnt=collections.Counter(); wrong=0
    blocks=open(f"out/bfcl-{c}-even.txt").read().split("\n## ") 
    tot=0
    for b in blocks:
        m=re.search(r"^  said   (.*)$",b,re.M)
        if not m: continue
        tot+=1; s=m.group(1)
        k="planned, wrong" if s.startswith("[") else re.sub(r"`[^`]*`","`…`",re.sub(r"\([^)]*\)","",s))[:60]
        for key in ("only asks about","no tool fits","has no place","missing in","is no order","only tells","condition","not of type","is not one of","planned, wrong"):
            if key in s or key==k: k=key;break
        cnt[k]+=1
    print(c,tot,cnt.most_common())
