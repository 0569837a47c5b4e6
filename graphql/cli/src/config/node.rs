//! The name of this node, which events, traces and `faber list workers` show.

use super::{ConfigError, Environment, Flags, Origin, Setting};

const MAX_CHARS: usize = 128;

/// Reads the name from `--node`, `FABER_NODE`, or the name of this machine.
pub(super) fn read_node(
    flags: &Flags,
    environment: &Environment,
) -> Result<Setting<String>, ConfigError> {
    let explicit = super::setting_from_flag("--node", flags.node.as_ref())
        .or_else(|| super::setting_from_variable("FABER_NODE", environment.node.as_ref()));
    let Some(Setting { value, origin }) = explicit else {
        return Ok(Setting { value: environment.host_name(), origin: Origin::Default });
    };
    let name = value.trim();
    let is_short = (1..=MAX_CHARS).contains(&name.chars().count());
    if !is_short || name.chars().any(char::is_control) {
        return Err(ConfigError::new(format!(
            "{origin} must be 1 to {MAX_CHARS} characters without line breaks, such as `node-1`"
        )));
    }
    Ok(Setting { value: name.to_owned(), origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_comes_before_the_variable_and_the_name_of_the_machine() {
        let flag = |name: &str| Flags { node: Some(name.to_owned()), ..Flags::default() };
        let environment = |node: Option<&str>| Environment {
            node: node.map(str::to_owned),
            host: Some("vm".to_owned()),
            ..Environment::default()
        };
        for (flags, variable, expected, origin) in [
            (flag(" node-1 "), Some("node-2"), "node-1", Origin::Flag("--node")),
            (Flags::default(), Some("node-2"), "node-2", Origin::Environment("FABER_NODE")),
            (Flags::default(), None, "vm", Origin::Default),
        ] {
            let found = read_node(&flags, &environment(variable)).unwrap();
            assert_eq!((found.value.as_str(), found.origin), (expected, origin));
        }
        for wrong in [" ", "a\nb", &"n".repeat(129)] {
            let err = read_node(&flag(wrong), &environment(None)).unwrap_err().to_string();
            assert!(err.starts_with("--node must be 1 to 128 characters"), "{err}");
        }
    }
}
