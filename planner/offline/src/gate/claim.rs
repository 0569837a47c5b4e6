//! Which words of a passage are values, and of which parameters: found by reading the query for
//! what the calls were told.

use std::{collections::BTreeSet, ops::Range};

use serde_json::Value;

use super::{
    super::{
        amount::{self, Amount},
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        unit, value, when,
    },
    Call, Gate,
    said::Text,
};

/// Values of a passage that are looked for.
const VALUES: usize = 2_048;
/// How much two numbers may differ that are the same.
const NEAR: f64 = 1e-6;

/// The tokens of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first token.
    pub(super) from: usize,
    /// Behind its last.
    pub(super) to: usize,
}

impl Place {
    /// Returns the tokens between two bytes of the query, if there are any.
    pub(super) fn of(tokens: &[Token], bytes: &Range<usize>) -> Option<Self> {
        let from = tokens.iter().position(|it| it.start >= bytes.start)?;
        let to = tokens.iter().rposition(|it| it.end <= bytes.end)? + 1;
        (from < to).then_some(Self { from, to })
    }
}

/// Words that are a value.
#[derive(Clone, Debug)]
pub(super) struct Claim<'a> {
    /// The tokens.
    pub(super) at: Range<usize>,
    /// Which calls of the passage are told it.
    pub(super) calls: Vec<usize>,
    /// The parameter, where it is known.
    pub(super) slot: Option<&'a Slot>,
    /// Another parameter that is told the same words, by this call or another.
    pub(super) also: Option<&'a Slot>,
    /// Whether it is one of several that are told together.
    pub(super) is_item: bool,
    /// Whether it only means what an earlier call made.
    pub(super) is_name: bool,
}

/// A number as it was said.
#[derive(Clone, Debug)]
pub(super) struct Said<'a> {
    /// The tokens.
    pub(super) at: Range<usize>,
    /// What it says.
    pub(super) amount: Amount,
    /// The parameter that it was taken for.
    pub(super) slot: Option<&'a Slot>,
    /// Whether it was told in another unit than it was said in.
    pub(super) is_converted: bool,
}

/// All that the words of a passage are the values of.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims<'a> {
    /// The values, in the order of the query.
    pub(super) all: Vec<Claim<'a>>,
    /// The numbers of the passage.
    pub(super) numbers: Vec<Said<'a>>,
    from: usize,
    owner: Vec<Option<usize>>,
    others: Vec<bool>,
}

/// A value that a call is told.
struct Leaf<'a> {
    call: usize,
    slot: Option<&'a Slot>,
    value: &'a Value,
    is_item: bool,
    is_assumed: bool,
}

impl<'a> Claims<'a> {
    /// Reads a passage of a query.
    pub(super) fn read(gate: &Gate<'a>, passage: usize, place: &Place) -> Self {
        let len = place.to - place.from;
        let mut claims = Self {
            from: place.from,
            owner: vec![None; len],
            others: vec![false; len],
            ..Self::default()
        };
        let mut leaves = Vec::new();
        for (call, it) in gate.passages[passage].calls.iter().enumerate() {
            collect(call, it, &mut leaves);
        }
        leaves.truncate(VALUES);
        let said = |it: &Leaf<'_>| it.value.as_str().map_or(0, str::len);
        leaves.sort_by_key(|it| std::cmp::Reverse(said(it)));
        claims.numbers = numbers(gate.tokens, place);
        let said = Text::read(gate.query, gate.tokens, place);
        for leaf in &leaves {
            if !gate.effort.spend(len + claims.numbers.len()) {
                return claims;
            }
            match leaf.value {
                Value::String(text) if !text.starts_with("{{") || text.starts_with("{{{{") => {
                    claims.text(gate, place, &said, leaf, &text.replace("{{{{", "{{"));
                }
                Value::Number(_) => claims.number(leaf),
                Value::Bool(truth) => claims.flag(gate, place, leaf, *truth),
                _ => (),
            }
        }
        claims.names(gate, passage, &said);
        for call in &gate.passages[passage].calls {
            for taken in call.taken {
                let tokens = &gate.tokens[place.from..place.to];
                let from = tokens.partition_point(|it| it.start < taken.bytes.start);
                let to = tokens.partition_point(|it| it.end <= taken.bytes.end);
                claims.others[from..to.max(from)].fill(true);
                gate.effort.spend(to.saturating_sub(from));
            }
        }
        claims.all.sort_by_key(|it| it.at.start);
        claims.index();
        claims
    }

    fn index(&mut self) {
        self.owner.fill(None);
        for (nth, claim) in self.all.iter().enumerate() {
            for at in claim.at.clone() {
                self.owner[at - self.from] = Some(nth);
            }
        }
    }

    /// Returns the value that a word is part of.
    pub(super) fn at(&self, at: usize) -> Option<&Claim<'a>> {
        let nth = (*self.owner.get(at.checked_sub(self.from)?)?)?;
        self.all.get(nth)
    }

    /// Returns whether a word is part of a value.
    pub(super) fn has(&self, at: usize) -> bool {
        let Some(at) = at.checked_sub(self.from) else { return false };
        self.owner.get(at).is_some_and(Option::is_some)
            || self.others.get(at).copied().unwrap_or_default()
    }

    fn push(&mut self, at: Range<usize>, leaf: &Leaf<'a>) {
        let owner = self.owner[at.start - self.from].and_then(|it| self.all.get_mut(it));
        if let Some(known) = owner.filter(|it| it.at == at) {
            if !known.calls.contains(&leaf.call) {
                known.calls.push(leaf.call);
            }
            let is_other = |it: &&Slot| known.slot.is_some_and(|at| at.path != it.path);
            known.also = known.also.or(leaf.slot.filter(is_other));
            known.slot = known.slot.or(leaf.slot);
            return;
        }
        let nth = self.all.len();
        for at in at.clone() {
            self.owner[at - self.from] = Some(nth);
        }
        let (calls, slot, is_item) = (vec![leaf.call], leaf.slot, leaf.is_item);
        self.all.push(Claim { at, calls, slot, also: None, is_item, is_name: false });
    }

    fn is_free(&self, at: &Range<usize>) -> bool {
        let owner = self.owner[at.start - self.from].and_then(|it| self.all.get(it));
        owner.is_some_and(|it| it.at == *at)
            || at.clone().all(|it| self.owner[it - self.from].is_none())
    }

    fn text(
        &mut self,
        gate: &Gate<'a>,
        place: &Place,
        said: &Text<'_>,
        leaf: &Leaf<'a>,
        text: &str,
    ) {
        let mut is_found = false;
        for found in said.find(text, &gate.effort) {
            if self.is_free(&found) {
                is_found = true;
                self.push(found, leaf);
            }
        }
        if is_found {
            return;
        }
        let role = leaf.slot.map(|it| it.property.role);
        let parts: BTreeSet<String> =
            text.split(|it: char| !it.is_alphanumeric()).map(str::to_ascii_lowercase).collect();
        for at in place.from..place.to {
            let tokens = &gate.tokens[at..place.to];
            let len = match role {
                Some(Role::Enum) => leaf
                    .slot
                    .and_then(|it| value::one_of(&it.property.values, tokens))
                    .filter(|it| it.0 == *leaf.value)
                    .map(|it| it.1),
                Some(Role::Date) => when::read(tokens, 0).map(|it| it.1),
                _ => {
                    let word = &gate.tokens[at];
                    let is_word = word.kind != Kind::Mark && leaf.is_assumed;
                    (is_word && parts.contains(&word.value.to_ascii_lowercase())).then_some(1)
                }
            };
            if let Some(len) = len {
                let at = at..(at + len).min(place.to);
                if self.is_free(&at) {
                    self.push(at, leaf);
                }
            }
        }
    }

    fn number(&mut self, leaf: &Leaf<'a>) {
        let Some(wanted) = leaf.value.as_f64() else { return };
        let is_near = |it: f64| (it - wanted).abs() <= NEAR * wanted.abs().max(1.0);
        let exact = |it: &Said<'_>| it.amount.number.as_f64().is_some_and(is_near);
        let converted = |it: &Said<'_>| {
            let number = it.amount.number.as_f64()?;
            let from = it.amount.unit?;
            let share = it.amount.is_percent().then_some(number / 100.0);
            let to = leaf.slot.and_then(|it| it.unit);
            let other = to.and_then(|to| unit::convert(number, from, to));
            share.into_iter().chain(other).find(|it| is_near(*it))
        };
        let nth = (0..self.numbers.len())
            .find(|it| exact(&self.numbers[*it]) && self.numbers[*it].slot.is_none())
            .or_else(|| (0..self.numbers.len()).find(|it| exact(&self.numbers[*it])))
            .map(|it| (it, false))
            .or_else(|| {
                let found =
                    (0..self.numbers.len()).find(|it| converted(&self.numbers[*it]).is_some());
                found.map(|it| (it, true))
            });
        let Some((nth, is_converted)) = nth else { return };
        self.numbers[nth].slot = leaf.slot.or(self.numbers[nth].slot);
        self.numbers[nth].is_converted |= is_converted;
        let at = self.numbers[nth].at.clone();
        // The unit may be a value of its own: `150 euros to dollars`.
        let digits = at.start..at.start + 1;
        if let Some(at) = [at, digits].into_iter().find(|it| self.is_free(it)) {
            self.push(at, leaf);
        }
    }

    /// Takes the words that say a flag: `not refundable`, `refundable: yes`.
    fn flag(&mut self, gate: &Gate<'a>, place: &Place, leaf: &Leaf<'a>, truth: bool) {
        let Some(slot) = leaf.slot else { return };
        for at in place.from..place.to {
            let token = &gate.tokens[at];
            if token.kind != Kind::Word || self.owner[at - place.from].is_some() {
                continue;
            }
            let plain = token.lower.strip_prefix("un").map(super::super::words::stem);
            let is_un = plain.is_some_and(|it| slot.words.contains(&it));
            if !slot.words.contains(&token.stem) && !is_un {
                continue;
            }
            let denies = |it: &Token| ["not", "without", "no", "non"].iter().any(|at| it.is(at));
            let is_denied = at > place.from && denies(&gate.tokens[at - 1]);
            let from = if is_denied && !truth { at - 1 } else { at };
            let mut to = at + 1;
            let near =
                (to..place.to).take(3).find(|it| value::truth(&gate.tokens[*it]) == Some(truth));
            to = near.map_or(to, |it| it + 1);
            if self.is_free(&(from..to)) {
                self.push(from..to, leaf);
            }
        }
    }

    /// Takes the names of what earlier calls made.
    fn names(&mut self, gate: &Gate<'a>, passage: usize, said: &Text<'_>) {
        if !gate.passages[passage].calls.iter().any(Call::is_linked) {
            return;
        }
        let earlier = gate.passages.iter().enumerate().filter(|it| it.0 != passage);
        for call in earlier.flat_map(|it| &it.1.calls) {
            let named = call.profile.properties.iter().filter(|it| {
                matches!(it.role, Role::Name | Role::Title | Role::Email | Role::Text)
            });
            let texts = named.filter_map(|it| call.parameters.get(&it.name)?.as_str());
            for text in texts {
                let first = text.split_whitespace().next().unwrap_or_default();
                let whole = said.find(text, &gate.effort);
                for found in whole.into_iter().chain(said.find(first, &gate.effort)) {
                    if found.clone().all(|it| self.owner[it - self.from].is_none()) {
                        let nth = self.all.len();
                        for it in found.clone() {
                            self.owner[it - self.from] = Some(nth);
                        }
                        let (calls, slot) = (Vec::new(), None);
                        self.all.push(Claim {
                            at: found,
                            calls,
                            slot,
                            also: None,
                            is_item: false,
                            is_name: true,
                        });
                    }
                }
            }
        }
    }
}

fn numbers<'a>(tokens: &[Token], place: &Place) -> Vec<Said<'a>> {
    let mut numbers = Vec::new();
    let mut at = place.from;
    while at < place.to {
        match amount::read(&tokens[..place.to], at) {
            Some((amount, len)) => {
                numbers.push(Said { at: at..at + len, amount, slot: None, is_converted: false });
                at += len.max(1);
            }
            None => at += 1,
        }
    }
    numbers
}

/// Collects what a call is told, each value with its parameter.
fn collect<'a>(nth: usize, call: &Call<'a>, leaves: &mut Vec<Leaf<'a>>) {
    let slots = &call.profile.frame().slots;
    let mut todo: Vec<(Vec<&str>, &'a Value, bool)> =
        call.parameters.iter().map(|(name, it)| (vec![name.as_str()], it, false)).collect();
    while let Some((path, value, is_item)) = todo.pop() {
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|it| (path.clone(), it, true))),
            Value::Object(fields) => todo.extend(fields.iter().map(|(name, it)| {
                let mut path = path.clone();
                path.push(name);
                (path, it, is_item)
            })),
            value => {
                let slot = slots
                    .iter()
                    .find(|it| it.path.iter().map(String::as_str).eq(path.iter().copied()));
                let name = path.join(".");
                let is_assumed = call.assumed.contains(&name);
                leaves.push(Leaf { call: nth, slot, value, is_item, is_assumed });
            }
        }
    }
}
