//! What in a clause refers to a thing that exists: `by Alice`, `that blog`, `her`, `blog 507f…`.

use serde_json::Value;

use super::{
    explain::{self, Problem},
    memory::{Entity, Mention, Unresolved, is_person},
    property::{Property, Role},
    scan::Scan,
    token::{Kind, Token},
    value, words,
};

/// A mention and the parameter that it fills.
pub(super) struct Found {
    property: usize,
    mention: Mention,
    literal: Option<Value>,
    /// Where it ends.
    pub(super) end: usize,
}

impl<'a> Scan<'a> {
    /// Finds what refers to a thing at `at`; inside a text only what certainly does.
    pub(super) fn mention(&self, at: usize, inside: Option<usize>) -> Option<Found> {
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
        let is_name = |at: usize| self.scene.memory.name_at(&self.scene.tokens[at..]).is_some();
        while let Some(token) =
            self.word(at).filter(|it| words::is_determiner(&it.lower) && !is_name(at))
        {
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

    pub(super) fn refer(&mut self, found: &Found) {
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
