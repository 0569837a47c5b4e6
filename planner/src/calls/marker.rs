use super::source::Source;

const ARGUMENT_NOUNS: [&str; 11] = [
    "arguments",
    "argument",
    "args",
    "arg",
    "parameters",
    "parameter",
    "params",
    "param",
    "inputs",
    "input",
    "kwargs",
];
const OWNER_WORDS: [&str; 4] = ["tool", "action", "function", "call"];

pub(super) fn tool_marker_end(source: &Source<'_>, index: usize) -> Option<usize> {
    let end = source.find_word_end(index, "tool")?;
    let sign = source.skip(end, |byte| matches!(byte, b'*' | b'`' | b'_'));
    (source.byte(sign) == Some(b':')).then_some(sign + 1)
}

pub(super) fn argument_marker_end(source: &Source<'_>, index: usize) -> Option<usize> {
    let first = source.byte(index)?.to_ascii_lowercase();
    if !ARGUMENT_NOUNS
        .iter()
        .chain(&OWNER_WORDS)
        .any(|word| word.as_bytes().first() == Some(&first))
    {
        return None;
    }
    let whose = OWNER_WORDS.iter().find_map(|word| source.find_word_end(index, word));
    let whose = whose.filter(|end| matches!(source.byte(*end), Some(b' ' | b'_')));
    let noun = whose.map_or(index, |end| end + 1);
    let end = ARGUMENT_NOUNS.iter().find_map(|word| source.find_word_end(noun, word))?;
    let sign =
        source.skip(end, |byte| matches!(byte, b' ' | b'\t' | b'*' | b'`' | b'_' | b'"' | b'\''));
    if source.byte(sign) == Some(b':') {
        return Some(sign + 1);
    }
    if let Some(wide) = source.find_word_end(sign, "：") {
        return Some(wide);
    }
    // Without a colon, only a following object shows that the words are a marker.
    let sign = source.skip(sign, |byte| matches!(byte, b'=' | b'-' | b'>'));
    let object = skip_layout(source, sign);
    (source.byte(object) == Some(b'{')).then_some(object)
}

pub(super) fn name_before_arguments(line: &str) -> Option<&str> {
    let is_around =
        |character: char| character.is_whitespace() || matches!(character, '*' | '`' | '_');
    let before = |text: &'_ str, words: &[&str]| {
        words.iter().find_map(|word| {
            let start = text.len().checked_sub(word.len())?;
            text.get(start..).filter(|end| end.eq_ignore_ascii_case(word)).map(|_| start)
        })
    };
    let line = line.trim_end_matches(is_around);
    let noun = &line[..before(line, &ARGUMENT_NOUNS)?];
    let rest = noun.trim_end_matches(is_around);
    if rest.len() == noun.len() {
        return None;
    }
    Some(before(rest, &OWNER_WORDS).map_or(rest, |end| &rest[..end]))
}

pub(super) fn skip_layout(source: &Source<'_>, index: usize) -> usize {
    let mut position = index;
    loop {
        let start = source.skip_markup(position);
        position = source.skip(start, |byte| matches!(byte, b'>' | b'#' | b'|' | b',' | b';'));
        position = bullet_end(source, position).unwrap_or(position);
        if position == start {
            return position;
        }
    }
}

pub(super) fn bullet_end(source: &Source<'_>, index: usize) -> Option<usize> {
    let end = match source.byte(index)? {
        b'-' | b'+' => source.skip(index, |byte| matches!(byte, b'-' | b'+' | b'>')),
        byte if byte.is_ascii_digit() => {
            let end = source.skip(index, |byte| byte.is_ascii_digit());
            matches!(source.byte(end)?, b'.' | b')').then_some(end + 1)?
        }
        byte if byte >= 0x80 => {
            ["•", "–", "—", "→"].iter().find_map(|word| source.find_word_end(index, word))?
        }
        _ => return None,
    };
    source.byte(end).filter(u8::is_ascii_whitespace).map(|_| end)
}
