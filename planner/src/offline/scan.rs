//! Reads a clause for one tool: which words are for which parameter, and what they refer to.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    cue::{Cue, Cues},
    explain::{self, Problem},
    memory::{Entity, Memory, Mention, Unresolved, is_person},
    profile::{Profile, Vocabulary},
    property::{Property, Role},
    token::{Kind, Token},
    value,
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

/// A mention and the parameter that it fills.
struct Found {
    property: usize,
    mention: Mention,
    literal: Option<Value>,
    end: usize,
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
            Role::Date if words_for_days(&token.lower) => Some(value::literal(&token.lower)),
            Role::Date => of_kind(&[Kind::Date, Kind::Time, Kind::Quoted]),
            Role::Number | Role::Integer => {
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

    /// Finds what refers to a thing at `at`; inside a text only what certainly does.
    fn mention(&self, at: usize, inside: Option<usize>) -> Option<Found> {
        let token = self.scene.tokens.get(at)?;
        let preposition = token.kind == Kind::Word && is_tie(&token.lower);
        let is_text = inside
            .is_some_and(|it| self.property(it).is_text() || self.property(it).role == Role::List);
        if is_text && !preposition {
            return None;
        }
        let by = if preposition { Some(token.lower.as_str()) } else { None };
        let found = self.parse(at + usize::from(preposition), by, inside.is_some())?;
        let noun = self.property(found.property).noun.as_deref();
        let is_sure = found.literal.is_some()
            || self.scene.memory.resolve(&found.mention, noun).is_ok()
            || (by == Some("by") && found.mention.name.is_some());
        (!is_text || is_sure).then_some(found)
    }

    fn word(&self, at: usize) -> Option<&'a Token> {
        self.scene.tokens.get(at).filter(|it| it.kind == Kind::Word)
    }

    fn parse(&self, at: usize, preposition: Option<&str>, is_inside: bool) -> Option<Found> {
        let mut at = at;
        let mut mention = Mention::default();
        let start = at;
        while let Some(token) = self.word(at).filter(|it| words::is_determiner(&it.lower)) {
            mention.is_pointed |= matches!(token.lower.as_str(), "that" | "this" | "same");
            at += 1;
        }
        let owner = self.owner(at);
        let has_owner = owner.is_some();
        if let Some((owner, len)) = owner {
            if owner.is_none() {
                mention.is_pointed = true;
            }
            mention.owner = owner;
            at += len;
        }
        if let Some(found) = self.noun_mention(at, &mention) {
            return Some(found);
        }
        if has_owner {
            at = start;
            mention = Mention::default();
        }
        self.bare_mention(at, start, preposition, mention, is_inside)
    }

    /// Returns whose thing is spoken of: `Alice's …`, `her …`.
    fn owner(&self, at: usize) -> Option<(Option<String>, usize)> {
        let token = self.word(at)?;
        let next = self.word(at + 1)?;
        let is_noun = self.scene.vocabulary.things.contains(&next.stem);
        if matches!(token.lower.as_str(), "his" | "her" | "their" | "its") && is_noun {
            return Some((None, 1));
        }
        let (name, len) = self.scene.memory.name_at(&self.scene.tokens[at..])?;
        self.scene.tokens[at + len - 1].is_possessive().then_some((Some(name), len))
    }

    /// Reads `blog`, `blog 507f…`, `author id 7`, `author Alice`, `the blog's`.
    fn noun_mention(&self, at: usize, mention: &Mention) -> Option<Found> {
        let tokens = self.scene.tokens;
        let mut end = at;
        let mut property = None;
        while let Some(token) =
            self.word(end).filter(|it| self.scene.vocabulary.things.contains(&it.stem))
        {
            if let Some(found) = self.identified_by(&token.stem) {
                property = Some((found, token.stem.clone()));
            } else if property.is_some() {
                break;
            }
            end += 1;
        }
        let (property, noun) = property?;
        let mut mention = Mention { noun: Some(noun), ..mention.clone() };
        let after = self.skip_id_words(end);
        if let Some(literal) =
            tokens.get(after).and_then(|it| value::id(self.property(property), it))
        {
            return Some(Found { property, mention, literal: Some(literal), end: after + 1 });
        }
        let is_cued = self
            .word(end)
            .is_some_and(|it| matches!(it.lower.as_str(), "called" | "named" | "titled"));
        let from = end + usize::from(is_cued);
        if let Some((name, len)) = tokens.get(from..).and_then(|it| self.scene.memory.name_at(it)) {
            mention.name = Some(name);
            return Some(Found { property, mention, literal: None, end: from + len });
        }
        if let Some(len) = self.proper_name(end) {
            mention.name = value::text(self.scene.query, &tokens[end..end + len]);
            return Some(Found { property, mention, literal: None, end: end + len });
        }
        Some(Found { property, mention, literal: None, end })
    }

    /// Skips `id`, `with id`, `number`, `:` before an identifier.
    fn skip_id_words(&self, at: usize) -> usize {
        let mut end = at;
        while let Some(token) = self.scene.tokens.get(end) {
            let is_link = matches!(
                token.lower.as_str(),
                "with" | "id" | "number" | "no" | "whose" | "is" | "the" | "_id" | "of"
            ) || token.is_mark(":")
                || token.is_mark("#")
                || token.is_mark("=");
            if !is_link {
                break;
            }
            end += 1;
        }
        end
    }

    /// Returns how many words at `at` are a name by their capitals.
    fn proper_name(&self, at: usize) -> Option<usize> {
        let tokens = self.scene.tokens.get(at..)?;
        if tokens.first().is_some_and(|it| it.kind == Kind::Quoted) {
            return Some(1);
        }
        let len = tokens
            .iter()
            .take_while(|it| it.is_capitalised() && !words::is_preposition(&it.lower))
            .count();
        (len > 0).then_some(len)
    }

    /// Reads what has no noun: `it`, `id 7`, `507f…`, `Alice`.
    fn bare_mention(
        &self,
        at: usize,
        start: usize,
        preposition: Option<&str>,
        mention: Mention,
        is_inside: bool,
    ) -> Option<Found> {
        let tokens = self.scene.tokens;
        let is_alone = self
            .word(at)
            .is_none_or(|it| words::is_preposition(&it.lower) || it.is("one") || it.is("to"));
        if at > start && mention.is_pointed && is_alone {
            let end = at + usize::from(self.word(at).is_some_and(|it| it.is("one")));
            let property = self.pointed_at("it")?;
            return Some(Found { property, mention, literal: None, end });
        }
        let token = tokens.get(at)?;
        if token.kind == Kind::Word && words::is_pronoun(&token.lower) {
            let property = self.pointed_at(&token.lower)?;
            let mention = Mention { is_pointed: true, ..mention };
            return Some(Found { property, mention, literal: None, end: at + 1 });
        }
        let is_id_word = token.stem == "id" && token.kind == Kind::Word;
        let literal_at = if is_id_word { self.skip_id_words(at) } else { at };
        let literal = tokens.get(literal_at).filter(|it| is_id_word || it.kind == Kind::Id);
        if let Some(literal) = literal {
            let property = self.id_property(preposition)?;
            let literal = Some(value::id(self.property(property), literal)?);
            return Some(Found { property, mention, literal, end: literal_at + 1 });
        }
        if let Some((name, len)) = self.scene.memory.name_at(&tokens[at..]) {
            let entity = self.scene.memory.called(&name)?;
            let property =
                (0..self.values.len()).find(|it| self.is_free(*it) && self.identifies(*it, entity));
            if let Some(property) = property {
                let mention = Mention { name: Some(name), ..mention };
                return Some(Found { property, mention, literal: None, end: at + len });
            }
        }
        if preposition != Some("by") {
            return None;
        }
        self.unknown_agent(at, is_inside)
    }

    /// Reads `by Alice` where nobody knows an Alice.
    fn unknown_agent(&self, at: usize, is_inside: bool) -> Option<Found> {
        let len = self
            .proper_name(at)
            .filter(|_| !is_inside || self.scene.tokens[at].kind == Kind::Word)?;
        let property = self.id_property(Some("by"))?;
        let noun = self.property(property).noun.as_deref()?;
        let is_agent = is_person(noun) || self.scene.profile.own_id() != Some(property);
        let name = value::text(self.scene.query, &self.scene.tokens[at..at + len]);
        let mention = Mention { name, ..Mention::default() };
        is_agent.then_some(Found { property, mention, literal: None, end: at + len })
    }

    /// Returns the parameter that an identifier without a noun fills.
    pub(super) fn id_property(&self, preposition: Option<&str>) -> Option<usize> {
        let mut free = (0..self.values.len())
            .filter(|it| self.is_free(*it) && self.property(*it).role == Role::Id);
        if preposition == Some("by") {
            let person =
                free.clone().find(|it| self.property(*it).noun.as_deref().is_some_and(is_person));
            return person.or_else(|| free.next());
        }
        let own = self.scene.profile.own_id().filter(|it| self.is_free(*it));
        own.or_else(|| free.next())
    }

    fn identified_by(&self, stem: &str) -> Option<usize> {
        let profile = self.scene.profile;
        let kinds = self.scene.vocabulary.kinds.get(stem);
        let mut ids = (0..self.values.len())
            .filter(|it| self.is_free(*it) && self.property(*it).role == Role::Id);
        let exact = ids.clone().find(|it| self.property(*it).noun.as_deref() == Some(stem));
        exact.or_else(|| {
            ids.find(|it| match self.property(*it).noun.as_deref() {
                Some(noun) => kinds.is_some_and(|it| it.contains(noun)),
                None => profile.is_about(stem),
            })
        })
    }

    /// Returns whether a parameter identifies a kind of thing.
    fn identifies(&self, property: usize, entity: &Entity) -> bool {
        let it = self.property(property);
        it.role == Role::Id
            && match it.noun.as_deref() {
                Some(noun) => entity.nouns.iter().any(|it| it == noun),
                None => entity.own_nouns.iter().any(|it| self.scene.profile.is_about(it)),
            }
    }

    /// Returns the parameter that a pronoun fills: the latest thing that one identifies.
    fn pointed_at(&self, pronoun: &str) -> Option<usize> {
        let memory = self.scene.memory;
        let is_personal = matches!(pronoun, "him" | "her" | "his" | "hers" | "he" | "she");
        let mut ids = (0..self.values.len())
            .filter(|it| self.is_free(*it) && self.property(*it).role == Role::Id);
        if is_personal {
            let is_of_person = |it: &usize| match self.property(*it).noun.as_deref() {
                Some(noun) => is_person(noun) && memory.has(noun),
                None => self.scene.profile.nouns.iter().any(|it| is_person(it) && memory.has(it)),
            };
            return ids.find(is_of_person);
        }
        memory
            .things_latest_first()
            .find_map(|entity| ids.clone().find(|it| self.identifies(*it, entity)))
    }

    fn refer(&mut self, found: &Found) {
        let property = self.property(found.property);
        if let Some(literal) = &found.literal {
            self.values[found.property] = Some(literal.clone());
            return;
        }
        let scene = self.scene;
        let noun = self.noun_of(property, &found.mention);
        match scene.memory.resolve(&found.mention, noun.as_deref()) {
            Ok(entity) => self.link(found.property, entity),
            Err(Unresolved::Many(names)) => self.unclear(found.property, names),
            Err(Unresolved::Nothing) => {
                if let Some(name) = &found.mention.name {
                    let noun = noun
                        .or_else(|| scene.profile.noun().map(str::to_owned))
                        .unwrap_or_else(|| "thing".to_owned());
                    let (tool, parameter) = (scene.profile.name.clone(), property.name.clone());
                    let noun = if property.words.len() > 1 {
                        explain::spoken(&property.name)
                    } else {
                        noun
                    };
                    self.blocked.insert(found.property);
                    self.problems.push(Problem::UnknownName {
                        tool,
                        parameter,
                        name: name.clone(),
                        noun,
                    });
                }
            }
        }
    }

    /// Returns what a parameter identifies: what its name says, else what the tool is about.
    pub(super) fn noun_of(&self, property: &Property, mention: &Mention) -> Option<String> {
        let own = || self.scene.profile.noun().map(str::to_owned);
        property.noun.clone().or_else(own).or_else(|| mention.noun.clone())
    }

    /// Fills a parameter with the identifier of an earlier thing.
    pub(super) fn link(&mut self, property: usize, entity: &Entity) {
        self.values[property] = entity.id_template();
    }

    /// Records that a reference may mean several things.
    pub(super) fn unclear(&mut self, property: usize, names: Vec<String>) {
        let (tool, parameter) =
            (self.scene.profile.name.clone(), self.property(property).name.clone());
        self.blocked.insert(property);
        self.problems.push(Problem::UnclearReference { tool, parameter, names });
    }
}

/// Returns whether a word can tie a thing to what is asked.
fn is_tie(lower: &str) -> bool {
    words::is_preposition(lower) && !matches!(lower, "about" | "than")
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
