/// Maximum number of names that are compared, because each comparison takes time.
pub(crate) const MAX_CANDIDATES: usize = 4_096;
const MAX_COMPARED_CHARS: usize = 64;
const MIN_CONTAINED_LENGTH: usize = 3;

/// Returns the most similar known name, if it is similar enough. Case and separators do not count.
pub fn nearest<'a>(name: &str, known_names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold_name(name);
    let mut best = None;
    let mut containing = None;
    let mut tolerance = wanted.len() / 3;
    for candidate in known_names.into_iter().take(MAX_CANDIDATES) {
        let letters = fold_name(candidate);
        if let Some(edit_distance) = edit_distance(&wanted, &letters, tolerance) {
            best = Some(candidate);
            match edit_distance.checked_sub(1) {
                Some(better) => tolerance = better,
                None => break,
            }
        } else if containing.is_none() && contains(&wanted, &letters) {
            containing = Some(candidate);
        }
    }
    best.or(containing)
}

fn nearest_with_plurals<'a>(
    name: &str,
    known_names: &(impl Iterator<Item = &'a str> + Clone),
) -> Option<&'a str> {
    let nearest_of = |name: &str| nearest(name, known_names.clone());
    nearest_of(name).or_else(|| nearest_of(&format!("{}y", name.strip_suffix("ies")?)))
}

/// Rewrites a message of serde about an unknown field: it names the nearest known field, or lists
/// the known fields if none is near. Returns other messages unchanged.
pub fn explain_unknown_field(message: &str) -> String {
    let Some((before, rest)) = message.split_once("unknown field `") else {
        return message.to_owned();
    };
    // The reader of a setting may add an advice with names of its own.
    let (rest, _advice) = rest.split_once("; ").unwrap_or((rest, ""));
    let mut quoted = rest.split('`');
    let field = quoted.next().unwrap_or_default();
    let known_fields: Vec<&str> = quoted.skip(1).step_by(2).collect();
    match nearest_field(field, &known_fields) {
        Some(meant) => format!("{before}`{field}` is unknown: did you mean `{meant}`?"),
        None if known_fields.is_empty() => message.to_owned(),
        None => {
            format!("{before}`{field}` is unknown: the keys are `{}`", known_fields.join("`, `"))
        }
    }
}

pub fn nearest_field<'a>(name: &str, known_fields: &[&'a str]) -> Option<&'a str> {
    nearest_with_plurals(name, &known_fields.iter().copied())
}

pub fn did_you_mean<'a>(
    name: &str,
    known_names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(name, known_names).map(|name| format!("did you mean `{name}`?"))
}

fn fold_name(name: &str) -> Vec<char> {
    let letters = name.chars().take(MAX_COMPARED_CHARS).flat_map(char::to_lowercase);
    letters.filter(|c| c.is_alphanumeric()).collect()
}

fn contains(a: &[char], b: &[char]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    short.len() >= MIN_CONTAINED_LENGTH && long.windows(short.len()).any(|window| window == short)
}

/// Returns the optimal string alignment distance, if it is at most `tolerance`.
fn edit_distance(a: &[char], b: &[char], tolerance: usize) -> Option<usize> {
    if a.is_empty() || b.is_empty() || a.len().abs_diff(b.len()) > tolerance {
        return None;
    }
    let mut before = vec![usize::MAX; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let swapped = i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y;
            let swap = if swapped { before[j - 1] + 1 } else { usize::MAX };
            let change = last[j] + usize::from(x != y);
            row[j + 1] = change.min(last[j + 1] + 1).min(row[j] + 1).min(swap);
        }
        if row.iter().all(|cost| *cost > tolerance) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    Some(last[b.len()]).filter(|cost| *cost <= tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_NAMES: [&str; 5] =
        ["createAuthor", "createBlog", "listAuthors", "flow.echo", "createComment"];

    #[test]
    fn a_slightly_misspelt_name_is_suggested() {
        for (name, expected) in [
            ("createAuthr", Some("createAuthor")),
            ("create_author", Some("createAuthor")),
            ("CREATEAUTHOR", Some("createAuthor")),
            ("craeteBlog", Some("createBlog")),
            ("listAuthor", Some("listAuthors")),
            ("echo", Some("flow.echo")),
            ("comment", Some("createComment")),
            ("blog", Some("createBlog")),
            ("sendMail", None),
            ("", None),
            ("...", None),
        ] {
            assert_eq!(nearest(name, KNOWN_NAMES), expected, "{name}");
        }
    }

    #[test]
    fn a_plural_suggests_its_singular() {
        let fields = ["id", "retry", "dependsOn", "example"];
        for (name, expected) in
            [("retries", Some("retry")), ("examples", Some("example")), ("series", None)]
        {
            assert_eq!(nearest_field(name, &fields), expected, "{name}");
        }
    }

    #[test]
    fn an_unknown_field_suggests_a_known_one() {
        let list = "`name`, `run`, `effect`";
        for (message, expected) in [
            (
                format!("`tools[0]` (`t`): unknown field `effekt`, expected one of {list}"),
                "`tools[0]` (`t`): `effekt` is unknown: did you mean `effect`?",
            ),
            (
                format!("unknown field `zzz`, expected one of {list}"),
                "`zzz` is unknown: the keys are `name`, `run`, `effect`",
            ),
            ("missing field `name`".to_owned(), "missing field `name`"),
        ] {
            assert_eq!(explain_unknown_field(&message), expected);
        }
    }

    #[test]
    fn the_nearest_name_wins_and_the_first_of_equals() {
        assert_eq!(nearest("step1", ["stepxy", "step2", "step3"]), Some("step2"));
        assert_eq!(nearest("abc", ["ab", "ABC", "abc"]), Some("ABC"));
    }

    #[test]
    fn a_transposition_counts_as_one_edit() {
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        for (a, b, expected) in [("abcd", "abdc", 1), ("abc", "xyz", 3), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(&letters(a), &letters(b), 9), Some(expected), "{a} {b}");
            assert_eq!(edit_distance(&letters(a), &letters(b), expected - 1), None, "{a} {b}");
        }
    }
}
