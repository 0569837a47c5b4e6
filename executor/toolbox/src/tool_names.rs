//! Rules for the names of tools, which MCP servers and files from other people define.

use shared::{
    id::{ToolName, ToolSetName},
    tool::set_prefix,
};

use super::{LOG_TARGET, ReadyTool, SetStatus, ToolSet};

/// The set whose tools activate and deactivate toolsets.
pub const TOOL_SET: &str = "ToolSet";
/// The tool that activates toolsets.
pub const ACTIVATE: &str = "activate_toolset";
/// The parameter with the names of the sets.
pub const SET_NAMES: &str = "toolSetNames";

const CONTROL_TOOLS: [&str; 3] = ["list_toolset", ACTIVATE, "deactivate_toolset"];

/// The names of the built-in toolsets, which prefix their tools' names even if the set is renamed:
/// the set `files` has `file_tools.glob`.
pub(super) const BUILTIN_SETS: [&str; 5] =
    ["code_tools", "file_tools", "system_tools", "web_tools", "memory_tools"];

const BUILTIN_SOURCE: &str = "builtin";

/// Returns `true` for a valid name: letters and digits of any script, with `_`, `-`, `.`, `/` and
/// `:` between them.
pub fn is_valid_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    name.chars().all(|c| is_letter(c) || matches!(c, '-' | '.' | '/' | ':'))
        && name.starts_with(is_letter)
        && !name.ends_with(['.', '/', ':'])
        && !["..", "//", "./", "/."].iter().any(|path| name.contains(path))
}

/// Returns the reason why a tool of a foreign set cannot have a name.
pub fn complaint(set: &ToolSetName, name: &ToolName) -> Option<String> {
    let written = name.as_str();
    if !is_valid_name(written) {
        return Some(format!(
            "`{written}` cannot name a tool: use letters, digits, `_` and `-`, and `.`, `/` and \
             `:` between them"
        ));
    }
    if written.rsplit('.').next().is_some_and(|plain| CONTROL_TOOLS.contains(&plain)) {
        return Some(format!(
            "`{written}` ends with the name of one of Faber's own tools: rename it"
        ));
    }
    let foreign_prefix = set_prefix(written).filter(|of| *of != set.as_str());
    let builtin_set = foreign_prefix.filter(|of| BUILTIN_SETS.contains(of))?;
    Some(format!(
        "`{written}` has the name of a tool in Faber's own toolset `{builtin_set}`: rename it"
    ))
}

pub(super) fn remove_invalid_names(set: &mut ToolSet) {
    if set.source == BUILTIN_SOURCE {
        return;
    }
    let mut refused = Vec::new();
    set.tools.retain(|tool: &ReadyTool| {
        let complaint = complaint(&set.name, &tool.definition().name);
        let is_kept = complaint.is_none();
        refused.extend(complaint);
        is_kept
    });
    for reason in refused {
        tracing::warn!(target: LOG_TARGET, set = %set.name, why = %reason, "a tool is left out");
        if set.tools.is_empty() && set.status == SetStatus::Ready {
            set.status = SetStatus::Failed { error: reason.clone() };
        }
        set.left_out.push(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_name_is_one_word() {
        for name in [
            "get_time",
            "repos/list-for-user",
            "pets.list",
            "a:b",
            "Über-uns",
            "получить",
            "_x",
            "7",
        ] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in [
            "",
            "../x",
            "a b",
            "a/../b",
            "/etc/passwd",
            ".x",
            "x.",
            "-x",
            "a//b",
            "a\u{202e}b",
            "a`b",
            "{{a}}",
            "a\u{a0}b",
            "a,b",
            "x/.ssh",
        ] {
            assert!(!is_valid_name(name), "{name}");
        }
    }

    #[test]
    fn reserved_names_are_rejected() {
        let complaint =
            |set: &str, name: &str| complaint(&set.parse().unwrap(), &name.parse().unwrap());
        for (set, name) in [
            ("m", "activate_toolset"),
            ("m", "m.activate_toolset"),
            ("m", "ToolSet.activate_toolset"),
            ("m", "file_tools.glob"),
            ("m", "a b"),
        ] {
            assert!(complaint(set, name).is_some(), "{set}: {name}");
        }
        for (set, name) in [("m", "echo"), ("m", "read_file"), ("m", "m.x"), ("m", "n.x")] {
            assert_eq!(complaint(set, name), None, "{set}: {name}");
        }
    }
}
