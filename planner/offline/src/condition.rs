//! Conditions in words, as the step that knows the fact and an expression about it.

use serde_json::{Map, Value};

use super::{
    clause::{Clause, Condition, Mood},
    fill::Reading,
    plan::Planning,
    token::{Kind, Token, number},
    tool::{Output, OutputKind, SlotKind, Tool},
};

/// A fact that a step knows.
pub(super) struct Fact {
    /// The earlier step that has it.
    pub(super) step: Option<usize>,
    /// The call that reads it, if no earlier step has it.
    pub(super) reading: Option<Reading>,
    /// The expression. `{}` stands for the step's id.
    pub(super) expression: String,
}

/// Reads a condition. `shared` are the parameters of the action, as far as they are known.
pub(super) fn read(
    planning: &Planning<'_>,
    condition: &Condition,
    shared: Option<&Map<String, Value>>,
    topic: &[Token],
) -> Option<Fact> {
    let lexicon = planning.lexicon;
    let tokens = &condition.tokens;
    let is_not = |token: &Token| token.is("not") || token.lower.ends_with("n't");
    let is_negated = condition.is_negated ^ tokens.iter().any(is_not);
    let mut comparison: Option<(String, f64)> = None;
    let mut has_none = false;
    let mut rest: Vec<Token> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let found = lexicon.conditions.find(tokens, at);
        match found.map(|found| (found.key, found.len)) {
            Some((key @ ("<" | ">" | "<=" | ">=" | "=="), len)) => {
                let value = tokens.get(at + len).and_then(|token| {
                    number(&token.value)
                        .and_then(|number| number.as_f64())
                        .filter(|_| token.kind == Kind::Number)
                });
                if let Some(value) = value {
                    comparison = Some((key.to_owned(), value));
                    // `warmer than` tells what is measured.
                    rest.extend(tokens[at..at + 1].iter().cloned());
                    at += len + 1;
                    continue;
                }
                rest.push(tokens[at].clone());
            }
            Some(("none", _)) => has_none = true,
            _ if is_not(&tokens[at]) => {}
            _ => rest.push(tokens[at].clone()),
        }
        at += 1;
    }
    let copula =
        rest.iter().position(|token| token.is_any(&["is", "are", "was", "were", "has", "have"]));
    let said: Vec<&Token> = rest
        .iter()
        .filter(|token| token.kind == Kind::Word && !lexicon.fillers.has(&token.lower))
        .collect();
    let predicate = copula.and_then(|at| {
        rest[at + 1..]
            .iter()
            .rev()
            .find(|token| token.kind == Kind::Word && !lexicon.fillers.has(&token.lower))
    });
    let is_existence =
        has_none && comparison.is_none() && copula.is_some_and(|at| at + 1 < rest.len())
            || rest.iter().take(1).any(|token| token.is("there"));
    let clause = Clause {
        tokens: rest.clone(),
        mood: Mood::Question,
        verb: None,
        condition: None,
        each: None,
        is_otherwise: false,
        is_next: false,
    };
    if is_existence {
        let readings = planning.readings(&clause, &|tool| !tool.acts && tool.list().is_some());
        let best = pick(planning, readings, shared)?;
        let path = &planning.tools[best.tool].list()?.path;
        let is_empty = has_none ^ condition.is_negated;
        let sign = if is_empty { "== 0" } else { "> 0" };
        return Some(Fact {
            step: None,
            reading: Some(best),
            expression: format!("size({{}}.{path}) {sign}"),
        });
    }
    if has_none && comparison.is_none() {
        comparison = Some(("==".to_owned(), 0.0));
    }
    let express = |tool: &Tool, is_negated: bool| {
        expression(planning, tool, comparison.as_ref(), predicate, &said, is_negated)
    };
    // `it is zero`: an earlier step knows it.
    let has_value = rest.iter().any(|token| !matches!(token.kind, Kind::Word | Kind::Mark));
    let has_pronoun = rest.iter().any(|token| lexicon.pronouns.has(&token.lower));
    if !has_value {
        let step = planning.memory.steps.iter().enumerate().rev().find_map(|(at, step)| {
            let expression = express(&planning.tools[step.tool], is_negated)?;
            let tool = &planning.tools[step.tool];
            let is_named = said.iter().any(|token| tool.has_noun(&token.stem, lexicon));
            (has_pronoun || is_named).then_some((at, expression))
        });
        if let Some((step, expression)) =
            step.filter(|_| topic.is_empty() || !planning.memory.steps.is_empty())
        {
            return Some(Fact { step: Some(step), reading: None, expression });
        }
    }
    // `it is already closed`: what the action is about.
    let mut clause = clause;
    if has_pronoun && !has_value {
        clause.tokens.extend(topic.iter().cloned());
    }
    let readings = planning.readings(&clause, &|tool| !tool.acts && express(tool, false).is_some());
    let best = pick(planning, readings, shared)?;
    let expression = express(&planning.tools[best.tool], is_negated)?;
    Some(Fact { step: None, reading: Some(best), expression })
}

/// Takes the best reading whose required values are known.
fn pick(
    planning: &Planning<'_>,
    mut readings: Vec<Reading>,
    shared: Option<&Map<String, Value>>,
) -> Option<Reading> {
    let is_known = |name: &String| {
        shared.is_some_and(|shared| shared.contains_key(name))
            || planning.memory.steps.iter().any(|step| step.parameters.contains_key(name))
    };
    readings.retain(|reading| {
        let tool = &planning.tools[reading.tool];
        let is_full = reading.missing.iter().all(|slot| is_known(&tool.slots[*slot].parameter));
        is_full
            && (reading.has_noun
                || reading.fillings.keys().any(|slot| tool.slots[*slot].kind == SlotKind::Id))
    });
    readings.into_iter().next()
}

fn expression(
    planning: &Planning<'_>,
    tool: &Tool,
    comparison: Option<&(String, f64)>,
    predicate: Option<&Token>,
    said: &[&Token],
    is_negated: bool,
) -> Option<String> {
    let lexicon = planning.lexicon;
    let scalars = || {
        tool.outputs
            .iter()
            .filter(|output| output.kind != OutputKind::List && output.kind != OutputKind::Object)
    };
    if let Some((sign, value)) = comparison {
        let numbers: Vec<&Output> =
            scalars().filter(|output| output.kind == OutputKind::Number).collect();
        let is_said = |output: &&&Output| {
            output.words.iter().any(|word| {
                said.iter().any(|token| {
                    lexicon.is_same_noun(word, &token.stem) || token.stem.starts_with(word.as_str())
                })
            })
        };
        let field = numbers.iter().find(is_said).or_else(|| match numbers.as_slice() {
            [only] => Some(only),
            _ => None,
        })?;
        let path = &field.path;
        let text = format!("{{}}.{path} {sign} {value}");
        return Some(if is_negated { format!("!({text})") } else { text });
    }
    let predicate = predicate?;
    let flag = scalars().find(|output| {
        output.kind == OutputKind::Flag && output.words.iter().any(|word| *word == predicate.stem)
    });
    if let Some(flag) = flag {
        let sign = if is_negated { "!" } else { "" };
        return Some(format!("{sign}{{}}.{}", flag.path));
    }
    let state = scalars().find(|output| {
        output.kind == OutputKind::Text
            && output.words.iter().any(|word| lexicon.is_same_noun(word, "status"))
    })?;
    let choices = planning
        .tools
        .iter()
        .flat_map(|tool| &tool.slots)
        .filter(|slot| slot.words.iter().any(|word| state.words.contains(word)));
    let choice = choices
        .flat_map(|slot| &slot.choices)
        .find(|choice| super::token::stem(&choice.to_lowercase()) == predicate.stem)?;
    let sign = if is_negated { "!=" } else { "==" };
    Some(format!("{{}}.{} {sign} \"{choice}\"", state.path))
}
