use std::{fmt, str::FromStr};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum See {
    #[default]
    All,
    /// Only objects that belong to the token, and saved plans. For the holder of the token, all
    /// other objects do not exist.
    Own,
}

impl See {
    pub const ALL: [Self; 2] = [Self::All, Self::Own];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }
}

impl fmt::Display for See {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for See {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|see| see.as_str() == text);
        found.ok_or_else(|| format!("`see` is `{text}`: use own or all"))
    }
}
