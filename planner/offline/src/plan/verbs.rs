use super::Planning;
use crate::{
    clause::{Clause, Mood, Verb},
    fill::VerbFit,
    tool::Tool,
};

/// Returns whether a concept only reads. A verb that reads fits the tools of all these concepts.
pub(crate) fn is_read(concept: &str) -> bool {
    matches!(concept, "get" | "list" | "search" | "tree")
}

impl Planning<'_> {
    pub(crate) fn verb_fit<'b>(&'b self, clause: &'b Clause, tool: &Tool) -> VerbFit<'b> {
        let none = VerbFit::default();
        let Some(verb) = &clause.verb else {
            return VerbFit { score: self.fit_without_verb(clause, tool), ..none };
        };
        if clause.mood == Mood::Question && tool.has_effect {
            return none;
        }
        if verb.stem == tool.verb {
            return VerbFit { score: self.weights.verb, ..none };
        }
        let word = clause.tokens.get(verb.places[0]).map_or("", |token| token.lower.as_str());
        let target = self.lexicon.file.states.get(word).map(String::as_str);
        let has_choice = |state: &&str| {
            let mut choices = tool.slots.iter().flat_map(|slot| &slot.choices);
            tool.has_effect && choices.any(|choice| choice == state)
        };
        if let Some(state) = target.filter(has_choice) {
            return VerbFit { score: self.weights.described, state: Some(state) };
        }
        let score = self
            .fit_of_description(verb, tool)
            .max(self.fit_of_concepts(verb, tool))
            .max(self.fit_of_noun(verb, tool));
        VerbFit { score, ..none }
    }

    fn fit_without_verb(&self, clause: &Clause, tool: &Tool) -> f32 {
        let weights = self.weights;
        let is_said = |word: &str| clause.tokens.iter().any(|token| token.is(word));
        if clause.mood == Mood::Question {
            return if tool.has_effect { 0.0 } else { weights.reads };
        }
        let particle = tool.verb.split(' ').nth(1);
        if particle.is_some_and(is_said) {
            weights.synonym
        } else if tool.has_effect && !(tool.verb == "set" && is_said("to")) {
            0.0
        } else {
            weights.related
        }
    }

    fn fit_of_description(&self, verb: &Verb, tool: &Tool) -> f32 {
        let Some(place) = tool.about.iter().position(|about| *about == verb.stem) else {
            return 0.0;
        };
        let before = place.checked_sub(1).map(|before| tool.about[before].as_str());
        let is_verb = before.is_none_or(|before| matches!(before, "or" | "and"));
        if is_verb { self.weights.described } else { 0.0 }
    }

    fn fit_of_concepts(&self, verb: &Verb, tool: &Tool) -> f32 {
        let concepts = self.lexicon.concepts(&verb.stem);
        let own = self.lexicon.concepts(&tool.verb);
        let reads = |concepts: &[String]| concepts.iter().any(|concept| is_read(concept));
        if concepts.contains(&tool.verb) {
            self.weights.synonym
        } else if reads(concepts) && (is_read(&tool.verb) || reads(own))
            || own.iter().any(|own| concepts.contains(own))
            || tool.about.first().is_some_and(|about| concepts.contains(about))
        {
            self.weights.akin
        } else {
            0.0
        }
    }

    /// Scores a verb that names what the tool makes: `email X` for `send_email`.
    fn fit_of_noun(&self, verb: &Verb, tool: &Tool) -> f32 {
        let makes =
            self.lexicon.means(&tool.verb, "creat") || self.lexicon.means(&tool.verb, "send");
        let is_noun = tool.nouns.iter().any(|noun| self.lexicon.is_noun_of_verb(noun, &verb.stem));
        if makes && is_noun && tool.has_effect { self.weights.described } else { 0.0 }
    }
}
