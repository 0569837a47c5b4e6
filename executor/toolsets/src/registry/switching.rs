//! Switching sets on and off.

use serde_json::Value;
use shared::store::{RecordKind, WriteCondition};

use super::{Registry, RegistryError};

/// The result of switching sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// Those that were not as asked for, and are now.
    pub changed: Vec<String>,
    /// Names of no set.
    pub not_found: Vec<String>,
    /// Those that cannot be switched off, or nobody could switch anything on again.
    pub refused: Vec<String>,
}

impl Registry {
    /// Switches sets on or off, each that there is; the others are named.
    pub async fn switch(&self, names: &[String], on: bool) -> Result<Switched, RegistryError> {
        self.sync().await?;
        let sets = self.0.parts.toolbox.sets();
        let mut switched = Switched::default();
        for name in names {
            let Some(set) = sets.iter().find(|it| it.name.as_str() == name) else {
                push_new(&mut switched.not_found, name);
                continue;
            };
            if Self::is_fixed(&set.name) {
                if !on {
                    push_new(&mut switched.refused, name);
                }
                continue;
            }
            if set.is_active != on && !switched.changed.contains(name) {
                self.put(RecordKind::Switch, name, Value::Bool(on), WriteCondition::Never).await?;
                switched.changed.push(name.clone());
            }
        }
        self.sync().await?;
        Ok(switched)
    }
}

fn push_new(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|it| it == name) {
        names.push(name.to_owned());
    }
}
