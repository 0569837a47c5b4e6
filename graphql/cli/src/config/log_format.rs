use std::fs;

use clap::ValueEnum;
use engine::yaml;
use serde_json::Value;

use super::{ConfigError, Environment, Flags, MAX_FILE_BYTES, Origin, Setting, find_file};

const KEY: &str = "log_format";
const VARIABLE: &str = "FABER_LOG_FORMAT";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

impl LogFormat {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
        }
    }

    /// Chooses the format before the configuration is read, because reading the configuration can
    /// already log. Ignores a wrong setting of the file, because loading the configuration reports
    /// it.
    pub fn choose(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let file = || {
            let path = find_file(flags, environment)?;
            let is_small = fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
            let text =
                fs::read_to_string(path).ok().filter(|text| is_small && text.contains(KEY))?;
            read(yaml::parse(&text).ok()?.get(KEY).cloned()).ok().flatten()
        };
        let explicit = read_setting(flags, environment, None)?.map(|setting| setting.value);
        Ok(explicit.or_else(file).unwrap_or_default())
    }
}

pub(super) fn read_setting(
    flags: &Flags,
    environment: &Environment,
    file: Option<LogFormat>,
) -> Result<Option<Setting<LogFormat>>, ConfigError> {
    if let Some(value) = flags.log_format {
        return Ok(Some(Setting { value, origin: Origin::Flag("--log-format") }));
    }
    if let Some(text) = &environment.log_format {
        let refuse =
            || ConfigError::new(format!("`{VARIABLE}` is `{text}`; write `human` or `json`"));
        let value = LogFormat::from_str(text, false).map_err(|_| refuse())?;
        return Ok(Some(Setting { value, origin: Origin::Environment(VARIABLE) }));
    }
    Ok(file.map(|value| Setting { value, origin: Origin::File }))
}

pub(super) fn read(written: Option<Value>) -> Result<Option<LogFormat>, String> {
    match written {
        None | Some(Value::Null) => Ok(None),
        Some(written) => {
            let found = written.as_str().and_then(|text| LogFormat::from_str(text, false).ok());
            found.map(Some).ok_or_else(|| format!("`{KEY}` is {written}; write `human` or `json`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_precedes_the_environment_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("faber.yaml");
        fs::write(&config, "log_format: json\n").unwrap();
        let flags = |log_format, config| Flags { config, log_format, ..Flags::default() };
        let variable = |text: &str| Environment {
            log_format: Some(text.to_owned()),
            ..Environment::default()
        };
        let none = Environment::default();
        for (flags, environment, expected) in [
            (flags(None, Some(config.clone())), &none, LogFormat::Json),
            (flags(None, Some(config.clone())), &variable("human"), LogFormat::Human),
            (flags(Some(LogFormat::Json), None), &variable("human"), LogFormat::Json),
        ] {
            assert_eq!(LogFormat::choose(&flags, environment), Ok(expected), "{flags:?}");
        }
        let err = LogFormat::choose(&flags(None, None), &variable("xml")).unwrap_err();
        assert_eq!(err.to_string(), "`FABER_LOG_FORMAT` is `xml`; write `human` or `json`");
        fs::write(&config, "log_format: xml\n").unwrap();
        let chosen = LogFormat::choose(&flags(None, Some(config)), &none);
        assert_eq!(chosen, Ok(LogFormat::Human), "reading the configuration reports it");
        let refused = read(Some(serde_json::json!("xml"))).unwrap_err();
        assert_eq!(refused, "`log_format` is \"xml\"; write `human` or `json`");
    }
}
