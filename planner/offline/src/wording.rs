//! Decides whether a query orders a call, for checks of plans that another planner wrote.

use std::collections::BTreeSet;

use planner::catalog::Catalog;
use shared::tool::ToolDefinition;

use super::{
    MAX_TOKENS,
    clause::{Clause, ClauseReader, Mood, read_verb},
    lexicon::{Lexicon, english},
    moment::find_moments,
    plan::{Planning, is_read},
    read_tools,
    token::{Token, TokenKind, number, tokens},
    tool::{SlotKind, Tool},
    weights::Weights,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Ordered,
    Denied,
    Asked,
    Supposed,
    Reported,
    Conditional,
    Unsaid,
}

/// A query whose clauses were read, so that calls can be checked against it.
pub struct Wording<'a> {
    query: &'a str,
    tokens: Vec<Token>,
    clauses: Vec<Clause>,
    nouns: BTreeSet<String>,
    lexicon: &'a Lexicon,
}

impl<'a> Wording<'a> {
    /// Reads a query for plans with tools of `catalog`. A query of more than 2,000 words and marks
    /// has no clauses, because reading it would take too long.
    pub fn read(query: &'a str, catalog: &Catalog) -> Self {
        let lexicon = english();
        let tools = read_tools(catalog);
        let said = tokens(query);
        let mut corrected = if said.len() > MAX_TOKENS { Vec::new() } else { said.clone() };
        let known = tools.iter().flat_map(Tool::words).cloned().collect();
        lexicon.correct_words(&mut corrected, &known);
        let clauses = ClauseReader { lexicon, tools: &tools }.read(&corrected);
        let clauses = join_fragments(clauses, lexicon);
        let nouns = tools.iter().flat_map(|tool| tool.nouns.iter().cloned()).collect();
        Self { query, tokens: said, clauses, nouns, lexicon }
    }

    /// Returns how the query mentions a call, and the words of the query that decide this. `values`
    /// are words in lower case.
    pub fn standing(&self, tool: &ToolDefinition, values: &[String]) -> (Standing, String) {
        let tool = Tool::read(tool, tool.name.to_string(), self.lexicon);
        let fits = self.clauses.iter().filter(|clause| self.mentions_tool(clause, &tool));
        let best = fits.max_by_key(|clause| {
            let is_same = |token: &Token, value: &str| token.lower.trim_start_matches('#') == value;
            let has_value =
                |value: &&String| clause.tokens.iter().any(|token| is_same(token, value));
            (values.iter().filter(has_value).count(), clause.mood == Mood::Order)
        });
        let Some(clause) = best else { return (Standing::Unsaid, self.query.to_owned()) };
        let standing = match clause.mood {
            Mood::Denied => Standing::Denied,
            Mood::Asked | Mood::Question => Standing::Asked,
            Mood::Hypothetical => Standing::Supposed,
            Mood::Reported => Standing::Reported,
            Mood::Condition => Standing::Conditional,
            _ if clause.condition.is_some() || self.is_alternative(clause) => Standing::Conditional,
            Mood::Order | Mood::Fragment => Standing::Ordered,
        };
        (standing, self.text(clause))
    }

    /// Returns whether the query contains a number, a day or a time, perhaps in another form:
    /// `two`, `$20`.
    pub fn says_figure(&self, text: &str) -> bool {
        let figure = number(text).and_then(|figure| figure.as_f64());
        let is_figure = |token: &Token| {
            let small = self.lexicon.small_number(&token.lower);
            let small = small.and_then(|small| u32::try_from(small).ok()).map(f64::from);
            small.or_else(|| number(&token.value)?.as_f64()) == figure
        };
        let (said, written) = (find_moments(&self.tokens), find_moments(&tokens(text)));
        let is_moment = !written.is_empty()
            && written.iter().all(|moment| {
                (moment.day.is_none() || said.iter().any(|other| other.day == moment.day))
                    && (moment.time.is_none() || said.iter().any(|other| other.time == moment.time))
            });
        is_moment || figure.is_some() && self.tokens.iter().any(is_figure)
    }

    pub fn is_composed(&self, tool: &ToolDefinition, parameter: &str) -> bool {
        let tool = Tool::read(tool, String::new(), self.lexicon);
        tool.slots.iter().any(|slot| slot.parameter == parameter && slot.kind == SlotKind::Text)
    }

    fn mentions_tool(&self, clause: &Clause, tool: &Tool) -> bool {
        let means =
            |clause: &Clause| self.means_tool(clause, tool) && !self.has_other_object(clause, tool);
        // Only the main verb of an order counts. In the other moods, any word may be the verb.
        if clause.mood == Mood::Order {
            return means(clause);
        }
        let is_word = |at: &usize| clause.tokens[*at].kind == TokenKind::Word;
        let mut places = (0..clause.tokens.len()).filter(is_word);
        places.any(|at| means(&with_verb(clause, at, self.lexicon)))
    }

    fn means_tool(&self, clause: &Clause, tool: &Tool) -> bool {
        let Some(verb) = &clause.verb else { return false };
        let concepts = self.lexicon.concepts(&verb.stem);
        // `show` does not ask for a call with an effect.
        if verb.stem != tool.verb
            && !concepts.is_empty()
            && concepts.iter().all(|concept| is_read(concept))
        {
            return false;
        }
        let weights = Weights::default();
        Planning::new(self.query, self.lexicon, &[], &weights).verb_fit(clause, tool).score > 0.0
    }

    /// Returns whether the verb's object is a noun of other tools only: `delete the comment`, where
    /// the tool deletes customers.
    fn has_other_object(&self, clause: &Clause, tool: &Tool) -> bool {
        let start = clause.verb.iter().flat_map(|verb| &verb.places).max().map_or(0, |at| at + 1);
        let object = clause.tokens.iter().skip(start).take_while(|token| {
            token.kind != TokenKind::Mark
                && !self.lexicon.file.prepositions.contains_key(&token.lower)
        });
        let words: Vec<&Token> = object.filter(|token| token.kind == TokenKind::Word).collect();
        let is_own = |token: &&Token| {
            tool.has_noun(&token.stem, self.lexicon)
                || self.lexicon.is_compound_of(&token.stem, &tool.nouns)
                || tool.about.contains(&token.stem)
                || tool.slots.iter().any(|slot| slot.words.contains(&token.stem))
        };
        words.iter().any(|token| self.nouns.contains(&token.stem)) && !words.iter().any(is_own)
    }

    fn is_alternative(&self, clause: &Clause) -> bool {
        let start = clause.tokens.first().map_or(0, |token| token.start);
        let before = self.query.get(..start).unwrap_or_default().to_lowercase();
        before.trim_end_matches([' ', ',']).ends_with("otherwise")
    }

    fn text(&self, clause: &Clause) -> String {
        let condition = clause.condition.iter().flat_map(|condition| &condition.tokens);
        let tokens = || condition.clone().chain(&clause.tokens);
        let start = tokens().map(|token| token.start).min().unwrap_or_default();
        let end = tokens().map(|token| token.end).max().unwrap_or_default();
        self.query.get(start..end).unwrap_or_default().to_owned()
    }
}

/// Reads a fragment in two ways: as a part of the clause before it (`create A and B`), and as an
/// order with an unknown verb (`notify Bob`).
fn join_fragments(clauses: Vec<Clause>, lexicon: &Lexicon) -> Vec<Clause> {
    let is_content = |token: &Token| lexicon.is_content(token);
    let mut joined: Vec<Clause> = Vec::new();
    for mut clause in clauses {
        if clause.mood == Mood::Fragment {
            if let Some(last) = joined.last_mut().filter(|_| clause.condition.is_none()) {
                last.tokens.extend(clause.tokens.clone());
            }
            let verb = clause.tokens.iter().position(is_content);
            clause = verb.map_or(clause.clone(), |at| with_verb(&clause, at, lexicon));
        }
        joined.push(clause);
    }
    joined
}

fn with_verb(clause: &Clause, at: usize, lexicon: &Lexicon) -> Clause {
    let verb = Some(read_verb(lexicon, &clause.tokens, at));
    Clause { mood: Mood::Order, verb, ..clause.clone() }
}
