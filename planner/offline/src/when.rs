//! Days as people write them, and the form in which a parameter wants them.

use chrono::{Datelike, NaiveDate};

use super::token::{Kind, Token};

/// A day, a month or a time that a calendar must be asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct When {
    /// The day, where words alone say it.
    pub(super) day: Option<NaiveDate>,
    /// The year and month, where no day is said.
    pub(super) month: Option<(i32, u32)>,
    /// Whether only somebody who knows what day it is knows what is meant.
    pub(super) is_relative: bool,
}

impl When {
    fn day(day: NaiveDate) -> Self {
        Self { day: Some(day), month: None, is_relative: false }
    }

    fn relative() -> Self {
        Self { day: None, month: None, is_relative: true }
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Returns which month a word is, from one.
pub(super) fn month(lower: &str) -> Option<u32> {
    let lower = lower.trim_end_matches('.');
    let is_it = |month: &str| month == lower || lower == "sept" || month.get(..3) == Some(lower);
    let at = MONTHS.iter().position(|it| is_it(it) && (lower != "sept" || *it == "september"))?;
    u32::try_from(at + 1).ok()
}

/// Returns whether a word is a day of the week.
pub(super) fn is_weekday(lower: &str) -> bool {
    matches!(
        lower,
        "monday" | "tuesday" | "wednesday" | "thursday" | "friday" | "saturday" | "sunday"
    )
}

/// Reads the day that begins at `at`, and returns how many tokens it takes.
pub(super) fn read(tokens: &[Token], at: usize) -> Option<(When, usize)> {
    let token = tokens.get(at)?;
    match token.kind {
        Kind::Date => {
            let day = token.value.get(..10)?.parse().ok()?;
            Some((When::day(day), 1))
        }
        Kind::Path | Kind::Word | Kind::Number => numeric(&token.value)
            .map(|day| (When::day(day), 1))
            .or_else(|| named(tokens, at))
            .or_else(|| relative(tokens, at)),
        _ => None,
    }
}

/// Reads `2022/08/16`, `16.8.2022` and `08-16-2022`: the month first unless it cannot be one.
fn numeric(text: &str) -> Option<NaiveDate> {
    let parts: Vec<&str> = text.split(['/', '-', '.']).collect();
    let [a, b, c] = parts.as_slice() else { return None };
    if !parts.iter().all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())) {
        return None;
    }
    let number = |text: &str| text.parse::<u32>().ok();
    if a.len() == 4 {
        return NaiveDate::from_ymd_opt(a.parse().ok()?, number(b)?, number(c)?);
    }
    if c.len() != 4 || a.len() > 2 || b.len() > 2 {
        return None;
    }
    let year = c.parse().ok()?;
    let (month, day) = (number(a)?, number(b)?);
    NaiveDate::from_ymd_opt(year, month, day).or_else(|| NaiveDate::from_ymd_opt(year, day, month))
}

/// Reads `May 3rd, 2022`, `3 May 2022`, `the 3rd of May` and `June 2023`.
fn named(tokens: &[Token], at: usize) -> Option<(When, usize)> {
    let token =
        |at: usize| tokens.get(at).filter(|it| matches!(it.kind, Kind::Word | Kind::Number));
    let day_of = |it: &Token| {
        let digits = it.lower.trim_end_matches(|it: char| it.is_ascii_alphabetic());
        let rest = &it.lower[digits.len()..];
        let is_fit = matches!(rest, "" | "st" | "nd" | "rd" | "th") && digits.len() <= 2;
        digits.parse::<u32>().ok().filter(|it| is_fit && (1..=31).contains(it))
    };
    let year_of = |it: &Token| it.lower.parse::<i32>().ok().filter(|it| (1000..2200).contains(it));
    let mut end = at;
    let (mut day, mut found) = (None, None);
    if let Some(month) = token(at).filter(|it| it.is_capitalised()).and_then(|it| month(&it.lower))
    {
        found = Some(month);
        end += 1;
        day = token(end).and_then(day_of);
        end += usize::from(day.is_some());
    } else if let Some(said) = token(at).and_then(day_of) {
        let of = usize::from(tokens.get(at + 1).is_some_and(|it| it.is("of")));
        if let Some(month) = token(at + 1 + of).and_then(|it| month(&it.lower)) {
            (day, found) = (Some(said), Some(month));
            end += 2 + of;
        }
    }
    let month = found?;
    let comma = usize::from(tokens.get(end).is_some_and(|it| it.is_mark(",")));
    let year = token(end + comma).and_then(year_of);
    if year.is_some() {
        end += comma + 1;
    }
    let whole = year.zip(day).and_then(|(year, day)| NaiveDate::from_ymd_opt(year, month, day));
    let when = When { day: whole, month: year.map(|it| (it, month)), is_relative: year.is_none() };
    Some((when, end - at))
}

/// Reads `tomorrow`, `next Friday` and `this weekend`.
fn relative(tokens: &[Token], at: usize) -> Option<(When, usize)> {
    let token = tokens.get(at).filter(|it| it.kind == Kind::Word)?;
    let next = tokens.get(at + 1).filter(|it| it.kind == Kind::Word);
    let is_period = |it: &Token| {
        is_weekday(&it.lower)
            || matches!(
                it.lower.as_str(),
                "week" | "month" | "year" | "weekend" | "morning" | "night"
            )
    };
    match token.lower.as_str() {
        "today" | "tomorrow" | "yesterday" | "tonight" => Some((When::relative(), 1)),
        "next" | "this" | "last" | "coming" | "current" => {
            let month = next.and_then(|it| month(&it.lower).filter(|_| it.is_capitalised()));
            next.filter(|it| is_period(it) || month.is_some()).map(|_| (When::relative(), 2))
        }
        lower if is_weekday(lower) => Some((When::relative(), 1)),
        _ => None,
    }
}

/// The form in which a parameter wants a day: `YYYY-MM-DD` in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form(String);

impl Form {
    /// Returns the form that a description asks for, or shows by an example.
    pub(super) fn of(description: &str) -> Option<Self> {
        let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '/' | '.');
        description.split(|it: char| !is_part(it)).find_map(|word| {
            let word = word.trim_matches(['-', '/', '.']);
            Self::spelled(word).or_else(|| Self::shown(word))
        })
    }

    fn spelled(word: &str) -> Option<Self> {
        let plain = word.to_uppercase().replace("YEAR", "YYYY").replace("MONTH", "MM");
        let plain = plain.replace("DAY", "DD").replace('T', "");
        let plain = if plain.contains("YYYY") { plain } else { plain.replace("YYY", "YYYY") };
        let has = |it: &str| plain.contains(it);
        let is_form = has("YYYY")
            && has("MM")
            && plain.len() <= 10
            && plain.bytes().all(|it| matches!(it, b'Y' | b'M' | b'D' | b'-' | b'/' | b'.'));
        is_form.then_some(Self(plain))
    }

    fn shown(word: &str) -> Option<Self> {
        let separator = word.chars().find(|it| matches!(it, '-' | '/' | '.'))?;
        let parts: Vec<&str> = word.split(separator).collect();
        let is_number = |it: &&str| it.bytes().all(|it| it.is_ascii_digit());
        if parts.len() != 3 || !parts.iter().all(is_number) {
            return None;
        }
        let order = match (parts[0].len(), parts[1].len(), parts[2].len()) {
            (4, 2, 2) => ["YYYY", "MM", "DD"],
            (2, 2, 4) if parts[0].parse::<u32>().is_ok_and(|it| it > 12) => ["DD", "MM", "YYYY"],
            (2, 2, 4) => ["MM", "DD", "YYYY"],
            _ => return None,
        };
        Some(Self(order.join(&separator.to_string())))
    }

    /// Returns the form of ISO 8601.
    pub(super) fn iso() -> Self {
        Self("YYYY-MM-DD".to_owned())
    }

    /// Writes a day in this form, where enough of it is known.
    pub(super) fn write(&self, when: &When) -> Option<String> {
        let has_day = self.0.contains("DD");
        let (year, month) = when.day.map(|it| (it.year(), it.month())).or(when.month)?;
        let day = when.day.map(|it| it.day());
        if has_day && day.is_none() {
            return None;
        }
        let text = self.0.replace("YYYY", &format!("{year:04}"));
        let text = text.replace("MM", &format!("{month:02}"));
        Some(text.replace("DD", &format!("{:02}", day.unwrap_or(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    #[test]
    fn days_are_read_however_they_are_written() {
        for (said, form, expected, len) in [
            ("May 3rd, 2022 at", "YYYY-MM-DD", "2022-05-03", 4),
            ("3 May 2022", "in the format MM/DD/YYYY", "05/03/2022", 3),
            ("the", "YYYY-MM-DD", "", 0),
            ("2022/08/16", "The date (month-day-year)", "08-16-2022", 1),
            ("03/15/2023", "such as 2023-01-31", "2023-03-15", 1),
            ("April 2022", "in 'mm-yyyy' format", "04-2022", 2),
            ("2026-03-01", "the day (dd.mm.yyyy)", "01.03.2026", 1),
        ] {
            let read = read(&tokens(said), 0);
            let form = Form::of(form).unwrap_or_else(|| panic!("{form}"));
            let written = read.as_ref().and_then(|it| form.write(&it.0)).unwrap_or_default();
            assert_eq!(written, expected, "{said}");
            assert_eq!(read.map_or(0, |it| it.1), len, "{said}");
        }
    }

    #[test]
    fn what_needs_a_calendar_is_said_to() {
        for said in ["tomorrow", "next Friday", "May 3rd", "Sunday", "this weekend"] {
            let (when, _) = read(&tokens(said), 0).unwrap_or_else(|| panic!("{said}"));
            assert!(when.is_relative && Form::iso().write(&when).is_none(), "{said}");
        }
        for said in ["may I", "12", "next lamp", "1.2.3"] {
            assert_eq!(read(&tokens(said), 0), None, "{said}");
        }
    }
}
