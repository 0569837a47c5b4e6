//! Whether a tool only looks, by what it says of itself: asked of those whose effect is not `READ`,
//! as that is what a tool has of which nobody said anything.

use super::{
    super::words::{self, Family},
    clipped,
};

/// Verbs of tools that only look, beside those that many tools do.
const LOOKS: &str = "locate estimate predict forecast analyze analyse evaluate identify solve count compare \
                     measure recommend suggest translate summarize classify detect";
/// Words that the description of such a tool may begin with, too: they say nothing of what it does.
const IDLE: &str = "perform provide convert verify run gather obtain extract filter rank sort simulate combine plot return \
                    track look generate output print display visualize format use give";

/// Returns whether verbs say that a tool only looks: its name's, else its description's, unless its
/// name or its description goes on to something else: `Check a disk and erase it`.
pub(super) fn looks(
    verbs: &[String],
    family: Option<Family>,
    name: &[String],
    description: &str,
) -> bool {
    let is_named = verbs.first().is_some_and(|it| is_look(it));
    let is_it = is_looking(family) || family.is_none() && verbs.iter().any(|it| is_look(it));
    let name: Vec<&str> = name.iter().map(String::as_str).collect();
    let lower = clipped(description).to_lowercase().replace([',', ';'], " , ");
    let sentence = lower.split(['.', '\n']).next().unwrap_or_default();
    let said: Vec<&str> = sentence.split_whitespace().collect();
    is_it && !goes_on(&name) && (is_named && !turns(&said) || !is_named && !goes_on(&said))
}

/// Returns whether a stemmed verb is one of tools that only look.
fn is_look(verb: &str) -> bool {
    let families = words::families(verb);
    is_looking(families.first().copied())
        || families.is_empty() && LOOKS.split_whitespace().any(|it| words::stem(it) == verb)
}

fn is_looking(family: Option<Family>) -> bool {
    matches!(family, Some(Family::Get | Family::List | Family::Search))
}

/// Returns whether words have a second verb, that of a tool which acts.
fn goes_on(said: &[&str]) -> bool {
    said.windows(2).any(|it| {
        let is_joint = matches!(it[0], "," | "and" | "then" | "or" | "to");
        let family = words::families(&words::stem(it[1])).first().copied();
        is_joint && family.is_some() && !is_looking(family)
    }) || turns(said)
}

/// Returns whether what begins like a look is none: `report a member`, `get rid of a user`, `get and
/// clear a log`, `get a log and clear it`.
fn turns(said: &[&str]) -> bool {
    let is_other = |word: &str| {
        let stem = words::stem(word);
        !is_look(&stem) && !IDLE.split_whitespace().any(|it| words::stem(it) == stem)
    };
    let joins = |word: &str| matches!(word, "," | "and" | "then");
    let is_article =
        |word: &str| matches!(word, "a" | "an" | "the" | "all" | "every" | "each" | "some" | "one");
    matches!(said, [_, "rid", ..])
        || matches!(said, [verb, article, ..] if is_article(article) && is_other(verb))
        || matches!(said, [_, and, verb, ..] if joins(and) && is_other(verb))
        || said
            .windows(3)
            .any(|it| joins(it[0]) && matches!(it[2], "it" | "them") && is_other(it[1]))
}
