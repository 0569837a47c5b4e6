//! Finds the values that a condition reads, so that messages can explain its result.

use serde_json::Value;

use super::{
    ParsedSource,
    expr::{Expr, Key},
};
use crate::template::LookUpValues;

/// Returns each path that a condition reads, as written in the condition's source, with the value
/// at that path. Leaves out paths inside macros that depend on the macro's item.
pub(super) fn values_read<'a>(
    parsed: &ParsedSource,
    values: &'a dyn LookUpValues,
    input: &'a Value,
) -> Vec<ReadValue<'a>> {
    let mut reader = Reader { parsed, values, input, places: Vec::new() };
    reader.visit(&parsed.expr);
    reader.places
}

struct Reader<'p, 'a> {
    parsed: &'p ParsedSource,
    values: &'a dyn LookUpValues,
    input: &'a Value,
    places: Vec<ReadValue<'a>>,
}

type ReadValue<'a> = (String, Option<&'a Value>);

impl<'a> Reader<'_, 'a> {
    fn visit(&mut self, expr: &Expr) {
        if let Some(place) = self.find_place(expr) {
            if self.places.iter().all(|(text, _)| *text != place.0) {
                self.places.push(place);
            }
            return;
        }
        match expr {
            Expr::Field(of, _) | Expr::Has(of, _) | Expr::Not(of) | Expr::Negate(of) => {
                self.visit(of);
            }
            Expr::Matches(of, _) => self.visit(of),
            Expr::Index(left, right)
            | Expr::And(left, right)
            | Expr::Or(left, right)
            | Expr::Binary(_, left, right) => {
                self.visit(left);
                self.visit(right);
            }
            Expr::Choice(parts) => parts.iter().for_each(|part| self.visit(part)),
            Expr::Call(_, items) | Expr::List(items) => {
                for item in items {
                    self.visit(item);
                }
            }
            Expr::Map(entries) => entries.iter().for_each(|(key, value)| {
                self.visit(key);
                self.visit(value);
            }),
            Expr::Loop(of) => self.visit(&of.range),
            _ => (),
        }
    }

    fn find_place(&self, expr: &Expr) -> Option<ReadValue<'a>> {
        match expr {
            Expr::Target(index, name) => {
                let target = self.parsed.targets.get(*index)?;
                Some((name.to_string(), self.values.find_value(target)))
            }
            Expr::Input => Some(("input".to_owned(), Some(self.input))),
            Expr::Field(of, key) | Expr::Has(of, key) => {
                let (text, value) = self.find_place(of)?;
                let Key { name, is_quoted } = key;
                let text = if *is_quoted {
                    format!("{text}[\"{name}\"]")
                } else {
                    format!("{text}.{name}")
                };
                Some((text, value.and_then(|value| value.get(name.as_str()))))
            }
            Expr::Index(of, index) => {
                let Expr::Integer(index) = **index else { return None };
                let (text, value) = self.find_place(of)?;
                let item = usize::try_from(index).ok();
                let item = value.zip(item).and_then(|(value, index)| value.get(index));
                Some((format!("{text}[{index}]"), item))
            }
            _ => None,
        }
    }
}
