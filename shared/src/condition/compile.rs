//! From the parser's tree to what is kept.

use std::sync::Arc;

use super::{
    ConditionError,
    expr::{Expr, Key, Loop, LoopKind, Operator},
    function::{Function, Style},
    pattern::Pattern,
    value::Kind,
};
use crate::template::{Names, Target};
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Tree, IdedExpr, LiteralValue, MapExpr,
    SelectExpr, operators,
};

type Compiled = Result<Expr, ConditionError>;

/// Gives the names in a tree their meaning.
pub(super) struct Compiler<'a> {
    names: &'a dyn Names,
    targets: Vec<Target>,
    patterns: Vec<Pattern>,
    /// The names that the macros around brought, outermost first.
    locals: Vec<Arc<str>>,
}

/// What is looked into by name only.
#[derive(Clone, Copy)]
enum Scope {
    Steps,
    Variables,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(names: &'a dyn Names) -> Self {
        Self { names, targets: Vec::new(), patterns: Vec::new(), locals: Vec::new() }
    }

    /// Returns what the compiled expressions look at, and the patterns that they match.
    pub(super) fn into_parts(self) -> (Vec<Target>, Vec<Pattern>) {
        (self.targets, self.patterns)
    }

    /// Compiles a tree.
    pub(super) fn expr(&mut self, tree: &IdedExpr) -> Compiled {
        match &tree.expr {
            Tree::Literal(it) => literal(it),
            Tree::Ident(name) => self.name(name),
            Tree::Select(it) if it.test => self.has(it),
            Tree::Select(it) => {
                if let Some(scope) = self.scope(&it.operand) {
                    return self.target(scope, &it.field, false);
                }
                let key = Key { name: it.field.clone(), quoted: false };
                let of = self.boxed(&it.operand).map_err(|it| self.dotted(tree, it))?;
                Ok(Expr::Field(of, key))
            }
            Tree::Call(it) => self.call(it),
            Tree::List(it) => Ok(Expr::List(self.all(&it.elements)?)),
            Tree::Map(it) => self.map(it),
            Tree::Struct(it) => Err(unsupported(&format!("`{} {{…}}`", it.type_name))),
            Tree::Comprehension(it) => self.repeat(it),
            Tree::Unspecified => Err(unsupported("empty parts")),
        }
    }

    fn boxed(&mut self, tree: &IdedExpr) -> Result<Box<Expr>, ConditionError> {
        self.expr(tree).map(Box::new)
    }

    fn all(&mut self, trees: &[IdedExpr]) -> Result<Vec<Expr>, ConditionError> {
        trees.iter().map(|it| self.expr(it)).collect()
    }

    /// Finds what a single name means: what a macro brought, else a step, else a type.
    fn name(&mut self, name: &str) -> Compiled {
        if let Some(index) = self.locals.iter().rposition(|it| **it == *name) {
            return Ok(Expr::Local(index, Arc::clone(&self.locals[index])));
        }
        match name {
            "input" => return Ok(Expr::Input),
            "steps" => return Err(ConditionError::Bare { name: "steps" }),
            "vars" => return Err(ConditionError::Bare { name: "vars" }),
            _ => (),
        }
        match (self.step(name), Kind::named(name)) {
            (Some(target), _) => Ok(self.look_at(target, name.into())),
            (None, Some(kind)) => Ok(Expr::Type(kind)),
            (None, None) => Err(ConditionError::Unknown { name: name.to_owned() }),
        }
    }

    fn step(&self, name: &str) -> Option<Target> {
        self.names.step(name).or_else(|| self.names.tool(name)).map(Target::Step)
    }

    /// Says how to name a step that `tree` means with dots, where CEL sees fields.
    fn dotted(&self, tree: &IdedExpr, error: ConditionError) -> ConditionError {
        let (ConditionError::Unknown { .. }, Some(name)) = (&error, path(tree)) else {
            return error;
        };
        if self.step(&name).is_some() { ConditionError::Dotted { name } } else { error }
    }

    /// Returns which scope `tree` names, unless a macro gave the name another meaning.
    fn scope(&self, tree: &IdedExpr) -> Option<Scope> {
        let Tree::Ident(name) = &tree.expr else { return None };
        let scope = match name.as_str() {
            "steps" => Scope::Steps,
            "vars" => Scope::Variables,
            _ => return None,
        };
        let is_local = self.locals.iter().any(|it| **it == *name.as_str());
        (!is_local).then_some(scope)
    }

    fn target(&mut self, scope: Scope, name: &str, quoted: bool) -> Compiled {
        let target = match scope {
            Scope::Steps => {
                self.step(name).ok_or_else(|| ConditionError::Unknown { name: name.to_owned() })?
            }
            Scope::Variables => Target::Variable(name.into()),
        };
        let key = Key { name: name.to_owned(), quoted };
        Ok(self.look_at(target, format!("{}{key}", scope.name()).into()))
    }

    fn look_at(&mut self, target: Target, text: Arc<str>) -> Expr {
        let index = self.targets.iter().position(|it| *it == target).unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        Expr::Target(index, text)
    }

    fn call(&mut self, it: &CallExpr) -> Compiled {
        let name = it.func_name.as_str();
        match (&it.target, it.args.as_slice()) {
            (None, [left, right]) if operator(name).is_some() || is_logical(name) => {
                let (left, right) = (self.boxed(left)?, self.boxed(right)?);
                Ok(match operator(name) {
                    Some(operator) => Expr::Binary(operator, left, right),
                    None if name == operators::LOGICAL_AND => Expr::And(left, right),
                    None => Expr::Or(left, right),
                })
            }
            (None, [of]) if name == operators::LOGICAL_NOT => Ok(Expr::Not(self.boxed(of)?)),
            (None, [of]) if name == operators::NEGATE => Ok(Expr::Negate(self.boxed(of)?)),
            (None, [of, index]) if name == operators::INDEX => self.index(of, index),
            (None, [when, then, otherwise]) if name == operators::CONDITIONAL => {
                let parts = [self.expr(when)?, self.expr(then)?, self.expr(otherwise)?];
                Ok(Expr::Choice(Box::new(parts)))
            }
            (Some(_), _) if LoopKind::named(name).is_some() => {
                Err(ConditionError::Arguments { name: name.to_owned(), takes: 2 })
            }
            (of, arguments) if name == "matches" => {
                let of = of.as_deref().into_iter().chain(arguments);
                self.matches(&of.collect::<Vec<_>>())
            }
            (of, arguments) => self.function(name, of.as_deref(), arguments),
        }
    }

    fn index(&mut self, of: &IdedExpr, index: &IdedExpr) -> Compiled {
        let text = text(index);
        match (self.scope(of), text) {
            (Some(scope), Some(name)) => self.target(scope, name, true),
            (Some(scope), None) => Err(ConditionError::Computed { name: scope.name() }),
            (None, Some(name)) => {
                let key = Key { name: name.to_owned(), quoted: true };
                Ok(Expr::Field(self.boxed(of)?, key))
            }
            (None, None) => Ok(Expr::Index(self.boxed(of)?, self.boxed(index)?)),
        }
    }

    /// Compiles `has(a.b)`.
    fn has(&mut self, it: &SelectExpr) -> Compiled {
        let Some(scope) = self.scope(&it.operand) else {
            let key = Key { name: it.field.clone(), quoted: false };
            return Ok(Expr::Has(self.boxed(&it.operand)?, key));
        };
        match self.target(scope, &it.field, false)? {
            Expr::Target(index, _) => Ok(Expr::HasTarget(index)),
            other => Ok(other),
        }
    }

    /// Compiles what the parser has made of a macro, back into what the macro means.
    fn repeat(&mut self, it: &ComprehensionExpr) -> Compiled {
        let Some((kind, test, make)) = written(it) else { return Err(unsupported("such loops")) };
        let range = self.expr(&it.iter_range)?;
        self.locals.push(it.iter_var.as_str().into());
        let test = test.map_or(Ok(Expr::Bool(true)), |it| self.expr(it));
        let make = make.map(|it| self.expr(it)).transpose();
        self.locals.pop();
        Ok(Expr::Loop(Box::new(Loop { kind, range, test: test?, make: make? })))
    }

    /// Compiles `a.matches("pattern")`: what pattern it is must be known before anything runs.
    fn matches(&mut self, arguments: &[&IdedExpr]) -> Compiled {
        let [of, pattern] = arguments else {
            return Err(ConditionError::Arguments { name: "matches".to_owned(), takes: 1 });
        };
        let Some(pattern) = text(pattern) else { return Err(ConditionError::ComputedPattern) };
        let of = self.boxed(of)?;
        self.patterns.push(Pattern::parse(pattern)?);
        Ok(Expr::Matches(of, self.patterns.len() - 1))
    }

    fn function(&mut self, name: &str, of: Option<&IdedExpr>, arguments: &[IdedExpr]) -> Compiled {
        let style = if of.is_some() { Style::Method } else { Style::Plain };
        let Some((function, takes)) = Function::named(name, style) else {
            return Err(ConditionError::UnknownFunction { name: name.to_owned() });
        };
        let arguments: Vec<_> = of.into_iter().chain(arguments).collect();
        if arguments.len() != takes {
            let takes = takes - usize::from(of.is_some());
            return Err(ConditionError::Arguments { name: name.to_owned(), takes });
        }
        let arguments = arguments.into_iter().map(|it| self.expr(it));
        Ok(Expr::Call(function, arguments.collect::<Result<_, _>>()?))
    }

    fn map(&mut self, it: &MapExpr) -> Compiled {
        let entries = it.entries.iter().map(|entry| match &entry.expr {
            EntryExpr::MapEntry(it) => Ok((self.expr(&it.key)?, self.expr(&it.value)?)),
            EntryExpr::StructField(_) => Err(unsupported("a field without a key")),
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

fn literal(literal: &LiteralValue) -> Compiled {
    Ok(match literal {
        LiteralValue::Boolean(it) => Expr::Bool(*it.inner()),
        LiteralValue::Int(it) => Expr::Integer((*it.inner()).into()),
        LiteralValue::UInt(it) => Expr::Integer((*it.inner()).into()),
        LiteralValue::Double(it) => Expr::Double(*it.inner()),
        LiteralValue::String(it) => Expr::Text(it.inner().to_owned()),
        LiteralValue::Null => Expr::Null,
        LiteralValue::Bytes(_) => return Err(unsupported("bytes")),
    })
}

/// What a macro asks, what it tests each item with, and what it makes of one.
type Written<'a> = (LoopKind, Option<&'a IdedExpr>, Option<&'a IdedExpr>);

/// Returns what the macro was that the parser expanded, told by what the loop begins with.
fn written(it: &ComprehensionExpr) -> Option<Written<'_>> {
    let (step, arguments) = called(&it.loop_step)?;
    Some(match (&it.accu_init.expr, step, arguments) {
        (Tree::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_AND, [_, test]) => {
            (LoopKind::All, Some(test), None)
        }
        (Tree::Literal(LiteralValue::Boolean(_)), operators::LOGICAL_OR, [_, test]) => {
            (LoopKind::Exists, Some(test), None)
        }
        (Tree::Literal(LiteralValue::Int(_)), operators::CONDITIONAL, [test, ..]) => {
            (LoopKind::ExistsOne, Some(test), None)
        }
        (Tree::List(_), operators::CONDITIONAL, [test, step, _]) => {
            (LoopKind::Map, Some(test), Some(appended(called(step)?)?))
        }
        (Tree::List(_), step, arguments) => {
            (LoopKind::Map, None, Some(appended((step, arguments))?))
        }
        _ => return None,
    })
}

/// Returns the item of `@result + [item]`.
fn appended<'a>(call: (&str, &'a [IdedExpr])) -> Option<&'a IdedExpr> {
    match call {
        (operators::ADD, [_, IdedExpr { expr: Tree::List(list), .. }]) => list.elements.first(),
        _ => None,
    }
}

fn called(tree: &IdedExpr) -> Option<(&str, &[IdedExpr])> {
    match &tree.expr {
        Tree::Call(it) => Some((&it.func_name, &it.args)),
        _ => None,
    }
}

/// Returns the string that is written there.
fn text(tree: &IdedExpr) -> Option<&str> {
    match &tree.expr {
        Tree::Literal(LiteralValue::String(it)) => Some(it.inner()),
        _ => None,
    }
}

/// Returns `a.b.c` as it was written, if it is nothing else.
fn path(tree: &IdedExpr) -> Option<String> {
    match &tree.expr {
        Tree::Ident(name) => Some(name.clone()),
        Tree::Select(it) => Some(format!("{}.{}", path(&it.operand)?, it.field)),
        _ => None,
    }
}

fn is_logical(name: &str) -> bool {
    matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR)
}

fn operator(name: &str) -> Option<Operator> {
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

fn unsupported(what: &str) -> ConditionError {
    ConditionError::Unsupported { what: what.to_owned() }
}
