//! What a clause leaves out because an earlier one says it.

use serde_json::{Map, Value};

use super::Planning;
use crate::{
    clause::{Clause, Mood, Verb},
    fill::{Filling, Reading},
    token::Token,
    tool::SlotKind,
};

impl Planning<'_> {
    /// Gives a clause without a verb or a noun those of the clause before: `and the tree of /data`.
    pub(super) fn inherit_words(&self, clause: &mut Clause) {
        let has_noun = self.has_tool_noun(clause);
        if clause.mood == Mood::Fragment && clause.verb.is_none() {
            self.inherit_verb(clause, has_noun);
        }
        // `show me what is still open`, `create one`: the noun is that of the step before.
        let one = clause.tokens.iter().position(|token| token.is("one"));
        let has_pronoun = clause.tokens.iter().any(|token| self.lexicon.is_pronoun(token));
        if has_noun || one.is_none() && (has_pronoun || clause.has_value()) {
            return;
        }
        let last = self.memory.steps.last();
        let Some(noun) = last.and_then(|step| self.tools[step.tool].nouns.first()) else { return };
        match one {
            Some(at) => {
                let word = Token::inserted(noun, clause.tokens[at].start);
                clause.tokens[at] = Token { end: clause.tokens[at].end, ..word };
            }
            None => {
                let end = clause.tokens.last().map_or(0, |token| token.end);
                clause.tokens.push(Token::inserted(noun, end));
            }
        }
    }

    fn inherit_verb(&self, clause: &mut Clause, has_noun: bool) {
        let Some(previous) = &self.previous else { return };
        let Some(verb) = &previous.verb else {
            clause.mood = previous.mood;
            return;
        };
        // `lights off` and `heating to 17` need no verb.
        let has_particle = clause.tokens.iter().any(|token| {
            let mut particles = self.tools.iter().filter_map(|tool| tool.verb.split(' ').nth(1));
            particles.any(|particle| particle == token.lower)
        });
        let is_set = has_noun && clause.tokens.iter().any(|token| token.is("to"));
        if has_particle || is_set {
            return;
        }
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

    /// Takes a missing id from the step before, as a guess: `reopen issue 3 and add the comment X`.
    pub(super) fn guess_id(&self, reading: &mut Reading) {
        let ([last], [slot]) = (self.last.as_slice(), reading.missing.as_slice()) else { return };
        let own = &self.tools[reading.tool].slots[*slot];
        let value = self.memory.steps[*last].parameters.get(&own.parameter);
        if let Some(value) = value.filter(|_| own.kind == SlotKind::Id) {
            reading.fillings.insert(*slot, Filling::One(value.clone()));
            reading.guessed.push(*slot);
            reading.missing.clear();
        }
    }
}
