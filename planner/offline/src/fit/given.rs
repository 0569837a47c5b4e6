//! The value that a span is for a slot.

use serde_json::Value;

use super::{
    super::{
        amount::{self, Amount},
        property::Role,
        slot::Slot,
        span::{Said, Span},
        unit::{self, Dimension},
        value,
        when::Form,
    },
    Text,
};

impl Text<'_> {
    /// Returns the value that a span is for a slot.
    pub(crate) fn value(&self, slot: usize, span: usize) -> Option<Value> {
        let it = &self.frame.slots[slot];
        let one = self.item(slot, span)?;
        let is_whole = matches!(self.spans[span].said, Said::Values(_) | Said::Several(_));
        Some(if it.is_list() && !is_whole { Value::Array(vec![one]) } else { one })
    }

    fn item(&self, slot: usize, span: usize) -> Option<Value> {
        let it = &self.frame.slots[slot];
        let span = &self.spans[span];
        match &span.said {
            Said::Several(items) => {
                let items: Option<Vec<Value>> =
                    items.iter().map(|at| self.item(slot, *at)).collect();
                items.map(Value::Array)
            }
            Said::Values(values) => Some(Value::Array(values.clone())),
            Said::Object(value) | Said::Choice { value, .. } => Some(value.clone()),
            Said::Number(amount) if it.is_numeric() => number(it, amount),
            // One `next month`.
            Said::Day(_) if it.is_numeric() => Some(Value::from(1)),
            Said::Day(when) => {
                let form = it.said.form.clone().or_else(|| it.property.is_strict.then(Form::iso));
                let written = form.and_then(|it| it.write(when));
                Some(written.map_or_else(|| value::literal(&span.text), Value::String))
            }
            _ => Some(value::literal(&self.without_own(it, span))),
        }
    }

    /// Returns a text without the words that only say what kind of thing it is: `Thai food`.
    fn without_own(&self, slot: &Slot, span: &Span) -> String {
        let mut to = span.to;
        let is_kind = |at: usize| {
            let token = &self.tokens[at];
            token.value.starts_with(char::is_lowercase) && slot.words.contains(&token.stem)
        };
        if !matches!(span.said, Said::Name | Said::Phrase { .. }) {
            return span.text.clone();
        }
        while to > span.from + 1 && is_kind(to - 1) {
            to -= 1;
        }
        if to == span.to {
            return span.text.clone();
        }
        let len = self.tokens[to - 1].end - self.tokens[span.from].start;
        span.text.get(..len).unwrap_or(&span.text).trim().to_owned()
    }
}

/// Returns the number that an amount is for a slot, in the slot's unit and type.
pub(super) fn number(slot: &Slot, amount: &Amount) -> Option<Value> {
    let mut number = amount.number.clone();
    let is_integer = slot.role() == Role::Integer || slot.role() == Role::Id;
    if amount.is_percent() && !is_integer {
        let wants_percent = slot.said.unit.is_some_and(|it| it.dimension == Dimension::Share)
            && !slot.said.is_decimal
            || slot.words.contains("percent")
            || slot.words.contains("percentag")
            || slot.said.is_percentage();
        if !wants_percent {
            let share = number.as_f64()? / 100.0;
            number = amount::whole(format!("{share:.12}").parse().ok()?)?;
        }
    }
    if let (Some(from), Some(to)) = (amount.unit, slot.unit)
        && from != to
        && let Some(converted) = unit::convert(number.as_f64()?, from, to)
    {
        number = amount::whole(converted)?;
    }
    value::typed_number(number, if is_integer { Role::Integer } else { Role::Number })
}
