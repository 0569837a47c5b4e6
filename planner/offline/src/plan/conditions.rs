//! Plans conditions in words. Finds the step whose output has the fact of the condition, and writes
//! an expression about this output.

use super::{
    Planning,
    steps::{Call, end_range},
};
use crate::{
    clause::{Clause, Condition},
    fill::Reading,
    memory::Parameters,
    refusal::Refusal,
    token::{Token, TokenKind, number, stem},
    tool::{Output, OutputKind, SlotKind, Tool},
};

struct Fact {
    step: Option<usize>,
    reading: Reading,
    /// The expression. `{}` stands for the step's id.
    expression: String,
}

struct Statement {
    tokens: Vec<Token>,
    comparison: Option<(String, f64)>,
    is_negated: bool,
    /// `true` if the statement only says that something exists, or that nothing exists: `there are
    /// open issues`, `I have no events`.
    is_existence: bool,
}

impl Planning<'_> {
    /// Plans `if X, do Y`: a step that reads the fact, unless an earlier step has it, and the
    /// action with `when`.
    pub(super) fn plan_condition(
        &mut self,
        clause: &Clause,
        condition: &Condition,
    ) -> Result<(), Refusal> {
        let mut main = Clause { condition: None, ..clause.clone() };
        let action = self.readings(&main, &|_| true).into_iter().next();
        let shared = action.map(|reading| reading.first_call(&self.tools[reading.tool]));
        let fact = self
            .read_fact(condition, shared.as_ref())
            .ok_or_else(|| Refusal::condition(&self.words(&condition.tokens)))?;
        let step = fact.step.unwrap_or_else(|| {
            let tool = &self.tools[fact.reading.tool];
            let mut parameters = fact.reading.first_call(tool);
            end_range(tool, &mut parameters);
            let (tool, is_next) = (fact.reading.tool, clause.is_next);
            self.add_step(Call { tool, parameters, is_next, ..Call::default() })
        });
        self.last = if fact.step.is_none() { vec![step] } else { std::mem::take(&mut self.last) };
        self.inherit_words(&mut main);
        let when = fact.expression.replace("{}", &self.memory.steps[step].id);
        let readings = self.readings(&main, &|_| true);
        self.note_clause(&main, &readings);
        let best = readings.into_iter().next();
        let mut best = best.ok_or_else(|| Refusal::nothing_fits(&self.words(&main.tokens)))?;
        let known = self.memory.steps[step].parameters.clone();
        self.inherit_values(&mut best, Some(&known));
        self.add_reading(&Clause { is_next: false, ..main }, best, Some(&when))
    }

    fn read_fact(&self, condition: &Condition, shared: Option<&Parameters>) -> Option<Fact> {
        let statement = self.read_statement(condition);
        let clause = Clause::question(statement.tokens.clone());
        // `it is zero` and `there are none` refer to the output of an earlier step.
        let is_small = |token: &Token| self.lexicon.is_filler(token) || token.is("are");
        let is_pronoun =
            |token: &Token| self.lexicon.is_pronoun(token) || token.is_any(&["it's", "there"]);
        let mut words = clause.tokens.iter().filter(|token| token.kind == TokenKind::Word);
        let refers =
            if statement.is_existence { words.all(is_small) } else { words.any(is_pronoun) };
        let mut steps = self.memory.steps.iter().enumerate().rev();
        let known = steps.find_map(|(at, step)| {
            let expression = self.write_expression(&statement, &self.tools[step.tool])?;
            Some(Fact { step: Some(at), reading: Reading::default(), expression })
        });
        if known.is_some() && refers && !clause.has_value() {
            return known;
        }
        let reads =
            |tool: &Tool| !tool.has_effect && self.write_expression(&statement, tool).is_some();
        let reading = self.known_reading(self.readings(&clause, &reads), shared)?;
        let expression = self.write_expression(&statement, &self.tools[reading.tool])?;
        Some(Fact { step: None, reading, expression })
    }

    fn read_statement(&self, condition: &Condition) -> Statement {
        let is_not = |token: &Token| token.is("not") || token.lower.ends_with("n't");
        let tokens = &condition.tokens;
        let mut statement = Statement {
            tokens: Vec::new(),
            comparison: None,
            is_negated: condition.is_negated ^ tokens.iter().any(is_not),
            is_existence: false,
        };
        let mut has_none = false;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let found = self.lexicon.conditions.find(tokens, at);
            let key = found.map_or("", |found| found.key);
            let behind = at + found.map_or(1, |found| found.len);
            let number = tokens
                .get(behind)
                .filter(|token| token.kind == TokenKind::Number && key.starts_with(['<', '>']))
                .and_then(|token| number(&token.value)?.as_f64());
            if let Some(value) = number {
                statement.comparison = Some((key.to_owned(), value));
                at = behind;
            }
            has_none |= key == "none";
            // In `warmer than 22`, the word `warmer` tells which number is compared.
            if key != "none" && !is_not(token) {
                statement.tokens.push(token.clone());
            }
            at += 1;
        }
        let is_thing = statement.copula().is_some_and(|at| at + 1 < statement.tokens.len());
        let begins_with_there = tokens.first().is_some_and(|token| token.is("there"));
        statement.is_existence =
            statement.comparison.is_none() && (begins_with_there || has_none && is_thing);
        if has_none && statement.is_existence {
            statement.is_negated ^= true;
        } else if has_none && statement.comparison.is_none() {
            statement.comparison = Some(("==".to_owned(), 0.0));
        }
        statement
    }

    /// Returns the best reading that names its tool, an id or a choice, and has all required
    /// values. `shared` are parameters that it may have in common with another call.
    pub(super) fn known_reading(
        &self,
        mut readings: Vec<Reading>,
        shared: Option<&Parameters>,
    ) -> Option<Reading> {
        for reading in &mut readings {
            self.inherit_values(reading, shared);
        }
        readings.sort_by(|a, b| b.score.total_cmp(&a.score));
        readings.into_iter().find(|reading| {
            let mut slots = reading.fillings.keys().map(|at| &self.tools[reading.tool].slots[*at]);
            let is_named = slots.any(|slot| matches!(slot.kind, SlotKind::Id | SlotKind::Choice));
            (reading.has_noun || is_named) && reading.missing_slots.is_empty()
        })
    }

    fn write_expression(&self, statement: &Statement, tool: &Tool) -> Option<String> {
        let is_scalar =
            |output: &&Output| output.kind != OutputKind::List && output.kind != OutputKind::Object;
        let scalars: Vec<&Output> = tool.outputs.iter().filter(is_scalar).collect();
        let is_negated = statement.is_negated;
        if statement.is_existence {
            let sign = if is_negated { "== 0" } else { "> 0" };
            return Some(format!("size({{}}.{}) {sign}", tool.list()?.path));
        }
        if let Some((sign, value)) = &statement.comparison {
            let text =
                format!("{{}}.{} {sign} {value}", self.compared_output(statement, &scalars)?);
            return Some(if is_negated { format!("!({text})") } else { text });
        }
        let predicate = self.predicate(statement)?;
        let is_flag = |output: &&&Output| {
            output.kind == OutputKind::Flag && output.words.contains(&predicate.stem)
        };
        if let Some(flag) = scalars.iter().find(is_flag) {
            let sign = if is_negated { "!" } else { "" };
            return Some(format!("{sign}{{}}.{}", flag.path));
        }
        let is_state = |output: &&&Output| {
            let mut words = output.words.iter();
            output.kind == OutputKind::Text
                && words.any(|word| self.lexicon.is_same_noun(word, "status"))
        };
        let state = scalars.iter().find(is_state)?;
        let slots = self.tools.iter().flat_map(|tool| &tool.slots);
        let mut choices = slots
            .filter(|slot| slot.words.iter().any(|word| state.words.contains(word)))
            .flat_map(|slot| &slot.choices);
        let choice = choices.find(|choice| stem(&choice.to_lowercase()) == predicate.stem)?;
        let sign = if is_negated { "!=" } else { "==" };
        Some(format!("{{}}.{} {sign} \"{choice}\"", state.path))
    }

    fn compared_output<'t>(
        &self,
        statement: &Statement,
        scalars: &[&'t Output],
    ) -> Option<&'t str> {
        let is_number = |output: &&&Output| output.kind == OutputKind::Number;
        let numbers: Vec<&&Output> = scalars.iter().filter(is_number).collect();
        let said = |word: &String| {
            statement.tokens.iter().any(|token| {
                self.lexicon.is_same_noun(word, &token.stem) || token.stem.starts_with(&**word)
            })
        };
        let named = numbers.iter().find(|output| output.words.iter().any(said));
        let only = if let [only] = numbers.as_slice() { Some(only) } else { None };
        named.or(only).map(|output| output.path.as_str())
    }

    fn predicate<'s>(&self, statement: &'s Statement) -> Option<&'s Token> {
        let behind = statement.copula()? + 1;
        let mut words = statement.tokens[behind..].iter().rev();
        words.find(|token| self.lexicon.is_content(token))
    }
}

impl Statement {
    fn copula(&self) -> Option<usize> {
        let words = ["is", "are", "was", "were", "has", "have"];
        self.tokens.iter().position(|token| token.is_any(&words))
    }
}
