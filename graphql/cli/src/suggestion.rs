use std::ffi::OsString;

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};
use planner::suggest::nearest;

use super::args::Cli;

/// Words of other programs, each with the command of Faber that does the same.
const FOREIGN_COMMANDS: [(&str, &str); 19] = [
    ("abort", "cancel"),
    ("continue", "resume"),
    ("describe", "debug"),
    ("exec", "execute"),
    ("history", "list"),
    ("info", "debug"),
    ("inspect", "debug"),
    ("kill", "cancel"),
    ("log", "debug"),
    ("logs", "debug"),
    ("ls", "list"),
    ("ps", "list"),
    ("rerun", "retry"),
    ("server", "serve"),
    ("show", "debug"),
    ("start", "run"),
    ("status", "watch"),
    ("stop", "cancel"),
    ("up", "serve"),
];

pub(crate) fn add_suggestion(mut err: clap::Error, arguments: &[OsString]) -> clap::Error {
    if err.kind() != ErrorKind::InvalidSubcommand {
        return err;
    }
    let Some(ContextValue::String(word)) = err.get(ContextKind::InvalidSubcommand) else {
        return err;
    };
    let command = Cli::command();
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    // For a nested subcommand, clap itself makes a suggestion.
    let is_nested = arguments
        .iter()
        .any(|argument| argument.to_str().is_some_and(|argument| names.contains(&argument)));
    let own_command =
        FOREIGN_COMMANDS.iter().find(|(other, _)| other == word).map(|(_, ours)| *ours);
    if let (false, Some(meant)) = (is_nested, own_command.or_else(|| nearest(word, names))) {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        err.insert(ContextKind::SuggestedSubcommand, meant);
    }
    err
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn rejection_of(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let err = Cli::try_parse_from(&arguments).expect_err("it is refused");
        add_suggestion(err, &arguments).to_string()
    }

    #[test]
    fn a_mistyped_command_suggests_the_intended_one() {
        for (word, meant) in [
            ("exceute", "execute"),
            ("plans", "plan"),
            ("runn", "run"),
            ("status", "watch"),
            ("stop", "cancel"),
            ("ls", "list"),
        ] {
            let refusal = rejection_of(&["faber", word]);
            let tip = format!("a similar subcommand exists: '{meant}'");
            assert!(refusal.contains(&tip), "{word}: {refusal}");
        }
        assert!(rejection_of(&["faber", "tools", "cal"]).contains("'call'"));
        assert!(!rejection_of(&["faber", "qqqqqq"]).contains("tip"));
    }

    #[test]
    fn every_word_of_other_programs_suggests_a_command() {
        let command = Cli::command();
        for (word, ours) in FOREIGN_COMMANDS {
            assert!(command.find_subcommand(ours).is_some(), "{ours}");
            assert!(command.find_subcommand(word).is_none(), "{word}");
        }
    }
}
