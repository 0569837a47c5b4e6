use std::ops::Range;

use chrono::{NaiveDate, NaiveTime};

use super::{
    lexicon::Lexicon,
    token::{Token, TokenKind},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) tokens: Range<usize>,
    pub(super) day: Option<NaiveDate>,
    pub(super) time: Option<NaiveTime>,
}

pub(super) fn find_moments(tokens: &[Token]) -> Vec<Moment> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let moment = read_day(tokens, at).or_else(|| read_time(tokens, at));
        at = moment.as_ref().map_or(at + 1, |moment| moment.tokens.end);
        found.extend(moment);
    }
    found
}

fn read_day(tokens: &[Token], at: usize) -> Option<Moment> {
    let token = &tokens[at];
    if token.kind == TokenKind::Date {
        let day = token.value.get(..10)?.replace('/', "-").parse().ok();
        let time = token.value.get(11..16);
        let time = time.and_then(|text| NaiveTime::parse_from_str(text, "%H:%M").ok());
        return Some(Moment { tokens: at..at + 1, day, time });
    }
    let (day, len) = read_named_day(tokens, at)?;
    Some(Moment { tokens: at..at + len, day, time: None })
}

/// Reads `May 3rd, 2022`, `3 May 2022` and `3rd of May`. A day without a year gives no date, and is
/// only marked so that it is not read as a number.
fn read_named_day(tokens: &[Token], at: usize) -> Option<(Option<NaiveDate>, usize)> {
    let word = |at: usize| tokens.get(at).filter(|token| token.kind != TokenKind::Quoted);
    let day_at = |at: usize| {
        let text = &word(at)?.lower;
        let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
        let is_short = digits.len() <= 2 && text.len() - digits.len() <= 2;
        digits.parse::<u32>().ok().filter(|day| is_short && (1..=31).contains(day))
    };
    let month_at = |at: usize| {
        let token = word(at).filter(|token| token.is_capitalised())?;
        Lexicon::month(&token.lower)
    };
    let (month, day, mut end) = if let Some(month) = month_at(at) {
        (month, day_at(at + 1)?, at + 2)
    } else {
        let day = day_at(at)?;
        let at = at + 1 + usize::from(word(at + 1).is_some_and(|token| token.is("of")));
        (month_at(at)?, day, at + 1)
    };
    let comma = usize::from(tokens.get(end).is_some_and(|token| token.is_mark(",")));
    let year = word(end + comma).and_then(|token| token.lower.parse::<i32>().ok());
    let year = year.filter(|year| (1000..2200).contains(year));
    end += if year.is_some() { comma + 1 } else { 0 };
    Some((year.and_then(|year| NaiveDate::from_ymd_opt(year, month, day)), end - at))
}

fn read_time(tokens: &[Token], at: usize) -> Option<Moment> {
    let token = &tokens[at];
    if !matches!(token.kind, TokenKind::Time | TokenKind::Number) {
        return None;
    }
    let mut text = token.lower.clone();
    let mut len = 1;
    if let Some(half) = tokens.get(at + 1).filter(|token| token.is("am") || token.is("pm")) {
        text.push_str(&half.lower);
        len = 2;
    }
    if token.kind == TokenKind::Number && len == 1 {
        return None;
    }
    let (clock, half) = match text.strip_suffix("pm") {
        Some(clock) => (clock, 12),
        None => (text.strip_suffix("am").unwrap_or(&text), 0),
    };
    let is_half = clock.len() < text.len();
    let (hour, minute) = clock.split_once(':').unwrap_or((clock, "0"));
    let mut hour: u32 = hour.parse().ok()?;
    if is_half {
        hour = hour % 12 + half;
    }
    let time = NaiveTime::from_hms_opt(hour, minute.get(..2).unwrap_or(minute).parse().ok()?, 0)?;
    Some(Moment { tokens: at..at + len, day: None, time: Some(time) })
}

pub(super) fn write_moment(day: NaiveDate, time: Option<NaiveTime>) -> String {
    match time {
        Some(time) => format!("{day}T{}", time.format("%H:%M")),
        None => day.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    #[test]
    fn days_and_times_are_read_in_many_forms() {
        for (said, day, time) in [
            ("2026-03-01", "2026-03-01", ""),
            ("2026-03-01T09:30", "2026-03-01", "09:30"),
            ("4 December 2026", "2026-12-04", ""),
            ("May 3rd, 2022", "2022-05-03", ""),
            ("2pm", "", "14:00"),
            ("3:30 pm", "", "15:30"),
            ("12am", "", "00:00"),
        ] {
            let found = find_moments(&tokens(said));
            assert_eq!(found.len(), 1, "{said}");
            let shown = found[0].day.map(|day| day.to_string()).unwrap_or_default();
            assert_eq!(shown, day, "{said}");
            let shown =
                found[0].time.map(|time| time.format("%H:%M").to_string()).unwrap_or_default();
            assert_eq!(shown, time, "{said}");
        }
        assert!(find_moments(&tokens("may I take 12 of them")).is_empty());
    }
}
