//! Names and phrases: runs of words that may be values, without what is only grammar.

use super::{
    amount,
    span::{self, Reader, Said},
    token::{Kind, Token},
    when, words,
};

/// Words of a phrase.
pub(super) const PHRASE: usize = 8;

impl Reader<'_> {
    /// Reads a run of words, and returns where to go on.
    pub(super) fn words(&mut self, at: usize) -> usize {
        let mut end = at;
        while let Some(token) = self.tokens.get(end) {
            if end > at && (end - at >= PHRASE || self.begins_other(end)) {
                break;
            }
            if !self.is_content(end) && !self.joins(at, end) {
                break;
            }
            end += 1;
            if token.is_possessive() {
                break;
            }
        }
        if end == at {
            return at + 1;
        }
        self.cut(at, end);
        end
    }

    fn begins_other(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let is_word = matches!(token.kind, Kind::Word | Kind::Mark) || is_name(token);
        let is_number = || {
            amount::read(self.tokens, at).is_some_and(|it| !it.0.is_word || !token.is_capitalised())
        };
        // `Yamaha P125` is one name, `aircraft AB123` is not.
        let is_code = at > 0
            && span::is_code(&token.value)
            && !token.value.contains('-')
            && (!is_name(&self.tokens[at - 1]) || self.frame.is_own(&self.tokens[at - 1].stem));
        !self.is_numeral(at)
            && (!is_word || is_code || when::read(self.tokens, at).is_some() || is_number())
    }

    /// Returns whether a number is the end of a name: `Maroon 5`, `Dow Jones 30`.
    fn is_numeral(&self, at: usize) -> bool {
        let is_short =
            |it: &Token| it.value.len() < 4 && it.value.bytes().all(|it| it.is_ascii_digit());
        let ends = |it: &Token| {
            it.kind == Kind::Mark || it.is_separator() || words::is_preposition(&it.lower)
        };
        at > 0
            && is_short(&self.tokens[at])
            && is_name(&self.tokens[at - 1])
            && !self.begins_sentence(at - 1)
            && !self.frame.is_own(&self.tokens[at - 1].stem)
            && !["id", "no", "number"].iter().any(|it| self.tokens[at - 1].is(it))
            && self.tokens.get(at + 1).is_none_or(ends)
    }

    /// Returns whether a word can be part of a value.
    fn is_content(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        if is_name(token) {
            let is_i =
                matches!(token.lower.as_str(), "i" | "i'm" | "i'd" | "i've" | "i'll" | "a" | "id");
            let is_order = self.begins_sentence(at) && !words::families(&token.stem).is_empty();
            // `Analyze the …`: nobody begins with a name before an article.
            let is_order = is_order
                || self.begins_sentence(at)
                    && self.tokens.get(at + 1).is_some_and(|it| {
                        ["the", "a", "an", "my", "this", "these", "all", "me"]
                            .iter()
                            .any(|word| it.is(word))
                    });
            let is_inside = at > 0 && !self.begins_sentence(at);
            return !is_i && !is_order && (is_inside || !is_common(token) || self.is_title(at));
        }
        let is_said = matches!(token.lower.as_str(), "hello" | "hi") && !self.begins_sentence(at);
        token.kind == Kind::Word && (!is_common(token) || is_said) || self.is_numeral(at)
    }

    fn begins_sentence(&self, at: usize) -> bool {
        at == 0
            || [".", "?", "!", "\n", ":", "\"", ";"]
                .iter()
                .any(|it| self.tokens[at - 1].is_mark(it))
    }

    /// Returns whether a capitalised common word begins a name: `The Weeknd`, `New York`.
    fn is_title(&self, at: usize) -> bool {
        self.tokens[at].lower == "new" && self.tokens.get(at + 1).is_some_and(Token::is_capitalised)
    }

    /// Returns whether a small word ties a name together: `University of Oslo`, `Mr. X`.
    fn joins(&self, from: usize, at: usize) -> bool {
        let token = &self.tokens[at];
        let next = self.tokens.get(at + 1);
        let Some(before) = at.checked_sub(1).filter(|it| *it >= from).map(|it| &self.tokens[it])
        else {
            return false;
        };
        let is_next_name = next.is_some_and(is_name);
        if token.is_mark(".") {
            let is_short = matches!(
                before.lower.as_str(),
                "mr" | "mrs"
                    | "ms"
                    | "dr"
                    | "st"
                    | "jr"
                    | "sr"
                    | "prof"
                    | "inc"
                    | "ltd"
                    | "corp"
                    | "co"
            ) || before.value.chars().count() == 1;
            return is_name(before)
                && is_short
                && is_next_name
                && !matches!(before.lower.as_str(), "inc" | "ltd" | "corp" | "co");
        }
        let is_of = ["of", "de", "van", "von", "da", "del", "la"].iter().any(|it| token.is(it));
        let is_the = token.is("the") && before.is("of");
        let is_after_the = token.is("of") && next.is_some_and(|it| it.is("the"));
        is_name(before)
            && !self.begins_sentence(at - 1)
            && (is_of && is_next_name
                || is_after_the && self.tokens.get(at + 2).is_some_and(is_name))
            || is_the && is_next_name
            || (token.is_mark("&") && is_name(before) && is_next_name)
    }

    /// Makes spans of a run of words: its names, else what is left without the tool's own words.
    fn cut(&mut self, from: usize, to: usize) {
        let tokens = self.tokens;
        let is_named = |at: usize| {
            is_name(&tokens[at])
                && (!self.begins_sentence(at)
                    || at + 1 < to && is_name(&tokens[at + 1])
                    || !is_ordinary(&tokens[at]))
        };
        if let Some(first) = (from..to).find(|it| is_named(*it)) {
            let mut end = to;
            while end > first + 1
                && !is_name(&tokens[end - 1])
                && self.frame.is_own(&tokens[end - 1].stem)
            {
                end -= 1;
            }
            // A small letter after a name may belong to it, or say what kind of thing it is.
            let last = (first..end)
                .rev()
                .find(|it| is_name(&tokens[*it]) || tokens[*it].kind != Kind::Word);
            if let Some(last) = last.filter(|it| end - it > 3) {
                end = last + 1;
            }
            while end > first + 1 && is_doing(&tokens[end - 1]) {
                end -= 1;
            }
            self.push(first, end, Said::Name);
            return;
        }
        let is_own = |at: usize| self.frame.is_own(&tokens[at].stem);
        let start = (from..to).find(|it| !is_own(*it));
        let Some(start) = start else {
            // What only says the names of slots announces values, and is none.
            let names_slots = (from..to)
                .all(|at| self.frame.slots.iter().any(|it| it.words.contains(&tokens[at].stem)));
            if !names_slots {
                self.push(from, to, Said::Phrase { is_weak: true });
            }
            return;
        };
        let end = (start..to).rev().find(|it| !is_own(*it)).map_or(to, |it| it + 1);
        // `made of oak` says what is behind it.
        let is_made = words::is_participle(&tokens[start].lower)
            || ["made", "written", "built", "held", "found"].iter().any(|it| tokens[start].is(it));
        let is_tied = tokens.get(end).is_some_and(|it| words::is_preposition(&it.lower));
        if is_made && is_tied && end == start + 1 {
            return;
        }
        let is_weak = self.is_asked(from, to);
        self.push(start, end, Said::Phrase { is_weak });
    }

    /// Returns whether words say what is asked for, not what with: `what are the names of …`.
    fn is_asked(&self, from: usize, to: usize) -> bool {
        const QUESTIONS: &[&str] =
            &["what", "what's", "which", "who", "who's", "how", "where", "when"];
        let begin = (0..from).rev().find(|it| self.begins_sentence(*it)).unwrap_or(0);
        let before = &self.tokens[begin..from];
        let is_idle = |it: &Token| is_grammar(it) || !words::families(&it.stem).is_empty();
        let is_question =
            before.iter().any(|it| it.kind == Kind::Word && QUESTIONS.contains(&it.lower.as_str()));
        let tie = self.tokens.get(to);
        let is_tied = tie.is_some_and(|it| {
            it.is("of")
                || is_question && ["for", "by", "from", "between"].iter().any(|word| it.is(word))
        });
        !before.is_empty() && is_tied && before.iter().all(is_idle)
    }
}

/// Returns whether a small word behind a name says what it does: `the Vikings winning`.
fn is_doing(token: &Token) -> bool {
    let is_small = token.kind == Kind::Word && token.value.starts_with(char::is_lowercase);
    is_small
        && token.lower.len() > 4
        && (token.lower.ends_with("ing") || token.lower.ends_with("ed"))
}

/// Returns whether a token is written like a name.
pub(super) fn is_name(token: &Token) -> bool {
    let begins = token.value.chars().next().is_some_and(char::is_uppercase);
    begins
        && (token.kind == Kind::Word
            || token.kind == Kind::Path
                && !token.value.contains(['/', '\\'])
                && token.value.len() < 6)
}

/// Words that belong to the sentence, beside those that every clause may leave out.
const GRAMMAR: &str = "the were been being am had did if while than because but nor not when where why \
    whether it's i'm there's given based don't doesn't didn't who's where's how's \
    that's respectively according during over along around near against across since \
    until till upon toward towards off down above below only very more most less many \
    much same such each other another else about including i've we've you're can't my \
    mine named called titled assuming exactly approximately roughly also let know want \
    looking interested provide wondering trying planning considering located related \
    regarding upcoming following previous next respective various several certain";

/// Returns whether a word of a sentence is more likely grammar, or an order, than a value.
fn is_common(token: &Token) -> bool {
    let is_small = token.value.starts_with(char::is_lowercase);
    is_grammar(token) || is_small && !words::families(&token.stem).is_empty()
}

/// Returns whether a word only ties a sentence together.
pub(super) fn is_grammar(token: &Token) -> bool {
    let lower = token.lower.as_str();
    words::is_idle(lower)
        || words::is_preposition(lower)
        || words::is_filler(lower)
        || words::is_determiner(lower)
        || words::is_pronoun(lower)
        || GRAMMAR.split_whitespace().any(|it| it == lower)
}

/// Returns whether a capitalised word at the beginning of a sentence is one that sentences begin with.
fn is_ordinary(token: &Token) -> bool {
    is_common(token)
        || !words::families(&token.stem).is_empty()
        || token.lower.ends_with("ing")
        || token.value.len() > 1 && token.value.chars().skip(1).all(char::is_lowercase)
}
