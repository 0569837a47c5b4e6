//! Reads `faber.yaml`. An unknown key is an error with a suggestion.

use std::{
    collections::BTreeMap,
    fs::File as OsFile,
    io::Read,
    path::{Path, PathBuf},
};

use ::toolsets::sources::{SetConfig, habilis};
use engine::{Guard, PlanCache};
use engine::{retention::RetentionPolicy, yaml};
use planner::{suggest::did_you_mean, toolkit::written};
use serde_json::{Map, Value, json};
use shared::secret_file::SecretFile;
use toolbox::effect_rules::EffectRules;

use super::{
    AccessConfig, EmbeddingConfig, EncryptionConfig, HttpServerConfig, Limits, LogFormat,
    MAX_FILE_BYTES, PlannerConfig, ToolkitFiles, access, embedding, encryption, http_server,
    log_format,
    mistake::{Mistake, Mistakes},
    model, retention, toolsets,
};
use crate::log_control::parse_log_filter;

pub(super) const SETTING_KEYS: [&str; 17] = [
    "store",
    "store_file",
    "planner",
    "toolsets",
    "tools_files",
    "toolkit_files",
    "learning",
    "selection",
    "embedding",
    "encryption",
    "limits",
    "retention",
    "contexts",
    "access",
    "server",
    "log_format",
    "log_level",
];
const TOOLS_FILES_SET: &str = "tools";

#[expect(clippy::struct_field_names, reason = "the fields are called like the settings")]
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct File {
    pub(super) store: Option<String>,
    pub(super) store_file: Option<SecretFile>,
    pub(super) planner: Option<PlannerConfig>,
    pub(super) plan_cache: Option<PlanCache>,
    pub(super) guard: Option<Guard>,
    pub(super) toolsets: Option<(Vec<SetConfig>, Value)>,
    pub(super) limits: Limits,
    pub(super) retention: Option<RetentionPolicy>,
    pub(super) audit_retention: Option<retention::AuditAge>,
    pub(super) access: Option<AccessConfig>,
    pub(super) http_server: Option<HttpServerConfig>,
    pub(super) contexts: BTreeMap<String, Value>,
    pub(super) tools_files_set: Option<SetConfig>,
    pub(super) tools_files: Vec<PathBuf>,
    pub(super) toolkit: Option<ToolkitFiles>,
    pub(super) learning: Option<bool>,
    pub(super) margin: Option<f64>,
    pub(super) embedding: Option<EmbeddingConfig>,
    pub(super) encryption: Option<EncryptionConfig>,
    pub(super) log_format: Option<LogFormat>,
    pub(super) log_level: Option<String>,
}

pub(super) fn read(path: &Path) -> Result<File, Mistakes> {
    let mistakes = |list: Vec<Mistake>| Mistakes { file: path.to_owned(), list };
    let read = read_text(path).and_then(|text| Ok((base_folder(path)?, text)));
    let (base, text) = read.map_err(|reason| mistakes(vec![Mistake::of_file(reason)]))?;
    parse(&text, &base).map_err(mistakes)
}

pub(super) struct PartialFile {
    /// `None` if the file cannot be read, is not YAML, or has settings that do not fit together.
    pub(super) file: Option<File>,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) omitted_settings: Vec<String>,
}

pub(super) fn read_valid_settings(path: &Path) -> PartialFile {
    let read = read_text(path).and_then(|text| Ok((base_folder(path)?, text)));
    match read {
        Ok((base, text)) => parse_valid_settings(&text, &base),
        Err(reason) => PartialFile::unreadable(Mistake::of_file(reason)),
    }
}

impl PartialFile {
    fn unreadable(mistake: Mistake) -> Self {
        Self { file: None, mistakes: vec![mistake], omitted_settings: Vec::new() }
    }
}

fn parse_valid_settings(text: &str, base: &Path) -> PartialFile {
    let fields = match parse_fields(text) {
        Ok(fields) => fields,
        Err(reason) => return PartialFile::unreadable(Mistake::of_syntax(reason)),
    };
    let (mut works, mut mistakes, mut omitted_settings) = (Map::new(), Vec::new(), Vec::new());
    for (key, value) in fields {
        let wrong = find_mistakes(&key, &value, base);
        if wrong.is_empty() {
            works.insert(key, value);
        } else {
            mistakes.extend(wrong.iter().map(|reason| Mistake::locate(text, reason)));
            omitted_settings.push(key);
        }
    }
    let file = read_fields(works, base);
    let file = file.map_err(|reason| mistakes.push(Mistake::locate(text, &reason))).ok();
    PartialFile { file, mistakes, omitted_settings }
}

fn find_mistakes(key: &str, value: &Value, base: &Path) -> Vec<String> {
    if key == "toolsets" && value.is_array() {
        return toolsets::read_each(value, base).1;
    }
    let alone = Map::from_iter([(key.to_owned(), value.clone())]);
    read_fields(alone, base).err().into_iter().collect()
}

fn read_text(path: &Path) -> Result<String, String> {
    let complaint = |err: std::io::Error| format!("the configuration cannot be read: {err}");
    let mut text = String::new();
    let file = OsFile::open(path).map_err(complaint)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(complaint)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "it has more than {MAX_FILE_BYTES} bytes, which is too large for a configuration: \
             check that it is the right file"
        ));
    }
    Ok(text)
}

fn base_folder(path: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(path).map_err(|err| err.to_string())?;
    Ok(path.parent().map_or_else(PathBuf::new, Path::to_owned))
}

pub(super) fn parse(text: &str, base: &Path) -> Result<File, Vec<Mistake>> {
    let fields = parse_fields(text).map_err(|reason| vec![Mistake::of_syntax(reason)])?;
    // Looks for every mistake only if there is one, because then each setting is read again.
    read_fields(fields, base).map_err(|_| parse_valid_settings(text, base).mistakes)
}

fn parse_fields(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let read = yaml::parse(text).map_err(|error| match find_unquoted_text(text) {
        Some(line) => format!("{line}\n{error}"),
        None => error,
    });
    match read? {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        _ => Err("this is not a map of settings: write `key: value`".to_owned()),
    }
}

fn read_fields(mut fields: Map<String, Value>, base: &Path) -> Result<File, String> {
    check_keys(&fields)?;
    let limits = match fields.remove("limits") {
        None | Some(Value::Null) => Limits::default(),
        Some(Value::Object(limits)) => Limits::read(&limits)?,
        Some(_) => return Err("`limits` must be a map, such as `{ lease_ms: 5000 }`".to_owned()),
    };
    let toolsets = match fields.remove("toolsets") {
        None | Some(Value::Null) => None,
        Some(sets) => Some((toolsets::read(&sets, base)?, sets)),
    };
    let retention = retention::read(fields.remove("retention"))?;
    let (tools_files_set, tools_files) = read_tools_files(fields.remove("tools_files"), base)?;
    if let (Some(set), Some((sets, _))) = (&tools_files_set, &toolsets)
        && sets.iter().any(|known| known.name == set.name)
    {
        let reason = "`tools_files` become the toolset `tools`, but `toolsets` also has one of this \
                      name: rename it";
        return Err(reason.to_owned());
    }
    let store = read_store(fields.remove("store"), base)?;
    let store_file = read_store_file(fields.remove("store_file"), base)?;
    if store.is_some() && store_file.is_some() {
        return Err("`store_file`: name one of `store` and `store_file`".to_owned());
    }
    Ok(File {
        store,
        store_file,
        plan_cache: read_rule(
            fields.get_mut("planner"),
            "cache",
            &PlanCache::ALL.map(|rule| (rule.as_str(), rule)),
        )?,
        guard: read_rule(
            fields.get_mut("planner"),
            "guard",
            &Guard::ALL.map(|rule| (rule.as_str(), rule)),
        )?,
        planner: model::read(fields.remove("planner"), base)?,
        toolsets,
        limits,
        retention: retention.executions,
        audit_retention: retention.audit,
        access: fields
            .remove("access")
            .map(|access| access::read(Some(access), base))
            .transpose()?,
        http_server: http_server::read(fields.remove("server"), base)?,
        contexts: read_contexts(fields.remove("contexts"))?,
        tools_files_set,
        tools_files,
        toolkit: read_toolkit(fields.remove("toolkit_files"), base)?,
        learning: match fields.remove("learning") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(learning)) => Some(learning),
            Some(_) => return Err("`learning` must be true or false".to_owned()),
        },
        margin: read_margin(fields.remove("selection"))?,
        embedding: embedding::read(fields.remove("embedding"), base)?,
        encryption: encryption::read(fields.remove("encryption"), base)?,
        log_format: log_format::read(fields.remove("log_format"))?,
        log_level: read_log_level(fields.remove("log_level"))?,
    })
}

fn read_contexts(value: Option<Value>) -> Result<BTreeMap<String, Value>, String> {
    let contexts = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(contexts)) => contexts,
        Some(_) => return Err("`contexts` must be a map from names to data".to_owned()),
    };
    if let Some((name, _)) = contexts.iter().find(|(_, data)| !data.is_object()) {
        return Err(format!("`contexts.{name}` must be a map, such as `{{ adminMode: false }}`"));
    }
    Ok(contexts.into_iter().collect())
}

/// Reads the setting `tools_files`. The tools of all files become one toolset.
fn read_tools_files(
    files: Option<Value>,
    base: &Path,
) -> Result<(Option<SetConfig>, Vec<PathBuf>), String> {
    let files: Vec<PathBuf> = match files {
        None | Some(Value::Null) => return Ok((None, Vec::new())),
        Some(files) => serde_json::from_value(files)
            .map_err(|_| "`tools_files` must be a list of files".to_owned())?,
    };
    let (mut tools, mut effects) = (Vec::new(), EffectRules::default());
    let files: Vec<_> = files.into_iter().map(|file| join_path(base, file)).collect();
    let mut names: BTreeMap<String, &PathBuf> = BTreeMap::new();
    for path in &files {
        let unfit = |reason: String| format!("`tools_files`: `{}`: {reason}", path.display());
        let text = read_text(path).map_err(unfit)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let written: Value =
            serde_json::from_str(text).map_err(|err| unfit(format!("this is not JSON: {err}")))?;
        effects.extend(habilis::read_effects(&written).map_err(unfit)?);
        let read = habilis::read(&written).map_err(unfit)?;
        for name in read.iter().filter_map(|tool| tool["name"].as_str()) {
            if let Some(first) = names.insert(name.to_owned(), path) {
                let first = first.display();
                return Err(unfit(format!("`{first}` also has a tool `{name}`: rename one")));
            }
        }
        tools.extend(read);
    }
    let set = json!({
        "name": TOOLS_FILES_SET,
        "description": "Tools that are described in files.",
        "source": { "tools": tools },
    });
    let set: SetConfig =
        serde_json::from_value(set).map_err(|err| format!("`tools_files`: {err}"))?;
    Ok((Some(SetConfig { effects, ..set.rooted(base).with_secret_files(base) }), files))
}

fn add_line(text: &str, reason: &str) -> String {
    Mistake::locate(text, reason).to_string()
}

fn read_toolkit(files: Option<Value>, base: &Path) -> Result<Option<ToolkitFiles>, String> {
    let files: Vec<PathBuf> = match files {
        None | Some(Value::Null) => return Ok(None),
        Some(files) => serde_json::from_value(files)
            .map_err(|_| "`toolkit_files` must be a list of files".to_owned())?,
    };
    let mut read = ToolkitFiles::default();
    for file in files {
        let path = join_path(base, &file);
        let unfit = |reason: String| format!("`toolkit_files`: `{}`: {reason}", path.display());
        let text = read_text(&path).map_err(unfit)?;
        let written = yaml::parse(&text).map_err(unfit)?;
        let written = written::read(&written).map_err(|error| unfit(add_line(&text, &error)))?;
        let warnings = written.warnings.into_iter().map(|warning| add_line(&text, &warning));
        read.warnings.extend(warnings.map(|warning| format!("`{}`: {warning}", path.display())));
        let updated = read.toolkit.update(&written.toolkit);
        updated.map_err(|err| unfit(err.to_string()))?;
        read.files.push(path);
    }
    read.toolkit.check_size().map_err(|err| format!("`toolkit_files`: {err}"))?;
    Ok(Some(read))
}

fn read_log_level(value: Option<Value>) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => parse_log_filter("log_level", &text).map(|_| Some(text)),
        Some(other) => Err(format!("`log_level` is {other}; write a level, such as `info`")),
    }
}

fn read_margin(value: Option<Value>) -> Result<Option<f64>, String> {
    let fields = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err("`selection` must be a map, such as `{ margin: 0.01 }`".to_owned()),
    };
    if let Some(other) = fields.keys().find(|key| *key != "margin") {
        return Err(format!("`selection.{other}` is unknown: there is `margin`"));
    }
    match fields.get("margin") {
        None | Some(Value::Null) => Ok(None),
        Some(margin) => match margin.as_f64().filter(|margin| (-2.0..=2.0).contains(margin)) {
            Some(margin) => Ok(Some(margin)),
            None => Err(format!("`selection.margin` is {margin}; write a number from -2 to 2")),
        },
    }
}

fn check_keys(fields: &Map<String, Value>) -> Result<(), String> {
    for key in fields.keys().map(String::as_str) {
        if !SETTING_KEYS.contains(&key) {
            let known_keys = SETTING_KEYS.iter().copied();
            let help = did_you_mean(key, known_keys)
                .unwrap_or_else(|| format!("the keys are `{}`", SETTING_KEYS.join("`, `")));
            return Err(format!("`{key}` is unknown: {help}"));
        }
    }
    Ok(())
}

/// Finds a value without quotes that ends with a colon. YAML reads such a value as a key, so its
/// own error message would be confusing.
fn find_unquoted_text(text: &str) -> Option<String> {
    text.lines().enumerate().find_map(|(index, line)| {
        let (key, value) = line.split_once(": ")?;
        let value = value.split(" #").next().unwrap_or_default().trim();
        let is_bare = value.ends_with(':') && !value.contains([' ', '"', '\'', '{', '[']);
        is_bare.then(|| {
            let key = key.trim();
            let line_number = index + 1;
            format!(
                "line {line_number}: a value that ends with a colon needs quotes: write `{key}: \
                 \"{value}\"`"
            )
        })
    })
}

fn read_store(value: Option<Value>, base: &Path) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(url)) => Ok(Some(resolve_store(&url, base))),
        Some(Value::Object(map)) if map.len() == 1 && map.contains_key("memory") => Err(
            "`store` is a map, because YAML needs quotes around a value that ends with a colon: \
             write `store: \"memory:\"`"
                .to_owned(),
        ),
        Some(other) => {
            Err(format!("`store` is {other}; write an address such as `sqlite:./faber.db`"))
        }
    }
}

fn read_store_file(value: Option<Value>, base: &Path) -> Result<Option<SecretFile>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(path)) if !path.is_empty() => Ok(Some(SecretFile::new(path, base))),
        Some(other) => Err(format!("`store_file` is {other}; write the path of a file")),
    }
}

pub(super) fn resolve_store(url: &str, base: &Path) -> String {
    let Some(path) = url.strip_prefix("sqlite:") else { return url.to_owned() };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        url.to_owned()
    } else {
        format!("sqlite:{}", join_path(base, path).display())
    }
}

fn join_path(base: &Path, path: impl AsRef<Path>) -> PathBuf {
    base.join(path).components().collect()
}

/// Removes a key from the section `planner` and reads it as one of the allowed words. A section
/// without another key becomes null, which means the default planner.
fn read_rule<T: Copy>(
    planner: Option<&mut Value>,
    key: &str,
    words: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(planner) = planner else { return Ok(None) };
    let Some(fields) = planner.as_object_mut() else { return Ok(None) };
    let Some(written) = fields.shift_remove(key) else { return Ok(None) };
    if fields.is_empty() {
        *planner = Value::Null;
    }
    // Also accepts `false` for `off`, because YAML 1.1 reads `off` as false.
    let word = if written == false { Some("off") } else { written.as_str() };
    let found = words.iter().find(|(known, _)| Some(*known) == word);
    let wrong_settings = || {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        format!("`planner.{key}` is {written}; write {}", words.join(" or "))
    };
    found.map(|(_, rule)| Some(*rule)).ok_or_else(wrong_settings)
}
