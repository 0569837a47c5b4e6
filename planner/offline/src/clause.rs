//! Clauses: the parts of a query that ask for one thing each, with their moods.

use super::{
    lexicon::Lexicon,
    token::{Kind, Token},
};

/// How a clause speaks of its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It orders something.
    Order,
    /// It asks for information. Only tools that read can answer.
    Question,
    /// It has no verb, such as `heating to 17`.
    Fragment,
    /// It says what is not to be done.
    Denied,
    /// It asks whether or how to act.
    Asked,
    /// It speaks of an action that nobody ordered.
    Hypothetical,
    /// It only tells something.
    Reported,
    /// It is the condition of the next clause.
    Condition,
}

/// The verb of a clause.
#[derive(Clone, Debug)]
pub(super) struct Verb {
    /// Its stem, with the particle.
    pub(super) stem: String,
    /// The places of its words in the clause.
    pub(super) places: Vec<usize>,
}

/// A condition in words.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) tokens: Vec<Token>,
    pub(super) is_negated: bool,
}

/// A part of a query that asks for one thing.
#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub(super) tokens: Vec<Token>,
    pub(super) mood: Mood,
    pub(super) verb: Option<Verb>,
    pub(super) condition: Option<Condition>,
    /// The words behind `for each`, if the clause begins with them.
    pub(super) each: Option<Vec<Token>>,
    /// The clause follows `otherwise`.
    pub(super) is_otherwise: bool,
    /// The clause follows `then`.
    pub(super) is_next: bool,
}

/// Reads clauses.
pub(super) struct Reader<'a> {
    pub(super) lexicon: &'a Lexicon,
    /// Returns whether a stem is the verb of an available tool.
    pub(super) is_tool_verb: &'a dyn Fn(&str) -> bool,
    /// Returns whether a stem is a noun of an available tool.
    pub(super) is_tool_noun: &'a dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    /// Cuts a query into clauses.
    pub(super) fn read(&self, tokens: &[Token]) -> Vec<Clause> {
        let mut clauses: Vec<Clause> = Vec::new();
        let mut is_next = false;
        for piece in self.cut(tokens) {
            let Some(mut clause) = self.read_piece(&piece) else {
                // `Once that is done,` stands alone.
                is_next |= piece.len() > 3;
                continue;
            };
            clause.is_next |= std::mem::take(&mut is_next);
            // `In acme/site, create …`
            let is_place = clauses.last().is_some_and(|last| {
                last.mood == Mood::Fragment
                    && last.tokens.len() > 1
                    && self.lexicon.prepositions.contains_key(&last.tokens[0].lower)
            });
            if is_place && clause.mood == Mood::Order {
                let place = clauses.pop().expect("there is a last clause");
                clause.tokens.extend(place.tokens);
            }
            let last = clauses.last_mut();
            if let Some(last) = last
                && last.mood == Mood::Condition
            {
                let is_fragment = clause.mood == Mood::Fragment && clause.condition.is_none();
                if is_fragment && clause.verb.is_none() {
                    last.tokens.extend(clause.tokens);
                    continue;
                }
                let condition = last.condition.take();
                let merged = Clause { condition, ..clause };
                *last = merged;
                continue;
            }
            clauses.push(clause);
        }
        self.join_bare_verbs(clauses)
    }

    /// Joins a clause that has only a verb with the next one (`squash and merge PR 8`), or with what
    /// was told before (`her new address is X. Please update`).
    fn join_bare_verbs(&self, clauses: Vec<Clause>) -> Vec<Clause> {
        let is_bare = |clause: &Clause| {
            clause.mood == Mood::Order
                && clause.verb.is_some()
                && clause.each.is_none()
                && clause.tokens.iter().enumerate().all(|(at, token)| {
                    clause.verb.as_ref().is_some_and(|verb| verb.places.contains(&at))
                        || token.kind == Kind::Mark
                        || self.lexicon.fillers.has(&token.lower)
                            && !self.lexicon.pronouns.has(&token.lower)
                })
        };
        let clauses = self.attach_told(clauses);
        let mut joined: Vec<Clause> = Vec::new();
        let mut pending: Vec<Token> = Vec::new();
        let count = clauses.len();
        for (at, mut clause) in clauses.into_iter().enumerate() {
            if !pending.is_empty() {
                let verb = clause.verb.as_ref().map(|verb| verb.places.len()).unwrap_or_default();
                let insert = verb.min(clause.tokens.len());
                let rest = clause.tokens.split_off(insert);
                clause.tokens.append(&mut pending);
                clause.tokens.extend(rest);
            }
            if is_bare(&clause) {
                let told =
                    joined.pop_if(|last| matches!(last.mood, Mood::Reported | Mood::Fragment));
                if let Some(told) = told {
                    clause.tokens.extend(told.tokens);
                } else if at + 1 < count {
                    pending = clause.tokens;
                    continue;
                }
            }
            joined.push(clause);
        }
        joined
    }

    /// Adds what was told or denied before to an order that refers to it: `don't close issue 4, just
    /// show it`.
    fn attach_told(&self, clauses: Vec<Clause>) -> Vec<Clause> {
        let is_value =
            |token: &Token| !matches!(token.kind, Kind::Word | Kind::Mark | Kind::Quoted);
        let mut attached: Vec<Clause> = Vec::new();
        for mut clause in clauses {
            let refers = clause.tokens.iter().any(|token| token.is_any(&["it", "them"]));
            let has_value = clause.tokens.iter().any(is_value);
            let is_order = matches!(clause.mood, Mood::Order | Mood::Question);
            let is_first = attached
                .iter()
                .all(|other| matches!(other.mood, Mood::Reported | Mood::Denied | Mood::Fragment));
            if refers
                && !has_value
                && is_order
                && is_first
                && let Some(told) = attached.last()
                && told.tokens.iter().any(is_value)
            {
                let start = told
                    .tokens
                    .iter()
                    .position(|token| is_value(token) || (self.is_tool_noun)(&token.stem));
                clause.tokens.retain(|token| !token.is_any(&["it", "them"]));
                let start = start.unwrap_or_default();
                let before = start
                    .checked_sub(1)
                    .filter(|at| self.lexicon.prepositions.contains_key(&told.tokens[*at].lower));
                clause.tokens.extend_from_slice(&told.tokens[before.unwrap_or(start)..]);
            }
            attached.push(clause);
        }
        attached
    }

    /// Cuts at the ends of sentences, at joins, and where another order begins.
    fn cut(&self, tokens: &[Token]) -> Vec<Vec<Token>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut at = 0;
        while at < tokens.len() {
            let is_text = self.is_in_text(tokens, start, at);
            if self.boundary(tokens, start, at, is_text).is_some() {
                pieces.push(tokens[start..at].to_vec());
                start = at;
                // The join stays: it says whether the piece waits for the one before.
                at += 1 + usize::from(tokens[at].is_mark(",") && at + 1 < tokens.len());
                while self.lexicon.joins.find(tokens, at).is_some() {
                    at += 1;
                }
                continue;
            }
            at += 1;
        }
        pieces.push(tokens[start..].to_vec());
        pieces.retain(|piece| piece.iter().any(|token| token.kind != Kind::Mark));
        pieces
    }

    /// Returns whether a place is inside a text without quotation marks: behind `saying`.
    fn is_in_text(&self, tokens: &[Token], start: usize, at: usize) -> bool {
        let cues = &self.lexicon.cues["text"];
        (start..at).rev().any(|place| {
            let token = &tokens[place];
            // `about X` is mostly a filter.
            let is_cue = token.kind == Kind::Word
                && cues.contains(&token.lower)
                && !token.is("about")
                && (place > start + 1 || !(self.is_tool_noun)(&token.stem));
            let behind = tokens[place + 1..].iter().find(|token| token.kind != Kind::Mark);
            is_cue
                && place > start
                && place + 1 < at
                && behind.is_some_and(|token| token.kind != Kind::Quoted)
                && !tokens[place + 1..at].iter().any(|token| token.kind == Kind::Quoted)
                && !tokens
                    .get(place + 1)
                    .is_some_and(|token| token.is_any(&["of", "as", "on", "to"]))
        })
    }

    /// Returns how many tokens are left out where a new piece begins at `at`.
    fn boundary(&self, tokens: &[Token], start: usize, at: usize, is_text: bool) -> Option<usize> {
        let token = &tokens[at];
        if token.kind == Kind::Mark && at >= start {
            match token.value.as_str() {
                "." | "!" | "?" | "…" => {
                    let next = self.skip_marks(tokens, at);
                    let goes_on =
                        is_text && next < tokens.len() && !self.begins_order(tokens, next, true);
                    return (!goes_on).then_some(1);
                }
                ";" | "\n" => return Some(1),
                ":" => {
                    let has_verb =
                        self.begins_order(tokens, self.skip_fillers(tokens, start), false);
                    return (!has_verb && self.begins_order(tokens, at + 1, true)).then_some(1);
                }
                _ => {}
            }
        }
        if at == start {
            return None;
        }
        // `for each X, do Y` is one piece.
        let first = (start..at).find(|place| tokens[*place].kind != Kind::Mark).unwrap_or(at);
        let is_each = self
            .lexicon
            .loops
            .find(tokens, first)
            .is_some_and(|found| found.key.starts_with("for "));
        if is_each
            && token.is_mark(",")
            && !(first + 3..at).any(|place| self.begins_order(tokens, place, true))
        {
            return None;
        }
        // A separator, perhaps with a join behind it.
        let comma = usize::from(token.is_mark(","));
        let join = self.lexicon.joins.find(tokens, at + comma);
        let mut len = comma + join.map_or(0, |found| found.len);
        if len == 0 {
            return None;
        }
        let is_and = join.is_none_or(|found| matches!(found.key, "and" | "&"));
        if let Some(second) = self.lexicon.joins.find(tokens, at + len).filter(|_| is_and) {
            if !matches!(second.key, "and" | "&") {
                let len = len + second.len;
                let next = self.skip_fillers(tokens, at + len);
                return (self.begins_order(tokens, next, is_text) || second.key == "also")
                    .then_some(len);
            }
        }
        let is_strong =
            !is_and && join.is_some_and(|found| found.key != "next" && found.key != "also");
        if is_strong {
            return (at + len < tokens.len()).then_some(len);
        }
        if join.is_some_and(|found| found.key == "also") {
            return None;
        }
        let next = self.skip_fillers(tokens, at + len);
        if self.lexicon.moods.find(tokens, next).is_some_and(|found| found.key == "denied") {
            return Some(len);
        }
        let is_condition = tokens.get(start).is_some_and(|_| {
            self.lexicon
                .conditions
                .find(tokens, start)
                .is_some_and(|found| matches!(found.key, "if" | "unless"))
        });
        if comma == 1 && is_condition && !is_text {
            return Some(len);
        }
        if self.begins_order(tokens, next, is_text) && (!is_text || comma == 1) {
            if len == 0 {
                len = 1;
            }
            return Some(len);
        }
        // `…, heating to 17`: another noun with a value, without a verb.
        let is_other = tokens.get(next).is_some_and(|token| {
            token.kind == Kind::Word
                && (self.is_tool_noun)(&token.stem)
                && tokens.get(next + 1).is_some_and(|token| token.is("to"))
                && tokens.get(next + 2).is_some_and(|token| token.kind == Kind::Number)
        });
        (is_other && comma == 1 && !is_text).then_some(len)
    }

    fn skip_marks(&self, tokens: &[Token], at: usize) -> usize {
        (at..tokens.len()).find(|place| tokens[*place].kind != Kind::Mark).unwrap_or(tokens.len())
    }

    /// Skips words before a verb: `please`, `also`, `could you`.
    fn skip_fillers(&self, tokens: &[Token], at: usize) -> usize {
        let mut at = at;
        loop {
            let polite = self.lexicon.moods.find(tokens, at).filter(|found| found.key == "polite");
            let is_soft = tokens.get(at).is_some_and(|token| {
                token.kind == Kind::Word && self.lexicon.soft.has(&token.lower)
            });
            match polite {
                Some(found) => at += found.len,
                None if is_soft => at += 1,
                None => return at,
            }
        }
    }

    /// Returns whether an order begins at a place. A word that is also a noun needs an object
    /// behind it, and so does every verb if `is_strict`.
    fn begins_order(&self, tokens: &[Token], at: usize, is_strict: bool) -> bool {
        let at = self.skip_fillers(tokens, at);
        let Some(token) = tokens.get(at) else { return false };
        if !self.is_verb(token) {
            return false;
        }
        // `label it X` behind `create …` sets a value of what is created.
        let is_value =
            self.lexicon.states.get(&token.lower).is_some_and(|state| state.ends_with('s'));
        if is_value
            && is_followed(tokens, at, &["it"])
            && at > 0
            && tokens[at - 1].kind == Kind::Mark
        {
            return false;
        }
        // `Order A-1 was cancelled` tells something.
        let is_told = is_followed(tokens, at + 1, &["was", "is", "has", "were"]);
        if is_told && self.lexicon.is_noun(&token.stem) | (self.is_tool_noun)(&token.stem) {
            return false;
        }
        let next = tokens.get(at + 1);
        let is_noun = (self.is_tool_noun)(&token.stem) || self.lexicon.is_noun(&token.stem);
        if !is_strict && !is_noun {
            return true;
        }
        next.is_some_and(|next| match next.kind {
            Kind::Word => {
                next.is_any(&[
                    "the", "a", "an", "it", "its", "my", "this", "that", "them", "him", "both",
                    "her", "me", "each", "every", "all", "on", "up", "for", "one", "two",
                ]) || (self.is_tool_noun)(&next.stem) && (!is_noun || !is_strict)
            }
            Kind::Mark => false,
            Kind::Quoted => is_noun || !is_strict,
            _ => true,
        })
    }

    fn is_verb(&self, token: &Token) -> bool {
        token.kind == Kind::Word
            && !token.lower.ends_with("ing")
            && !(token.lower.ends_with('s')
                && token.stem.len() < token.lower.len()
                && !token.lower.ends_with("ss"))
            && !token.lower.ends_with("ed")
            && (!self.lexicon.concepts(&token.stem).is_empty()
                || (self.is_tool_verb)(&token.stem)
                || self.lexicon.states.contains_key(&token.lower)
                || self.lexicon.is_phrasal(&token.stem))
    }

    fn read_piece(&self, piece: &[Token]) -> Option<Clause> {
        let mut tokens: Vec<Token> = piece.to_vec();
        let mut is_otherwise = false;
        let mut is_next = false;
        loop {
            if let Some(found) = self.lexicon.joins.find(&tokens, 0) {
                is_otherwise |= found.key == "otherwise";
                is_next |=
                    !matches!(found.key, "and" | "&" | "also" | "but" | "plus" | "otherwise");
                tokens.drain(..found.len);
            } else if tokens.first().is_some_and(|token| token.kind == Kind::Mark) {
                tokens.remove(0);
            } else {
                break;
            }
        }
        while tokens.last().is_some_and(|token| {
            token.kind == Kind::Mark && !matches!(token.value.as_str(), "\"" | ")")
        }) {
            tokens.pop();
        }
        if tokens.is_empty() {
            return None;
        }
        let mut clause = Clause {
            tokens,
            mood: Mood::Fragment,
            verb: None,
            condition: None,
            each: None,
            is_otherwise,
            is_next,
        };
        self.take_condition(&mut clause);
        if clause.mood == Mood::Condition {
            return Some(clause);
        }
        self.take_each(&mut clause);
        clause.mood = self.read_mood(&clause.tokens);
        if matches!(clause.mood, Mood::Order | Mood::Question) {
            let start = self.skip_fillers(&clause.tokens, 0);
            clause.verb = self.verb_at(&clause.tokens, start);
        }
        Some(clause)
    }

    /// Returns the verb that stands at a place.
    pub(super) fn verb_at(&self, tokens: &[Token], at: usize) -> Option<Verb> {
        let token = tokens.get(at).filter(|token| self.is_verb(token))?;
        if let Some((particle, place)) = self.lexicon.particle(tokens, at) {
            let with = format!("{} {particle}", token.stem);
            if !self.lexicon.concepts(&with).is_empty() {
                return Some(Verb { stem: with, places: vec![at, place] });
            }
        }
        Some(Verb { stem: token.stem.clone(), places: vec![at] })
    }

    /// Takes a condition out of a clause: `if X`, or `… in case X` at its end.
    fn take_condition(&self, clause: &mut Clause) {
        let tokens = &clause.tokens;
        let start = self.skip_fillers(tokens, 0);
        let found = (start..tokens.len()).find_map(|at| {
            let found = self.lexicon.conditions.find(tokens, at)?;
            let is_condition = matches!(found.key, "if" | "unless");
            let is_word = at > start && tokens[at].is("when");
            (is_condition && !is_word && !self.is_in_text(tokens, 0, at)).then_some((at, found))
        });
        let Some((at, found)) = found else { return };
        // `what would happen if` is no condition of an order.
        if at > start && !self.begins_order(tokens, start, false) {
            return;
        }
        let is_negated = found.key == "unless";
        let end = at + found.len;
        if at > start && tokens[end..].iter().all(|token| self.lexicon.fillers.has(&token.lower)) {
            clause.tokens.truncate(at);
            return;
        }
        if at > start {
            let condition = tokens[end..].to_vec();
            clause.tokens.truncate(at);
            clause.condition = Some(Condition { tokens: condition, is_negated });
            return;
        }
        let rest = tokens[end..].to_vec();
        // `when X close Y` without a comma: the order begins at a verb with an object.
        let order = (2..rest.len()).find(|place| {
            self.begins_order(&rest, *place, true)
                && rest[place - 1].kind != Kind::Mark
                && !rest[place - 1].is_any(&["is", "are", "not", "no", "the", "any", "a"])
                && !self.lexicon.prepositions.contains_key(&rest[place - 1].lower)
        });
        match order {
            Some(order) => {
                clause.tokens = rest[order..].to_vec();
                clause.condition = Some(Condition { tokens: rest[..order].to_vec(), is_negated });
            }
            None => {
                clause.mood = Mood::Condition;
                clause.tokens = Vec::new();
                clause.condition = Some(Condition { tokens: rest, is_negated });
            }
        }
    }

    /// Takes `for each X` from the front of a clause.
    fn take_each(&self, clause: &mut Clause) {
        let tokens = &clause.tokens;
        let Some(found) =
            self.lexicon.loops.find(tokens, 0).filter(|found| found.key.starts_with("for "))
        else {
            return;
        };
        let order = (found.len + 1..tokens.len()).find(|at| {
            let is_object = tokens[at - 1].kind == Kind::Word
                && (self.lexicon.prepositions.contains_key(&tokens[at - 1].lower)
                    || tokens[at - 1].is_any(&["the", "a", "open"]));
            !is_object && self.begins_order(tokens, *at, false)
        });
        if let Some(order) = order {
            let end = order - usize::from(tokens[order - 1].kind == Kind::Mark);
            clause.each = Some(tokens[found.len..end].to_vec());
            clause.tokens = tokens[order..].to_vec();
        }
    }

    fn read_mood(&self, tokens: &[Token]) -> Mood {
        let start = self.skip_fillers(tokens, 0);
        let mut at = 0;
        let mut is_question = false;
        while at < tokens.len() {
            let found = self.lexicon.moods.find(tokens, at);
            let is_early = at <= start + 1;
            match found.map(|found| found.key) {
                Some("denied") if self.is_denial(tokens, at, start) => return Mood::Denied,
                Some("asked") if is_early => return Mood::Asked,
                Some("hypothetical") if is_early || tokens[at].is("thinking") => {
                    return Mood::Hypothetical;
                }
                Some("reported") if is_early && !self.begins_order(tokens, start, false) => {
                    return Mood::Reported;
                }
                Some("questions") if at == start => is_question = true,
                _ => {}
            }
            at += 1;
        }
        let first = tokens.get(start);
        // `can an order be cancelled?`
        if first
            .is_some_and(|token| token.is_any(&["can", "could", "may", "might", "should", "shall"]))
        {
            return Mood::Asked;
        }
        if is_question {
            return Mood::Question;
        }
        if self.begins_order(tokens, start, false)
            || first.is_some_and(|token| self.is_verb(token) && start + 1 == tokens.len())
        {
            return Mood::Order;
        }
        let is_told = tokens.iter().skip(start).take(12).any(|token| {
            token.kind == Kind::Word
                && (token
                    .is_any(&["is", "was", "has", "have", "had", "are", "were", "will", "should"])
                    || token.lower.ends_with("'s") && token.is_any(&["it's", "that's", "there's"])
                    || token.lower.ends_with("'m"))
        });
        if is_told { Mood::Reported } else { Mood::Fragment }
    }

    /// Returns whether a denial forbids the action and is no part of a value.
    fn is_denial(&self, tokens: &[Token], at: usize, start: usize) -> bool {
        let is_first = at <= start + 3 && !self.begins_order(tokens, start, false);
        is_first || tokens[at].is("don't") && at <= start
    }
}

fn is_followed(tokens: &[Token], at: usize, words: &[&str]) -> bool {
    tokens.get(at + 1).is_some_and(|token| words.contains(&token.lower.as_str()))
}
