//! Whether an order begins with what its tool does, and names it.

use super::{
    super::{
        profile::Profile,
        property::Role,
        token::{Kind, Token},
        words::{self, Family},
    },
    Doubt, Found, Gate, Passage,
    claim::{Claims, Place},
    lists,
};

/// Words before the verb of an order.
const LEAD: usize = 16;
/// The verbs that mean nothing but what a kind of tools does.
const MEANT: &[(Family, &str)] = &[
    (Family::Create, "create make add new write compose generate post publish insert register"),
    (Family::Update, "update change edit modify set rename revise adjust alter correct replace"),
    (Family::Delete, "delete remove erase discard destroy drop trash"),
    (Family::Send, "send mail email message"),
    (Family::Get, "get fetch retrieve"),
    (Family::List, "list"),
    (Family::Search, "search find"),
];

impl Gate<'_> {
    /// Returns the first word of an order that does not only lead to it.
    pub(super) fn verb_at(&self, place: &Place) -> Option<usize> {
        let is_lead = |at: usize| {
            let token = &self.tokens[at];
            let is_number = token.kind == Kind::Number
                && self.tokens.get(at + 1).is_some_and(|it| it.is_mark(".") || it.is_mark(")"));
            lists::is_polite(token)
                || lists::is_joint(token)
                || is_number
                || token.is_mark(")")
                || self.is_sequence(at)
        };
        (place.from..place.to).take(LEAD).find(|it| !is_lead(*it))
    }

    /// Returns whether words only say that something comes after what was said before.
    pub(super) fn is_sequence(&self, at: usize) -> bool {
        let word = |at: Option<usize>| {
            at.and_then(|it| self.tokens.get(it))
                .filter(|it| it.kind == Kind::Word)
                .map_or("", |it| it.lower.as_str())
        };
        let has_before = self
            .passages
            .iter()
            .any(|it| it.bytes.end <= self.tokens[at].start && !it.calls.is_empty());
        let (before, here, next) = (word(at.checked_sub(1)), word(Some(at)), word(Some(at + 1)));
        let is_gerund =
            |lower: &str| lower.ends_with("ing") && self.vocabulary.is_verb(&words::stem(lower));
        let is_told = |lower: &str| matches!(lower, "you" | "we" | "i");
        let is_event = is_gerund(next) || is_told(next);
        let comes_after = self.passages.len() > 1
            && (matches!(here, "after" | "before") && is_event
                || is_told(here) && matches!(before, "after" | "before"));
        comes_after
            || has_before
                && (matches!((here, next), ("once", "done") | ("after", "that" | "this"))
                    || matches!((before, here), ("once", "done") | ("after", "that" | "this"))
                    || here == "later"
                        && (matches!(before, "and" | "then" | "") || before.is_empty())
                    || matches!(here, "after" | "before") && is_event
                    || is_told(here) && matches!(before, "after" | "before"))
    }

    /// Checks that an order begins with a verb of each of its tools.
    pub(super) fn ordered(
        &self,
        passage: &Passage<'_>,
        place: &Place,
        claims: &Claims<'_>,
    ) -> Option<Found> {
        let at = self.verb_at(place);
        let Some(at) = at else { return Some((place.from..place.to, Doubt::Verb)) };
        if let Some(found) = self.offered(at) {
            return Some(found);
        }
        let profiles = passage.calls.iter().map(|it| it.profile);
        if !passage.has_verb {
            let is_known = |profile: &Profile| {
                let mut others = self.passages.iter().filter(|it| it.bytes != passage.bytes);
                others.any(|it| {
                    it.calls.iter().any(|at| at.profile.family == profile.family && at.acts())
                })
            };
            return profiles
                .clone()
                .any(|it| !is_known(it) && self.orders(it, at, place).is_none())
                .then_some((at..at + 1, Doubt::Verb));
        }
        let is_swallowed = claims.at(at).is_some_and(|it| !it.is_name);
        let is_wrong = profiles.clone().any(|it| self.orders(it, at, place).is_none());
        (is_wrong || is_swallowed).then_some((at..at + 1, Doubt::Verb))
    }

    /// Finds what makes an offer or a purpose of an order: `would you like to …`, `to …`.
    fn offered(&self, verb: usize) -> Option<Found> {
        let from = self.tokens[..verb].iter().rposition(|it| !lists::is_polite(it));
        let from = from.map_or(0, |it| it + 1);
        let lead = &self.tokens[from..verb];
        let offers = lead.windows(3).position(|it| {
            ["would", "do", "did"].iter().any(|word| it[0].is(word))
                && it[1].is("you")
                && ["like", "want", "need"].iter().any(|word| it[2].is(word))
        });
        if let Some(offers) = offers {
            return Some((from + offers..verb, Doubt::Asked));
        }
        let wishes =
            |it: &Token| ["want", "need", "like", "help", "go"].iter().any(|word| it.is(word));
        let is_purpose = lead.last().is_some_and(|it| it.is("to")) && !lead.iter().any(wishes);
        is_purpose.then(|| (verb - 1..verb + 1, Doubt::Verb))
    }

    /// Returns how many words at `at` are a verb of a tool.
    pub(super) fn orders(&self, profile: &Profile, at: usize, place: &Place) -> Option<usize> {
        let token = self.tokens.get(at).filter(|it| it.kind == Kind::Word)?;
        let is_base = !words::is_participle(&token.lower)
            && (!token.lower.ends_with("ing") || self.is_event(at))
            && !token.is_possessive();
        // `deletes the blog` tells what somebody does.
        let is_told = words::is_plural(&token.lower)
            && !profile.nouns.contains(&token.stem)
            && !explain_name(profile).contains(&token.lower);
        if !is_base || is_told {
            return None;
        }
        let joined =
            self.tokens.get(at + 1).filter(|it| it.kind == Kind::Word && at + 1 < place.to);
        let joined = joined.map(|it| words::stem(&format!("{}{}", token.lower, it.lower)));
        let is_joined =
            joined.is_some_and(|it| profile.verbs.contains(&it) || profile.nouns.contains(&it));
        let is_own = profile.verbs.contains(&token.stem);
        let is_meant = profile.family.is_some_and(|family| {
            let list = MEANT.iter().find(|it| it.0 == family);
            list.is_some_and(|it| it.1.split(' ').any(|it| words::stem(it) == token.stem))
        });
        let is_noun = matches!(profile.family, Some(Family::Create | Family::Send) | None)
            && profile.nouns.contains(&token.stem)
            || explain_name(profile).first().is_some_and(|it| words::stem(it) == token.stem);
        // What has a day is planned for it.
        let has_day = profile.properties.iter().any(|it| it.role == Role::Date);
        let is_planned = profile.family == Some(Family::Create)
            && has_day
            && ["schedule", "book", "plan", "arrange"].iter().any(|it| token.is(it));
        // `leave a comment` makes one, `leave the comment alone` makes none.
        let is_left = profile.family == Some(Family::Create)
            && token.is("leave")
            && self.tokens.get(at + 1).is_some_and(|it| it.is("a") || it.is("an"));
        let is_shown =
            profile.examples.iter().any(|it| it.first().is_some_and(|it| *it == token.stem));
        // A tool that is called as if it looked acts all the same: only its very name calls it.
        let is_looking =
            matches!(profile.family, Some(Family::Get | Family::List | Family::Search));
        let is_right = if is_looking {
            is_own
        } else {
            is_own || is_meant || is_noun || is_shown || is_planned || is_left
        };
        if is_joined {
            return Some(2);
        }
        is_right.then_some(1)
    }

    /// Returns whether a verb tells what something comes after: `after creating`.
    fn is_event(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|it| &self.tokens[it]);
        before.is_some_and(|it| {
            ["after", "before", "by", "to"].iter().any(|word| it.is(word)) || lists::is_joint(it)
        })
    }

    /// Checks that what tells a tool from others is said: its particles and second verbs, all of its
    /// name where that only seems to look, and its name where it takes nothing.
    pub(super) fn named(
        &self,
        passage: &Passage<'_>,
        place: &Place,
        claims: &Claims<'_>,
    ) -> Option<Found> {
        let at = self.verb_at(place)?;
        let said = |stem: &str| {
            (place.from..place.to)
                .any(|it| self.tokens[it].kind == Kind::Word && self.tokens[it].stem == stem)
        };
        for call in passage.calls.iter().filter(|it| it.acts()) {
            let profile = call.profile;
            let len = self.orders(profile, at, place).unwrap_or(0);
            let name = explain_name(profile);
            let is_looking =
                matches!(profile.family, Some(Family::Get | Family::List | Family::Search));
            let is_described = self.is_described_by(profile, place);
            let mut is_behind_and = false;
            for word in &name {
                let stem = words::stem(word);
                let is_second = is_behind_and && !words::families(&stem).is_empty();
                is_behind_and = word == "and";
                let is_turning =
                    lists::is_particle(word) && name.len() > 1 && word != "in" && word != "on"
                        || matches!(word.as_str(), "on" | "in") && Self::is_turned(&name, word);
                let is_needed =
                    is_second || is_turning || is_looking && !words::is_idle(word) && !is_described;
                if is_needed && passage.has_verb && !said(&stem) && len < 2 {
                    return Some((at..place.to, Doubt::Unnamed));
                }
            }
            if let Some(found) = self.turned(profile, at + len, place, claims, &name) {
                return Some((found..found + 1, Doubt::Verb));
            }
            let tells = call.parameters.iter().any(|it| !call.assumed.contains(it.0));
            if !tells && !self.is_whole(profile, place, &name) {
                return Some((at..place.to, Doubt::Unnamed));
            }
        }
        None
    }

    /// Returns whether an order says what a tool's description begins with: `calculate and pay the
    /// salaries` of `Calculate and pay the salaries of a department`.
    fn is_described_by(&self, profile: &Profile, place: &Place) -> bool {
        let said: Vec<&str> = self.tokens[place.from..place.to]
            .iter()
            .filter(|it| it.kind == Kind::Word && !words::is_determiner(&it.lower))
            .map(|it| it.stem.as_str())
            .collect();
        let told: Vec<String> = profile
            .tool
            .description
            .split(|it: char| !it.is_alphanumeric())
            .map(str::to_lowercase)
            .filter(|it| !it.is_empty() && !words::is_determiner(it))
            .take_while(|it| !words::is_preposition(it))
            .map(|it| words::stem(&it))
            .collect();
        told.len() > 2 && said.windows(told.len()).any(|it| it.iter().eq(told.iter()))
    }

    fn is_turned(name: &[String], word: &str) -> bool {
        let at = name.iter().position(|it| it == word).unwrap_or(0);
        at > 0 && lists::is_phrasal(&name[at - 1])
    }

    /// Returns the word that turns the verb of an order into that of another tool.
    fn turned(
        &self,
        profile: &Profile,
        at: usize,
        place: &Place,
        claims: &Claims<'_>,
        name: &[String],
    ) -> Option<usize> {
        let told = profile.tool.description.to_lowercase();
        let is_own = |word: &str| {
            name.iter().any(|it| it == word)
                || told.split(|it: char| !it.is_alphanumeric()).take(8).any(|it| it == word)
        };
        let verb = at.checked_sub(1).map_or("", |it| self.tokens[it].lower.as_str());
        (at..place.to).find(|it| {
            let token = &self.tokens[*it];
            if token.kind != Kind::Word || !lists::is_particle(&token.lower) || claims.has(*it) {
                return false;
            }
            let next = self.tokens.get(it + 1).filter(|_| it + 1 < place.to);
            let is_dangling = next.is_none_or(|it| it.kind == Kind::Mark || it.is_separator());
            let is_first =
                *it == at && (!words::is_preposition(&token.lower) || lists::is_phrasal(verb));
            let is_only_particle =
                matches!(token.lower.as_str(), "off" | "up" | "down" | "away" | "back" | "over");
            (is_dangling || is_first || is_only_particle) && !is_own(&token.lower)
        })
    }

    /// Returns whether an order says all of the name of a tool that takes nothing, or all that its
    /// description says it works on.
    fn is_whole(&self, profile: &Profile, place: &Place, name: &[String]) -> bool {
        let said: Vec<&str> = self.tokens[place.from..place.to]
            .iter()
            .filter(|it| it.kind == Kind::Word && !words::is_determiner(&it.lower))
            .map(|it| it.stem.as_str())
            .collect();
        let wanted: Vec<String> =
            name.iter().filter(|it| !words::is_determiner(it)).map(|it| words::stem(it)).collect();
        let is_named = said.windows(wanted.len().max(1)).any(|it| it.iter().eq(wanted.iter()));
        let is_told =
            !profile.head.is_empty() && profile.head.iter().all(|it| said.contains(&it.as_str()));
        let are_nouns = !profile.nouns.is_empty()
            && profile.verbs.first() == wanted.first()
            && profile.nouns.iter().all(|it| said.contains(&it.as_str()));
        is_named || is_told || are_nouns
    }

    /// Checks that a question is one only by politeness.
    pub(super) fn asked(&self, place: &Place, claims: &Claims<'_>) -> Option<Found> {
        let end = self.tokens.len().min(place.to + 1);
        let is_content = |at: usize| {
            let slot = claims.at(at).and_then(|it| it.slot);
            slot.is_some_and(|it| it.property.role == Role::Content)
        };
        // The question mark of `saying how are you?` belongs to the text.
        let is_text = |at: usize| claims.has(at) || at.checked_sub(1).is_some_and(is_content);
        let asks = (place.from..end)
            .find(|it| self.tokens[*it].is_mark("?") && !is_text(*it) && !self.is_polite(*it))?;
        Some((asks..asks + 1, Doubt::Asked))
    }

    /// Returns whether the sentence before a question mark begins like a polite order.
    pub(super) fn is_polite(&self, mark: usize) -> bool {
        let is_end = |it: &Token| [".", "!", "?", ";", "\n"].iter().any(|at| it.is_mark(at));
        let begin = self.tokens[..mark].iter().rposition(is_end).map_or(0, |it| it + 1);
        let sentence = &self.tokens[begin..mark];
        sentence.windows(2).any(|it| {
            ["can", "could", "would", "will"].iter().any(|word| it[0].is(word)) && it[1].is("you")
        }) && sentence.len() > 3
    }
}

/// Returns the words of a tool's own name.
fn explain_name(profile: &Profile) -> Vec<String> {
    let name = profile.tool.name.as_str();
    words::split_identifier(name.rsplit(['.', '/', ':']).next().unwrap_or(name))
}
