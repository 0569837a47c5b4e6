//! One call or several: `weather in Paris and in London`, `for 10, 20 and 30 years`.

use std::collections::BTreeMap;

use super::{
    assign::Given,
    fit::Text,
    span::{Said, Span},
    token::{Kind, Token},
    words,
};

/// Calls that one text may ask for.
const CALLS: usize = 32;
/// How often spans are looked at again for neighbours in a list.
const ROUNDS: usize = 4;
/// Words between two things of a list.
const JOINT: usize = 5;

/// The spans of one slot, in the order in which they are said.
type Labels = BTreeMap<usize, Vec<usize>>;

/// Returns what each of the calls is given that a text asks for.
pub(super) fn repeated(text: &Text<'_>, given: &Given) -> Vec<Given> {
    let labels = labels(text, given);
    let many: Vec<usize> = labels.iter().filter(|it| it.1.len() > 1).map(|it| *it.0).collect();
    let most = many.iter().map(|it| labels[it].len()).max().unwrap_or(1).min(CALLS);
    let is_even = many.iter().all(|it| labels[it].len() == most);
    // Of lists that do not go together, some words are left over, and nothing is done.
    if most < 2 || text.frame.acts && !is_even {
        return vec![given.clone()];
    }
    let sets = if is_product(text, &labels, &many) {
        product(&labels, &many)
    } else {
        side_by_side(text, &labels, most)
    };
    let mut calls: Vec<Given> = Vec::new();
    for set in sets {
        let call: Given = set
            .into_iter()
            .filter_map(|(slot, span)| Some((slot, (span, text.fit(slot, span)?))))
            .collect();
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}

/// Collects for each slot all the spans that are said in its way: first what is surely said so,
/// then, where that makes several calls, what is of the same kind.
fn labels(text: &Text<'_>, given: &Given) -> Labels {
    let mut labels: Labels = given.iter().map(|(slot, it)| (*slot, vec![it.0])).collect();
    // What stands in a list is known by its neighbours, also by those behind it.
    for _ in 0..ROUNDS {
        let before: usize = labels.values().map(Vec::len).sum();
        add_labels(text, given, &mut labels, usize::MAX, 0.5);
        if labels.values().map(Vec::len).sum::<usize>() == before {
            break;
        }
    }
    let most = labels.values().map(Vec::len).max().unwrap_or(1);
    if most > 1 {
        add_labels(text, given, &mut labels, most, 0.0);
    }
    labels
}

/// Adds the spans that are as like those of a slot as they need to be; `most` of them at most.
fn add_labels(text: &Text<'_>, given: &Given, labels: &mut Labels, most: usize, least: f32) {
    for span in 0..text.spans.len() {
        let it = &text.spans[span];
        let is_taken = labels.values().flatten().any(|at| text.spans[*at].overlaps(it));
        let is_range = labels.values().flatten().any(|at| ends_range(text, &text.spans[*at], it));
        if is_taken || is_range || it.is_wide != is_any_wide(text, labels, it) {
            continue;
        }
        let expected = next_in_chain(text, labels, span);
        let takes = |slot: &usize| {
            let is_list = text.frame.slots[*slot].is_list();
            labels[slot].len() < most
                && text.spans[labels[slot][0]].is_tail == it.is_tail
                && (!is_list || matches!(it.said, Said::Values(_) | Said::Several(_)))
        };
        let best = labels
            .keys()
            .copied()
            .filter(takes)
            .filter_map(|slot| {
                let fit = text.fit(slot, span)?;
                let (first, own) = given.get(&slot)?;
                let mut likeness = likeness(text, &labels[&slot], *first, span)?;
                let is_expected = expected == Some(slot);
                likeness += if is_expected { 1.6 } else { 0.0 };
                let share = if least > 0.0 { 0.5 } else { 0.3 };
                let is_good = likeness >= 1.4 && fit.score > -1.0
                    || fit.score + likeness >= own.score * share;
                (likeness >= least && is_good).then_some((fit.score + likeness, slot))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, slot)) = best {
            let spans = labels.entry(slot).or_default();
            spans.push(span);
            spans.sort_by_key(|it| text.spans[*it].from);
        }
    }
}

/// Returns whether two spans are the ends of one range: `between 5 and 10`, `from 5 to 10`.
fn ends_range(text: &Text<'_>, a: &Span, b: &Span) -> bool {
    let (a, b) = if a.from < b.from { (a, b) } else { (b, a) };
    let is_measure = |it: &Span| matches!(it.said, Said::Number(_) | Said::Day(_));
    let before = a.from.checked_sub(1).map(|it| &text.tokens[it]);
    let between = text.tokens.get(a.to..b.from).unwrap_or_default();
    let is_one = |word: &str| matches!(between, [one] if one.is(word));
    let is_range = a.is_like(b) && is_one("to") && matches!(a.said, Said::Number(_));
    is_measure(a)
        && is_measure(b)
        && (is_range
            || before.is_some_and(|it| {
                it.is("between") && is_one("and")
                    || it.is("from") && (is_one("to") || is_one("until"))
            }))
}

/// Returns the slot that comes next where spans are said in turns: `3 and 4, 5 and 12`.
fn next_in_chain(text: &Text<'_>, labels: &Labels, span: usize) -> Option<usize> {
    let mut chain: Vec<usize> = Vec::new();
    let mut at = span;
    let label = |span: usize| labels.iter().find(|it| it.1.contains(&span)).map(|it| *it.0);
    while chain.len() < CALLS {
        let it = &text.spans[at];
        let before = (0..text.spans.len()).rev().find(|other| {
            let other_span = &text.spans[*other];
            other_span.to <= it.from
                && label(*other).is_some()
                && other_span.is_like(it)
                && is_linked(text.tokens, other_span, it)
        });
        let Some(before) = before else { break };
        chain.push(label(before)?);
        at = before;
    }
    let mut turn: Vec<usize> = chain.clone();
    turn.sort_unstable();
    turn.dedup();
    // One alone takes no turns.
    let last = turn.len().checked_sub(1).filter(|it| *it > 0)?;
    chain.get(last).copied()
}

/// Returns whether only small words stand between two spans.
fn is_linked(tokens: &[Token], a: &Span, b: &Span) -> bool {
    let between = tokens.get(a.to..b.from).unwrap_or_default();
    !between.is_empty()
        && between.len() <= 4
        && between.iter().all(|it| {
            it.is_separator()
                || words::is_preposition(&it.lower)
                || words::is_determiner(&it.lower)
                || matches!(it.lower.as_str(), "or" | "also" | "then" | "(" | ")")
        })
}

fn is_any_wide(text: &Text<'_>, labels: &Labels, span: &Span) -> bool {
    let has_wide = labels.values().flatten().any(|it| text.spans[*it].is_wide);
    // Where places are said with those around them, the shorter readings are none of their own.
    has_wide && text.spans.iter().any(|it| it.is_wide && it.overlaps(span))
}

/// Returns how much a span is said as those of a slot are, or nothing where it is not.
fn likeness(text: &Text<'_>, known: &[usize], first: usize, span: usize) -> Option<f32> {
    let it = &text.spans[span];
    if !text.spans[first].is_like(it) || matches!(it.said, Said::Phrase { is_weak: true }) {
        return None;
    }
    let is_listed = known.iter().any(|at| {
        let (a, b) = if text.spans[*at].from < it.from {
            (&text.spans[*at], it)
        } else {
            (it, &text.spans[*at])
        };
        is_joined(text, a, b)
    });
    if is_listed {
        return Some(1.5);
    }
    let is_phrase = matches!(it.said, Said::Phrase { .. });
    let same = known.iter().any(|at| {
        let other = &text.spans[*at];
        let (a, b) = (sign(text.tokens, other), sign(text.tokens, it));
        let between = text.tokens.get(other.to.min(it.to)..other.from.max(it.from));
        a.is_some() && a == b && !between.unwrap_or_default().iter().any(subordinates)
    });
    // `the bedroom to 20 and the kitchen to 18`: what stands behind both is the same.
    let is_parallel = known.iter().any(|at| {
        let a = &text.spans[*at];
        let tie = |it: &Span| {
            text.tokens
                .get(it.to)
                .filter(|it| it.kind == Kind::Word && words::is_preposition(&it.lower))
        };
        let begins = text.tokens[..it.from]
            .iter()
            .rev()
            .find(|it| !words::is_determiner(&it.lower))
            .is_some_and(Token::is_separator);
        begins
            && a.to < it.from
            && tie(a).is_some_and(|a| tie(it).is_some_and(|b| a.lower == b.lower))
    });
    let same = same || is_parallel;
    let is_measured = matches!((&it.said, &text.spans[first].said), (Said::Number(a), Said::Number(b)) if a.unit.is_some() && a.unit == b.unit);
    match (same, is_phrase) {
        (true, _) => Some(1.2),
        (false, true) => None,
        (false, false) if is_measured => Some(0.6),
        (false, false) => Some(0.0),
    }
}

/// Returns whether only commas, `and`, and a repeated preposition stand between two spans, and what
/// both are: `the front door and the back door`.
fn is_joined(text: &Text<'_>, a: &Span, b: &Span) -> bool {
    if a.to > b.from || b.from - a.to > JOINT {
        return false;
    }
    let tokens = text.tokens;
    let is_same = |(a, b): (&Token, &Token)| {
        a.kind == Kind::Word && a.stem == b.stem && text.frame.is_own(&a.stem)
    };
    let kind = tokens[a.to..b.from].iter().zip(&tokens[b.to..]).take_while(|it| is_same(*it));
    let between = &tokens[a.to + kind.count()..b.from];
    // One or the other is no order for both.
    let is_or = |it: &Token| it.is("or") && !text.frame.acts;
    let is_idle = |it: &Token| {
        it.is_separator()
            || is_or(it)
            || words::is_preposition(&it.lower)
            || words::is_determiner(&it.lower)
            || matches!(it.lower.as_str(), "also" | "then" | "as" | "well" | "both")
    };
    let is_joint = |it: &Token| it.is_separator() || is_or(it) || it.is("well");
    between.iter().all(is_idle) && between.iter().any(is_joint)
}

/// Returns whether what follows a word is about what stands before it.
fn subordinates(token: &Token) -> bool {
    const WORDS: &[&str] = &["if", "when", "given", "including", "such"];
    token.kind == Kind::Word && WORDS.contains(&token.lower.as_str())
}

/// Returns the word that stands before a span, past articles.
fn sign<'t>(tokens: &'t [Token], span: &Span) -> Option<&'t str> {
    let before = tokens[..span.from].iter().rev().find(|it| !words::is_determiner(&it.lower))?;
    (!before.is_separator()).then_some(before.stem.as_str())
}

/// Returns whether every one of one list goes with every one of another: `teams A and B in 2018 and
/// 2020`. As many of both are pairs where something is done: `the hall and the attic to 18 and 20`.
fn is_product(text: &Text<'_>, labels: &Labels, many: &[usize]) -> bool {
    let are_pairs =
        text.frame.acts && many.windows(2).all(|it| labels[&it[0]].len() == labels[&it[1]].len());
    let has_said = are_pairs || text.tokens.iter().any(|it| it.lower == "respectively");
    let are_lists = many.iter().all(|slot| {
        labels[slot].windows(2).all(|it| is_joined(text, &text.spans[it[0]], &text.spans[it[1]]))
    });
    let mut lengths = many.iter().map(|it| labels[it].len());
    let product =
        lengths.try_fold(1_usize, |all, it| all.checked_mul(it).filter(|it| *it <= CALLS));
    many.len() > 1 && are_lists && !has_said && product.is_some()
}

fn product(labels: &Labels, many: &[usize]) -> Vec<BTreeMap<usize, usize>> {
    let base: BTreeMap<usize, usize> =
        labels.iter().filter_map(|(slot, it)| Some((*slot, *it.first()?))).collect();
    let mut sets = vec![base];
    for slot in many {
        sets = sets
            .into_iter()
            .flat_map(|set| {
                labels[slot].iter().map(move |span| {
                    let mut set = set.clone();
                    set.insert(*slot, *span);
                    set
                })
            })
            .take(CALLS)
            .collect();
    }
    sets
}

/// Returns where the sentence of a span begins.
fn stop(text: &Text<'_>, span: usize) -> usize {
    let before = &text.tokens[..text.spans[span].from];
    let is_end = |it: &Token| it.is_mark(".") || it.is_mark("?") || it.is_mark("!");
    before.iter().rposition(is_end).map_or(0, |it| it + 1)
}

/// Pairs the first with the first and the second with the second; what is said once holds for all.
fn side_by_side(text: &Text<'_>, labels: &Labels, most: usize) -> Vec<BTreeMap<usize, usize>> {
    let lead =
        labels.iter().filter(|it| it.1.len() == most).min_by_key(|it| text.spans[it.1[0]].from);
    let Some((_, lead)) = lead else { return Vec::new() };
    let is_list = lead.windows(2).all(|it| is_joined(text, &text.spans[it[0]], &text.spans[it[1]]));
    let starts: Vec<usize> = lead.iter().map(|it| text.spans[*it].from).collect();
    (0..most)
        .map(|call| {
            let begin = if call == 0 { 0 } else { starts[call] };
            let end = starts.get(call + 1).copied().unwrap_or(usize::MAX);
            let own = |spans: &[usize]| {
                spans.iter().copied().find(|it| (begin..end).contains(&text.spans[*it].from))
            };
            let pick = |(slot, spans): (&usize, &Vec<usize>)| {
                let is_required = text.frame.slots[*slot].property.is_required;
                let span = match spans.as_slice() {
                    [one] if is_required || is_list => Some(*one),
                    // What is said before all of them, or in a sentence of its own, is about all.
                    [one] if text.spans[*one].to <= starts[0] => Some(*one),
                    [one] if starts[most - 1] < stop(text, *one) => Some(*one),
                    [one] => own(&[*one]),
                    many if many.len() == most => many.get(call).copied(),
                    many => own(many).or_else(|| {
                        let before = many.iter().rev().find(|it| text.spans[**it].from < begin);
                        before.or(many.first()).copied().filter(|_| is_required)
                    }),
                };
                span.map(|it| (*slot, it))
            };
            labels.iter().filter_map(pick).collect()
        })
        .collect()
}
