//! Cuts a query into clauses, and reads the mood of each clause: `close issue 4` is an order, and
//! `don't close issue 4` is a denial.

use super::{
    lexicon::{FoundPhrase, Lexicon},
    token::{Token, TokenKind},
    tool::Tool,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Order,
    Question,
    /// The clause does not begin with a verb that the planner knows, such as `heating to 17`.
    Fragment,
    Denied,
    Asked,
    Hypothetical,
    Reported,
    Condition,
}

#[derive(Clone, Debug)]
pub(super) struct Verb {
    pub(super) stem: String,
    pub(super) places: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) tokens: Vec<Token>,
    pub(super) is_negated: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub(super) tokens: Vec<Token>,
    pub(super) mood: Mood,
    pub(super) verb: Option<Verb>,
    pub(super) condition: Option<Condition>,
    pub(super) each: Option<Vec<Token>>,
    pub(super) is_next: bool,
}

impl Clause {
    pub(super) fn question(tokens: Vec<Token>) -> Self {
        Self {
            tokens,
            mood: Mood::Question,
            verb: None,
            condition: None,
            each: None,
            is_next: false,
        }
    }

    pub(super) fn verb_places(&self) -> &[usize] {
        self.verb.as_ref().map_or(&[], |verb| &verb.places)
    }

    pub(super) fn has_value(&self) -> bool {
        self.tokens.iter().any(Token::is_value)
    }
}

pub(super) struct ClauseReader<'a> {
    pub(super) lexicon: &'a Lexicon,
    pub(super) tools: &'a [Tool],
}

impl ClauseReader<'_> {
    pub(super) fn read(&self, tokens: &[Token]) -> Vec<Clause> {
        let tokens = &join_each(tokens);
        let mut clauses: Vec<Clause> = Vec::new();
        let mut is_next = false;
        for piece in self.cut_pieces(tokens) {
            let Some(mut clause) = self.read_piece(&piece) else {
                // Words such as `Once that is done,` only mean that the next clause comes after the
                // earlier clauses.
                is_next |= piece.len() > 3;
                continue;
            };
            clause.is_next |= std::mem::take(&mut is_next);
            // In `If X, do Y`, the condition belongs to the clause `do Y`.
            if let Some(last) = clauses.last_mut().filter(|last| last.mood == Mood::Condition) {
                *last = Clause { condition: last.condition.take(), ..clause };
                continue;
            }
            clauses.push(clause);
        }
        self.attach_statements(clauses)
    }

    /// Completes an order or a question without a value from the clause before it, if all earlier
    /// clauses are statements, denials or fragments: `don't close issue 4, just show it`, `her new
    /// address is X. Please update`.
    fn attach_statements(&self, clauses: Vec<Clause>) -> Vec<Clause> {
        let is_value = |token: &Token| token.is_value() && token.kind != TokenKind::Quoted;
        let is_it = |token: &Token| token.is_any(&["it", "them"]);
        let is_known = |pair: &[Token]| pair[0].is("the") && self.is_tool_noun(&pair[1].stem);
        let is_told =
            |told: &Clause| matches!(told.mood, Mood::Reported | Mood::Denied | Mood::Fragment);
        let mut attached: Vec<Clause> = Vec::new();
        for mut clause in clauses {
            let is_small = |(at, token): (usize, &Token)| {
                clause.verb_places().contains(&at)
                    || token.kind == TokenKind::Mark
                    || self.lexicon.is_filler(token)
            };
            let refers = clause.tokens.iter().enumerate().all(is_small)
                || clause.tokens.iter().any(is_it)
                || clause.tokens.windows(2).any(is_known);
            let is_open = matches!(clause.mood, Mood::Order | Mood::Question)
                && refers
                && !clause.tokens.iter().any(is_value);
            if let Some(told) = attached.last().filter(|told| told.tokens.iter().any(is_value))
                && is_open
                && attached.iter().all(is_told)
            {
                clause.tokens.retain(|token| !is_it(token));
                let is_topic = |token: &Token| is_value(token) || self.is_tool_noun(&token.stem);
                let start = told.tokens.iter().position(is_topic).unwrap_or_default();
                let before = start.checked_sub(1);
                let before = before.filter(|at| self.lexicon.is_preposition(&told.tokens[*at]));
                clause.tokens.extend_from_slice(&told.tokens[before.unwrap_or(start)..]);
            }
            attached.push(clause);
        }
        attached
    }

    fn cut_pieces(&self, tokens: &[Token]) -> Vec<Vec<Token>> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut at = 0;
        while at < tokens.len() {
            if self.is_boundary(tokens, start, at) {
                pieces.push(tokens[start..at].to_vec());
                start = at;
                // Keeps the joining word in the piece, because the word shows whether the piece
                // comes after the piece before it.
                at += 1 + usize::from(tokens[at].is_mark(",") && at + 1 < tokens.len());
                while self.lexicon.joins.find(tokens, at).is_some() {
                    at += 1;
                }
                continue;
            }
            at += 1;
        }
        pieces.push(tokens[start..].to_vec());
        pieces.retain(|piece| piece.iter().any(|token| token.kind != TokenKind::Mark));
        pieces
    }

    /// Returns whether a place is inside a text without quotation marks, such as the words after
    /// `saying`.
    fn is_in_text(&self, tokens: &[Token], start: usize, at: usize) -> bool {
        (start + 1..at.max(2) - 1).any(|place| {
            let token = &tokens[place];
            let rest = &tokens[place + 1..at];
            // After `about`, the words are mostly a filter and not a text.
            let is_cue = token.kind == TokenKind::Word
                && self.lexicon.is_cue_of(token, "text")
                && !token.is("about")
                && (place > start + 1 || !self.is_tool_noun(&token.stem));
            let behind = tokens[place + 1..].iter().find(|token| token.kind != TokenKind::Mark);
            is_cue
                && behind.is_some_and(|token| token.kind != TokenKind::Quoted)
                && rest.iter().all(|token| token.kind != TokenKind::Quoted)
                && !rest[0].is_any(&["of", "as", "on", "to"])
        })
    }

    fn is_boundary(&self, tokens: &[Token], start: usize, at: usize) -> bool {
        let is_text = self.is_in_text(tokens, start, at);
        if self.ends_sentence(tokens, start, at, is_text) {
            return true;
        }
        if at == start || self.is_in_each(tokens, start, at) {
            return false;
        }
        let has_comma = tokens[at].is_mark(",");
        let comma = usize::from(has_comma);
        let join = self.lexicon.joins.find(tokens, at + comma);
        let len = comma + join.map_or(0, |found| found.len);
        if len == 0 {
            return false;
        }
        let is_and = join.is_none_or(|found| is_and(found.key));
        let is_also = |found: &FoundPhrase<'_>| found.key == "also";
        if let Some(second) = self.lexicon.joins.find(tokens, at + len)
            && is_and
            && !self::is_and(second.key)
        {
            let next = at + len + second.len;
            return is_also(&second) || self.begins_order(tokens, next, is_text);
        }
        if !is_and {
            return !join.as_ref().is_some_and(is_also) && at + len < tokens.len();
        }
        let next = self.skip_fillers(tokens, at + len);
        let is_denied =
            self.lexicon.moods.find(tokens, next).is_some_and(|found| found.key == "denied");
        let begins = self.begins_order(tokens, next, is_text);
        let ends_condition = has_comma && !is_text && self.is_condition(tokens, start);
        let has_order = |place| self.begins_order(tokens, place, true);
        let is_condition = self.is_condition(tokens, next)
            && !is_text
            && (next + 2..tokens.len())
                .take_while(|place| !tokens[*place].is_any(&[".", "!", "?"]))
                .any(has_order);
        is_denied || is_condition || begins && (!is_text || has_comma) || ends_condition
    }

    fn ends_sentence(&self, tokens: &[Token], start: usize, at: usize, is_text: bool) -> bool {
        let token = &tokens[at];
        if token.is_any(&[".", "!", "?", "…"]) {
            let next = skip_marks(tokens, at);
            !is_text || next == tokens.len() || self.begins_order(tokens, next, true)
        } else if token.is_mark(":") {
            !self.begins_order(tokens, start, false) && self.begins_order(tokens, at + 1, true)
        } else {
            token.is_any(&[";", "\n"])
        }
    }

    /// Returns whether the comma is between `for each X` and the action that follows. In that case,
    /// the loop and the action are one piece.
    fn is_in_each(&self, tokens: &[Token], start: usize, at: usize) -> bool {
        let first = skip_marks(tokens, start).min(at);
        let found = self.lexicon.loops.find(tokens, first);
        tokens[at].is_mark(",")
            && found.is_some_and(|found| found.key.starts_with("for "))
            && !(first + 3..at).any(|place| self.begins_order(tokens, place, true))
    }

    fn is_condition(&self, tokens: &[Token], start: usize) -> bool {
        let found = self.lexicon.conditions.find(tokens, start);
        found.is_some_and(|found| matches!(found.key, "if" | "unless"))
    }

    fn skip_fillers(&self, tokens: &[Token], at: usize) -> usize {
        let mut at = at;
        let polite = |at| self.lexicon.moods.find(tokens, at).filter(|found| found.key == "polite");
        while let Some(found) = polite(at).or_else(|| self.lexicon.soft_words.find(tokens, at)) {
            at += found.len;
        }
        at
    }

    /// Returns whether a request for an action begins at a place. A word that is also a noun needs
    /// an object after it. If `is_strict` is set, every verb needs an object.
    pub(super) fn begins_order(&self, tokens: &[Token], at: usize, is_strict: bool) -> bool {
        let at = self.skip_fillers(tokens, at);
        let Some(token) = tokens.get(at) else { return false };
        if !self.is_verb(token) {
            return false;
        }
        let is_noun = self.is_tool_noun(&token.stem) || self.lexicon.is_noun(&token.stem);
        // After `create …`, `label it X` sets a value of the new object.
        let state = self.lexicon.file.states.get(&token.lower);
        let is_behind_mark = at > 0 && tokens[at - 1].kind == TokenKind::Mark;
        let sets_value = state.is_some_and(|state| state.ends_with('s')) && is_behind_mark;
        if sets_value && tokens.get(at + 1).is_some_and(|next| next.is("it")) {
            return false;
        }
        let next = tokens.get(at + 1);
        if !is_strict && !is_noun {
            return true;
        }
        next.is_some_and(|next| match next.kind {
            TokenKind::Word => {
                self.begins_object(tokens, at + 1)
                    || self.is_tool_noun(&next.stem) && (!is_noun || !is_strict)
            }
            TokenKind::Mark => false,
            TokenKind::Quoted => is_noun || !is_strict,
            _ => true,
        })
    }

    pub(super) fn begins_object(&self, tokens: &[Token], at: usize) -> bool {
        let Some(token) = tokens.get(at) else { return false };
        let is_between = self.lexicon.is_preposition(token)
            || self.lexicon.joins.find(tokens, at).is_some()
            || self.lexicon.moods.find(tokens, at).is_some();
        self.lexicon.is_filler(token) && !is_between
            || token.is_any(&["on", "for"])
            || self.lexicon.loops.has(&token.lower)
            || self.lexicon.small_number(&token.lower).is_some()
    }

    fn is_tool_noun(&self, word: &str) -> bool {
        self.tools.iter().any(|tool| {
            tool.has_noun(word, self.lexicon) || self.lexicon.is_compound_of(word, &tool.nouns)
        })
    }

    fn is_verb(&self, token: &Token) -> bool {
        let word = token.lower.as_str();
        // `closes`, `closed` and `closing` do not ask for an action.
        let is_plural =
            word.ends_with('s') && token.stem.len() < word.len() && !word.ends_with("ss");
        let is_inflected = is_plural || word.ends_with("ing") || word.ends_with("ed");
        let is_known = !self.lexicon.concepts(&token.stem).is_empty()
            || self.tools.iter().any(|tool| tool.verb == token.stem)
            || self.lexicon.file.states.contains_key(word)
            || self.lexicon.is_phrasal(&token.stem);
        token.kind == TokenKind::Word && is_known && !is_inflected
    }

    fn read_piece(&self, piece: &[Token]) -> Option<Clause> {
        let mut tokens: Vec<Token> = piece.to_vec();
        let mut is_next = false;
        loop {
            if let Some(found) = self.lexicon.joins.find(&tokens, 0) {
                is_next |=
                    !matches!(found.key, "and" | "&" | "also" | "but" | "plus" | "otherwise");
                tokens.drain(..found.len);
            } else if tokens.first().is_some_and(|token| token.kind == TokenKind::Mark) {
                tokens.remove(0);
            } else {
                break;
            }
        }
        while tokens.last().is_some_and(|token| {
            token.kind == TokenKind::Mark && !matches!(token.value.as_str(), "\"" | ")")
        }) {
            tokens.pop();
        }
        if tokens.is_empty() {
            return None;
        }
        let mut clause = Clause { mood: Mood::Fragment, is_next, ..Clause::question(tokens) };
        self.take_condition(&mut clause);
        if clause.mood == Mood::Condition {
            return Some(clause);
        }
        self.take_each(&mut clause);
        clause.mood = self.read_mood(&clause.tokens);
        if matches!(clause.mood, Mood::Order | Mood::Question) {
            let start = self.skip_fillers(&clause.tokens, 0);
            let verb = clause.tokens.get(start).filter(|token| self.is_verb(token));
            clause.verb = verb.map(|_| read_verb(self.lexicon, &clause.tokens, start));
        }
        Some(clause)
    }

    fn take_condition(&self, clause: &mut Clause) {
        let tokens = std::mem::take(&mut clause.tokens);
        let start = self.skip_fillers(&tokens, 0);
        let found = (start..tokens.len()).find_map(|at| {
            let found = self.lexicon.conditions.find(&tokens, at)?;
            let is_condition = matches!(found.key, "if" | "unless")
                && !(at > start && tokens[at].is("when"))
                && !self.is_in_text(&tokens, 0, at);
            is_condition.then_some((at, found))
        });
        // `what would happen if` does not begin the condition of an action.
        let is_possible = |at: &usize| *at == start || self.begins_order(&tokens, start, false);
        let Some((at, found)) = found.filter(|(at, _)| is_possible(at)) else {
            clause.tokens = tokens;
            return;
        };
        let is_negated = found.key == "unless";
        let rest = &tokens[at + found.len..];
        let is_said = rest.iter().any(|token| !self.lexicon.is_filler(token));
        // `when X close Y` has no comma, so the action begins at a verb with an object.
        let follows = |place: &usize| {
            let before = &rest[place - 1];
            self.begins_order(rest, *place, true)
                && before.kind != TokenKind::Mark
                && !self.lexicon.is_filler(before)
                && !before.is_any(&["not", "no"])
        };
        let order = if at > start { None } else { (2..rest.len()).find(follows) };
        let condition = rest[..order.unwrap_or(rest.len())].to_vec();
        if at == start && order.is_none() {
            clause.mood = Mood::Condition;
        } else {
            clause.tokens = order.map_or(&tokens[..at], |order| &rest[order..]).to_vec();
        }
        if is_said || at == start {
            clause.condition = Some(Condition { tokens: condition, is_negated });
        }
    }

    fn take_each(&self, clause: &mut Clause) {
        let tokens = &clause.tokens;
        let found = self.lexicon.loops.find(tokens, 0);
        let Some(found) = found.filter(|found| found.key.starts_with("for ")) else { return };
        let mut places = found.len + 1..tokens.len();
        let order = places.find(|at| self.begins_order(tokens, *at, false));
        if let Some(order) = order {
            let end = order - usize::from(tokens[order - 1].kind == TokenKind::Mark);
            clause.each = Some(tokens[found.len..end].to_vec());
            clause.tokens = tokens[order..].to_vec();
        }
    }

    fn read_mood(&self, tokens: &[Token]) -> Mood {
        let start = self.skip_fillers(tokens, 0);
        let mut is_question = false;
        for (at, token) in tokens.iter().enumerate() {
            let found = self.lexicon.moods.find(tokens, at);
            let is_early = at <= start + 1;
            match found.map_or("", |found| found.key) {
                "denied" if at <= start + 3 && !self.begins_order(tokens, start, false) => {
                    return Mood::Denied;
                }
                "asked" if is_early => return Mood::Asked,
                "hypothetical" if is_early || token.is("thinking") => return Mood::Hypothetical,
                "reported" if is_early && !self.begins_order(tokens, start, false) => {
                    return Mood::Reported;
                }
                "questions" if at == start => is_question = true,
                _ => {}
            }
        }
        let first = tokens.get(start);
        let asks = ["can", "could", "may", "might", "should", "shall"];
        if first.is_some_and(|token| token.is_any(&asks)) {
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
        // Finds statements such as `it's cold` and `the draft is done`, which ask for nothing.
        let is_told = (start..tokens.len()).any(|at| {
            let found = self.lexicon.moods.find(tokens, at);
            let base = tokens[at].lower.split_once('\'').map_or("", |(base, _)| base);
            found.is_some_and(|found| found.key == "questions")
                || tokens[at].is_any(&["had", "will", "should"])
                || tokens[at].kind == TokenKind::Word && self.lexicon.fillers.contains(base)
        });
        if is_told { Mood::Reported } else { Mood::Fragment }
    }
}

fn join_each(tokens: &[Token]) -> Vec<Token> {
    let mut joined: Vec<Token> = Vec::new();
    for token in tokens {
        if token.is_any(&["them", "these", "those"])
            && let [.., each, of] = joined.as_slice()
            && each.is_any(&["each", "every"])
            && of.is("of")
        {
            joined.truncate(joined.len() - 2);
        }
        joined.push(token.clone());
    }
    joined
}

fn skip_marks(tokens: &[Token], at: usize) -> usize {
    (at..tokens.len()).find(|place| tokens[*place].kind != TokenKind::Mark).unwrap_or(tokens.len())
}

fn is_and(join: &str) -> bool {
    matches!(join, "and" | "&")
}

/// Reads the word at a place as a verb. Adds a particle, such as `off` in `turn the lights off`.
pub(super) fn read_verb(lexicon: &Lexicon, tokens: &[Token], at: usize) -> Verb {
    let stem = &tokens[at].stem;
    let near = tokens.iter().enumerate().skip(at + 1).take(5);
    let mut words = near.take_while(|(_, token)| token.kind == TokenKind::Word);
    let phrasal = words.find_map(|(place, particle)| {
        let stem = format!("{stem} {}", particle.lower);
        let is_known = !lexicon.concepts(&stem).is_empty();
        is_known.then(|| Verb { stem, places: vec![at, place] })
    });
    phrasal.unwrap_or_else(|| Verb { stem: stem.clone(), places: vec![at] })
}
