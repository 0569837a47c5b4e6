//! Evaluates an expression. The evaluator of the crate `cel` copies outputs and cannot be stopped.
//! This evaluator borrows the outputs and counts every operation, so that an untrusted condition
//! cannot block a worker.

use std::{borrow::Cow, cmp::Ordering};

use regex::Regex;
use serde_json::Value;

use super::{
    ParsedSource,
    expr::{Expr, Key, Loop, LoopKind, Operator},
    fault::Fault,
    function::Function,
    number::{self, Number},
    pattern::Pattern,
    value::{Entries, List, Text, Val, ValueKind},
};
use crate::{
    limits,
    template::{LookUpValues, Target},
};

pub(super) type EvalResult<'a> = Result<Val<'a>, Fault<'a>>;

const BYTES_PER_OPERATION: usize = 32;

pub(super) struct Evaluation<'a> {
    targets: &'a [Target],
    values: &'a dyn LookUpValues,
    input: &'a Value,
    patterns: Vec<(&'a Pattern, Option<Regex>)>,
    locals: Vec<Val<'a>>,
    operations_left: usize,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(
        parsed: &'a ParsedSource,
        values: &'a dyn LookUpValues,
        input: &'a Value,
    ) -> Self {
        Self {
            targets: &parsed.targets,
            values,
            input,
            patterns: parsed.patterns.iter().map(|pattern| (pattern, None)).collect(),
            locals: Vec::new(),
            operations_left: limits::CONDITION_WORK,
        }
    }

    pub(super) fn eval_expr(&mut self, expr: &'a Expr) -> EvalResult<'a> {
        self.spend_operations(1)?;
        match expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(value) => Ok(Val::Bool(*value)),
            Expr::Integer(value) => Ok(Val::Integer(*value)),
            Expr::Double(value) => Ok(Val::Double(*value)),
            Expr::Text(text) => Ok(Val::Text(Text::Borrowed(text))),
            Expr::Type(kind) => Ok(Val::Type(*kind)),
            Expr::Target(index, _) => self.target_value(expr, *index),
            Expr::HasTarget(index) => Ok(Val::Bool(self.has_target(*index))),
            Expr::Input => Ok(Val::from_json(self.input)),
            Expr::Local(index, _) => Ok(self.locals.get(*index).cloned().unwrap_or(Val::Null)),
            Expr::Field(operand, key) => self.eval_field(operand, key),
            Expr::Has(operand, key) => self.eval_has(operand, key),
            Expr::Index(operand, index) => self.eval_index(operand, index),
            Expr::Not(operand) => self.eval_bool(operand).map(|value| Val::Bool(!value)),
            Expr::Negate(operand) => self.eval_negation(operand),
            Expr::And(left, right) => self.eval_logical(left, right, false),
            Expr::Or(left, right) => self.eval_logical(left, right, true),
            Expr::Choice(parts) => {
                let [when, then, otherwise] = &**parts;
                if self.eval_bool(when)? { self.eval_expr(then) } else { self.eval_expr(otherwise) }
            }
            Expr::Binary(operator, left, right) => self.eval_binary(*operator, left, right),
            Expr::Call(function, arguments) => self.eval_call(*function, arguments),
            Expr::Matches(operand, pattern) => self.eval_matches(operand, *pattern),
            Expr::List(items) => {
                let items = items.iter().map(|item| self.eval_expr(item));
                Ok(Val::from_items(items.collect::<Result<_, _>>()?))
            }
            Expr::Map(entries) => self.eval_map(entries),
            Expr::Loop(inner) => self.eval_loop(inner),
        }
    }

    pub(super) fn spend_operations(&mut self, operations: usize) -> Result<(), Fault<'a>> {
        let left = self.operations_left.checked_sub(operations);
        self.operations_left = left.unwrap_or(0);
        left.map(drop).ok_or(Fault::Exhausted)
    }

    pub(super) fn spend_on_text(&mut self, bytes: usize) -> Result<(), Fault<'a>> {
        self.spend_operations(bytes / BYTES_PER_OPERATION)
    }

    fn eval_bool(&mut self, operand: &'a Expr) -> Result<bool, Fault<'a>> {
        match self.eval_expr(operand)? {
            Val::Bool(value) => Ok(value),
            other => Err(Fault::Kind { operand, found_kind: other.kind(), needs: "true or false" }),
        }
    }

    /// Returns the output of a step, or null if the step failed or was skipped. For another target,
    /// returns its value, or fails if it has none.
    fn target_value(&mut self, expr: &'a Expr, index: usize) -> EvalResult<'a> {
        match (self.find_value(index), self.targets.get(index)) {
            (Some(found), _) => Ok(Val::from_json(found)),
            (None, Some(Target::Step(_))) => Ok(Val::Null),
            (None, _) => Err(Fault::NotFilled(expr)),
        }
    }

    fn find_value(&self, index: usize) -> Option<&'a Value> {
        self.values.find_value(self.targets.get(index)?)
    }

    fn has_target(&self, index: usize) -> bool {
        match (self.find_value(index), self.targets.get(index)) {
            (Some(found), Some(Target::Step(_))) => !found.is_null(),
            (found, _) => found.is_some(),
        }
    }

    fn eval_field(&mut self, operand: &'a Expr, key: &'a Key) -> EvalResult<'a> {
        let name = || Cow::Borrowed(key.name.as_str());
        match self.eval_expr(operand)? {
            Val::Map(entries) => self
                .look_up(&entries, &Val::Text(Text::Borrowed(&key.name)))?
                .ok_or_else(|| Fault::Missing { operand, key: name(), is_dotted: !key.is_quoted }),
            other => Err(Fault::NoFields { operand, found_kind: other.kind(), key: name() }),
        }
    }

    fn eval_has(&mut self, operand: &'a Expr, key: &'a Key) -> EvalResult<'a> {
        let Val::Map(entries) = self.eval_expr(operand)? else { return Ok(Val::Bool(false)) };
        let found = self.look_up(&entries, &Val::Text(Text::Borrowed(&key.name)))?;
        Ok(Val::Bool(found.is_some()))
    }

    fn look_up(
        &mut self,
        entries: &Entries<'a>,
        key: &Val<'a>,
    ) -> Result<Option<Val<'a>>, Fault<'a>> {
        self.spend_operations(entries.lookup_cost())?;
        self.spend_on_text(key.text_bytes().saturating_mul(1 + entries.lookup_cost()))?;
        Ok(entries.get(key))
    }

    fn eval_index(&mut self, operand: &'a Expr, index_operand: &'a Expr) -> EvalResult<'a> {
        let container = self.eval_expr(operand)?;
        let index = self.eval_expr(index_operand)?;
        match (container, &index) {
            (Val::List(list), Val::Integer(_) | Val::Double(_)) => {
                let position = as_integral(&index).ok_or(Fault::Kind {
                    operand: index_operand,
                    found_kind: index.kind(),
                    needs: "a whole number",
                })?;
                let item = usize::try_from(position).ok().and_then(|index| list.get(index));
                item.ok_or(Fault::TooShort { operand, index: position, length: list.len() })
            }
            (Val::List(_), _) => Err(Fault::Kind {
                operand: index_operand,
                found_kind: index.kind(),
                needs: "a place in a list",
            }),
            (Val::Map(entries), _) => self
                .look_up(&entries, &index)?
                .ok_or_else(|| Fault::Missing { operand, key: show_key(&index), is_dotted: false }),
            (other, _) => {
                Err(Fault::NoFields { operand, found_kind: other.kind(), key: show_key(&index) })
            }
        }
    }

    fn eval_negation(&mut self, operand: &'a Expr) -> EvalResult<'a> {
        match self.eval_expr(operand)? {
            Val::Double(number) => Ok(Val::Double(-number)),
            Val::Span(span) => Ok(Val::Span(-span)),
            Val::Integer(number) => {
                number::checked_integer(-number).map(Val::Integer).ok_or(Fault::Arithmetic {
                    operator: Operator::Subtract,
                    reason: "the result is too large",
                })
            }
            other => Err(Fault::Kind { operand, found_kind: other.kind(), needs: "a number" }),
        }
    }

    /// Evaluates `&&` or `||`. For `&&`, a side that is false decides the result, and for `||` a
    /// side that is true, even if the other side fails.
    fn eval_logical(
        &mut self,
        left: &'a Expr,
        right: &'a Expr,
        deciding_value: bool,
    ) -> EvalResult<'a> {
        let first = self.eval_bool(left);
        if matches!(first, Ok(value) if value == deciding_value)
            || matches!(first, Err(Fault::Exhausted))
        {
            return first.map(Val::Bool);
        }
        match self.eval_bool(right) {
            Ok(second) if second == deciding_value => Ok(Val::Bool(deciding_value)),
            Err(Fault::Exhausted) => Err(Fault::Exhausted),
            second => first.and(second).map(Val::Bool),
        }
    }

    fn eval_binary(
        &mut self,
        operator: Operator,
        left: &'a Expr,
        right: &'a Expr,
    ) -> EvalResult<'a> {
        let (first, second) = (self.eval_expr(left)?, self.eval_expr(right)?);
        self.spend_on_text(first.text_bytes().min(second.text_bytes()))?;
        let kinds = (first.kind(), second.kind());
        let result = match operator {
            Operator::Equal => Some(Val::Bool(self.are_equal(&first, &second)?)),
            Operator::NotEqual => Some(Val::Bool(!self.are_equal(&first, &second)?)),
            Operator::In => self.contains(&first, &second)?.map(Val::Bool),
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => compare_values(operator, &first, &second),
            _ => self.apply_arithmetic(operator, first, second)?,
        };
        result.ok_or(Fault::Operands { left: (left, kinds.0), operator, right: (right, kinds.1) })
    }

    /// Returns the result of the operation, or `None` if the operator does not accept values of
    /// these two kinds.
    fn apply_arithmetic(
        &mut self,
        operator: Operator,
        left: Val<'a>,
        right: Val<'a>,
    ) -> Result<Option<Val<'a>>, Fault<'a>> {
        if let (Some(left), Some(right)) = (as_number(&left), as_number(&right)) {
            let result = number::calculate(operator, left, right);
            let result = result.map_err(|error| Fault::Arithmetic { operator, reason: error })?;
            return Ok(Some(match result {
                Number::Integer(result) => Val::Integer(result),
                Number::Double(result) => Val::Double(result),
            }));
        }
        let result = match (operator, left, right) {
            (Operator::Add, Val::Text(left), Val::Text(right)) => {
                self.spend_operations((left.len() + right.len()) / 8)?;
                return Ok(Some(Val::from_text([&*left, &*right].concat())));
            }
            (Operator::Add, Val::List(left), Val::List(right)) => {
                self.spend_operations(left.len() + right.len())?;
                return Ok(Some(Val::from_items(left.iter().chain(right.iter()).collect())));
            }
            (Operator::Add, Val::Time(time), Val::Span(span))
            | (Operator::Add, Val::Span(span), Val::Time(time)) => {
                time.checked_add_signed(span).map(Val::Time)
            }
            (Operator::Subtract, Val::Time(time), Val::Span(span)) => {
                time.checked_sub_signed(span).map(Val::Time)
            }
            (Operator::Subtract, Val::Time(left), Val::Time(right)) => {
                Some(Val::Span(left - right))
            }
            (Operator::Add, Val::Span(left), Val::Span(right)) => {
                left.checked_add(&right).map(Val::Span)
            }
            (Operator::Subtract, Val::Span(left), Val::Span(right)) => {
                left.checked_sub(&right).map(Val::Span)
            }
            _ => return Ok(None),
        };
        let reason = "the result is outside the range of timestamps";
        result.map(Some).ok_or(Fault::Arithmetic { operator, reason })
    }

    pub(super) fn are_equal(&mut self, left: &Val<'a>, right: &Val<'a>) -> Result<bool, Fault<'a>> {
        self.spend_operations(1)?;
        match (left, right) {
            (Val::Null, Val::Null) => Ok(true),
            (Val::Type(left), Val::Type(right)) => Ok(left == right),
            (Val::List(left), Val::List(right)) => self.are_lists_equal(left, right),
            (Val::Map(left), Val::Map(right)) => self.are_maps_equal(left, right),
            (Val::Text(left), Val::Text(right)) if left.len() != right.len() => Ok(false),
            (left, right) => {
                self.spend_on_text(left.text_bytes().min(right.text_bytes()))?;
                Ok(left.order_with(right) == Some(Ordering::Equal))
            }
        }
    }

    fn are_lists_equal(&mut self, left: &List<'a>, right: &List<'a>) -> Result<bool, Fault<'a>> {
        if left.len() != right.len() {
            return Ok(false);
        }
        for (left, right) in left.iter().zip(right.iter()) {
            if !self.are_equal(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn are_maps_equal(
        &mut self,
        left: &Entries<'a>,
        right: &Entries<'a>,
    ) -> Result<bool, Fault<'a>> {
        if left.len() != right.len() {
            return Ok(false);
        }
        self.spend_operations(left.len())?;
        for key in left.keys() {
            let found = (self.look_up(left, &key)?, self.look_up(right, &key)?);
            let (Some(left), Some(right)) = found else { return Ok(false) };
            if !self.are_equal(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks for `item` in `container`. Returns `None` if `container` is neither a list nor a map.
    fn contains(&mut self, item: &Val<'a>, container: &Val<'a>) -> Result<Option<bool>, Fault<'a>> {
        match container {
            Val::List(list) => {
                for candidate in list.iter() {
                    if self.are_equal(item, &candidate)? {
                        return Ok(Some(true));
                    }
                }
                Ok(Some(false))
            }
            Val::Map(entries) => Ok(Some(self.look_up(entries, item)?.is_some())),
            _ => Ok(None),
        }
    }

    fn eval_call(&mut self, function: Function, arguments: &'a [Expr]) -> EvalResult<'a> {
        let values = arguments
            .iter()
            .map(|argument| self.eval_expr(argument))
            .collect::<Result<Vec<_>, _>>()?;
        self.spend_on_text(values.iter().map(Val::text_bytes).sum())?;
        if function.is_about_lists() {
            return self.call_list_function(function, arguments, &values);
        }
        let fault =
            |reason| Fault::Call { name: function.name(), operand: arguments.first(), reason };
        function.call(&values).map_err(fault)
    }

    fn eval_matches(&mut self, operand: &'a Expr, index: usize) -> EvalResult<'a> {
        let text = match self.eval_expr(operand)? {
            Val::Text(text) => text,
            other => {
                return Err(Fault::Kind { operand, found_kind: other.kind(), needs: "a string" });
            }
        };
        let pattern = self.patterns.get(index).map(|(pattern, _)| pattern);
        let cost = pattern.map_or(0, |pattern| pattern.match_cost(text.len()));
        self.spend_operations(cost)?;
        if let Some((pattern, None)) = self.patterns.get(index) {
            let pattern = *pattern;
            self.spend_operations(pattern.compile_cost())?;
            self.patterns[index].1 = pattern.compile();
        }
        let compiled = self.patterns.get(index).and_then(|(_, compiled)| compiled.as_ref());
        Ok(Val::Bool(compiled.is_some_and(|regex| regex.is_match(&text))))
    }

    fn eval_map(&mut self, entries: &'a [(Expr, Expr)]) -> EvalResult<'a> {
        let mut made: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.eval_expr(key)?;
            if !matches!(
                key.kind(),
                ValueKind::Bool | ValueKind::Integer | ValueKind::Unsigned | ValueKind::Text
            ) {
                return Err(Fault::Key { found_kind: key.kind(), is_duplicate: false });
            }
            self.spend_operations(made.len())?;
            self.spend_on_text(key.text_bytes().saturating_mul(made.len()))?;
            if made.iter().any(|(other, _)| other.order_with(&key) == Some(Ordering::Equal)) {
                return Err(Fault::Key { found_kind: key.kind(), is_duplicate: true });
            }
            made.push((key, self.eval_expr(value)?));
        }
        Ok(Val::Map(Entries::Owned(made.into())))
    }

    fn eval_loop(&mut self, expr: &'a Loop) -> EvalResult<'a> {
        let items = match self.eval_expr(&expr.range)? {
            Val::List(list) => list,
            Val::Map(entries) => {
                self.spend_operations(entries.len())?;
                List::Owned(entries.keys().into())
            }
            other => {
                let needs = "a list or an object";
                return Err(Fault::Kind { operand: &expr.range, found_kind: other.kind(), needs });
            }
        };
        match expr.kind {
            LoopKind::All => self.eval_quantifier(expr, &items, false),
            LoopKind::Exists => self.eval_quantifier(expr, &items, true),
            LoopKind::ExistsOne => {
                let mut found = 0;
                for item in items.iter() {
                    found +=
                        usize::from(self.with_local(&item, |this| this.eval_bool(&expr.test))?);
                }
                Ok(Val::Bool(found == 1))
            }
            LoopKind::Map => self.collect_items(expr, &items),
        }
    }

    /// Evaluates `all` as a series of `&&`, or `exists` as a series of `||`. See
    /// [`Self::eval_logical`].
    fn eval_quantifier(
        &mut self,
        expr: &'a Loop,
        items: &List<'a>,
        deciding_value: bool,
    ) -> EvalResult<'a> {
        let mut result = Ok(Val::Bool(!deciding_value));
        for item in items.iter() {
            match self.with_local(&item, |this| this.eval_bool(&expr.test)) {
                Ok(found) if found == deciding_value => return Ok(Val::Bool(deciding_value)),
                Ok(_) => (),
                Err(Fault::Exhausted) => return Err(Fault::Exhausted),
                Err(fault) => result = Err(fault),
            }
        }
        result
    }

    fn collect_items(&mut self, expr: &'a Loop, items: &List<'a>) -> EvalResult<'a> {
        let mut made = Vec::new();
        for item in items.iter() {
            let taken = self.with_local(&item, |this| {
                if !this.eval_bool(&expr.test)? {
                    return Ok(None);
                }
                expr.make.as_ref().map_or(Ok(item.clone()), |make| this.eval_expr(make)).map(Some)
            })?;
            made.extend(taken);
        }
        Ok(Val::from_items(made))
    }

    fn with_local<T>(&mut self, item: &Val<'a>, act: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.locals.len();
        self.locals.push(item.clone());
        let result = act(self);
        self.locals.truncate(outside);
        result
    }
}

fn compare_values<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Option<Val<'a>> {
    if !left.has_order_with(right) {
        return None;
    }
    let order = left.order_with(right);
    Some(Val::Bool(order.is_some_and(|order| match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    })))
}

pub(super) fn as_number(operand: &Val<'_>) -> Option<Number> {
    match operand {
        Val::Integer(number) => Some(Number::Integer(*number)),
        Val::Double(number) => Some(Number::Double(*number)),
        _ => None,
    }
}

fn as_integral(operand: &Val<'_>) -> Option<i128> {
    as_number(operand)?.as_integral()
}

fn show_key<'a>(key: &Val<'a>) -> Cow<'a, str> {
    match key {
        Val::Text(Text::Borrowed(text)) if text.len() <= 64 => Cow::Borrowed(text),
        Val::Text(text) => Cow::Owned(text.chars().take(64).collect()),
        Val::Integer(number) => Cow::Owned(number.to_string()),
        other => Cow::Borrowed(match other.kind() {
            ValueKind::Null => "null",
            _ => "such key",
        }),
    }
}
