use super::{
    clause::Mood,
    tool::{Slot, Tool},
};

const MAX_SHOWN_CHARS: usize = 200;

#[derive(Clone, Debug, Default)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) nearest_tool: Option<String>,
    pub(super) fits_nothing: bool,
    /// `true` if the query itself forbids a plan, whatever the tools are.
    pub(super) is_certain: bool,
}

impl Refusal {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    pub(super) fn nothing_fits(said: &str) -> Self {
        let said = shorten(said);
        let message = format!(
            "no tool fits `{said}`: begin with what to do and what with (`faber tools list` shows what there is)"
        );
        Self { fits_nothing: true, ..Self::new(message) }
    }

    pub(super) fn mood(mood: Mood, said: &str) -> Self {
        let said = shorten(said);
        let message = match mood {
            Mood::Denied => format!("`{said}` says what not to do: say what to do"),
            Mood::Asked => format!("`{said}` only asks about an action: say it as an order"),
            Mood::Hypothetical => format!("`{said}` is no order yet: say it as an order"),
            _ => format!("`{said}` only tells something: say what to do as an order"),
        };
        // A query that seems to tell something is often a request in unusual words.
        let is_certain = matches!(mood, Mood::Denied | Mood::Asked | Mood::Hypothetical);
        Self { is_certain, ..Self::new(message) }
    }

    pub(super) fn missing(tool: &Tool, slots: &[&Slot], said: &str) -> Self {
        let name = |slot: &&Slot| {
            let about = slot.description.split(['\n', ';']).next().unwrap_or_default();
            let about = about.split(", e.g.").next().and_then(|about| about.split(". ").next());
            match about.map(|about| about.trim_end_matches('.')) {
                None | Some("") => format!("`{}`", slot.path()),
                Some(about) => format!("`{}` ({about})", slot.path()),
            }
        };
        let advice = match slots.first() {
            Some(slot) if slot.is_slashed => "in owner/repo".to_owned(),
            slot => format!("with {} …", slot.map(|slot| slot.cue()).unwrap_or_default()),
        };
        let names: Vec<String> = slots.iter().map(name).collect();
        let (names, verb) = (names.join(" and "), if names.len() == 1 { "is" } else { "are" });
        let (own, said) = (&tool.name, shorten(said));
        let message = format!("{names} of `{own}` {verb} missing in `{said}`: add `{advice}`");
        let nearest_tool = Some(tool.name.clone());
        Self { nearest_tool, is_certain: true, ..Self::new(message) }
    }

    pub(super) fn condition(said: &str) -> Self {
        Self::new(format!(
            "no tool can check the condition `{}`: leave it out, or write the plan as JSON with `when`",
            shorten(said)
        ))
    }

    pub(super) fn no_list(tool: &Tool, said: &str) -> Self {
        let (said, order) = (shorten(said), &tool.order);
        Self::new(format!("no tool lists the items of `{said}`: name each item, as in `{order} …`"))
    }

    pub(super) fn unplaced(tool: &Tool, words: &str, said: &str) -> Self {
        Self::new(format!(
            "`{words}` has no place in `{}`: say it as `{} …`, and put texts between quotation marks",
            shorten(said),
            tool.order
        ))
    }

    pub(super) fn too_many_words(count: usize, most: usize) -> Self {
        Self::new(format!(
            "the query has {count} words and marks without a join such as `then`; the limit is {most}: split it, or put texts between quotation marks"
        ))
    }
}

fn shorten(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
