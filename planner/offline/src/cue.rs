//! Where in a clause the words for a parameter begin: `titled …`, `with email …`, `in …`.

use super::{
    property::{Property, Role},
    token::{Kind, Token},
    words::{self, Family},
};

/// How far behind an `about` a text of its own is looked for.
const TOPIC: usize = 256;

/// What a cue announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cue {
    /// The parameter.
    pub(super) property: usize,
    /// Where its words begin.
    pub(super) from: usize,
    /// Whether the cue is `about`, which stays part of the text and makes a topic.
    pub(super) is_topic: bool,
    /// Whether the words themselves say all: `published`.
    pub(super) is_flag: bool,
}

impl Cue {
    fn new(property: usize, from: usize) -> Self {
        Self { property, from, is_topic: false, is_flag: false }
    }
}

/// Which words of which parameters may mean which kinds of places.
const PREPOSITIONS: &[(&str, &str)] = &[
    (
        "in",
        "location city place town country region room venue language currency unit timezone folder directory path",
    ),
    ("at", "location place venue address time start"),
    ("near", "location city place"),
    (
        "to",
        "to target destination dest recipient receiver language currency email status state new",
    ),
    ("into", "to target destination dest language currency folder directory path"),
    ("from", "from source origin sender currency path"),
    ("for", "query term keyword location city place recipient duration for topic"),
    ("by", "author creator owner artist writer user by assignee"),
    ("with", "attendee participant guest invitee member with"),
    ("about", "topic subject query about theme"),
    ("on", "date day when on topic"),
    ("as", "as role type format status"),
    ("of", "of"),
];

/// A clause, the parameters it may fill, and which are filled.
pub(super) struct Cues<'a> {
    /// The words.
    pub(super) tokens: &'a [Token],
    /// The parameters.
    pub(super) properties: &'a [Property],
    /// What the tool does.
    pub(super) family: Option<Family>,
}

impl Cues<'_> {
    /// Finds the cue that begins at `at`; `inside` is the parameter whose words are under way.
    pub(super) fn find(
        &self,
        at: usize,
        inside: Option<usize>,
        is_free: &dyn Fn(usize) -> bool,
    ) -> Option<Cue> {
        let token = self.tokens.get(at)?;
        let open = |it: usize| is_free(it) && Some(it) != inside;
        if token.is_mark(":") && inside.is_none() {
            return self.after_colon(at, &open);
        }
        if token.kind != Kind::Word {
            return None;
        }
        self.own_words(at, inside, &open)
            .or_else(|| self.synonym(at, inside, &open))
            .or_else(|| self.preposition(at, inside, &open))
            .filter(|it| it.is_flag || it.from < self.tokens.len())
    }

    fn is_text(&self, inside: Option<usize>) -> bool {
        inside.is_some_and(|it| self.properties[it].is_text())
    }

    fn is_content(&self, inside: Option<usize>) -> bool {
        inside.is_some_and(|it| self.properties[it].role == Role::Content)
    }

    /// `add a comment: Great!` announces the text.
    fn after_colon(&self, at: usize, open: &dyn Fn(usize) -> bool) -> Option<Cue> {
        let breaks = self.tokens[at + 1..].iter().take_while(|it| it.is_mark("\n")).count();
        let at = at + breaks;
        let names_itself = self
            .own_words(at + 1, None, open)
            .or_else(|| self.synonym(at + 1, None, open))
            .is_some();
        let property = self
            .first(open, &[Role::Content])
            .or_else(|| self.first_text(open))
            .filter(|_| !names_itself)?;
        (at + 1 < self.tokens.len()).then(|| Cue::new(property, at + 1))
    }

    fn first(&self, open: &dyn Fn(usize) -> bool, roles: &[Role]) -> Option<usize> {
        roles.iter().find_map(|role| {
            (0..self.properties.len()).find(|it| open(*it) && self.properties[*it].role == *role)
        })
    }

    fn first_text(&self, open: &dyn Fn(usize) -> bool) -> Option<usize> {
        (0..self.properties.len()).find(|it| open(*it) && self.properties[*it].is_text())
    }

    /// The words of a parameter's name announce it: `due date …`, `captioned …`.
    fn own_words(
        &self,
        at: usize,
        inside: Option<usize>,
        open: &dyn Fn(usize) -> bool,
    ) -> Option<Cue> {
        self.tokens.get(at)?;
        let mut best: Option<(usize, usize)> = None;
        for (property, it) in self.properties.iter().enumerate() {
            if it.role == Role::Id || !open(property) {
                continue;
            }
            let said = self.tokens[at..].iter().take(it.words.len());
            let is_whole = said.clone().count() == it.words.len()
                && said.clone().zip(&it.words).all(|(a, b)| a.stem == *b && a.kind == Kind::Word);
            let len = if is_whole {
                it.words.len()
            } else if it.words.contains(&self.tokens[at].stem)
                && self.fits(property, self.skip_links(at + 1))
            {
                1
            } else {
                continue;
            };
            if best.is_none_or(|(_, longest)| len > longest) {
                best = Some((property, len));
            }
        }
        let (property, len) = best.filter(|(_, len)| *len > 0)?;
        let from = self.skip_links(at + len);
        let is_flag = self.properties[property].role == Role::Bool;
        let is_meant = !self.is_text(inside) || self.is_marked(at, len, property, inside);
        let is_preposition = words::is_preposition(&self.tokens[at].lower);
        let fits = !is_preposition || !self.is_text(inside) || self.fits(property, from);
        (is_meant && fits).then_some(Cue { is_flag, ..Cue::new(property, from) })
    }

    /// Returns whether the word of a parameter, in the middle of a text, is meant as a cue.
    fn is_marked(&self, at: usize, len: usize, property: usize, inside: Option<usize>) -> bool {
        let before = at.checked_sub(1).map(|it| &self.tokens[it]);
        let after = self.tokens.get(at + len);
        let is_introduced = before.is_some_and(|it| {
            it.is_mark(",")
                || matches!(
                    it.lower.as_str(),
                    "with" | "and" | "whose" | "its" | "his" | "her" | "their"
                )
        });
        let is_introduced = is_introduced
            || (self.is_article(at.checked_sub(1)) && self.is_with(at.checked_sub(2)));
        let is_followed =
            after.is_some_and(|it| it.is_mark(":") || it.is_mark("=") || it.kind == Kind::Quoted);
        let is_participle = len == 1 && self.tokens[at].lower.ends_with("ed");
        let is_content =
            self.properties[property].role == Role::Content && !self.is_content(inside);
        let is_typed =
            !self.properties[property].is_text() && self.fits(property, self.skip_links(at + len));
        is_introduced || is_followed || is_participle || is_content || is_typed
    }

    fn is_article(&self, at: Option<usize>) -> bool {
        at.is_some_and(|it| matches!(self.tokens[it].lower.as_str(), "a" | "an" | "the"))
    }

    fn is_with(&self, at: Option<usize>) -> bool {
        at.is_some_and(|it| matches!(self.tokens[it].lower.as_str(), "with" | "and"))
    }

    /// Words that everybody uses for titles, names and texts, whatever the parameter is called.
    fn synonym(
        &self,
        at: usize,
        inside: Option<usize>,
        open: &dyn Fn(usize) -> bool,
    ) -> Option<Cue> {
        let token = self.tokens.get(at)?;
        let from = self.skip_links(at + 1);
        let named = |roles: &[Role]| self.first(open, roles).map(|it| Cue::new(it, from));
        match token.lower.as_str() {
            "titled" | "entitled" | "title"
                if !self.is_content(inside) || token.lower != "title" =>
            {
                named(&[Role::Title, Role::Name])
            }
            "called" | "named" => named(&[Role::Name, Role::Title]),
            "saying" | "says" | "reading" | "stating" => named(&[Role::Content])
                .or_else(|| self.first_text(open).map(|it| Cue::new(it, from))),
            "content" | "text" | "body"
                if !self.is_text(inside)
                    || self.is_with(at.checked_sub(1))
                    || self.tokens.get(at + 1).is_some_and(|it| it.is_mark(":")) =>
            {
                named(&[Role::Content])
            }
            "about" => self.topic(at, open),
            _ => None,
        }
    }

    fn topic(&self, at: usize, open: &dyn Fn(usize) -> bool) -> Option<Cue> {
        let is_topic = |it: &Property| {
            it.words
                .iter()
                .any(|it| matches!(it.as_str(), "topic" | "subject" | "query" | "about" | "them"))
        };
        let named =
            (0..self.properties.len()).find(|it| open(*it) && is_topic(&self.properties[*it]));
        if let Some(property) = named {
            return Some(Cue::new(property, at + 1));
        }
        let has_content = self.tokens[at + 1..]
            .iter()
            .take(TOPIC)
            .any(|it| matches!(it.lower.as_str(), "saying" | "content" | "says" | "body"));
        if has_content {
            return self.first(open, &[Role::Title]).map(|it| Cue::new(it, at + 1));
        }
        let content = self.first(open, &[Role::Content])?;
        (at + 1 < self.tokens.len()).then_some(Cue { is_topic: true, ..Cue::new(content, at) })
    }

    fn preposition(
        &self,
        at: usize,
        inside: Option<usize>,
        open: &dyn Fn(usize) -> bool,
    ) -> Option<Cue> {
        let token = &self.tokens[at];
        let is_known = PREPOSITIONS.iter().any(|(it, _)| *it == token.lower);
        if !is_known || at + 1 >= self.tokens.len() {
            return None;
        }
        // What has a type of its own needs no name: `on 2026-03-01`, `to a@b.c`, `into a.txt`.
        let typed = (0..self.properties.len()).find(|it| {
            open(*it)
                && matches!(
                    self.properties[*it].role,
                    Role::Date | Role::Email | Role::Url | Role::Path
                )
                && self.fits(*it, at + 1)
        });
        if let Some(property) =
            self.fitting(&token.lower, open).filter(|it| self.fits(*it, at + 1)).or(typed)
        {
            return Some(Cue::new(property, at + 1));
        }
        if self.is_text(inside) && !self.is_short(inside) {
            return None;
        }
        if let Some(property) =
            self.fitting(&token.lower, open).filter(|it| self.accepts(*it, at + 1))
        {
            return Some(Cue::new(property, at + 1));
        }
        if token.is("to") && self.family == Some(Family::Update) && inside.is_none() {
            let property =
                self.first(open, &[Role::Name, Role::Title]).or_else(|| self.first_text(open))?;
            return Some(Cue::new(property, at + 1));
        }
        None
    }

    /// Returns whether the text under way is one that prepositions end: a place, a word.
    fn is_short(&self, inside: Option<usize>) -> bool {
        inside.is_some_and(|it| self.properties[it].role == Role::Text)
    }

    fn fitting(&self, preposition: &str, open: &dyn Fn(usize) -> bool) -> Option<usize> {
        let (_, likely) = PREPOSITIONS.iter().find(|(it, _)| *it == preposition)?;
        likely.split_whitespace().map(words::stem).find_map(|word| {
            (0..self.properties.len()).find(|it| {
                open(*it)
                    && self.properties[*it].role != Role::Id
                    && self.properties[*it].words.contains(&word)
            })
        })
    }

    /// Returns whether words of any kind may fill a parameter here.
    fn accepts(&self, property: usize, at: usize) -> bool {
        let is_open = matches!(
            self.properties[property].role,
            Role::Text
                | Role::Name
                | Role::Title
                | Role::Content
                | Role::Enum
                | Role::List
                | Role::Path
        );
        is_open && self.tokens.get(at).is_some_and(|it| it.kind != Kind::Mark)
    }

    /// Returns whether what stands at `at` has the very type of a parameter.
    fn fits(&self, property: usize, at: usize) -> bool {
        let Some(token) = self.tokens.get(at) else { return false };
        match self.properties[property].role {
            Role::Email => token.kind == Kind::Email,
            Role::Url => token.kind == Kind::Url,
            Role::Date => matches!(token.kind, Kind::Date | Kind::Time),
            Role::Path => token.kind == Kind::Path,
            Role::Number | Role::Integer => token.kind == Kind::Number,
            Role::Enum => {
                super::value::one_of(&self.properties[property].values, &self.tokens[at..])
                    .is_some()
            }
            Role::List => {
                self.properties[property].item == Role::Email && token.kind == Kind::Email
            }
            _ => false,
        }
    }

    /// Skips what stands between a cue and its words.
    fn skip_links(&self, mut at: usize) -> usize {
        while let Some(token) = self.tokens.get(at) {
            let is_link = token.is_mark(":")
                || token.is_mark("=")
                || matches!(token.lower.as_str(), "is" | "as" | "to") && token.kind == Kind::Word;
            let is_of = token.is("of")
                && self.tokens.get(at + 1).is_some_and(|it| !words::is_determiner(&it.lower));
            if !is_link && !is_of {
                break;
            }
            at += 1;
        }
        at
    }
}
