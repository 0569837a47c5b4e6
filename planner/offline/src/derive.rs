//! What a stated rule derives: a title from a topic, an address from a name, a reference that only
//! one thing can answer. All of it is said, as warnings; nothing else is assumed.

use serde_json::Value;

use super::{
    explain,
    fill::{Assumed, Filler},
    memory::{Mention, Unresolved},
    property::Role,
    token::Kind,
    value,
    words::{self, Family},
};

impl Filler<'_> {
    /// Takes over what `it` was called a clause ago, where that is not an identifier: a path.
    pub(super) fn carry(&mut self) {
        if !self
            .scan
            .scene
            .tokens
            .iter()
            .any(|it| it.kind == Kind::Word && words::is_pronoun(&it.lower))
        {
            return;
        }
        for property in self.free(|it| matches!(it, Role::Path | Role::Email)) {
            let it = self.scan.property(property);
            if it.is_required
                && let Some(value) = self.scan.scene.memory.said(&it.name)
            {
                self.scan.values[property] = Some(value.clone());
            }
        }
    }

    /// Where a topic is the only text, the topic is the title too.
    pub(super) fn take_topic(&mut self) {
        let Some(topic) = self.scan.topic.clone() else { return };
        let title = self
            .free(|it| matches!(it, Role::Title | Role::Name))
            .into_iter()
            .find(|it| self.scan.property(*it).is_required);
        if let Some(title) = title {
            self.scan.values[title] = Some(value::literal(&topic));
        }
    }

    /// Fills a reference that the clause leaves out, where only one thing can be meant.
    pub(super) fn imply_references(&mut self) {
        let may_imply = self.scan.scene.profile.family != Some(Family::Delete);
        for property in self.free(|it| it == Role::Id) {
            let it = self.scan.property(property);
            let Some(noun) = it.noun.clone().filter(|_| it.is_required && may_imply) else {
                continue;
            };
            match self.scan.scene.memory.resolve(&Mention::default(), Some(&noun)) {
                Ok(entity) => {
                    self.scan.link(property, entity);
                    let help = format!(
                        "say which {noun} is meant, by its name or its id",
                        noun = explain::spoken(&it.name)
                    );
                    self.note(property, help);
                }
                Err(Unresolved::Many(names)) => self.scan.unclear(property, names),
                Err(Unresolved::Nothing) => (),
            }
        }
    }

    fn note(&mut self, property: usize, help: String) {
        let parameter = self.scan.property(property).name.clone();
        let value = self.scan.values[property].clone().unwrap_or_default();
        self.assumed.push(Assumed { parameter, value, help });
    }

    /// Derives what a stated rule can: a title, a text, an e-mail address of something new.
    pub(super) fn assume(&mut self) {
        if !self.scan.scene.profile.may_assume() {
            return;
        }
        let required = |this: &Self, role: Role| {
            this.free(|it| it == role).into_iter().find(|it| this.scan.property(*it).is_required)
        };
        if let Some(email) = required(self, Role::Email)
            && let Some(address) = self.text(Role::Name).as_deref().and_then(address)
        {
            self.derive(email, address);
        }
        if let Some(title) = required(self, Role::Title)
            && let Some(text) = self.headline()
        {
            self.derive(title, text);
        }
        if let Some(content) = required(self, Role::Content)
            && let Some(text) = self.text(Role::Title)
        {
            self.derive(content, text);
        }
    }

    fn derive(&mut self, property: usize, text: String) {
        self.scan.values[property] = Some(Value::String(text));
        let help = explain::hint(self.scan.scene.profile, self.scan.property(property));
        self.note(property, help);
    }

    /// Returns the text of the first parameter of a role.
    fn text(&self, role: Role) -> Option<String> {
        let at = (0..self.scan.values.len()).find(|it| self.scan.property(*it).role == role)?;
        self.scan.values[at].as_ref().and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns `Blog by Charlie` for a blog that belongs to Charlie.
    fn headline(&self) -> Option<String> {
        let memory = self.scan.scene.memory;
        let who = memory
            .steps_in(self.scan.values.iter().flatten())
            .into_iter()
            .find_map(|it| memory.of_step(&it)?.name.clone())?;
        let parts = words::split_identifier(self.scan.scene.profile.tool.name.as_str());
        let noun = parts
            .into_iter()
            .find(|it| self.scan.scene.profile.noun() == Some(words::stem(it).as_str()))?;
        let mut chars = noun.chars();
        let first = chars.next()?.to_uppercase();
        Some(format!("{first}{} by {}", chars.as_str(), who.replace("{{", "{{{{")))
    }
}

/// Returns the address that stands for somebody whose own was not given.
fn address(name: &str) -> Option<String> {
    let parts: Vec<String> = name
        .split_whitespace()
        .map(|it| it.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase())
        .filter(|it| !it.is_empty())
        .collect();
    (!parts.is_empty()).then(|| format!("{}@example.com", parts.join(".")))
}
