//! The parts of a query: what each sentence, and each clause that asks for something, asks for.

/// The most parts of a query that are looked at one by one.
pub(super) const PARTS: usize = 12;
/// The fewest words of a part: fewer say nothing by themselves.
const WORDS: usize = 2;

/// Words with which a clause begins that asks for something of its own.
const BEGINNINGS: &str = "\
    accept access activate add adjust allocate alter analyze apply are arrange ask assess assign \
    assist attach block book browse build buy calculate call can cancel change check collect compare \
    compose compress compute conduct confirm consult control convert copy correct could count create \
    deactivate decode decrease decrypt define delete deliver describe design detect determine develop \
    disable discard discover display do does download draft draw drop edit email enable encode encrypt \
    enter enumerate erase estimate evaluate execute explain explore export extend extract fetch filter \
    find fix follow forecast forward gather generate get give go help how i i'd i'll i'm identify import \
    increase inform insert inspect install invite is join learn leave let list load lock log look lower \
    mail make manage mark measure merge message modify monitor move need notify obtain open order \
    organize parse pause pay perform place plan play please plot post predict prepare produce provide \
    publish purchase put raise rank rate read recommend record reduce register remind remove rename \
    renew rent repair replace report request reserve reset resolve restart retrieve return review revise \
    run save schedule search see send set share show sign simulate solve sort split start stop store \
    submit subscribe suggest summarize take tell text track transfer translate trash turn unblock \
    unlock unsubscribe update upload use validate verify view visualize want what when where which who \
    why will would write";

/// Words that join a part to the one before and say nothing by themselves.
const JOINTS: [&str; 22] = [
    "additionally", "after", "afterwards", "also", "and", "besides", "but", "finally", "first",
    "firstly", "furthermore", "in", "lastly", "moreover", "next", "please", "second", "secondly",
    "so", "then", "third", "thirdly",
];
