//! Whether values are in the form that their parameters want, and can be read in one way only.

use serde_json::Value;

use super::{
    super::{
        property::Role,
        token::Kind,
        unit::{self, Dimension},
    },
    Call, Doubt, Found, Gate, Passage,
    claim::{Claim, Claims, Place},
};

impl Gate<'_> {
    /// Checks the forms of what the calls of a passage are told.
    pub(super) fn formed(
        &self,
        passage: &Passage<'_>,
        place: &Place,
        claims: &Claims<'_>,
    ) -> Option<Found> {
        let wrong = passage.calls.iter().filter(|it| it.acts()).find_map(misformed);
        if let Some(path) = wrong {
            let is_it = |it: &&Claim<'_>| it.slot.is_some_and(|at| at.path.join(".") == path);
            let at = claims.all.iter().find(is_it).map(|it| it.at.clone());
            return Some((at.unwrap_or(place.from..place.to), Doubt::Form));
        }
        let is_doubtful = |it: &&Claim<'_>| self.is_day_or_month(it);
        let found = claims.all.iter().find(is_doubtful).map(|it| (it.at.clone(), Doubt::Form));
        let compared = || {
            let at = (place.from..place.to).find(|it| self.is_compared(passage, *it))?;
            Some((at..at + 1, Doubt::Inside))
        };
        found.or_else(|| self.thousands(claims)).or_else(compared)
    }

    /// Returns whether a day may be another one where people write the month first: `05/06/2027`.
    fn is_day_or_month(&self, claim: &Claim<'_>) -> bool {
        let Some(slot) = claim.slot.filter(|it| it.property.role == Role::Date || it.traits.is_day)
        else {
            return false;
        };
        let [token] = &self.tokens[claim.at.clone()] else { return false };
        let parts: Vec<&str> = token.value.split('/').collect();
        let [a, b, year] = parts.as_slice() else { return false };
        let month = |it: &str| it.parse().is_ok_and(|it: u8| (1..=12).contains(&it));
        year.len() == 4 && a != b && month(a) && month(b) && slot.said.form.is_none()
    }

    /// Returns whether a word compares where one of some values is wanted: `larger` is not `large`.
    fn is_compared(&self, passage: &Passage<'_>, at: usize) -> bool {
        let token = &self.tokens[at];
        let slots = passage.calls.iter().flat_map(|it| &it.profile.frame().slots);
        let mut values = slots.flat_map(|it| &it.property.values).filter_map(Value::as_str);
        let lower = token.lower.as_str();
        let compares = |it: &str| {
            let value = it.to_lowercase();
            let ends = ["r", "er", "st", "est"];
            value.len() > 2 && ends.iter().any(|end| lower.strip_suffix(end) == Some(&value))
        };
        let is_one = |it: &str| it.eq_ignore_ascii_case(lower);
        token.kind == Kind::Word && values.clone().any(compares) && !values.any(is_one)
    }

    /// Finds an amount of money that is a thousand times as much elsewhere: `1.000 euros`.
    fn thousands(&self, claims: &Claims<'_>) -> Option<Found> {
        let is_money = |it: &&unit::Unit| it.dimension == Dimension::Money;
        let found = claims.numbers.iter().find(|it| {
            let digits =
                self.tokens[it.at.start].value.trim_matches(|it: char| !it.is_ascii_digit());
            let is_apart =
                digits.split_once('.').is_some_and(|it| it.1.len() == 3 && it.0.len() < 4);
            it.slot.is_some() && it.amount.unit.as_ref().is_some_and(is_money) && is_apart
        })?;
        Some((found.at.clone(), Doubt::Form))
    }
}

/// Returns the parameter of a call whose text is not in the form that the parameter asks for.
fn misformed(call: &Call<'_>) -> Option<String> {
    let slots = call.profile.frame().slots.iter();
    let wrong = slots.filter(|it| {
        let path = it.path.join("/");
        let schema = &call.profile.tool.input_schema;
        let format =
            schema.pointer(&format!("/properties/{}/format", it.path.join("/properties/")));
        let told = Value::Object(call.parameters.clone());
        let Some(text) = told.pointer(&format!("/{path}")).and_then(Value::as_str) else {
            return false;
        };
        if text.starts_with("{{") {
            return false;
        }
        let wants_moment = format.and_then(Value::as_str) == Some("date-time");
        let wants_time = it.property.description.contains("HH:MM");
        wants_moment && !text.contains(['T', 't', ' ']) || wants_time && !is_time(text)
    });
    wrong.map(|it| it.path.join(".")).next()
}

/// Returns whether a text ends in a time of day such as `19:30`.
fn is_time(text: &str) -> bool {
    let last = text.rsplit(['T', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = last.split(':').collect();
    let below = |it: &str, most: u8| it.len() == 2 && it.parse().is_ok_and(|it: u8| it < most);
    match parts.as_slice() {
        [hours, minutes, rest @ ..] => {
            below(hours, 24)
                && below(minutes, 60)
                && rest.len() < 2
                && rest.iter().all(|it| below(it, 60))
        }
        _ => false,
    }
}
