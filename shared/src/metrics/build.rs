//! The commit from which this binary was built.

use std::sync::OnceLock;

static BUILD: OnceLock<Build> = OnceLock::new();

/// The commit of a build. Only the binary knows it, so that a commit does not make cargo compile the
/// libraries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    pub commit: &'static str,
    /// The date of the commit, such as `2026-11-28`.
    pub date: &'static str,
}

impl Build {
    /// Parses `COMMIT DATE`. Returns `None` for any other text.
    pub fn parse(text: &'static str) -> Option<Self> {
        let (commit, date) = text.trim().split_once(' ')?;
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|char| char.is_ascii_alphanumeric() || char == '-')
        };
        (is_word(commit) && is_word(date)).then_some(Self { commit, date })
    }

    /// Returns the version of Faber, with the commit if it is known.
    pub fn describe_version(build: Option<Self>) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match build {
            Some(Self { commit, date }) => format!("{version} ({commit} {date})"),
            None => version.to_owned(),
        }
    }
}

/// Sets the commit that `faber_build_info` shows. Only the first call has an effect.
pub fn set_build(build: Build) {
    let _ = BUILD.set(build);
}

pub(super) fn build_labels(build: Option<Build>) -> Vec<(&'static str, &'static str)> {
    let mut labels = vec![("version", env!("CARGO_PKG_VERSION"))];
    if let Some(Build { commit, date }) = build {
        labels.extend([("commit", commit), ("date", date)]);
    }
    labels
}

pub(super) fn process_build() -> Option<Build> {
    BUILD.get().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_and_its_date_are_part_of_the_version() {
        let version = env!("CARGO_PKG_VERSION");
        let build = Build::parse("c1bbd1a0f00d 2026-11-28");
        assert_eq!(Build::describe_version(build), format!("{version} (c1bbd1a0f00d 2026-11-28)"));
        assert_eq!(
            build_labels(build),
            [("version", version), ("commit", "c1bbd1a0f00d"), ("date", "2026-11-28")]
        );
        assert_eq!(Build::describe_version(None), version);
        for unknown in ["", "c1bbd1a0", " 2026-11-28", "a b c", "a\"b 2026-11-28"] {
            assert_eq!(Build::parse(unknown), None, "{unknown}");
        }
    }
}
