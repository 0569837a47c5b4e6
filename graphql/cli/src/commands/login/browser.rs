use std::process::{Command, Stdio};

use crate::config::Environment;

/// Opens an address in the browser. Returns `false` if it started no program.
pub(crate) fn open_browser(environment: &Environment, is_live: bool, url: &str) -> bool {
    let Some((program, arguments)) = browser_program(environment, is_live) else { return false };
    let mut command = Command::new(program);
    command.args(arguments).arg(url);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

/// Returns the program that opens addresses: the value of `BROWSER`, or else the program of the
/// operating system, if standard error is a terminal and the machine is a Mac or has a display.
fn browser_program(environment: &Environment, is_live: bool) -> Option<(&str, Vec<&str>)> {
    if let Some(browser) = &environment.browser {
        let mut words = browser.split_whitespace();
        return Some((words.next()?, words.collect()));
    }
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let has_screen = cfg!(target_os = "macos") || environment.has_display;
    (is_live && has_screen).then(|| (system, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browser_is_chosen_from_the_environment() {
        let environment = |browser: Option<&str>, has_display: bool| Environment {
            browser: browser.map(ToOwned::to_owned),
            has_display,
            ..Environment::default()
        };
        let named = environment(Some("firefox -P work"), false);
        assert_eq!(browser_program(&named, false), Some(("firefox", vec!["-P", "work"])));
        assert_eq!(browser_program(&environment(Some(" "), true), true), None);
        assert!(browser_program(&environment(None, true), true).is_some());
        assert_eq!(browser_program(&environment(None, true), false), None, "nobody looks");
    }
}
