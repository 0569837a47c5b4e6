//! One clause for several things: `authors Alice (a@x.io) and Bob (b@x.io)` is two calls.

use super::{
    choose::Ask,
    clause::Clause,
    profile::Profile,
    property::Role,
    token::{Kind, Token},
    words::{self, Family},
};

/// Things that one clause may list.
const ITEMS: usize = 256;

/// Words that the clauses for them may have together.
const COPIED: usize = 1 << 16;

/// A listed thing: its words, and whether it brings its own address.
struct Item {
    end: usize,
    is_grouped: bool,
    is_id: bool,
}

/// Returns the clauses that a clause stands for: itself, or one for each thing that it lists;
/// nothing where it lists more than people do.
pub(super) fn expand(clause: Clause, ask: &Ask, profile: &Profile) -> Option<Vec<Clause>> {
    if matches!(profile.family, Some(Family::List | Family::Search | Family::Send) | None) {
        return Some(vec![clause]);
    }
    let tokens = &clause.tokens;
    let from = ask.after_object;
    let mut items: Vec<(usize, Item)> = Vec::new();
    let mut at = from;
    while items.len() <= ITEMS
        && let Some(item) = item_at(tokens, at)
    {
        let end = item.end;
        items.push((at, item));
        let next = past_separators(tokens, end);
        if next == end {
            break;
        }
        at = next;
    }
    if items.len() < 2 || !is_listing(&items, ask, profile) {
        return Some(vec![clause]);
    }
    let rest = items.last().map_or(from, |(_, it)| it.end);
    let copied = items.len() * (from + tokens.len() - rest);
    let is_fit = items.len() <= ITEMS && copied <= COPIED;
    is_fit.then(|| distribute(&clause, &items, from, rest))
}

/// Returns whether what is listed are things, and not the words of one name.
fn is_listing(items: &[(usize, Item)], ask: &Ask, profile: &Profile) -> bool {
    let has_list = profile.properties.iter().any(|it| it.role == Role::List && it.is_required);
    let is_named = profile.properties.iter().any(|it| it.role == Role::Name);
    let are_ids = items.iter().all(|(_, it)| it.is_id);
    let takes_ids = profile.own_id().is_some()
        || profile.properties.iter().filter(|it| it.is_required && it.role == Role::Path).count()
            == 1;
    let are_grouped = items.iter().all(|(_, it)| it.is_grouped);
    !has_list
        && ((are_ids && takes_ids)
            || (!are_ids && (ask.is_plural() || are_grouped || (is_named && profile.may_assume()))))
}

fn past_separators(tokens: &[Token], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(Token::is_separator) {
        at += 1;
    }
    at
}

/// Reads a name, a quotation or an identifier, and the address that follows it.
fn item_at(tokens: &[Token], from: usize) -> Option<Item> {
    let first = tokens.get(from)?;
    let (mut end, is_id) = match first.kind {
        Kind::Quoted => (from + 1, false),
        Kind::Id | Kind::Number | Kind::Path => (from + 1, true),
        Kind::Word => {
            let len = tokens[from..]
                .iter()
                .take_while(|it| {
                    it.is_capitalised() && !words::is_preposition(&it.lower) && !it.is_separator()
                })
                .count();
            (from + len, false)
        }
        _ => return None,
    };
    if end == from {
        return None;
    }
    let group = tokens.get(end..).unwrap_or_default();
    let len = match group {
        [open, ..] if open.is_mark("(") => {
            group.iter().position(|it| it.is_mark(")")).map_or(0, |it| it + 1)
        }
        [email, ..] if email.kind == Kind::Email => 1,
        [with, cue, email, ..]
            if with.is("with") && cue.is("email") && email.kind == Kind::Email =>
        {
            3
        }
        [cue, email, ..] if cue.is("email") && email.kind == Kind::Email => 2,
        _ => 0,
    };
    end += len;
    Some(Item { end, is_grouped: len > 0, is_id })
}

/// Makes a clause for each item; as many addresses as items are dealt out one by one.
fn distribute(clause: &Clause, items: &[(usize, Item)], from: usize, rest: usize) -> Vec<Clause> {
    let tokens = &clause.tokens;
    let emails: Vec<usize> =
        (rest..tokens.len()).filter(|it| tokens[*it].kind == Kind::Email).collect();
    let is_dealt = emails.len() == items.len();
    let make = |(nth, (start, item)): (usize, &(usize, Item))| {
        let mut own: Vec<Token> = tokens[..from].to_vec();
        own.extend_from_slice(&tokens[*start..item.end]);
        if is_dealt {
            own.push(tokens[emails[nth]].clone());
        } else {
            own.extend_from_slice(&tokens[rest..]);
        }
        Clause { tokens: own, ..clause.clone() }
    };
    items.iter().enumerate().map(make).collect()
}
