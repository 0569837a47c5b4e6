use shared::labels;

pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write `KEY=VALUE`, such as `team=shop`")?;
    labels::check_key(key)?;
    Ok((key.to_owned(), value.to_owned()))
}
