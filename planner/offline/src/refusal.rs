//! Reasons why there is no plan, in sentences that say what to do.

use super::{
    clause::Mood,
    tool::{Slot, Tool},
};

const SHOWN: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// No tool does what the words ask for.
    Fit,
    /// A required value was not said.
    Values,
    /// The action is denied, only asked about, hypothetical or reported.
    Mood,
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) check: Check,
    /// The problem, and what to do.
    pub(super) message: String,
    /// The tool that the query comes closest to.
    pub(super) nearest: Option<String>,
}

impl Refusal {
    pub(super) fn new(check: Check, message: String) -> Self {
        Self { check, message, nearest: None }
    }

    pub(super) fn other(message: impl Into<String>) -> Self {
        Self::new(Check::Other, message.into())
    }

    pub(super) fn nothing_fits(said: &str) -> Self {
        let said = shorten(said);
        let message = format!(
            "no tool fits `{said}`: begin with what to do and what with (`faber tools list` shows what there is)"
        );
        Self::new(Check::Fit, message)
    }

    pub(super) fn mood(mood: Mood, said: &str) -> Self {
        let said = shorten(said);
        let message = match mood {
            Mood::Denied => format!("`{said}` says what is not to be done: say what is"),
            Mood::Asked => format!("`{said}` only asks about an action: say it as an order"),
            Mood::Hypothetical => format!("`{said}` is no order yet: say it as an order"),
            _ => format!("`{said}` only tells something: say what to do as an order"),
        };
        Self::new(Check::Mood, message)
    }

    pub(super) fn missing(tool: &Tool, slots: &[&Slot], said: &str) -> Self {
        let name = |slot: &&Slot| match slot.description.split(['.', '\n']).next() {
            None | Some("") => format!("`{}`", slot.path()),
            Some(about) => format!("`{}` ({about})", slot.path()),
        };
        let names: Vec<String> = slots.iter().map(name).collect();
        let message = format!(
            "{} of `{}` {} missing in `{}`: add `with {} …`",
            names.join(" and "),
            tool.name,
            if names.len() == 1 { "is" } else { "are" },
            shorten(said),
            slots.first().map(|slot| slot.cue()).unwrap_or_default()
        );
        Self { nearest: Some(tool.name.clone()), ..Self::new(Check::Values, message) }
    }

    pub(super) fn condition(said: &str) -> Self {
        Self::other(format!(
            "no tool can check the condition `{}`: leave it out, or write the plan as JSON with `when`",
            shorten(said)
        ))
    }

    pub(super) fn no_list(tool: &Tool, said: &str) -> Self {
        Self::other(format!(
            "no tool lists the items of `{}`: name each item, as in `{} …`",
            shorten(said),
            tool.order
        ))
    }

    pub(super) fn unplaced(tool: &Tool, words: &str, said: &str) -> Self {
        Self::other(format!(
            "`{words}` has no place in `{}`: say it as `{} …`, and put texts between quotation marks",
            shorten(said),
            tool.order
        ))
    }

    pub(super) fn too_many_words(count: usize, most: usize) -> Self {
        Self::other(format!(
            "the query has {count} words and marks without a join such as `then`, but {most} is the most: split it, or put texts between quotation marks"
        ))
    }
}

fn shorten(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
