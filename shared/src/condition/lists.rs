//! Functions that calculate with whole lists. Each function spends operations in proportion to the
//! items and bytes that it reads, so that it cannot block a worker.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    eval::{EvalResult, Evaluation, as_number},
    expr::Expr,
    fault::Fault,
    function::{Function, convert_to_text},
    number::{self, Number},
    value::{Entries, List, Text, Val},
};

/// A failure of a list function: a fault of the evaluation, or a message of the function itself.
enum Failure<'a> {
    Fault(Fault<'a>),
    Reason(String),
}

type ListResult<'a, T> = Result<T, Failure<'a>>;

impl<'a> From<Fault<'a>> for Failure<'a> {
    fn from(fault: Fault<'a>) -> Self {
        Self::Fault(fault)
    }
}

impl From<String> for Failure<'_> {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

impl<'a> Evaluation<'a> {
    pub(super) fn call_list_function(
        &mut self,
        function: Function,
        arguments: &'a [Expr],
        values: &[Val<'a>],
    ) -> EvalResult<'a> {
        let result = match (function, values) {
            (Function::Sum, [operand]) => self.sum_items(operand),
            (Function::Least, values) => self.find_extreme(values, Ordering::Less),
            (Function::Greatest, values) => self.find_extreme(values, Ordering::Greater),
            (Function::Join, [operand]) => self.join_items(operand, ""),
            (Function::Join, [operand, Val::Text(separator)]) => {
                self.join_items(operand, separator)
            }
            (Function::Join, [_, other]) => {
                Err(format!("needs a string between the items, and got {}", other.kind()).into())
            }
            (Function::Split, [Val::Text(text), Val::Text(separator)]) => {
                self.split_text(text, separator)
            }
            (Function::Split, [operand, separator]) => {
                let kinds = (operand.kind(), separator.kind());
                Err(format!("needs two strings, and got {} and {}", kinds.0, kinds.1).into())
            }
            (Function::Sort, [operand]) => self.sort_items(operand),
            (Function::Distinct, [operand]) => self.drop_repetitions(operand),
            (Function::Flatten, [operand]) => self.flatten_items(operand),
            _ => Err("got too many or too few arguments".to_owned().into()),
        };
        result.map_err(|failure| match failure {
            Failure::Fault(fault) => fault,
            Failure::Reason(reason) => {
                Fault::Call { name: function.name(), operand: arguments.first(), reason }
            }
        })
    }

    /// Adds integers exactly. As soon as a number is a double, converts the sum to a double and
    /// continues with doubles, from left to right.
    fn sum_items(&mut self, operand: &Val<'a>) -> ListResult<'a, Val<'a>> {
        let list = as_list(operand)?;
        self.spend_operations(list.len())?;
        let mut sum = Number::Integer(0);
        for (index, item) in list.iter().enumerate() {
            let number = as_number(&item);
            let number = number.ok_or_else(|| describe_item(index, &item, "not a number"))?;
            sum = match (sum, number) {
                // Adds in 128 bits, because a sum of a hundred thousand 64-bit numbers fits into
                // 128 bits.
                (Number::Integer(left), Number::Integer(right)) => Number::Integer(left + right),
                (left, right) => Number::Double(left.to_double() + right.to_double()),
            };
        }
        match sum {
            Number::Double(sum) => Ok(Val::Double(sum)),
            Number::Integer(sum) => number::checked_integer(sum)
                .map(Val::Integer)
                .ok_or_else(|| "the result is too large".to_owned().into()),
        }
    }

    /// Returns the smallest or greatest value of a list, or of several arguments. If some values
    /// are equal, returns the first of them.
    fn find_extreme(&mut self, values: &[Val<'a>], extreme: Ordering) -> ListResult<'a, Val<'a>> {
        let list = match values {
            [operand] => as_list(operand)?.clone(),
            several => List::Owned(several.into()),
        };
        self.check_order(&list)?;
        let mut best: Option<Val<'a>> = None;
        for item in list.iter() {
            if best.as_ref().is_none_or(|best| item.order_with(best) == Some(extreme)) {
                best = Some(item);
            }
        }
        best.ok_or_else(|| "the list is empty; check `size(list) > 0` first".to_owned().into())
    }

    fn sort_items(&mut self, operand: &Val<'a>) -> ListResult<'a, Val<'a>> {
        let list = as_list(operand)?;
        self.check_order(list)?;
        let mut items: Vec<Val<'a>> = list.iter().collect();
        let bytes: usize = items.iter().map(Val::text_bytes).sum();
        let rounds = items.len().checked_ilog2().unwrap_or(0) as usize + 1;
        self.spend_operations(items.len().saturating_mul(rounds))?;
        self.spend_on_text(bytes.saturating_mul(rounds))?;
        items.sort_by(|left, right| left.order_with(right).unwrap_or(Ordering::Equal));
        Ok(Val::from_items(items))
    }

    fn check_order(&mut self, list: &List<'a>) -> ListResult<'a, ()> {
        self.spend_operations(list.len())?;
        let Some(first) = list.get(0) else { return Ok(()) };
        for (index, item) in list.iter().enumerate() {
            self.spend_on_text(item.text_bytes())?;
            if item.order_with(&item).is_none() {
                return Err(describe_item(index, &item, "which has no order").into());
            }
            if !first.has_order_with(&item) {
                let kind = first.kind();
                return Err(describe_item(index, &item, &format!("and item 0 is {kind}")).into());
            }
        }
        Ok(())
    }

    fn join_items(&mut self, operand: &Val<'a>, separator: &str) -> ListResult<'a, Val<'a>> {
        const BYTES_PER_OPERATION: usize = 8;
        let list = as_list(operand)?;
        let mut joined = String::new();
        for (index, item) in list.iter().enumerate() {
            let Some(Val::Text(text)) = convert_to_text(&item) else {
                let needs = "neither a string, a number, a boolean nor a timestamp";
                return Err(describe_item(index, &item, needs).into());
            };
            let separator = if index == 0 { "" } else { separator };
            self.spend_operations(1 + (separator.len() + text.len()) / BYTES_PER_OPERATION)?;
            joined.push_str(separator);
            joined.push_str(&text);
        }
        Ok(Val::from_text(joined))
    }

    fn split_text(&mut self, text: &Text<'a>, separator: &str) -> ListResult<'a, Val<'a>> {
        match text {
            Text::Borrowed(text) => self.collect_parts(text, separator, Text::Borrowed),
            Text::Owned(text) => {
                self.collect_parts(text, separator, |part| Text::Owned(part.into()))
            }
        }
    }

    fn collect_parts<'t>(
        &mut self,
        text: &'t str,
        separator: &str,
        make: impl Fn(&'t str) -> Text<'a>,
    ) -> ListResult<'a, Val<'a>> {
        let mut parts = Vec::new();
        let mut rest = Some(text).filter(|text| !(text.is_empty() && separator.is_empty()));
        while let Some(text) = rest {
            self.spend_operations(1)?;
            let (part, after) = split_first(text, separator);
            parts.push(Val::Text(make(part)));
            rest = after;
        }
        Ok(Val::from_items(parts))
    }

    fn drop_repetitions(&mut self, operand: &Val<'a>) -> ListResult<'a, Val<'a>> {
        let list = as_list(operand)?;
        let mut kept: Vec<Val<'a>> = Vec::new();
        let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for item in list.iter() {
            let alike = places.entry(self.hash_value(&item)?).or_default();
            let mut is_new = true;
            for place in &*alike {
                if self.are_equal(&kept[*place], &item)? {
                    is_new = false;
                    break;
                }
            }
            if is_new {
                alike.push(kept.len());
                kept.push(item);
            }
        }
        Ok(Val::from_items(kept))
    }

    fn hash_value(&mut self, value: &Val<'a>) -> Result<u64, Fault<'a>> {
        self.spend_operations(1)?;
        let mut hasher = DefaultHasher::new();
        match value {
            Val::Null => 0_u8.hash(&mut hasher),
            Val::Bool(value) => (1_u8, value).hash(&mut hasher),
            Val::Integer(value) => (2_u8, value).hash(&mut hasher),
            Val::Double(value) => match Number::Double(*value).as_integral() {
                Some(whole) => (2_u8, whole).hash(&mut hasher),
                None => (3_u8, value.to_bits()).hash(&mut hasher),
            },
            Val::Text(text) => {
                self.spend_on_text(text.len())?;
                (4_u8, &**text).hash(&mut hasher);
            }
            Val::List(list) => {
                (5_u8, list.len()).hash(&mut hasher);
                for item in list.iter() {
                    self.hash_value(&item)?.hash(&mut hasher);
                }
            }
            Val::Map(entries) => (6_u8, self.hash_entries(entries)?).hash(&mut hasher),
            Val::Type(kind) => (7_u8, kind.type_name()).hash(&mut hasher),
            Val::Time(time) => (8_u8, time).hash(&mut hasher),
            Val::Span(span) => (9_u8, span).hash(&mut hasher),
        }
        Ok(hasher.finish())
    }

    fn hash_entries(&mut self, entries: &Entries<'a>) -> Result<u64, Fault<'a>> {
        self.spend_operations(entries.len())?;
        let mut sum = 0_u64;
        for (key, value) in entries.pairs() {
            let pair = (self.hash_value(&key)?, self.hash_value(&value)?);
            let mut hasher = DefaultHasher::new();
            pair.hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
        }
        Ok(sum)
    }

    fn flatten_items(&mut self, operand: &Val<'a>) -> ListResult<'a, Val<'a>> {
        let list = as_list(operand)?;
        let mut items = Vec::new();
        for item in list.iter() {
            match item {
                Val::List(inner) => {
                    self.spend_operations(1 + inner.len())?;
                    items.extend(inner.iter());
                }
                other => {
                    self.spend_operations(1)?;
                    items.push(other);
                }
            }
        }
        Ok(Val::from_items(items))
    }
}

/// Returns the text before the first separator, and the text after the separator. If the separator
/// is empty, returns the first character, and the text after this character.
fn split_first<'t>(text: &'t str, separator: &str) -> (&'t str, Option<&'t str>) {
    if separator.is_empty() {
        let (part, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
        return (part, Some(rest).filter(|rest| !rest.is_empty()));
    }
    text.split_once(separator).map_or((text, None), |(part, rest)| (part, Some(rest)))
}

fn as_list<'v, 'a>(operand: &'v Val<'a>) -> ListResult<'a, &'v List<'a>> {
    match operand {
        Val::List(list) => Ok(list),
        other => Err(format!("needs a list, and got {}", other.kind()).into()),
    }
}

fn describe_item(index: usize, item: &Val<'_>, reason: &str) -> String {
    format!("item {index} is {}, {reason}", item.kind())
}
