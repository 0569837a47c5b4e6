//! Writes manual pages. Packages contain them, so the command is hidden from users.

use std::{fs, io, path::Path};

use clap::CommandFactory as _;
use client::failure::Failure;
use serde_json::json;

use crate::{ExitStatus, args::Cli, screen::Screen};

pub(crate) fn write_pages(folder: &Path, screen: &Screen) -> Result<ExitStatus, Failure> {
    generate_pages(folder).map_err(|err| {
        Failure::usage(format!("cannot write manual pages into `{}`: {err}", folder.display()))
    })?;
    let text = format!("wrote the manual pages into {}", folder.display());
    screen.print_result(&json!({ "folder": folder }), &text)
}

fn generate_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visible_command_has_a_page_that_names_its_options() {
        let folder = tempfile::tempdir().unwrap();
        generate_pages(folder.path()).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = folder.path().join(format!("faber-{}.1", command.get_name()));
            assert!(page.exists(), "{}", page.display());
        }
        let serve = fs::read_to_string(folder.path().join("faber-serve.1")).unwrap();
        assert!(serve.contains("listen"), "{serve}");
        assert!(!folder.path().join("faber-man.1").exists());
    }
}
