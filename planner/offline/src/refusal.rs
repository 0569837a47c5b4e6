//! Reasons why there is no plan, in sentences that say what to do.

use super::clause::Mood;

/// Characters of a clause that a message shows.
const SHOWN: usize = 200;

/// The check that decided against a plan.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// No tool does what the words ask for.
    NothingFits {
        said: String,
    },
    /// The action is denied, only asked about, hypothetical or reported.
    Mood {
        mood: Mood,
        said: String,
    },
    /// A required value was not said.
    Missing {
        tool: String,
        slots: Vec<(String, String)>,
        said: String,
    },
    /// A condition that no step can check.
    Condition {
        said: String,
    },
    /// No tool lists the items of a loop.
    NoList {
        said: String,
        tool: String,
    },
    /// Too many words have no place in a call that acts.
    Unplaced {
        tool: String,
        words: String,
        said: String,
    },
    TooMany,
    /// A clause has too many words.
    TooLong {
        count: usize,
    },
}

impl Refusal {
    /// Returns the message: the problem, and what to do.
    pub(super) fn message(&self) -> String {
        match self {
            Self::NothingFits { said } => format!(
                "no tool fits `{}`: begin with what to do and what with (`faber tools list` shows what there is)",
                shorten(said)
            ),
            Self::Mood { mood, said } => {
                let said = shorten(said);
                match mood {
                    Mood::Denied => format!("`{said}` says what is not to be done: say what is"),
                    Mood::Asked => {
                        format!("`{said}` only asks about an action: say it as an order")
                    }
                    Mood::Hypothetical => format!("`{said}` is no order yet: say it as an order"),
                    _ => format!("`{said}` only tells something: say what to do as an order"),
                }
            }
            Self::Missing { tool, slots, said } => {
                let names: Vec<String> = slots
                    .iter()
                    .map(|(name, about)| match about.as_str() {
                        "" => format!("`{name}`"),
                        about => format!(
                            "`{name}` ({})",
                            about.split(['.', '\n']).next().unwrap_or_default()
                        ),
                    })
                    .collect();
                let verb = if names.len() == 1 { "is" } else { "are" };
                let first = slots.first().map_or("", |slot| slot.0.as_str());
                format!(
                    "{} of `{tool}` {verb} missing in `{}`: add `with {first} …`",
                    names.join(" and "),
                    shorten(said)
                )
            }
            Self::Condition { said } => format!(
                "no tool can check the condition `{}`: leave it out, or write the plan as JSON with `when`",
                shorten(said)
            ),
            Self::NoList { said, tool } => format!(
                "no tool lists the items of `{}`: name each item, as in `{tool} …`",
                shorten(said)
            ),
            Self::Unplaced { tool, words, said } => format!(
                "`{words}` has no place in `{}`: say it as `{tool} …`, and put texts between quotation marks",
                shorten(said)
            ),
            Self::TooLong { count } => format!(
                "one part of the query has {count} words and marks: split it, or put texts between quotation marks"
            ),
            Self::TooMany => "the plan has too many steps: split the query".to_owned(),
        }
    }
}

/// Shortens a text to what a message shows.
fn shorten(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl Refusal {
    /// Returns the tool that the query comes closest to.
    pub(super) fn tool(&self) -> Option<String> {
        match self {
            Self::Missing { tool, .. } => Some(tool.clone()),
            _ => None,
        }
    }
}
