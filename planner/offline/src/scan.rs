//! Reads a clause for one tool: which words are for which parameter, and what they refer to.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    amount::{self, Amount},
    cue::{Cue, Cues},
    describe::Described,
    explain::{self, Problem},
    memory::Memory,
    profile::{Profile, Vocabulary},
    property::{Property, Role},
    token::{Kind, Token},
    unit::{self, Unit},
    value,
    when::Form,
    words::{self, Family},
};

/// Words that may stand between a cue and a number, an address or a date.
const GAP: usize = 6;

/// What a clause is read with.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// The whole query, for texts as they were written.
    pub(super) query: &'a str,
    /// The clause.
    pub(super) tokens: &'a [Token],
    /// The tool.
    pub(super) profile: &'a Profile,
    /// What earlier clauses made.
    pub(super) memory: &'a Memory,
    /// What the catalog's tools know.
    pub(super) vocabulary: &'a Vocabulary,
}

/// What was found out about a clause, for one tool.
pub(super) struct Scan<'a> {
    /// What it is read with.
    pub(super) scene: Scene<'a>,
    /// The value of each parameter.
    pub(super) values: Vec<Option<Value>>,
    /// The words that no cue announced.
    pub(super) loose: Vec<usize>,
    /// Parameters that have a problem of their own already.
    pub(super) blocked: BTreeSet<usize>,
    /// What stands in the way.
    pub(super) problems: Vec<Problem>,
    /// What a text is `about`.
    pub(super) topic: Option<String>,
}

impl<'a> Scan<'a> {
    /// Reads a clause from `from` on.
    pub(super) fn read(scene: Scene<'a>, from: usize) -> Self {
        let mut scan = Self {
            scene,
            values: vec![None; scene.profile.properties.len()],
            loose: Vec::new(),
            blocked: BTreeSet::new(),
            problems: Vec::new(),
            topic: None,
        };
        let mut at = from;
        while at < scene.tokens.len() {
            if let Some(found) = scan.mention(at, None) {
                at = found.end;
                scan.refer(&found);
            } else if let Some(cue) = scan.cue(at, None) {
                at = scan.take(cue, at);
            } else {
                scan.loose.push(at);
                at += 1;
            }
        }
        scan
    }

    /// Returns a parameter.
    pub(super) fn property(&self, at: usize) -> &'a Property {
        &self.scene.profile.properties[at]
    }

    /// Returns whether a parameter may still be filled.
    pub(super) fn is_free(&self, at: usize) -> bool {
        self.values[at].is_none() && !self.blocked.contains(&at)
    }

    fn cue(&self, at: usize, inside: Option<usize>) -> Option<Cue> {
        let scene = self.scene;
        let cues = Cues {
            tokens: scene.tokens,
            properties: &scene.profile.properties,
            family: scene.profile.family,
        };
        let cue = cues.find(at, inside, &|it| self.is_free(it))?;
        // `set mood to happy` does not name the thing `happy`.
        let is_strange = inside.is_none()
            && scene.tokens[at].is("to")
            && scene.profile.family == Some(Family::Update)
            && self
                .loose
                .last()
                .is_some_and(|it| *it + 1 == at && self.is_strange(&scene.tokens[*it]));
        (!is_strange).then_some(cue)
    }

    fn is_strange(&self, token: &Token) -> bool {
        token.kind == Kind::Word
            && !words::is_idle(&token.lower)
            && !self.scene.profile.is_about(&token.stem)
    }

    /// Takes the words that a cue announces, and returns where they end.
    fn take(&mut self, cue: Cue, at: usize) -> usize {
        let tokens = self.scene.tokens;
        let property = self.property(cue.property);
        let mut from = cue.from;
        let of = [from.saturating_sub(1), from]
            .into_iter()
            .find(|it| *it > at && tokens.get(*it).is_some_and(|it| it.is("of")));
        if let Some(found) = of.filter(|_| !cue.is_topic).and_then(|it| self.mention(it, None)) {
            from = found.end;
            self.refer(&found);
            while tokens.get(from).is_some_and(|it| it.is("to") || it.is("as") || it.is_mark(":")) {
                from += 1;
            }
        }
        if cue.is_flag {
            return self.take_flag(cue.property, from, at);
        }
        if !property.is_text() && property.role != Role::List {
            return self.take_typed(cue.property, from);
        }
        let is_quoted = tokens.get(from).is_some_and(|it| it.kind == Kind::Quoted);
        let mut end = from + 1 + usize::from(cue.is_topic);
        if property.role == Role::List || !is_quoted {
            while end < tokens.len() && !self.ends(end, cue.property) {
                end += 1;
            }
        }
        self.take_text(cue, from.min(tokens.len()), end.min(tokens.len()));
        end
    }

    fn take_flag(&mut self, property: usize, from: usize, at: usize) -> usize {
        let tokens = self.scene.tokens;
        let said = tokens.get(from).and_then(value::truth);
        let is_denied = at.checked_sub(1).is_some_and(|it| {
            matches!(tokens[it].lower.as_str(), "not" | "without" | "no" | "isn't" | "never")
        });
        if is_denied {
            self.loose.retain(|it| it + 1 != at);
        }
        self.values[property] = Some(Value::Bool(said.unwrap_or(true) != is_denied));
        from + usize::from(said.is_some())
    }

    /// Takes the first word near a cue that has the parameter's type.
    fn take_typed(&mut self, property: usize, from: usize) -> usize {
        let tokens = self.scene.tokens;
        let near = from.min(tokens.len())..(from + GAP).min(tokens.len());
        for at in near {
            if let Some((value, len)) = self.typed(property, at) {
                self.values[property] = Some(value);
                self.loose.extend(from..at);
                return at + len;
            }
            if at > from && self.ends(at, property) {
                break;
            }
        }
        self.unfit(property, from);
        from + 1
    }

    fn unfit(&mut self, property: usize, at: usize) {
        let it = self.property(property);
        let expected = match it.role {
            Role::Email => "an e-mail address".to_owned(),
            Role::Url => "an address such as `https://example.com/`".to_owned(),
            Role::Date => "an ISO date such as `2026-01-31`".to_owned(),
            Role::Integer => "a whole number".to_owned(),
            Role::Number => "a number".to_owned(),
            Role::Enum => format!("one of {}", explain::allowed(it)),
            Role::Other => "an object, which words cannot say: write the plan as JSON".to_owned(),
            _ => "another value".to_owned(),
        };
        let said = self.scene.tokens.get(at).map(|it| it.value.clone()).unwrap_or_default();
        let (tool, parameter) = (self.scene.profile.name.clone(), it.name.clone());
        self.blocked.insert(property);
        self.problems.push(Problem::Unfit { tool, parameter, said, expected });
    }

    /// Returns the value that the words at `at` have by a parameter's type, and how many they are.
    pub(super) fn typed(&self, property: usize, at: usize) -> Option<(Value, usize)> {
        let tokens = self.scene.tokens;
        let token = tokens.get(at)?;
        let it = self.property(property);
        let of_kind =
            |kinds: &[Kind]| kinds.contains(&token.kind).then(|| value::literal(&token.value));
        let one = match it.role {
            Role::Email => of_kind(&[Kind::Email, Kind::Quoted]),
            Role::Url => of_kind(&[Kind::Url, Kind::Quoted]),
            Role::Path => of_kind(&[Kind::Path, Kind::Quoted]),
            Role::Date if it.is_strict => of_kind(&[Kind::Date]),
            Role::Date if words_for_days(&token.lower) => {
                Form::of(&it.description).is_none().then(|| value::literal(&token.lower))
            }
            Role::Date => of_kind(&[Kind::Date, Kind::Time, Kind::Quoted]),
            Role::Number | Role::Integer if value::number(token).is_some() => {
                if let Some((amount, len, unit)) = self.measured(property, at) {
                    let number = unit::convert(amount.number.as_f64()?, amount.unit?, unit)?;
                    let number = amount::whole(number)?;
                    return value::typed_number(number, it.role).map(|it| (it, len));
                }
                value::number(token).and_then(|number| value::typed_number(number, it.role))
            }
            Role::Id => value::id(it, token),
            Role::Bool => value::truth(token).map(Value::Bool),
            Role::Enum => return value::one_of(&it.values, &tokens[at..]),
            _ => None,
        };
        let one = one.or_else(|| self.result_at(property, at));
        one.map(|value| (value, 1))
    }

    /// Returns the amount at `at`, how many words it takes, and the unit that a parameter wants it
    /// in, where both have a unit of one kind.
    fn measured(&self, property: usize, at: usize) -> Option<(Amount, usize, &'static Unit)> {
        let it = self.property(property);
        let (amount, len) = amount::read(self.scene.tokens, at)?;
        let from = amount.unit?;
        let name = words::split_identifier(&it.name);
        let told = Described::read(&it.description).unit;
        let to = told.or_else(|| unit::named(name.last()?))?;
        let is_fit = from.dimension == to.dimension && !unit::is_vague(from) && !unit::is_vague(to);
        is_fit.then_some((amount, len, to))
    }

    /// Returns the template of an earlier result, where the words at `at` mean it.
    pub(super) fn result_at(&self, property: usize, at: usize) -> Option<Value> {
        let token = self.scene.tokens.get(at).filter(|it| it.kind == Kind::Word)?;
        let it = self.property(property);
        let is_result = words::is_result(&token.stem)
            || (it.is_numeric() && matches!(token.lower.as_str(), "it" | "that" | "this"));
        let entity = self
            .scene
            .memory
            .result()
            .filter(|_| is_result && (it.is_numeric() || it.role == Role::Content))?;
        Some(Value::String(entity.result.clone()))
    }

    fn take_text(&mut self, cue: Cue, from: usize, end: usize) {
        let tokens = self.scene.tokens;
        let property = self.property(cue.property);
        let cut = match property.role {
            Role::Name | Role::Text | Role::Path => {
                tokens[from..end].iter().skip(1).position(|it| {
                    it.is_mark("(") || matches!(it.kind, Kind::Email | Kind::Url | Kind::Date)
                })
            }
            _ => None,
        };
        let path = tokens[from..end]
            .iter()
            .position(|it| property.role == Role::Path && it.kind == Kind::Path);
        let from = path.map_or(from, |it| from + it);
        let stop = if path.is_some() { from + 1 } else { cut.map_or(end, |it| from + 1 + it) };
        self.loose.extend(stop..end);
        let said = trimmed(&tokens[from..stop], stop < tokens.len());
        if cue.is_topic {
            self.topic = value::text(self.scene.query, said.get(1..).unwrap_or_default());
        }
        let value = if property.role == Role::List {
            value::list(self.scene.query, said, property)
        } else {
            let is_result =
                said.last().is_some_and(|it| words::is_result(&it.stem)) && said.len() <= 2;
            let result =
                is_result.then(|| self.result_at(cue.property, from + said.len() - 1)).flatten();
            result.or_else(|| value::text(self.scene.query, said).map(|it| value::literal(&it)))
        };
        match value {
            Some(value) => self.values[cue.property] = Some(value),
            None if from < tokens.len() => self.unfit(cue.property, from),
            None => (),
        }
    }

    /// Returns whether the words for a parameter end before `at`.
    fn ends(&self, at: usize, inside: usize) -> bool {
        let is_day = self.property(inside).role == Role::Text
            && words_for_days(&self.scene.tokens[at].lower)
            && (0..self.values.len())
                .any(|it| self.is_free(it) && self.property(it).role == Role::Date);
        is_day || self.mention(at, Some(inside)).is_some() || self.cue(at, Some(inside)).is_some()
    }
}

/// Returns whether a word means a day that only a calendar knows.
pub(super) fn words_for_days(lower: &str) -> bool {
    matches!(
        lower,
        "today"
            | "tomorrow"
            | "yesterday"
            | "tonight"
            | "monday"
            | "tuesday"
            | "wednesday"
            | "thursday"
            | "friday"
            | "saturday"
            | "sunday"
    )
}

/// Takes away what belongs to the next cue, or to nothing.
fn trimmed(tokens: &[Token], is_cut: bool) -> &[Token] {
    let mut end = tokens.len();
    while end > 1 {
        let token = &tokens[end - 1];
        let is_mark = [",", ";", ".", "\n"].iter().any(|it| token.is_mark(it));
        let is_link = is_cut
            && token.kind == Kind::Word
            && matches!(
                token.lower.as_str(),
                "with"
                    | "and"
                    | "whose"
                    | "its"
                    | "his"
                    | "her"
                    | "their"
                    | "a"
                    | "an"
                    | "the"
                    | "that"
                    | "has"
                    | "having"
                    | "which"
                    | "set"
                    | "using"
            );
        if !is_mark && !is_link {
            break;
        }
        end -= 1;
    }
    &tokens[..end]
}
