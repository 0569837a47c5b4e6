//! How well what a span is fits what a slot takes.

use serde_json::Value;

use super::super::{
    amount::Amount,
    property::Role,
    slot::Slot,
    span::{Said, Span},
    when::{Form, When},
};

/// Returns how well a number fits a slot that takes a text: a year, a code, a size.
pub(super) fn number_as_text(slot: &Slot, amount: &Amount) -> Option<f32> {
    let role = slot.role();
    if !matches!(
        role,
        Role::Text | Role::Id | Role::Date | Role::Name | Role::Title | Role::Content
    ) || amount.is_word
    {
        return None;
    }
    let traits = &slot.traits;
    if traits.is_year && amount.is_year() {
        return Some(3.5);
    }
    if traits.is_code {
        return Some(if amount.is_ordinal { -1.4 } else { 1.8 });
    }
    let is_sized = slot.measures.is_some() && amount.unit.map(|it| it.dimension) == slot.measures;
    if is_sized {
        return Some(1.5);
    }
    (role == Role::Date && amount.is_year()).then_some(0.8).or(Some(-1.4))
}

pub(super) fn day(slot: &Slot, when: &When) -> Option<f32> {
    if !matches!(
        slot.role(),
        Role::Text | Role::Date | Role::Name | Role::Title | Role::Content | Role::Path | Role::Id
    ) {
        return None;
    }
    let form = slot.said.form.clone().or_else(|| slot.property.is_strict.then(Form::iso));
    if form.is_some_and(|it| it.write(when).is_none()) {
        return None;
    }
    let is_dated = slot.traits.is_day || slot.role() == Role::Date;
    Some(if is_dated {
        4.0
    } else if slot.traits.is_time {
        1.5
    } else {
        -1.2
    })
}

/// Returns how well words fit a slot that takes a text.
pub(super) fn word(slot: &Slot, span: &Span) -> Option<f32> {
    let traits = &slot.traits;
    let role = slot.role();
    let only = match role {
        Role::Email => Some(&[Said::Email][..]),
        Role::Url => Some(&[Said::Url][..]),
        Role::Bool | Role::Number | Role::Integer | Role::Enum | Role::Other | Role::List => {
            return None;
        }
        _ => None,
    };
    if let Some(only) = only {
        return if only.contains(&span.said) {
            Some(5.0)
        } else {
            (span.said == Said::Quoted).then_some(0.5)
        };
    }
    if slot.is_numeric()
        || role == Role::Id && matches!(span.said, Said::Phrase { .. } | Said::Name)
    {
        return None;
    }
    let mut score = match &span.said {
        Said::Quoted => 2.6,
        Said::Name => 1.5,
        Said::Code => 1.2,
        Said::Path if role == Role::Path => 5.0,
        Said::Path => 0.4,
        Said::Url | Said::Email => -1.0,
        Said::Formula if traits.is_formula => 5.0,
        Said::Formula => 0.1,
        Said::Time if traits.is_time => 3.5,
        Said::Time => -0.8,
        Said::Phrase { is_weak: true } => -0.6,
        Said::Phrase { is_weak: false } => 0.6,
        _ => return None,
    };
    if traits.is_place {
        score += match span.said {
            Said::Name => 1.0,
            Said::Phrase { .. } => -0.4,
            Said::Code => -1.0,
            _ => 0.0,
        };
        if span.is_wide {
            score += if traits.is_wide { 1.2 } else { -0.9 };
        }
    } else if span.is_wide {
        score -= 1.2;
    }
    if span.is_tail {
        score -= 0.6;
    }
    if traits.is_person && span.said == Said::Name {
        score += 0.8;
    }
    if traits.is_day || role == Role::Date {
        score -= 1.8;
    }
    if traits.is_code {
        score += match span.said {
            Said::Code => 2.5,
            Said::Phrase { .. } => -1.4,
            Said::Name => -0.9,
            _ => 0.0,
        };
    }
    (score > -1.5).then_some(score)
}

pub(super) fn is_item(slot: &Slot, value: &Value) -> bool {
    match slot.property.item {
        Role::Integer => value.is_i64() || value.is_u64(),
        Role::Number => value.is_number(),
        Role::Bool => value.is_boolean(),
        Role::Enum => slot.property.values.contains(value),
        Role::List => value.is_array(),
        Role::Other => value.is_object(),
        _ => value.is_string(),
    }
}
