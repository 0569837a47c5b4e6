//! What a clause leaves out because an earlier one says it.

use serde_json::{Map, Value};

use super::Planning;
use crate::{
    clause::{Clause, Mood, Verb},
    fill::{Filling, Reading},
    token::Token,
};

impl Planning<'_> {
    /// Gives a clause without a verb or a noun those of the clause before: `and the tree of /data`.
    pub(super) fn inherit_words(&self, clause: &mut Clause) {
        let has_noun = self.has_tool_noun(clause);
        if clause.mood == Mood::Fragment && clause.verb.is_none() {
            self.inherit_verb(clause);
        }
        // `show me what is still open`, `create one`: the noun is that of the step before.
        let one = clause.tokens.iter().position(|token| token.is("one"));
        let has_pronoun = clause.tokens.iter().any(|token| self.lexicon.is_pronoun(token));
        if has_noun || one.is_none() && (has_pronoun || clause.has_value()) {
            return;
        }
        let last = self.memory.steps.last();
        let Some(noun) = last.and_then(|step| self.tools[step.tool].nouns.first()) else { return };
        let at = one.unwrap_or(clause.tokens.len());
        let near = clause.tokens.get(at).or(clause.tokens.last()).map_or(0, |token| token.end);
        let end = clause.tokens.len().min(at + 1);
        clause.tokens.splice(at..end, [Token::inserted(noun, near)]);
    }

    fn inherit_verb(&self, clause: &mut Clause) {
        let Some(previous) = &self.previous else { return };
        let Some(verb) = &previous.verb else {
            clause.mood = previous.mood;
            return;
        };
        let words: Vec<Token> =
            verb.places.iter().filter_map(|place| previous.tokens.get(*place).cloned()).collect();
        let places = (0..words.len()).collect();
        clause.tokens.splice(0..0, words);
        clause.verb = Some(Verb { stem: verb.stem.clone(), places });
        clause.mood = previous.mood;
    }

    /// Fills what is missing from `shared`, the parameters of a call that belongs to this one, and
    /// the repository from any earlier step.
    pub(super) fn inherit_values(
        &self,
        reading: &mut Reading,
        shared: Option<&Map<String, Value>>,
    ) {
        let tool = &self.tools[reading.tool];
        for at in std::mem::take(&mut reading.missing) {
            let slot = &tool.slots[at];
            let given = shared.and_then(|shared| shared.get(&slot.parameter));
            let mut steps = self.memory.steps.iter().rev().filter(|_| slot.is_slashed);
            let known = steps.find_map(|step| step.parameters.get(&slot.parameter));
            match given.or(known) {
                Some(value) => {
                    reading.score += self.weights.missing + self.weights.required;
                    reading.fillings.insert(at, Filling::One(value.clone()));
                }
                None => reading.missing.push(at),
            }
        }
    }
}
