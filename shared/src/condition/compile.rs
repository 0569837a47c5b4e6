use std::sync::Arc;

use super::{
    ConditionError,
    expr::{Expr, Key, Loop, LoopKind, Operator},
    function::{CallStyle, Function},
    pattern::Pattern,
    value::ValueKind,
};
use crate::template::{ResolveNames, Target};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Tree, IdedExpr, LiteralValue, MapExpr,
    SelectExpr, operators,
};

type CompileResult = Result<Expr, ConditionError>;

#[derive(Clone, Copy)]
pub(super) enum NameSource<'a> {
    Plan(&'a dyn ResolveNames),
    /// The fields of one object. The function returns `true` for the name of such a field.
    Fields(&'a dyn Fn(&str) -> bool),
}

pub(super) struct Compiler<'a> {
    names: NameSource<'a>,
    targets: Vec<Target>,
    patterns: Vec<Pattern>,
    /// Names that the enclosing macros define, outermost first.
    locals: Vec<Arc<str>>,
}

/// A map that a condition can read only by key.
#[derive(Clone, Copy)]
enum Scope {
    Steps,
    Variables,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(names: NameSource<'a>) -> Self {
        Self { names, targets: Vec::new(), patterns: Vec::new(), locals: Vec::new() }
    }

    pub(super) fn into_parts(self) -> (Vec<Target>, Vec<Pattern>) {
        (self.targets, self.patterns)
    }

    pub(super) fn compile_expr(&mut self, tree: &IdedExpr) -> CompileResult {
        match &tree.expr {
            Tree::Literal(value) => compile_literal(value),
            Tree::Ident(name) => self.compile_name(name),
            Tree::Select(select) if select.test => self.compile_has(select),
            Tree::Select(select) => {
                if let Some(scope) = self.find_scope(&select.operand) {
                    return self.compile_target(scope, &select.field, false);
                }
                let key = Key { name: select.field.clone(), is_quoted: false };
                let operand = self
                    .compile_boxed(&select.operand)
                    .map_err(|error| self.explain_dots(tree, error))?;
                Ok(Expr::Field(operand, key))
            }
            Tree::Call(call) => self.compile_call(call),
            Tree::List(list) => Ok(Expr::List(self.compile_all(&list.elements)?)),
            Tree::Map(map) => self.compile_map(map),
            Tree::Struct(message) => {
                Err(unsupported_part(&format!("`{} {{…}}`", message.type_name)))
            }
            Tree::Comprehension(comprehension) => self.compile_loop(comprehension),
            Tree::Unspecified => Err(unsupported_part("empty parts")),
        }
    }

    fn compile_boxed(&mut self, tree: &IdedExpr) -> Result<Box<Expr>, ConditionError> {
        self.compile_expr(tree).map(Box::new)
    }

    fn compile_all(&mut self, trees: &[IdedExpr]) -> Result<Vec<Expr>, ConditionError> {
        trees.iter().map(|tree| self.compile_expr(tree)).collect()
    }

    /// Resolves a single name: first a macro's variable, then `input`, then a step, then a type. In
    /// an expression of `flow.compute`, fields replace `input` and the steps.
    fn compile_name(&mut self, name: &str) -> CompileResult {
        if let Some(index) = self.locals.iter().rposition(|local| **local == *name) {
            return Ok(Expr::Local(index, Arc::clone(&self.locals[index])));
        }
        if let NameSource::Fields(is_field) = self.names {
            return match (is_field(name), ValueKind::from_name(name)) {
                (true, _) => Ok(self.add_target(Target::Variable(name.into()), name.into())),
                (false, Some(kind)) => Ok(Expr::Type(kind)),
                (false, None) => Err(ConditionError::UnknownField { name: name.to_owned() }),
            };
        }
        match name {
            "input" => return Ok(Expr::Input),
            "steps" => return Err(ConditionError::Bare { name: "steps" }),
            "vars" => return Err(ConditionError::Bare { name: "vars" }),
            _ => (),
        }
        match (self.find_step(name), ValueKind::from_name(name)) {
            (Some(target), _) => Ok(self.add_target(target, name.into())),
            (None, Some(kind)) => Ok(Expr::Type(kind)),
            (None, None) => Err(ConditionError::Unknown { name: name.to_owned() }),
        }
    }

    fn find_step(&self, name: &str) -> Option<Target> {
        let NameSource::Plan(names) = self.names else { return None };
        names.find_step(name).or_else(|| names.find_tool_step(name)).map(Target::Step)
    }

    /// Replaces the error for an unknown name if `tree` is a step's id with dots. CEL reads the
    /// dots as field accesses.
    fn explain_dots(&self, tree: &IdedExpr, error: ConditionError) -> ConditionError {
        let (ConditionError::Unknown { .. }, Some(name)) = (&error, as_dotted_path(tree)) else {
            return error;
        };
        if self.find_step(&name).is_some() { ConditionError::Dotted { name } } else { error }
    }

    /// Returns the scope that `tree` names, unless a macro's variable hides it.
    fn find_scope(&self, tree: &IdedExpr) -> Option<Scope> {
        let (Tree::Ident(name), NameSource::Plan(_)) = (&tree.expr, self.names) else {
            return None;
        };
        let scope = match name.as_str() {
            "steps" => Scope::Steps,
            "vars" => Scope::Variables,
            _ => return None,
        };
        let is_local = self.locals.iter().any(|local| **local == *name.as_str());
        (!is_local).then_some(scope)
    }

    fn compile_target(&mut self, scope: Scope, name: &str, is_quoted: bool) -> CompileResult {
        let target = match scope {
            Scope::Steps => self
                .find_step(name)
                .ok_or_else(|| ConditionError::Unknown { name: name.to_owned() })?,
            Scope::Variables => Target::Variable(name.into()),
        };
        let key = Key { name: name.to_owned(), is_quoted };
        Ok(self.add_target(target, format!("{}{key}", scope.name()).into()))
    }

    fn add_target(&mut self, target: Target, text: Arc<str>) -> Expr {
        let index = self.targets.iter().position(|known| *known == target).unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        Expr::Target(index, text)
    }

    fn compile_call(&mut self, call: &CallExpr) -> CompileResult {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (None, [left, right]) if find_operator(name).is_some() || is_logical(name) => {
                let (left, right) = (self.compile_boxed(left)?, self.compile_boxed(right)?);
                Ok(match find_operator(name) {
                    Some(operator) => Expr::Binary(operator, left, right),
                    None if name == operators::LOGICAL_AND => Expr::And(left, right),
                    None => Expr::Or(left, right),
                })
            }
            (None, [operand]) if name == operators::LOGICAL_NOT => {
                Ok(Expr::Not(self.compile_boxed(operand)?))
            }
            (None, [operand]) if name == operators::NEGATE => {
                Ok(Expr::Negate(self.compile_boxed(operand)?))
            }
            (None, [operand, index]) if name == operators::INDEX => {
                self.compile_index(operand, index)
            }
            (None, [when, then, otherwise]) if name == operators::CONDITIONAL => {
                let parts = [
                    self.compile_expr(when)?,
                    self.compile_expr(then)?,
                    self.compile_expr(otherwise)?,
                ];
                Ok(Expr::Choice(Box::new(parts)))
            }
            (Some(_), _) if LoopKind::from_name(name).is_some() => {
                Err(ConditionError::Arguments { name: name.to_owned(), minimum: 2, maximum: 2 })
            }
            (operand, arguments) if name == "matches" => {
                let operand = operand.as_deref().into_iter().chain(arguments);
                self.compile_matches(&operand.collect::<Vec<_>>())
            }
            (operand, arguments) => self.compile_function(name, operand.as_deref(), arguments),
        }
    }

    fn compile_index(&mut self, operand: &IdedExpr, index: &IdedExpr) -> CompileResult {
        let text = as_text(index);
        match (self.find_scope(operand), text) {
            (Some(scope), Some(name)) => self.compile_target(scope, name, true),
            (Some(scope), None) => Err(ConditionError::Computed { name: scope.name() }),
            (None, Some(name)) => {
                let key = Key { name: name.to_owned(), is_quoted: true };
                Ok(Expr::Field(self.compile_boxed(operand)?, key))
            }
            (None, None) => {
                Ok(Expr::Index(self.compile_boxed(operand)?, self.compile_boxed(index)?))
            }
        }
    }

    fn compile_has(&mut self, select: &SelectExpr) -> CompileResult {
        let Some(scope) = self.find_scope(&select.operand) else {
            let key = Key { name: select.field.clone(), is_quoted: false };
            return Ok(Expr::Has(self.compile_boxed(&select.operand)?, key));
        };
        match self.compile_target(scope, &select.field, false)? {
            Expr::Target(index, _) => Ok(Expr::HasTarget(index)),
            other => Ok(other),
        }
    }

    fn compile_loop(&mut self, comprehension: &ComprehensionExpr) -> CompileResult {
        let Some(Macro { kind, test, make }) = recognize_macro(comprehension) else {
            return Err(unsupported_part("such loops"));
        };
        let range = self.compile_expr(&comprehension.iter_range)?;
        self.locals.push(comprehension.iter_var.as_str().into());
        let test = test.map_or(Ok(Expr::Bool(true)), |test| self.compile_expr(test));
        let make = make.map(|make| self.compile_expr(make)).transpose();
        self.locals.pop();
        Ok(Expr::Loop(Box::new(Loop { kind, range, test: test?, make: make? })))
    }

    /// Compiles `a.matches("pattern")`. The pattern must be a literal, so that it is checked before
    /// anything runs.
    fn compile_matches(&mut self, arguments: &[&IdedExpr]) -> CompileResult {
        let [operand, pattern] = arguments else {
            return Err(ConditionError::Arguments {
                name: "matches".to_owned(),
                minimum: 1,
                maximum: 1,
            });
        };
        let Some(pattern) = as_text(pattern) else { return Err(ConditionError::ComputedPattern) };
        let operand = self.compile_boxed(operand)?;
        self.patterns.push(Pattern::parse(pattern)?);
        Ok(Expr::Matches(operand, self.patterns.len() - 1))
    }

    fn compile_function(
        &mut self,
        name: &str,
        operand: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> CompileResult {
        let style = if operand.is_some() { CallStyle::Method } else { CallStyle::Plain };
        let Some((function, takes)) = Function::from_name(name, style) else {
            return Err(ConditionError::UnknownFunction { name: name.to_owned() });
        };
        let arguments: Vec<_> = operand.into_iter().chain(arguments).collect();
        if !takes.contains(&arguments.len()) {
            let receiver = usize::from(operand.is_some());
            let (minimum, maximum) = (takes.start() - receiver, takes.end() - receiver);
            return Err(ConditionError::Arguments { name: name.to_owned(), minimum, maximum });
        }
        let arguments = arguments.into_iter().map(|argument| self.compile_expr(argument));
        Ok(Expr::Call(function, arguments.collect::<Result<_, _>>()?))
    }

    fn compile_map(&mut self, map: &MapExpr) -> CompileResult {
        let entries = map.entries.iter().map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                Ok((self.compile_expr(&entry.key)?, self.compile_expr(&entry.value)?))
            }
            EntryExpr::StructField(_) => Err(unsupported_part("a field without a key")),
        });
        Ok(Expr::Map(entries.collect::<Result<_, _>>()?))
    }
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Variables => "vars",
        }
    }
}

fn compile_literal(literal: &LiteralValue) -> CompileResult {
    Ok(match literal {
        LiteralValue::Boolean(value) => Expr::Bool(*value.inner()),
        LiteralValue::Int(value) => Expr::Integer((*value.inner()).into()),
        LiteralValue::UInt(value) => Expr::Integer((*value.inner()).into()),
        LiteralValue::Double(value) => Expr::Double(*value.inner()),
        LiteralValue::String(value) => Expr::Text(value.inner().to_owned()),
        LiteralValue::Null => Expr::Null,
        LiteralValue::Bytes(_) => return Err(unsupported_part("bytes")),
    })
}

/// A macro that the parser expanded: its kind, the test of each item, and the expression that `map`
/// evaluates.
struct Macro<'a> {
    kind: LoopKind,
    test: Option<&'a IdedExpr>,
    make: Option<&'a IdedExpr>,
}

/// Recognizes an expanded macro by the initial value of its accumulator and by its step.
fn recognize_macro(comprehension: &ComprehensionExpr) -> Option<Macro<'_>> {
    let (step, arguments) = as_call(&comprehension.loop_step)?;
    Some(match (&comprehension.accu_init.expr, step, arguments) {
        (Tree::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, test]) => {
            Macro { kind: LoopKind::All, test: Some(test), make: None }
        }
        (Tree::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, test]) => {
            Macro { kind: LoopKind::Exists, test: Some(test), make: None }
        }
        (Tree::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [test, ..]) => {
            Macro { kind: LoopKind::ExistsOne, test: Some(test), make: None }
        }
        (Tree::List(_), operators::CONDITIONAL, [test, step, _]) => {
            let (operator, arguments) = as_call(step)?;
            let make = Some(appended_item(operator, arguments)?);
            Macro { kind: LoopKind::Map, test: Some(test), make }
        }
        (Tree::List(_), step, arguments) => {
            let make = Some(appended_item(step, arguments)?);
            Macro { kind: LoopKind::Map, test: None, make }
        }
        _ => return None,
    })
}

fn appended_item<'a>(operator: &str, arguments: &'a [IdedExpr]) -> Option<&'a IdedExpr> {
    match (operator, arguments) {
        (operators::ADD, [_, IdedExpr { expr: Tree::List(list), .. }]) => list.elements.first(),
        _ => None,
    }
}

fn as_call(tree: &IdedExpr) -> Option<(&str, &[IdedExpr])> {
    match &tree.expr {
        Tree::Call(call) => Some((&call.func_name, &call.args)),
        _ => None,
    }
}

fn as_text(tree: &IdedExpr) -> Option<&str> {
    match &tree.expr {
        Tree::Literal(LiteralValue::String(value)) => Some(value.inner()),
        _ => None,
    }
}

fn as_dotted_path(tree: &IdedExpr) -> Option<String> {
    match &tree.expr {
        Tree::Ident(name) => Some(name.clone()),
        Tree::Select(select) => {
            Some(format!("{}.{}", as_dotted_path(&select.operand)?, select.field))
        }
        _ => None,
    }
}

fn is_logical(name: &str) -> bool {
    matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR)
}

fn find_operator(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::NotEqual,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::IN => Operator::In,
        _ => return None,
    })
}

fn unsupported_part(feature: &str) -> ConditionError {
    ConditionError::Unsupported { feature: feature.to_owned() }
}
