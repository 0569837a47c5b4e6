//! Clauses that are several calls: `move A to B and C to D`, and copies of files.

use super::Planning;
use crate::{
    clause::{Clause, Verb},
    fill::Reading,
    token::{Token, TokenKind, stem},
    tool::Tool,
};

type Parts = [(Clause, Reading); 2];

impl Planning<'_> {
    /// Splits a clause into two calls of one tool, if one call leaves words without a place or
    /// lacks a value. The second part repeats the verb, or the noun of a question.
    pub(super) fn split(&self, clause: &Clause, best: &Reading) -> Option<Parts> {
        let tool = &self.tools[best.tool];
        let verb = clause.verb_places();
        let is_noun = |token: &Token| {
            token.kind == TokenKind::Word && tool.has_noun(&token.stem, self.lexicon)
        };
        if best.unplaced_tokens.is_empty() && best.missing_slots.is_empty() {
            return None;
        }
        let noun = clause.tokens.iter().position(is_noun);
        let head: Vec<usize> =
            if clause.verb.is_some() { verb.to_vec() } else { noun.into_iter().collect() };
        let start = head.iter().max()? + 1;
        let repeated = head.iter().copied().chain(noun.filter(|_| clause.verb.is_some()));
        let repeated: Vec<Token> = repeated.map(|at| clause.tokens[at].clone()).collect();
        let second_verb = clause
            .verb
            .as_ref()
            .map(|verb| Verb { stem: verb.stem.clone(), places: (0..head.len()).collect() });
        let separators = (start + 1..clause.tokens.len().saturating_sub(1))
            .filter(|at| clause.tokens[*at].is_separator());
        for at in separators {
            let first = Clause { tokens: clause.tokens[..at].to_vec(), ..clause.clone() };
            let mut tokens = repeated.clone();
            tokens.extend_from_slice(&clause.tokens[at + 1..]);
            let second = Clause { tokens, verb: second_verb.clone(), ..clause.clone() };
            if let Some(parts) = self.read_parts(first, second, tool) {
                return Some(parts);
            }
        }
        None
    }

    fn read_parts(&self, first: Clause, second: Clause, tool: &Tool) -> Option<Parts> {
        let is_same = |other: &Tool| other.name == tool.name;
        let read = |clause: &Clause| self.readings(clause, &is_same).into_iter().next();
        let (mut one, mut two) = (read(&first)?, read(&second)?);
        let is_both = one.fillings.iter().any(|(slot, filling)| {
            tool.slots[*slot].is_required
                && two.fillings.get(slot).is_some_and(|other| other != filling)
        });
        let (known, later) = (one.first_call(tool), two.first_call(tool));
        self.inherit_values(&mut one, Some(&later));
        self.inherit_values(&mut two, Some(&known));
        let is_full = |reading: &Reading| {
            reading.missing_slots.is_empty() && reading.unplaced_tokens.is_empty()
        };
        let is_split = is_both && is_full(&one) && is_full(&two);
        is_split.then_some([(first, one), (second, two)])
    }

    /// Turns `copy A to B` into a call that reads and a call that writes, if no tool copies.
    pub(super) fn rewrite_copies(&self, clauses: Vec<Clause>) -> Vec<Clause> {
        let has_copy = self.tools.iter().any(|tool| self.lexicon.means(&tool.verb, "copi"));
        let rewrite = |clause: Clause| self.rewrite_copy(&clause, has_copy).unwrap_or(vec![clause]);
        clauses.into_iter().flat_map(rewrite).collect()
    }

    fn rewrite_copy(&self, clause: &Clause, has_copy: bool) -> Option<Vec<Clause>> {
        let verb = clause.verb.as_ref()?;
        let is_write = self.lexicon.means(&verb.stem, "write");
        let copy = clause.tokens.iter().position(|token| token.is("copy"));
        if let Some(at) = copy.filter(|at| is_write && *at > 0 && !has_copy) {
            let mut clause = clause.clone();
            clause.tokens.splice(at - 1..=at, [Token::inserted("it", clause.tokens[at].start)]);
            return Some(vec![clause]);
        }
        let is_copy = self.lexicon.means(&verb.stem, "copi") && !has_copy
            || self.lexicon.means(&verb.stem, "write");
        let has_text = clause.tokens.iter().any(|token| token.kind == TokenKind::Quoted);
        let is_path = |at: &usize| clause.tokens[*at].kind == TokenKind::Path;
        let mut paths = (0..clause.tokens.len()).filter(is_path);
        let (Some(_), Some(second), None) = (paths.next(), paths.next(), paths.next()) else {
            return None;
        };
        let at = (0..second).rev().find(|at| clause.tokens[*at].is_any(&["to", "as", "into"]));
        let at = at.filter(|_| is_copy && !has_text)?;
        let head = |word: &str, tokens: &[Token]| {
            let mut all = vec![Token::inserted(word, tokens.first().map_or(0, |near| near.start))];
            all.extend_from_slice(tokens);
            let verb = Some(Verb { stem: stem(word), places: vec![0] });
            Clause { tokens: all, verb, ..clause.clone() }
        };
        let behind = verb.places.iter().max().map_or(0, |place| place + 1);
        let read = head("read", &clause.tokens[behind..at]);
        let mut write = head("write", &clause.tokens[at..]);
        write.tokens.insert(1, Token::inserted("it", clause.tokens[at].start));
        Some(vec![read, Clause { condition: None, is_next: false, ..write }])
    }
}
