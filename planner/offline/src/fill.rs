//! Fills a tool's parameters from a clause: what cues announced, then what types give away, then
//! what a stated rule derives. What remains is said, never guessed.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    choose::Ask,
    explain::{self, Problem},
    mood::Taken,
    property::Role,
    scan::{Scan, Scene, words_for_days},
    token::Kind,
    value,
    words::{self, Family},
};

/// What a clause gives for one tool.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    /// The parameters, in the schema's order.
    pub(super) parameters: Map<String, Value>,
    /// The steps that they refer to.
    pub(super) links: Vec<String>,
    /// What the thing that is made is called.
    pub(super) name: Option<String>,
    /// What stands in the way.
    pub(super) problems: Vec<Problem>,
    /// What was derived by a rule.
    pub(super) assumed: Vec<Assumed>,
    /// Words that nothing was made of.
    pub(super) ignored: Vec<String>,
    /// How sure each parameter is, where that was weighed.
    pub(super) sure: Vec<(String, f32)>,
    /// The words that became values, where that was noted.
    pub(super) taken: Vec<Taken>,
}

/// A value that was not given but derived by a stated rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assumed {
    /// The parameter.
    pub(super) parameter: String,
    /// What it was taken to be.
    pub(super) value: Value,
    /// How to say another one.
    pub(super) help: String,
}

/// Fills a tool's parameters from a clause.
pub(super) fn fill(scene: Scene<'_>, ask: &Ask) -> Filled {
    // What is made is named by its noun; what exists may be meant by it.
    let from = match scene.profile.family {
        Some(Family::Create | Family::Send) => ask.after_object,
        _ => ask.after_verb,
    };
    let mut filler =
        Filler { scan: Scan::read(scene, from), ask, used: BTreeSet::new(), assumed: Vec::new() };
    filler.recall_adjectives();
    filler.take_typed();
    filler.take_lists();
    filler.take_head();
    filler.take_quotations();
    filler.take_flags();
    filler.refuse_days();
    let ignored = filler.leftovers();
    filler.take_topic();
    filler.carry();
    filler.imply_references();
    filler.assume();
    filler.require();
    filler.require_change();
    filler.finish(ignored)
}

/// A clause on its way to parameters.
pub(super) struct Filler<'a> {
    /// What cues and references gave.
    pub(super) scan: Scan<'a>,
    ask: &'a Ask,
    used: BTreeSet<usize>,
    /// What was derived by a rule.
    pub(super) assumed: Vec<Assumed>,
}

impl Filler<'_> {
    /// Takes up the words before the object, such as `a short …`: one may be a value.
    fn recall_adjectives(&mut self) {
        if matches!(self.scan.scene.profile.family, Some(Family::Create | Family::Send)) {
            let before: Vec<usize> = (self.ask.after_verb..self.ask.after_object).collect();
            self.scan.loose.splice(0..0, before);
        }
    }

    /// Refuses a change that changes nothing.
    fn require_change(&mut self) {
        let profile = self.scan.scene.profile;
        let changes =
            || profile.properties.iter().enumerate().filter(|(_, it)| it.role != Role::Id);
        if profile.family != Some(Family::Update)
            || !self.scan.problems.is_empty()
            || changes().next().is_none()
        {
            return;
        }
        if changes().all(|(at, _)| self.scan.values[at].is_none()) {
            let parameters = changes().map(|(_, it)| it.name.clone()).collect();
            self.scan.problems.push(Problem::NoChange { tool: self.tool(), parameters });
        }
    }

    /// Returns the parameters of some roles that may still be filled.
    pub(super) fn free(&self, is_fit: impl Fn(Role) -> bool) -> Vec<usize> {
        (0..self.scan.values.len())
            .filter(|it| self.scan.is_free(*it) && is_fit(self.scan.property(*it).role))
            .collect()
    }

    fn unused(&self) -> Vec<usize> {
        self.scan.loose.iter().filter(|it| !self.used.contains(it)).copied().collect()
    }

    fn token(&self, at: usize) -> &super::token::Token {
        &self.scan.scene.tokens[at]
    }

    /// Gives words with a type of their own to the first parameter of that type.
    fn take_typed(&mut self) {
        let is_reversed = self.is_reversed();
        for at in self.unused() {
            if self.used.contains(&at) || self.token(at).kind == Kind::Quoted {
                continue;
            }
            let mut free = self.free(|it| !matches!(it, Role::List | Role::Other | Role::Bool));
            if is_reversed {
                free.reverse();
            }
            let is_id = value::is_id_like(self.token(at));
            let taken = free.into_iter().find_map(|property| {
                let it = self.scan.property(property);
                // A bare number may be the identifier of the thing itself, never of another.
                let is_own = it.role != Role::Id
                    || (is_id
                        && !self.is_of_another(at, property)
                        && self.scan.id_property(None) == Some(property)
                        && self.may_identify(at));
                let (value, len) = self
                    .scan
                    .typed(property, at)
                    .filter(|_| is_own && (!it.is_text() || it.role == Role::Path))?;
                Some((property, value, len))
            });
            if let Some((property, value, len)) = taken {
                self.scan.values[property] = Some(value);
                self.used.extend(at..at + len);
            }
        }
    }

    /// Returns whether the word before an identifier says that it is one of something else.
    fn is_of_another(&self, at: usize, property: usize) -> bool {
        let tokens = self.scan.scene.tokens;
        let noun = tokens[..at].iter().rev().take(3).find(|it| {
            let is_link = it.stem == "id" || it.is("number") || it.is("with") || it.is("no");
            it.kind == Kind::Word && !is_link
        });
        let vocabulary = self.scan.scene.vocabulary;
        let Some(stem) = noun.map(|it| &it.stem).filter(|it| vocabulary.nouns.contains(*it)) else {
            return false;
        };
        let profile = self.scan.scene.profile;
        let means = |noun: &String| {
            noun == stem || vocabulary.kinds.get(stem).is_some_and(|it| it.contains(noun))
        };
        let it = self.scan.property(property);
        let is_own = match &it.noun {
            Some(noun) => means(noun),
            None => profile.is_about(stem),
        };
        !is_own && !profile.verbs.contains(stem)
    }

    /// Returns whether a loose word may identify the thing that a clause is about.
    fn may_identify(&self, at: usize) -> bool {
        let is_existing = self.scan.scene.profile.family != Some(Family::Create);
        self.token(at).kind == Kind::Id || (is_existing && self.token(at).kind == Kind::Number)
    }

    /// `subtract 3 from 10` says the second number first.
    fn is_reversed(&self) -> bool {
        let tokens = self.scan.scene.tokens;
        let is_taking = self.ask.verb.as_deref().is_some_and(|it| {
            ["subtract", "deduct", "take", "minus"].iter().any(|word| words::stem(word) == it)
        });
        is_taking && tokens.iter().any(|it| it.is("from"))
    }

    /// Gives what is left of numbers, addresses and capitalised words to lists of them.
    fn take_lists(&mut self) {
        for property in self.free(|it| it == Role::List) {
            let it = self.scan.property(property);
            let fitting: Vec<usize> = self
                .unused()
                .into_iter()
                .filter(|at| match it.item {
                    Role::Number | Role::Integer => self.token(*at).kind == Kind::Number,
                    Role::Email => self.token(*at).kind == Kind::Email,
                    Role::Path => self.token(*at).kind == Kind::Path,
                    _ => false,
                })
                .collect();
            let items: Vec<Value> = fitting
                .iter()
                .filter_map(|at| match it.item {
                    Role::Email | Role::Path => Some(value::literal(&self.token(*at).value)),
                    role => {
                        value::number(self.token(*at)).and_then(|it| value::typed_number(it, role))
                    }
                })
                .collect();
            if !items.is_empty() {
                self.scan.values[property] = Some(Value::Array(items));
                self.used.extend(fitting);
            }
        }
    }

    /// Gives the words right after the object to the parameter that names it.
    fn take_head(&mut self) {
        let Some(property) = self.head_property() else { return };
        let tokens = self.scan.scene.tokens;
        let unused: Vec<usize> =
            self.unused().into_iter().filter(|it| *it >= self.ask.after_object).collect();
        let start =
            unused.iter().position(|at| !self.is_idle_before_head(*at)).unwrap_or(unused.len());
        let Some(&first) = unused.get(start) else { return };
        // `3 authors` are that many, and none of that name.
        let is_count = tokens[first].kind == Kind::Number
            && matches!(self.scan.property(property).role, Role::Name | Role::Title);
        if is_count {
            return;
        }
        let whole = first + value::contiguous(self.scan.scene.query, &tokens[first..]);
        let unused: Vec<usize> = unused.into_iter().filter(|it| *it < whole).collect();
        let mut end = first;
        for &at in &unused[start..] {
            let token = &tokens[at];
            let next = tokens.get(at + 1).filter(|_| unused.contains(&(at + 1)));
            let joins = (words::is_preposition(&token.lower) || token.is_separator())
                && next.is_some_and(|it| it.is_capitalised() || words::is_determiner(&it.lower))
                && self.scan.property(property).role == Role::Title;
            let is_word =
                matches!(token.kind, Kind::Word | Kind::Quoted | Kind::Number | Kind::Path)
                    && !words::is_preposition(&token.lower)
                    && !token.is_separator();
            let is_initial = token.is_mark(".") && at > first && self.is_initial(at);
            let is_day =
                words_for_days(&token.lower) && !self.free(|it| it == Role::Date).is_empty();
            if at != end
                || is_day
                || !(is_word || joins || is_initial)
                || self.leaves_name(property, first, at)
            {
                break;
            }
            end = at + 1;
        }
        while end > first
            && matches!(
                tokens[end - 1].lower.as_str(),
                "with" | "please" | "whose" | "set" | "has" | "having"
            )
        {
            end -= 1;
        }
        if tokens[first..end].iter().all(|it| words::is_idle(&it.lower) || it.kind == Kind::Mark) {
            return;
        }
        let result = self.scan.result_at(property, end - 1).filter(|_| end - first <= 2);
        let text =
            value::text(self.scan.scene.query, &tokens[first..end]).map(|it| value::literal(&it));
        if let Some(text) = result.or(text) {
            self.scan.values[property] = Some(text);
            self.used.extend(first..end);
        }
    }

    /// Returns whether the full stop at `at` shortens a name: `J. Smith`.
    fn is_initial(&self, at: usize) -> bool {
        let is_short = at
            .checked_sub(1)
            .is_some_and(|it| self.token(it).is_capitalised() && self.token(it).value.len() <= 3);
        is_short
            && self.scan.scene.tokens.get(at + 1).is_some_and(super::token::Token::is_capitalised)
    }

    /// Returns whether a capitalised name is over: `Alice from Berlin`.
    fn leaves_name(&self, property: usize, first: usize, at: usize) -> bool {
        let token = self.token(at);
        let is_particle = matches!(
            token.lower.as_str(),
            "de" | "da" | "di" | "van" | "von" | "der" | "den" | "la" | "le" | "el" | "bin"
        );
        self.scan.property(property).role == Role::Name
            && self.token(first).is_capitalised()
            && token.kind == Kind::Word
            && !token.is_capitalised()
            && !is_particle
    }

    fn is_idle_before_head(&self, at: usize) -> bool {
        let token = self.token(at);
        let is_known = self.ask.object.contains(&token.stem) && token.kind == Kind::Word;
        let is_tie = ["for", "at", "of", "with"].iter().any(|it| token.is(it));
        is_known
            || token.kind == Kind::Mark
            || words::is_determiner(&token.lower)
            || (is_tie && self.scan.scene.profile.family != Some(Family::Create))
    }

    /// Returns the parameter that the words right after the object fill.
    fn head_property(&self) -> Option<usize> {
        let family = self.scan.scene.profile.family;
        if matches!(family, Some(Family::Update | Family::Delete)) {
            return None;
        }
        let name = self.free(|it| matches!(it, Role::Name | Role::Title)).into_iter().next();
        let text = || {
            self.free(|it| matches!(it, Role::Text | Role::Content | Role::Path))
                .into_iter()
                .find(|it| self.scan.property(*it).is_required)
        };
        let is_list = family == Some(Family::List);
        name.filter(|_| !is_list).or_else(text)
    }

    /// Gives quotations that no cue announced to the texts that are missing.
    fn take_quotations(&mut self) {
        for at in self.unused() {
            if self.token(at).kind != Kind::Quoted {
                continue;
            }
            let free = self.free(|it| {
                matches!(it, Role::Name | Role::Title | Role::Content | Role::Text | Role::Path)
            });
            let property = free.into_iter().find(|it| self.scan.property(*it).is_required);
            if let Some(property) = property {
                self.scan.values[property] = Some(value::literal(&self.token(at).value));
                self.used.insert(at);
            }
        }
    }

    /// Sets a flag that the clause names with other words of its name: `unpublished`.
    fn take_flags(&mut self) {
        for property in self.free(|it| it == Role::Bool) {
            let it = self.scan.property(property);
            let denied = self.unused().into_iter().find(|at| {
                self.token(*at)
                    .lower
                    .strip_prefix("un")
                    .is_some_and(|rest| it.words.contains(&words::stem(rest)))
            });
            let named = self.unused().into_iter().find(|at| {
                it.words.contains(&self.token(*at).stem) && !words::is_idle(&self.token(*at).lower)
            });
            if let Some(at) = denied.or(named) {
                self.scan.values[property] = Some(Value::Bool(denied.is_none()));
                self.used.insert(at);
            }
        }
    }

    /// Refuses `tomorrow` where only a date will do: nobody here knows what day it is.
    fn refuse_days(&mut self) {
        let day = self.unused().into_iter().find(|at| words_for_days(&self.token(*at).lower));
        let Some(at) = day else { return };
        let Some(property) = self.free(|it| it == Role::Date).into_iter().next() else { return };
        let (tool, parameter) = (self.tool(), self.scan.property(property).name.clone());
        let (said, expected) =
            (self.token(at).value.clone(), "an ISO date such as `2026-01-31`".to_owned());
        self.scan.blocked.insert(property);
        self.used.insert(at);
        self.scan.problems.push(Problem::Unfit { tool, parameter, said, expected });
    }

    fn tool(&self) -> String {
        self.scan.scene.profile.name.clone()
    }

    /// Collects the words that nothing was made of. What reads like something to do is a problem.
    fn leftovers(&mut self) -> Vec<String> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in self.unused() {
            if self.is_meaningless(at) {
                continue;
            }
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        let mut ignored = Vec::new();
        for (from, to) in runs {
            let tokens = self.scan.scene.tokens;
            let said = value::text(self.scan.scene.query, &tokens[from..to]).unwrap_or_default();
            let is_joined = from.checked_sub(1).is_some_and(|it| tokens[it].is_separator());
            let is_typed = tokens[from..to].iter().any(|it| it.kind != Kind::Word);
            if is_joined || is_typed || self.scan.scene.profile.acts() {
                self.scan.problems.push(Problem::Leftover { words: said });
            } else {
                ignored.push(said);
            }
        }
        ignored
    }

    fn is_meaningless(&self, at: usize) -> bool {
        let token = self.token(at);
        let profile = self.scan.scene.profile;
        let stem = &token.stem;
        let tokens = self.scan.scene.tokens;
        let before = at.checked_sub(1).map(|it| &tokens[it]);
        let next = tokens.get(at + 1);
        // `2 boxes of …` counts, `costing $20` announces what is taken.
        let is_measure = before.is_some_and(|it| value::number(it).is_some())
            && next.is_some_and(|it| it.is("of"))
            && words::is_plural(&token.lower);
        let announces = token.lower.ends_with("ing") && self.used.contains(&(at + 1));
        token.kind == Kind::Mark
            || (token.kind == Kind::Word
                && (is_measure
                    || announces
                    || words::is_idle(&token.lower)
                    || words::is_preposition(&token.lower)
                    || self.ask.object.contains(stem)
                    || profile.is_about(stem)
                    || profile.others.contains(stem)
                    || profile.about.contains(stem)
                    || words::is_result(stem)))
    }

    fn require(&mut self) {
        for property in self.free(|_| true) {
            let it = self.scan.property(property);
            if it.is_required {
                let hint = explain::hint(self.scan.scene.profile, it);
                let (tool, parameter) = (self.tool(), it.name.clone());
                self.scan.problems.push(Problem::Missing { tool, parameter, hint });
            }
        }
    }

    fn finish(self, ignored: Vec<String>) -> Filled {
        let scan = self.scan;
        let profile = scan.scene.profile;
        let links = scan.scene.memory.steps_in(scan.values.iter().flatten());
        let mut name = None;
        for role in [Role::Name, Role::Title] {
            let at = profile.properties.iter().position(|it| it.role == role);
            name = name.or_else(|| {
                at.and_then(|it| scan.values[it].as_ref()?.as_str().map(str::to_owned))
            });
        }
        let mut parameters = Map::new();
        for (property, value) in profile.properties.iter().zip(scan.values) {
            if let Some(value) = value {
                parameters.insert(property.name.clone(), value);
            }
        }
        Filled {
            parameters,
            links,
            name,
            problems: scan.problems,
            assumed: self.assumed,
            ignored,
            sure: Vec::new(),
            taken: Vec::new(),
        }
    }
}
