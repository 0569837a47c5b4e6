//! Tells whether a condition holds.
//!
//! The crate `cel` evaluates as well, but it copies every output before it looks, copies each item
//! that a macro visits, and cannot be stopped. Here outputs are borrowed, and every operation
//! is counted, so that a condition from a stranger cannot hold a worker up.

use std::{borrow::Cow, cmp::Ordering};

use regex::Regex;
use serde_json::Value;

use super::{
    Parsed,
    expr::{Expr, Key, Loop, LoopKind, Operator},
    fault::Fault,
    function::Function,
    number::{self, Number},
    pattern::Pattern,
    value::{Entries, Kind, List, Text, Val},
};
use crate::{
    limits,
    template::{Target, Values},
};

type Outcome<'a> = Result<Val<'a>, Fault<'a>>;

/// Bytes of a string that one operation goes through.
const BYTES_AT_ONCE: usize = 32;

/// A condition being told.
pub(super) struct Evaluation<'a> {
    targets: &'a [Target],
    values: &'a dyn Values,
    input: &'a Value,
    /// The patterns, compiled once they are needed.
    patterns: Vec<(&'a Pattern, Option<Regex>)>,
    locals: Vec<Val<'a>>,
    /// How many operations more there may be.
    left: usize,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(parsed: &'a Parsed, values: &'a dyn Values, input: &'a Value) -> Self {
        Self {
            targets: &parsed.targets,
            values,
            input,
            patterns: parsed.patterns.iter().map(|it| (it, None)).collect(),
            locals: Vec::new(),
            left: limits::CONDITION_WORK,
        }
    }

    /// Returns the value of `expr`.
    pub(super) fn value(&mut self, expr: &'a Expr) -> Outcome<'a> {
        self.spend(1)?;
        match expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(it) => Ok(Val::Bool(*it)),
            Expr::Integer(it) => Ok(Val::Integer(*it)),
            Expr::Double(it) => Ok(Val::Double(*it)),
            Expr::Text(it) => Ok(Val::Text(Text::Found(it))),
            Expr::Type(it) => Ok(Val::Type(*it)),
            Expr::Target(index, _) => self.target(expr, *index),
            Expr::HasTarget(index) => Ok(Val::Bool(self.has_target(*index))),
            Expr::Input => Ok(Val::of(self.input)),
            Expr::Local(index, _) => Ok(self.locals.get(*index).cloned().unwrap_or(Val::Null)),
            Expr::Field(of, key) => self.field(of, key),
            Expr::Has(of, key) => self.has(of, key),
            Expr::Index(of, index) => self.index(of, index),
            Expr::Not(of) => self.bool(of).map(|it| Val::Bool(!it)),
            Expr::Negate(of) => self.negate(of),
            Expr::And(left, right) => self.logical(left, right, false),
            Expr::Or(left, right) => self.logical(left, right, true),
            Expr::Choice(parts) => {
                let [when, then, otherwise] = &**parts;
                if self.bool(when)? { self.value(then) } else { self.value(otherwise) }
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::Call(function, arguments) => self.call(*function, arguments),
            Expr::Matches(of, pattern) => self.matches(of, *pattern),
            Expr::List(items) => {
                let items = items.iter().map(|it| self.value(it));
                Ok(Val::list(items.collect::<Result<_, _>>()?))
            }
            Expr::Map(entries) => self.map(entries),
            Expr::Loop(it) => self.repeat(it),
        }
    }

    fn spend(&mut self, operations: usize) -> Result<(), Fault<'a>> {
        let left = self.left.checked_sub(operations);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(Fault::Exhausted)
    }

    fn spend_on_text(&mut self, bytes: usize) -> Result<(), Fault<'a>> {
        self.spend(bytes / BYTES_AT_ONCE)
    }

    fn bool(&mut self, of: &'a Expr) -> Result<bool, Fault<'a>> {
        match self.value(of)? {
            Val::Bool(it) => Ok(it),
            other => Err(Fault::Kind { of, is: other.kind(), needs: "true or false" }),
        }
    }

    /// A step that has no output, because it was skipped or failed, stands for null.
    fn target(&mut self, expr: &'a Expr, index: usize) -> Outcome<'a> {
        match (self.found(index), self.targets.get(index)) {
            (Some(found), _) => Ok(Val::of(found)),
            (None, Some(Target::Step(_))) => Ok(Val::Null),
            (None, _) => Err(Fault::NotFilled(expr)),
        }
    }

    fn found(&self, index: usize) -> Option<&'a Value> {
        self.values.value(self.targets.get(index)?)
    }

    fn has_target(&self, index: usize) -> bool {
        match (self.found(index), self.targets.get(index)) {
            (Some(found), Some(Target::Step(_))) => !found.is_null(),
            (found, _) => found.is_some(),
        }
    }

    fn field(&mut self, of: &'a Expr, key: &'a Key) -> Outcome<'a> {
        let name = || Cow::Borrowed(key.name.as_str());
        match self.value(of)? {
            Val::Map(entries) => self
                .look_up(&entries, &Val::Text(Text::Found(&key.name)))?
                .ok_or_else(|| Fault::Missing { of, key: name(), dotted: !key.quoted }),
            other => Err(Fault::NoFields { of, is: other.kind(), key: name() }),
        }
    }

    fn has(&mut self, of: &'a Expr, key: &'a Key) -> Outcome<'a> {
        let Val::Map(entries) = self.value(of)? else { return Ok(Val::Bool(false)) };
        let found = self.look_up(&entries, &Val::Text(Text::Found(&key.name)))?;
        Ok(Val::Bool(found.is_some()))
    }

    fn look_up(
        &mut self,
        entries: &Entries<'a>,
        key: &Val<'a>,
    ) -> Result<Option<Val<'a>>, Fault<'a>> {
        self.spend(entries.cost())?;
        self.spend_on_text(key.text_bytes().saturating_mul(1 + entries.cost()))?;
        Ok(entries.get(key))
    }

    fn index(&mut self, of: &'a Expr, at: &'a Expr) -> Outcome<'a> {
        let container = self.value(of)?;
        let index = self.value(at)?;
        match (container, &index) {
            (Val::List(list), Val::Integer(_) | Val::Double(_)) => {
                let position = integral(&index).ok_or(Fault::Kind {
                    of: at,
                    is: index.kind(),
                    needs: "a whole number",
                })?;
                let item = usize::try_from(position).ok().and_then(|it| list.get(it));
                item.ok_or(Fault::TooShort { of, index: position, length: list.len() })
            }
            (Val::List(_), _) => {
                Err(Fault::Kind { of: at, is: index.kind(), needs: "a place in a list" })
            }
            (Val::Map(entries), _) => self
                .look_up(&entries, &index)?
                .ok_or_else(|| Fault::Missing { of, key: shown(&index), dotted: false }),
            (other, _) => Err(Fault::NoFields { of, is: other.kind(), key: shown(&index) }),
        }
    }

    fn negate(&mut self, of: &'a Expr) -> Outcome<'a> {
        match self.value(of)? {
            Val::Double(it) => Ok(Val::Double(-it)),
            Val::Span(it) => Ok(Val::Span(-it)),
            Val::Integer(it) => number::integer(-it).map(Val::Integer).ok_or(Fault::Arithmetic {
                operator: Operator::Subtract,
                why: "the result is too large",
            }),
            other => Err(Fault::Kind { of, is: other.kind(), needs: "a number" }),
        }
    }

    /// Does `&&` (decided by false) and `||` (decided by true): what decides, decides, even if the
    /// other side cannot be told.
    fn logical(&mut self, left: &'a Expr, right: &'a Expr, decides: bool) -> Outcome<'a> {
        let first = self.bool(left);
        if matches!(first, Ok(it) if it == decides) || matches!(first, Err(Fault::Exhausted)) {
            return first.map(Val::Bool);
        }
        match self.bool(right) {
            Ok(second) if second == decides => Ok(Val::Bool(decides)),
            Err(Fault::Exhausted) => Err(Fault::Exhausted),
            second => first.and(second).map(Val::Bool),
        }
    }

    fn binary(&mut self, operator: Operator, left: &'a Expr, right: &'a Expr) -> Outcome<'a> {
        let (first, second) = (self.value(left)?, self.value(right)?);
        self.spend_on_text(first.text_bytes().min(second.text_bytes()))?;
        let kinds = (first.kind(), second.kind());
        let result = match operator {
            Operator::Equal => Some(Val::Bool(self.same(&first, &second)?)),
            Operator::NotEqual => Some(Val::Bool(!self.same(&first, &second)?)),
            Operator::In => self.contains(&first, &second)?.map(Val::Bool),
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => compare(operator, &first, &second),
            _ => self.calculate(operator, first, second)?,
        };
        result.ok_or(Fault::Operands { left: (left, kinds.0), operator, right: (right, kinds.1) })
    }

    /// Calculates; nothing if the operator does not take these two.
    fn calculate(
        &mut self,
        operator: Operator,
        left: Val<'a>,
        right: Val<'a>,
    ) -> Result<Option<Val<'a>>, Fault<'a>> {
        if let (Some(left), Some(right)) = (numeric(&left), numeric(&right)) {
            let result = number::calculate(operator, left, right);
            let result = result.map_err(|why| Fault::Arithmetic { operator, why })?;
            return Ok(Some(match result {
                Number::Integer(it) => Val::Integer(it),
                Number::Double(it) => Val::Double(it),
            }));
        }
        let result = match (operator, left, right) {
            (Operator::Add, Val::Text(left), Val::Text(right)) => {
                self.spend((left.len() + right.len()) / 8)?;
                return Ok(Some(Val::text([&*left, &*right].concat())));
            }
            (Operator::Add, Val::List(left), Val::List(right)) => {
                self.spend(left.len() + right.len())?;
                return Ok(Some(Val::list(left.iter().chain(right.iter()).collect())));
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
        let why = "the result is beyond all time";
        result.map(Some).ok_or(Fault::Arithmetic { operator, why })
    }

    /// Returns whether two values are the same; numbers are by what they are worth.
    fn same(&mut self, left: &Val<'a>, right: &Val<'a>) -> Result<bool, Fault<'a>> {
        self.spend(1)?;
        match (left, right) {
            (Val::Null, Val::Null) => Ok(true),
            (Val::Type(left), Val::Type(right)) => Ok(left == right),
            (Val::List(left), Val::List(right)) => self.same_items(left, right),
            (Val::Map(left), Val::Map(right)) => self.same_entries(left, right),
            (Val::Text(left), Val::Text(right)) if left.len() != right.len() => Ok(false),
            (left, right) => {
                self.spend_on_text(left.text_bytes().min(right.text_bytes()))?;
                Ok(left.order(right) == Some(Ordering::Equal))
            }
        }
    }

    fn same_items(&mut self, left: &List<'a>, right: &List<'a>) -> Result<bool, Fault<'a>> {
        if left.len() != right.len() {
            return Ok(false);
        }
        for (left, right) in left.iter().zip(right.iter()) {
            if !self.same(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same_entries(&mut self, left: &Entries<'a>, right: &Entries<'a>) -> Result<bool, Fault<'a>> {
        if left.len() != right.len() {
            return Ok(false);
        }
        self.spend(left.len())?;
        for key in left.keys() {
            let found = (self.look_up(left, &key)?, self.look_up(right, &key)?);
            let (Some(left), Some(right)) = found else { return Ok(false) };
            if !self.same(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether `container` has `item`; nothing if it is no container.
    fn contains(&mut self, item: &Val<'a>, container: &Val<'a>) -> Result<Option<bool>, Fault<'a>> {
        match container {
            Val::List(list) => {
                for it in list.iter() {
                    if self.same(item, &it)? {
                        return Ok(Some(true));
                    }
                }
                Ok(Some(false))
            }
            Val::Map(entries) => Ok(Some(self.look_up(entries, item)?.is_some())),
            _ => Ok(None),
        }
    }

    fn call(&mut self, function: Function, arguments: &'a [Expr]) -> Outcome<'a> {
        let values = arguments.iter().map(|it| self.value(it)).collect::<Result<Vec<_>, _>>()?;
        self.spend_on_text(values.iter().map(Val::text_bytes).sum())?;
        let fault = |why| Fault::Call { name: function.name(), of: arguments.first(), why };
        function.call(&values).map_err(fault)
    }

    fn matches(&mut self, of: &'a Expr, index: usize) -> Outcome<'a> {
        let text = match self.value(of)? {
            Val::Text(text) => text,
            other => return Err(Fault::Kind { of, is: other.kind(), needs: "a string" }),
        };
        let pattern = self.patterns.get(index).map(|it| it.0);
        let cost = pattern.map_or(0, |it| it.match_cost(text.len()));
        self.spend(cost)?;
        if let Some((pattern, None)) = self.patterns.get(index) {
            let pattern = *pattern;
            self.spend(pattern.compile_cost())?;
            self.patterns[index].1 = pattern.compiled();
        }
        let compiled = self.patterns.get(index).and_then(|it| it.1.as_ref());
        Ok(Val::Bool(compiled.is_some_and(|it| it.is_match(&text))))
    }

    fn map(&mut self, entries: &'a [(Expr, Expr)]) -> Outcome<'a> {
        let mut made: Vec<(Val<'a>, Val<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.value(key)?;
            if !matches!(key.kind(), Kind::Bool | Kind::Integer | Kind::Unsigned | Kind::Text) {
                return Err(Fault::Key { is: key.kind(), twice: false });
            }
            self.spend(made.len())?;
            self.spend_on_text(key.text_bytes().saturating_mul(made.len()))?;
            if made.iter().any(|it| it.0.order(&key) == Some(Ordering::Equal)) {
                return Err(Fault::Key { is: key.kind(), twice: true });
            }
            made.push((key, self.value(value)?));
        }
        Ok(Val::Map(Entries::Made(made.into())))
    }

    fn repeat(&mut self, it: &'a Loop) -> Outcome<'a> {
        let items = match self.value(&it.range)? {
            Val::List(list) => list,
            Val::Map(entries) => {
                self.spend(entries.len())?;
                List::Made(entries.keys().into())
            }
            other => {
                let needs = "a list or an object";
                return Err(Fault::Kind { of: &it.range, is: other.kind(), needs });
            }
        };
        match it.kind {
            LoopKind::All => self.quantify(it, &items, false),
            LoopKind::Exists => self.quantify(it, &items, true),
            LoopKind::ExistsOne => {
                let mut found = 0;
                for item in items.iter() {
                    found += usize::from(self.with(&item, |this| this.bool(&it.test))?);
                }
                Ok(Val::Bool(found == 1))
            }
            LoopKind::Map => self.collect(it, &items),
        }
    }

    /// Does `all` (decided by false) and `exists` (decided by true), as [`Self::logical`] does.
    fn quantify(&mut self, it: &'a Loop, items: &List<'a>, decides: bool) -> Outcome<'a> {
        let mut result = Ok(Val::Bool(!decides));
        for item in items.iter() {
            match self.with(&item, |this| this.bool(&it.test)) {
                Ok(found) if found == decides => return Ok(Val::Bool(decides)),
                Ok(_) => (),
                Err(Fault::Exhausted) => return Err(Fault::Exhausted),
                Err(fault) => result = Err(fault),
            }
        }
        result
    }

    fn collect(&mut self, it: &'a Loop, items: &List<'a>) -> Outcome<'a> {
        let mut made = Vec::new();
        for item in items.iter() {
            let taken = self.with(&item, |this| {
                if !this.bool(&it.test)? {
                    return Ok(None);
                }
                it.make.as_ref().map_or(Ok(item.clone()), |make| this.value(make)).map(Some)
            })?;
            made.extend(taken);
        }
        Ok(Val::list(made))
    }

    /// Does something while a macro's name means `item`.
    fn with<T>(&mut self, item: &Val<'a>, act: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.locals.len();
        self.locals.push(item.clone());
        let result = act(self);
        self.locals.truncate(outside);
        result
    }
}

fn compare<'a>(operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Option<Val<'a>> {
    if !left.has_order_with(right) {
        return None;
    }
    let order = left.order(right);
    Some(Val::Bool(order.is_some_and(|it| match operator {
        Operator::Less => it.is_lt(),
        Operator::LessOrEqual => it.is_le(),
        Operator::Greater => it.is_gt(),
        _ => it.is_ge(),
    })))
}

fn numeric(of: &Val<'_>) -> Option<Number> {
    match of {
        Val::Integer(it) => Some(Number::Integer(*it)),
        Val::Double(it) => Some(Number::Double(*it)),
        _ => None,
    }
}

fn integral(of: &Val<'_>) -> Option<i128> {
    numeric(of)?.integral()
}

/// Returns how to name a key that is not there.
fn shown<'a>(key: &Val<'a>) -> Cow<'a, str> {
    match key {
        Val::Text(Text::Found(it)) if it.len() <= 64 => Cow::Borrowed(it),
        Val::Text(it) => Cow::Owned(it.chars().take(64).collect()),
        Val::Integer(it) => Cow::Owned(it.to_string()),
        other => Cow::Borrowed(match other.kind() {
            Kind::Null => "null",
            _ => "such key",
        }),
    }
}
