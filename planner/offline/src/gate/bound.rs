//! Words before a value that change what is meant by it, and those that only seem to.

use serde_json::Value;

use super::{
    super::{
        clause,
        profile::Profile,
        property::Role,
        slot::Slot,
        token::{Kind, Token},
        unit::Dimension,
        words::{self, Family},
    },
    Call, Doubt, Found, Gate, Passage,
    claim::{Claim, Claims, Place},
};

/// Words before a number that is not quite meant.
const NEARLY: &str = "about around roughly approximately some nearly almost circa ca approx";
/// Words before a place in which things are, none of which is meant alone.
const WITHIN: &str = "in of inside under within from";
/// Words between one that a parameter's description has and its value.
const AHEAD: usize = 6;

/// Parameters of which nothing is less than none.
const COUNTS: &str = "amount quantity count shares copies passengers guests people persons tickets seats units items";

impl Gate<'_> {
    /// Finds words which say that a value is not what is meant itself: `about 500`, `by 2 degrees`,
    /// `the files in /tmp/x`, `the door of the neighbor`.
    pub(super) fn shifted(&self, passage: &Passage<'_>, claims: &Claims<'_>) -> Option<Found> {
        claims.all.iter().filter(|it| !it.is_name).find_map(|it| self.shifts(passage, it))
    }

    fn shifts(&self, passage: &Passage<'_>, claim: &Claim<'_>) -> Option<Found> {
        let slot = claim.slot?;
        let call = claim.calls.first().and_then(|it| passage.calls.get(*it))?;
        if slot.property.is_numeric()
            && let Some(found) = self.compares(call, slot, claim)
        {
            return Some(found);
        }
        let is_article =
            |it: &Token| it.kind == Kind::Word && ["the", "a", "an"].iter().any(|word| it.is(word));
        let behind = self.tokens[..claim.at.start]
            .iter()
            .rposition(|it| !is_article(it))
            .map_or(0, |it| it + 1);
        let before = behind.checked_sub(1)?;
        let tie = self.tokens.get(before).filter(|it| it.kind == Kind::Word)?;
        let is_in = |list: &str| list.split(' ').any(|it| it == tie.lower);
        let found = |from: usize, doubt: Doubt| Some((from..claim.at.end, doubt));
        if slot.property.is_numeric() {
            let is_change = call.profile.family == Some(Family::Update)
                && tie.is("by")
                && !slot.words.contains("by")
                && !slot.said.words.contains("by");
            let is_own = slot.words.contains(&tie.stem);
            let is_elsewhere = claim.at.len() == 1 && !is_own && places(slot, &tie.lower);
            return if is_elsewhere {
                found(before, Doubt::Tie)
            } else if is_in(NEARLY) && !is_own {
                found(before, Doubt::Strange)
            } else if is_change {
                found(before, Doubt::Tie)
            } else {
                None
            };
        }
        let is_thing =
            matches!(slot.property.role, Role::Text | Role::Name | Role::Path | Role::Id);
        let noun = before.checked_sub(1).and_then(|it| self.tokens.get(it));
        let noun = noun.filter(|it| it.kind == Kind::Word && is_thing && is_in(WITHIN))?;
        let name = words::split_identifier(call.profile.tool.name.as_str());
        let is_named = call.profile.nouns.contains(&noun.stem);
        let is_many = is_named && words::is_plural(&noun.lower) && !name.contains(&noun.lower);
        let is_alone = claim.calls.len() == passage.calls.len() && !claim.is_item;
        let makes = call.profile.family == Some(Family::Create);
        // `get_rid_of` has its own `of`.
        let has_of = name.windows(2).any(|it| it[0] == noun.lower && it[1] == "of");
        let is_owner = tie.is("of")
            && is_named
            && !has_of
            && (slot.words.contains(&noun.stem)
                || matches!(slot.property.role, Role::Path | Role::Id)
                || slot.property.role == Role::Name && !makes);
        if is_many && is_alone || is_owner {
            return found(before - 1, Doubt::Tie);
        }
        None
    }

    /// Finds a sign that makes a number another one: `~10`, `-100 euros`.
    fn compares(&self, call: &Call<'_>, slot: &Slot, claim: &Claim<'_>) -> Option<Found> {
        let first = &self.tokens[claim.at.start];
        let is_near = first.value.starts_with(['~', '≈', '≤', '≥', '±', '<', '>', '∼', '≠']);
        let before = claim.at.start.checked_sub(1).map(|it| &self.tokens[it]);
        let is_marked = before.is_some_and(|it| {
            it.kind == Kind::Mark
                && ["~", "≈", "≤", "≥", "±", "<", ">", "∼", "≠"].iter().any(|mark| it.is_mark(mark))
        });
        if is_near || is_marked {
            let from = claim.at.start - usize::from(is_marked);
            return Some((from..claim.at.end, Doubt::Strange));
        }
        let told = Value::Object(call.parameters.clone());
        let path = format!("/{}", slot.path.join("/"));
        let is_below = told.pointer(&path).and_then(Value::as_f64).is_some_and(|it| it < 0.0);
        let schema = &call.profile.tool.input_schema;
        let place = format!("/properties/{}/minimum", slot.path.join("/properties/"));
        let may_be = schema.pointer(&place).and_then(Value::as_f64).is_some_and(|it| it < 0.0);
        let is_count =
            matches!(
                slot.measures,
                Some(Dimension::Money | Dimension::Mass | Dimension::Duration | Dimension::Data)
            ) || COUNTS.split_whitespace().any(|it| slot.words.contains(&words::stem(it)));
        (is_below && !may_be && is_count).then_some((claim.at.clone(), Doubt::Form))
    }

    /// Returns whether a word fits the value that it stands before, though it is none of the tool's
    /// own: `maximum depth 5` where the parameter is told to be the maximum, `between Ann and Bob` of
    /// a list, `some music`, `another flight`, `major` where that is what is done anyway.
    pub(super) fn is_fitting(
        &self,
        profile: &Profile,
        at: usize,
        place: &Place,
        claims: &Claims<'_>,
    ) -> bool {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1).filter(|_| at + 1 < place.to);
        let before = at.checked_sub(1).map(|it| &self.tokens[it]);
        let is_noun = |it: &Token| Self::is_own(profile, it);
        match token.lower.as_str() {
            "some" => return next.is_some_and(is_noun),
            "another" => {
                let is_joint = before.is_some_and(|it| it.is("and") || it.is_mark(","));
                return is_joint && next.is_some_and(|it| is_noun(it) || it.is("with"));
            }
            "given" | "where" => {
                let is_slot = |it: &Token| {
                    profile.frame().slots.iter().any(|slot| slot.words.contains(&it.stem))
                };
                let article =
                    next.is_some_and(|it| words::is_determiner(&it.lower) || it.is("its"));
                return next.is_some_and(is_slot)
                    || article && self.tokens.get(at + 2).is_some_and(is_slot);
            }
            "between" => {
                let claim = claims.at(at + 1);
                return claim.is_some_and(|it| {
                    it.is_item
                        && it.slot.is_some_and(|at| !at.property.is_numeric() && at.is_list())
                });
            }
            lower if super::lists::is_tie(token) || words::is_preposition(lower) => return false,
            _ => (),
        }
        let tells = |it: &Slot| it.said.words.contains(&token.stem);
        let is_told = self.slot_ahead(profile, at, place, claims).is_some_and(tells)
            || at.checked_sub(1).and_then(|it| claims.at(it)?.slot).is_some_and(tells);
        let is_default = profile.frame().slots.iter().any(|it| {
            let default = it.property.default.as_ref().and_then(Value::as_str);
            default
                .or(it.said.default.as_deref())
                .is_some_and(|it| it.eq_ignore_ascii_case(&token.value))
        });
        is_told || is_default
    }

    /// Returns whether a word begins a clause about something else than the value that it stands before:
    /// `the server hosting web-1`, `the valve's neighbor`.
    pub(super) fn is_clause(&self, at: usize, claims: &Claims<'_>) -> bool {
        let token = &self.tokens[at];
        let role = claims.at(at + 1).and_then(|it| it.slot).map(|it| it.property.role);
        let is_gerund = token.lower.ends_with("ing") && token.lower.len() > 5;
        (is_gerund || token.is_possessive())
            && !token.is("using")
            && !clause::is_content_cue(token)
            && !clause::is_name_cue(token)
            && matches!(role, Some(Role::Text | Role::Name | Role::Path | Role::Id))
    }

    /// Returns the parameter whose value comes behind a word and others of the tool: `maximum depth of
    /// the trees as 5`.
    fn slot_ahead<'c>(
        &self,
        profile: &Profile,
        at: usize,
        place: &Place,
        claims: &'c Claims<'_>,
    ) -> Option<&'c Slot> {
        let ahead = at + 1..place.to.min(at + 1 + AHEAD);
        let begin = ahead.clone().find(|it| claims.at(*it).is_some())?;
        let slot = claims.at(begin)?.slot?;
        let leads = |it: &Token| {
            words::is_determiner(&it.lower)
                || ["as", "by", "from", "for"].iter().any(|word| it.is(word))
                || slot.said.words.contains(&it.stem)
                || Self::is_own(profile, it)
        };
        let between = &self.tokens[at + 1..begin];
        between.iter().all(|it| it.kind == Kind::Word && leads(it)).then_some(slot)
    }

    /// Returns whether the numbers before and behind a `to` are two values of one call: `from 1 to 50`.
    pub(super) fn are_two(at: usize, claims: &Claims<'_>) -> bool {
        let before = at.checked_sub(1).and_then(|it| claims.at(it));
        let (Some(one), Some(other)) = (before, claims.at(at + 1)) else { return false };
        let (Some(from), Some(to)) = (one.slot, other.slot) else { return false };
        from.path != to.path
            && one.calls == other.calls
            && from.property.is_numeric()
            && to.property.is_numeric()
    }
}

/// Returns whether a word before a number without a unit says where or when, and not how much: `at
/// 5` of passengers, `in 5` of degrees.
fn places(slot: &Slot, tie: &str) -> bool {
    let is_heat = slot.measures == Some(Dimension::Temperature);
    let is_how_many = COUNTS.split_whitespace().any(|it| slot.words.contains(&words::stem(it)));
    match tie {
        "at" | "on" => is_how_many && slot.measures != Some(Dimension::Money),
        "in" => is_how_many || is_heat,
        "for" => is_heat,
        _ => false,
    }
}
