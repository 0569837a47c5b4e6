//! Phrases that mean a field of what an earlier step gives: `its title`, `the summary`.

use serde_json::{Value, json};

use super::{
    super::{
        clause::Clause,
        fill::Filled,
        gate::{Described, find_described},
        mood::Taken,
        profile::Profile,
        property, words,
    },
    Planning,
};

impl Planning<'_> {
    /// Replaces values that describe a field of an earlier step's output by references to it.
    pub(super) fn with_fields(
        &self,
        clause: &Clause,
        profile: &Profile,
        mut filled: Filled,
    ) -> Filled {
        for described in find_described(self.query, &clause.tokens, profile, &filled.parameters) {
            let Some((step, field)) = self.field_of(clause, &described) else { continue };
            let phrase = &clause.tokens[described.phrase.at];
            let bytes = phrase.first().map_or(0, |word| word.start)
                ..phrase.last().map_or(0, |word| word.end);
            let template = json!(format!("{{{{{step}.{field}}}}}"));
            let literal = filled.parameters.insert(described.parameter, template);
            if filled.name.as_deref() == literal.as_ref().and_then(Value::as_str) {
                filled.name = None;
            }
            filled.taken.push(Taken { bytes, is_number: false });
            if !filled.links.contains(&step) {
                filled.links.push(step);
            }
        }
        filled
    }

    /// Returns the only step that gives a field of this name, and the field.
    fn field_of(&self, clause: &Clause, described: &Described) -> Option<(String, String)> {
        let said: Vec<&str> = clause.tokens[described.phrase.rest.clone()]
            .iter()
            .map(|word| word.stem.as_str())
            .collect();
        let is_meant = |field: &&String| {
            let words = words::split_identifier(field);
            words.iter().map(|word| words::stem(word)).eq(said.iter().copied())
        };
        let mut found = self.steps.iter().zip(&self.tools).filter_map(|((step, _), tool)| {
            let schema = self.profiles[*tool].tool.output_schema.as_ref()?;
            let field = property::output_fields(schema)?.keys().find(is_meant)?;
            Some((step.clone(), field.clone()))
        });
        let only = found.next().filter(|(_, field)| is_plain(field))?;
        found.next().is_none().then_some(only)
    }
}

/// Returns whether a field can stand in a template as it is.
fn is_plain(field: &str) -> bool {
    !field.is_empty() && field.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}
