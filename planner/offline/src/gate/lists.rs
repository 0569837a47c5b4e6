//! The closed lists: which words may stand in an order and say nothing, which never.

use super::super::token::{Kind, Token};

/// Words that make an order polite.
const POLITE: &str = "please kindly can could would will you i we i'd i'll we'd want need like to let let's lets us \
                      me just now immediately hello hi hey thanks thank ok okay so go ahead help";
/// Words and marks that tie orders together.
const JOINTS: &str = ", . ; ! & - * • \n and then also plus finally lastly first firstly second secondly third next \
                      afterwards afterward";
/// Words in an order that say nothing of their own.
const IDLE: &str = "a an the my our your new of to for with in on at by as into onto inside using about is are \
                    whose has have having which who id ids number called named titled entitled \
                    captioned saying says say reading reads stating set it's value respectively both each simultaneously together";
/// Words that say where something comes from.
const FROM: &str = "from out off";
/// Marks that say nothing.
const MARKS: &str = ", . ; : ! & = - * • ( ) [ ] \n \" ' “ ” ` + → #";
/// Words that no value of a few words has, unless it is quoted: they belong to the sentence.
const TIES: &str = "from to for at on in with by via than until till since outside next after before behind near \
                    beside above below under over between around like please later now yet already again \
                    only not no never none without unless if maybe perhaps back away here there \
                    elsewhere leave keep other another previous following everyone everybody everything \
                    everywhere nobody nothing nowhere anyone anybody anything anywhere someone somebody \
                    something somewhere every each any all both it its them they him her this that these \
                    those should tomorrow tonight yesterday soon instead as into onto against during and";
/// The same, also of a title: what they take away or leave open is not written down unasked.
const HARD: &str =
    "but except excepting excluding besides or nor either neither unless instead save aside";
/// Words by which a sentence takes back what was said before.
const BACK: &str = "don't dont never nevermind wait stop cancel no nope kidding scratch undo not forget ignore \
                    actually joking oops abort hold revert wrong";
/// What else stands in such a sentence.
const BACK_WITH: &str = "mind it that do this just now yet sorry please but ok okay or my mistake on second thought am \
                         i i'm was only all the order of";
/// Words that belong to a verb and turn it: `turn on`, `turn off`.
const PARTICLES: &str = "on off up down out away back over in";
/// Verbs that such a word turns also where it could be a preposition.
const PHRASAL: &str = "turn switch put power log sign check opt bring let lay shut cut lock come go move hang hold \
                       plug roll step break call";
/// Words with which a sentence goes on behind a value: when it holds, or that it was none.
const TURNS: &str = "when whenever while once until till unless if because although though whereas upon pending \
                     provided whether actually sorry oops correction nvm twice thrice temporarily tomorrow tonight \
                     asap eventually sometime hypothetically";
/// Words that begin a clause about what stands before them, or that name nothing.
const RELATIVE: &str =
    "which who whom whose what where why how so that whatever whoever whichever whomever wherever";
/// Verbs that no phrase has.
const AUXILIARY: &str =
    "is are was were be been am must would will shall can could should may might does did has had";
/// What people add to a sentence, in no phrase either.
const ASIDE: &str = "minus plus less including among amid unlike rather times alias aka formerly und et oder lol haha jk thx pls nah nope disregard stop wait \
                     okay ok whatsoever overnight forbidden denied done et etc";
/// Nouns and adjectives that end like adverbs.
const NO_MANNER: &str = "family supply assembly reply jelly belly butterfly ally bully fly monopoly anomaly italy july \
                         friendly lovely elderly early homely silly holy ugly kelly sally molly emily billy lily \
                         holly polly carly beverly kimberly shelly";
/// Of the verbs that no phrase has, those that are also things, months and names.
const THINGS: &str = "can will may might";
/// Words that stand for what nobody has named.
const NOTHING: &str = "whoever whatever whichever whomever which who what unknown tbd tba null n/a undefined placeholder todo";
fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

fn is_in(list: &str, token: &Token) -> bool {
    matches!(token.kind, Kind::Word | Kind::Mark) && has(list, token.lower.as_str())
}

/// Returns whether a word makes an order polite.
pub(super) fn is_polite(token: &Token) -> bool {
    is_in(POLITE, token)
}

/// Returns whether a word or a mark ties orders together.
pub(super) fn is_joint(token: &Token) -> bool {
    is_in(JOINTS, token)
}

/// Returns whether a word in an order says nothing of its own.
pub(super) fn is_idle(token: &Token) -> bool {
    token.kind == Kind::Word && (is_in(IDLE, token) || token.lower == "'s")
}

/// Returns whether a mark says nothing.
pub(super) fn is_mark(token: &Token) -> bool {
    token.kind == Kind::Mark && (is_in(MARKS, token) || token.value == "\n")
}

/// Returns whether a word belongs to the sentence around a value of a few words.
pub(super) fn is_tie(token: &Token) -> bool {
    token.kind == Kind::Word && (is_in(TIES, token) || is_hard(token))
}

/// Returns whether a word takes something away, or leaves it open.
pub(super) fn is_hard(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(HARD, token)
}

/// Returns whether a sentence of a text takes back what was said before it.
pub(super) fn takes_back(sentence: &[Token]) -> bool {
    let mut said = sentence.iter().filter(|it| it.kind != Kind::Mark).peekable();
    said.peek().is_some()
        && said.clone().all(|it| is_in(BACK, it) || is_in(BACK_WITH, it))
        && said.any(|it| is_in(BACK, it))
}

/// Returns whether a sentence goes on with a word, in any case.
pub(super) fn is_turn(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(TURNS, token)
}

/// Returns whether a word begins a clause about what stands before it.
pub(super) fn is_relative(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(RELATIVE, token)
}

/// Returns whether a word is a verb that no phrase has.
pub(super) fn is_auxiliary(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(AUXILIARY, token)
}

/// Returns whether a verb that no phrase has may be its last word: `the trash can`.
pub(super) fn is_thing(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(THINGS, token)
}

/// Returns whether people only add a word to a sentence.
pub(super) fn is_aside(token: &Token) -> bool {
    token.kind == Kind::Word && is_in(ASIDE, token)
}

/// Returns whether a word says how something is done.
pub(super) fn is_manner(token: &Token) -> bool {
    token.kind == Kind::Word
        && token.lower.len() > 4
        && token.lower.ends_with("ly")
        && !is_in(NO_MANNER, token)
}

/// Returns whether a word stands for what nobody has named: `whoever`, `TBD`, `$NAME`.
pub(super) fn is_placeholder(token: &Token) -> bool {
    matches!(token.kind, Kind::Word | Kind::Path)
        && (has(NOTHING, token.lower.as_str())
            || token.value.starts_with('$')
                && !token.value.contains(|it: char| it.is_ascii_digit())
            || token.value.starts_with(['{', '<', '[']))
}

/// Returns whether a word turns the verb before it.
pub(super) fn is_particle(lower: &str) -> bool {
    has(PARTICLES, lower)
}

/// Returns whether a verb is turned by words that are prepositions elsewhere.
pub(super) fn is_phrasal(lower: &str) -> bool {
    has(PHRASAL, lower)
}

/// Returns whether a word says where something comes from.
pub(super) fn is_from(token: &Token) -> bool {
    is_in(FROM, token)
}

/// Returns whether a mark or word joins the items of a list.
pub(super) fn joins(token: &Token) -> bool {
    is_in(", ; . \n & and then also plus", token) || token.value == "\n"
}
