//! What stands in the way of a plan, in sentences that say what to do.

use super::{
    gate::Doubt,
    mood::Mood,
    profile::Profile,
    property::{Property, Role},
    words,
};

/// Characters of a clause that a message shows.
const SHOWN: usize = 200;

/// What stands in the way of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// No tool does what the clause asks for.
    NotUnderstood,
    /// Several tools may be meant.
    Ambiguous { tools: Vec<String> },
    /// A parameter that must be there is not.
    Missing { tool: String, parameter: String, hint: String },
    /// A name that nothing in the query has.
    UnknownName { tool: String, parameter: String, name: String, noun: String },
    /// Several things may be meant.
    UnclearReference { tool: String, parameter: String, names: Vec<String> },
    /// A value that the parameter cannot have.
    Unfit { tool: String, parameter: String, said: String, expected: String },
    /// A change without anything to change.
    NoChange { tool: String, parameters: Vec<String> },
    /// More steps than people write.
    TooMany,
    /// A part that nothing was made of, and that reads like something to do.
    Leftover { words: String },
    /// Words that leave open, or take back, what a tool that acts is to do.
    Vetoed { tool: String, words: String },
    /// Words that are no order, for a tool that acts.
    NoOrder { tool: String, said: String, order: String, mood: Mood, is_final: bool },
    /// Words that leave in doubt what a tool that acts is to do.
    Doubtful { tool: String, words: String, order: String, doubt: Doubt },
}

impl Problem {
    /// Returns whether other ways of reading the query cannot help.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::UnknownName { .. }
                | Self::UnclearReference { .. }
                | Self::NoChange { .. }
                | Self::TooMany
                | Self::NoOrder { is_final: true, .. }
        )
    }

    /// Returns the parameter that it keeps from being filled.
    pub(super) fn parameter(&self) -> Option<&String> {
        match self {
            Self::Missing { parameter, .. }
            | Self::UnknownName { parameter, .. }
            | Self::UnclearReference { parameter, .. }
            | Self::Unfit { parameter, .. } => Some(parameter),
            _ => None,
        }
    }

    /// Says what is wrong with a clause.
    pub(super) fn explain(&self, clause: &str) -> String {
        let clause = shown(clause);
        match self {
            Self::NotUnderstood => {
                format!("no tool fits `{clause}`: begin the clause with what to do and what with")
            }
            Self::Ambiguous { tools } => {
                format!("`{clause}` may mean {}: use the words of the tool's name", any_of(tools))
            }
            Self::Missing { tool, parameter, hint } => {
                format!("`{parameter}` of `{tool}` is missing in `{clause}`: {hint}")
            }
            Self::UnknownName { tool, parameter, name, noun } => format!(
                "`{}` in `{clause}` names no {noun} that this query makes before, so `{parameter}` of `{tool}` is \
                 unknown: make the {noun} in an earlier clause, or give its id, such as `{noun} 507f1f77bcf86cd799439011`",
                shown(name)
            ),
            Self::UnclearReference { tool, parameter, names } => format!(
                "`{parameter}` of `{tool}` in `{clause}` may mean {}: say which by its name",
                any_of(names)
            ),
            Self::Unfit { tool, parameter, said, expected } => format!(
                "`{}` in `{clause}` does not fit `{parameter}` of `{tool}`: give {expected}",
                shown(said)
            ),
            Self::NoChange { tool, parameters } => format!(
                "`{clause}` says nothing that `{tool}` could change: add `set … to …` with {}",
                any_of(parameters)
            ),
            Self::NoOrder { tool, said, order, mood, .. } => {
                let said = shown(said);
                match mood {
                    Mood::Denied => format!(
                        "`{said}` denies something, and `{tool}` acts: say only what is to be done, and put what is \
                         only text between quotation marks"
                    ),
                    Mood::Conditional | Mood::Given => format!(
                        "`{said}` is a condition, which plans without a model cannot check before `{tool}`: leave it \
                         out, put it between quotation marks if it is text, or write the plan as JSON with `when`"
                    ),
                    Mood::Asked => {
                        format!("`{said}` asks, and `{tool}` acts: say it as an order: `{order} …`")
                    }
                    Mood::Told => format!(
                        "`{said}` tells something, and `{tool}` acts: say it as an order: `{order} …`"
                    ),
                }
            }
            Self::Vetoed { tool, words } => format!(
                "`{words}` leaves open what `{tool}` is to do: say exactly what is meant and nothing else, or put it \
                 between quotation marks if it is text"
            ),
            Self::Doubtful { words, order, doubt: Doubt::Unknown, .. } => format!(
                "`{words}` is nothing that a tool here does, so the order was not understood: begin with what a tool \
                 does, such as `{order} …`"
            ),
            Self::Doubtful { tool, words, order, doubt } => {
                format!(
                    "`{words}` leaves in doubt what `{tool}` is to do: {}",
                    remedy(*doubt, order)
                )
            }
            Self::TooMany => format!("`{clause}` makes the plan too long: split the query"),
            Self::Leftover { words } => format!(
                "`{}` in `{clause}` was not understood: put it between quotation marks if it is text, or leave it out",
                shown(words)
            ),
        }
    }
}

/// Says how to take away a doubt.
fn remedy(doubt: Doubt, order: &str) -> String {
    match doubt {
        Doubt::Strange => "it is no part of the order: leave it out, put it between quotation marks if it is text, or \
                           write the plan as JSON"
            .to_owned(),
        Doubt::Verb | Doubt::Unknown => format!("begin with what the tool does: `{order} …`"),
        Doubt::Unnamed => format!("name the tool: `{order} …`"),
        Doubt::Tie => "name the parameter that it belongs to, as in `with name …`".to_owned(),
        Doubt::Inside => "put what is the value between quotation marks, and leave out the rest".to_owned(),
        Doubt::Apart => "say each value for itself, in digits, or one order for each call".to_owned(),
        Doubt::Form => "say it in the form that the parameter asks for, a day as `2027-01-31`, a time as `19:30`".to_owned(),
        Doubt::Unit => "say it in the unit of the parameter".to_owned(),
        Doubt::Reference => "say which thing is meant, by its name or its identifier".to_owned(),
        Doubt::Said => "put the text between quotation marks, so that it is clear where it ends".to_owned(),
        Doubt::Described => "it describes a value that no earlier step gives: put it in quotation marks if it is \
                             meant literally"
            .to_owned(),
        Doubt::Long => "there is too much of it to be checked: say it in fewer words, or split the query".to_owned(),
        Doubt::Asked => format!(
            "say it as an order, `{order} …`; if the tool only looks, its definition says so with `effect: read`"
        ),
    }
}

/// Returns a text that is short enough for a message.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String =
        text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN + 1).collect();
    if shown.chars().count() > SHOWN {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// Lists names as people do.
pub(super) fn any_of(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|it| format!("`{}`", shown(it))).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// Says how to give a parameter.
pub(super) fn hint(profile: &Profile, property: &Property) -> String {
    let name = &property.name;
    match property.role {
        Role::Id => {
            let id = if property.is_number { "42" } else { "507f1f77bcf86cd799439011" };
            let form = if property.is_number { " (a number)" } else { "" };
            match property.noun.as_deref() {
                Some(_)
                    if profile.own_id().is_none_or(|it| profile.properties[it].name != *name) =>
                {
                    let noun = spoken(name);
                    format!(
                        "make the {noun} in an earlier clause and say `by` or `on` it, or give its id: `{noun} {id}`{form}"
                    )
                }
                _ => format!(
                    "give it: `id {id}`{form}, or speak of something made in an earlier clause"
                ),
            }
        }
        Role::Email => format!("add `with {name} somebody@example.com`"),
        Role::Url => format!("add `with {name} https://example.com/…`"),
        Role::Date => format!("add `with {name} 2026-01-31`, as an ISO date"),
        Role::Name => "add `named …`".to_owned(),
        Role::Title => "add `titled …`".to_owned(),
        Role::Content => "add `saying …`".to_owned(),
        Role::Number | Role::Integer => format!("add `with {name} 42`, a number"),
        Role::Bool => format!("add `with {name} true` or `false`"),
        Role::Enum => format!("add `with {name}` and one of {}", allowed(property)),
        Role::Other => {
            format!("`{name}` is an object, which words cannot say: write the plan as JSON")
        }
        _ => format!("add `with {name} …`"),
    }
}

/// Returns how an order for a tool begins: `create blog`.
pub(super) fn order(profile: &Profile) -> String {
    let name = profile.tool.name.as_str();
    let own = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    words::split_identifier(own).join(" ")
}

/// Lists the values that a parameter may have.
pub(super) fn allowed(property: &Property) -> String {
    let values: Vec<String> = property
        .values
        .iter()
        .take(12)
        .map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned))
        .collect();
    any_of(&values)
}

/// Returns the thing that a parameter identifies: `author` for `authorId`.
pub(super) fn spoken(parameter: &str) -> String {
    let mut parts = words::split_identifier(parameter);
    if parts.len() > 1 {
        parts.pop();
    }
    parts.join(" ")
}
