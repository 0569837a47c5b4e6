//! Numbers as people write them: `$1.2M`, `5%`, `70kg`, `7-day`, `16th`, `two hundred`.

use serde_json::Number;

use super::{
    token::{self, Kind, Token},
    unit::{self, Dimension, Unit},
};

/// A number in words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Amount {
    /// How much.
    pub(super) number: Number,
    /// Of what.
    pub(super) unit: Option<&'static Unit>,
    /// Whether it says which one instead of how many: `16th`.
    pub(super) is_ordinal: bool,
    /// Whether it is a word that people use for other things too: `one`, `second`.
    pub(super) is_word: bool,
}

impl Amount {
    fn plain(number: Number) -> Self {
        Self { number, unit: None, is_ordinal: false, is_word: false }
    }

    /// Returns whether it is a share of a hundred.
    pub(super) fn is_percent(&self) -> bool {
        self.unit.is_some_and(|it| it.dimension == Dimension::Share)
    }

    /// Returns whether it can be a year.
    pub(super) fn is_year(&self) -> bool {
        self.unit.is_none() && self.number.as_i64().is_some_and(|it| (1000..2200).contains(&it))
    }
}

/// Returns what numbers with units measure, and where they stand.
pub(super) fn measures(tokens: &[Token]) -> Vec<(usize, Dimension)> {
    let unit = |at: usize| Some((at, read(tokens, at)?.0.unit?.dimension));
    (0..tokens.len()).filter_map(unit).collect()
}

/// Reads the number that begins at `at`, and returns how many tokens it takes.
pub(super) fn read(tokens: &[Token], at: usize) -> Option<(Amount, usize)> {
    let token = tokens.get(at)?;
    if matches!(token.kind, Kind::Quoted | Kind::Id | Kind::Date | Kind::Time | Kind::Email) {
        return None;
    }
    let mut amount = digits(&token.value).or_else(|| spelled(&token.lower))?;
    let mut len = 1;
    let next = |amount: &mut Amount, len: &mut usize| {
        let word = tokens.get(at + *len).filter(|it| touches(tokens, at + *len - 1, it));
        let Some(word) = word else { return false };
        // One letter alone is a unit, or anything; behind a currency it is a magnitude.
        let is_word = word.lower.len() > 1 || amount.unit.is_some_and(is_money);
        if let Some(times) =
            magnitude(&word.lower).filter(|_| is_word && amount.unit.is_none_or(is_money))
            && let Some(number) = scaled(&amount.number, times)
        {
            amount.number = number;
            amount.is_word = false;
            *len += 1;
            return true;
        }
        false
    };
    while len < 4 && next(&mut amount, &mut len) {}
    if amount.unit.is_none()
        && let Some((unit, used)) = unit_at(tokens, at + len)
    {
        amount.unit = Some(unit);
        len += used;
    }
    if let Some(more) = compound(tokens, at + len, &mut amount) {
        len += more;
    }
    Some((amount, len))
}

/// Adds what is said in a smaller unit: `5 feet 11 inches`, `500 euros and 50 cents`.
fn compound(tokens: &[Token], at: usize, amount: &mut Amount) -> Option<usize> {
    let unit = amount.unit?;
    let joint = usize::from(tokens.get(at).is_some_and(|it| it.is("and")));
    let number =
        token::number(&tokens.get(at + joint).filter(|it| it.kind == Kind::Number)?.value)?;
    let (small, len) = unit_at(tokens, at + joint + 1)?;
    let is_cents = is_money(unit) && small == unit::find("cents")? && small != unit;
    let more = if is_cents {
        number.as_f64()? / 100.0
    } else {
        // Two distances may be two distances: only what continues the first one is part of it.
        let is_part = joint == 0 && small != unit && small.factor? < unit.factor?;
        is_part.then(|| unit::convert(number.as_f64()?, small, unit)).flatten()?
    };
    let sum = format!("{:.12e}", amount.number.as_f64()? + more).parse().ok()?;
    amount.number = whole(sum)?;
    Some(joint + 1 + len)
}

fn is_money(unit: &Unit) -> bool {
    unit.dimension == Dimension::Money
}

fn touches(tokens: &[Token], before: usize, token: &Token) -> bool {
    token.start <= tokens[before].end + 1
}

/// Reads the unit behind a number: `kg`, `m/s^2`, `°C`, `degrees Celsius`, `%`.
fn unit_at(tokens: &[Token], at: usize) -> Option<(&'static Unit, usize)> {
    let token = tokens.get(at)?;
    if matches!(token.kind, Kind::Quoted | Kind::Number) || token.value == "in" {
        return None;
    }
    // One capital may be anything; a small letter alone is an article more often than a unit.
    let is_article = token.lower == "a" || token.lower == "c" && token.value != "C";
    let unit = unit::find(&token.value).filter(|_| !is_article)?;
    let is_degree = token.stem == "degre";
    match tokens.get(at + 1).and_then(|it| unit::find(&it.value)) {
        Some(scale) if is_degree && scale.dimension == Dimension::Temperature => Some((scale, 2)),
        _ => Some((unit, 1)),
    }
}

/// Reads a number that is written with digits, and what is stuck to it.
fn digits(text: &str) -> Option<Amount> {
    let is_money = text.starts_with(['$', '€', '£', '¥', '₹']);
    let body = text.trim_start_matches(['$', '€', '£', '¥', '₹', '#', '~', '≈', '+']);
    if let Some(number) = token::number(body) {
        let unit = if is_money {
            unit::find(&text.chars().next().map(String::from).unwrap_or_default())
        } else if body.ends_with('%') {
            unit::find("%")
        } else {
            None
        };
        return Some(Amount { unit, ..Amount::plain(number) });
    }
    let signed = body.strip_prefix('-').unwrap_or(body);
    let len = body.len() - signed.len()
        + signed
            .char_indices()
            .take_while(|(_, it)| it.is_ascii_digit() || matches!(it, '.' | ','))
            .count();
    let (number, rest) = body.split_at_checked(len)?;
    let number = token::number(number.trim_end_matches(['.', ',']))?;
    let rest = rest.trim_start_matches('-');
    let lower = rest.to_lowercase();
    if matches!(lower.as_str(), "st" | "nd" | "rd" | "th") {
        return Some(Amount { is_ordinal: true, ..Amount::plain(number) });
    }
    let is_said = matches!(rest, "M" | "k") || lower.len() > 1;
    if let Some(times) = magnitude(&lower).filter(|_| is_money || is_said) {
        let unit = if is_money { unit::find("$") } else { None };
        return Some(Amount { unit, ..Amount::plain(scaled(&number, times)?) });
    }
    let unit = unit::find(rest)?;
    Some(Amount { unit: Some(unit), ..Amount::plain(number) })
}

fn magnitude(lower: &str) -> Option<f64> {
    match lower {
        "k" | "thousand" => Some(1e3),
        "m" | "million" | "mn" => Some(1e6),
        "b" | "bn" | "billion" => Some(1e9),
        "trillion" => Some(1e12),
        "hundred" => Some(1e2),
        "dozen" => Some(12.0),
        _ => None,
    }
}

fn scaled(number: &Number, times: f64) -> Option<Number> {
    whole(number.as_f64()? * times)
}

/// Returns a number as an integer where it is one.
pub(super) fn whole(number: f64) -> Option<Number> {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        format!("{number:.0}").parse::<i64>().ok().map(Number::from)
    } else {
        Number::from_f64(number)
    }
}

/// Reads a number that is written as a word.
fn spelled(lower: &str) -> Option<Amount> {
    const SMALL: &str = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
                         sixteen seventeen eighteen nineteen";
    const TENS: &str = "twenty thirty forty fifty sixty seventy eighty ninety";
    const ORDINALS: &str = "first second third fourth fifth sixth seventh eighth ninth tenth";
    let word = |number: u64| Amount { is_word: true, ..Amount::plain(number.into()) };
    let place = |words: &str, it: &str| {
        words.split_whitespace().position(|word| word == it).and_then(|it| u64::try_from(it).ok())
    };
    if let Some(number) = place(SMALL, lower) {
        return Some(word(number));
    }
    if let Some(tens) = place(TENS, lower) {
        return Some(word(tens * 10 + 20));
    }
    if let Some((tens, ones)) = lower.split_once('-')
        && let Some(tens) = place(TENS, tens)
        && let Some(ones) = place(SMALL, ones).filter(|it| *it < 10)
    {
        return Some(word(tens * 10 + 20 + ones));
    }
    if let Some(number) = lower.split_once('-').and_then(|(number, _)| place(SMALL, number)) {
        return Some(word(number));
    }
    match lower {
        "hundred" => Some(word(100)),
        "thousand" => Some(word(1000)),
        "once" => Some(word(1)),
        "twice" => Some(word(2)),
        _ => place(ORDINALS, lower).map(|it| Amount { is_ordinal: true, ..word(it + 1) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_what_belongs_to_them() {
        for (said, number, unit, len) in [
            ("$1.2M in", "1200000", Some("$"), 1),
            ("5% interest", "5", Some("%"), 1),
            ("70kg", "70", Some("kg"), 1),
            ("7-day trip", "7", Some("day"), 1),
            ("2 million dollars", "2000000", Some("$"), 3),
            ("30 degrees Celsius", "30", Some("celsius"), 3),
            ("100µF", "100", Some("µf"), 1),
            ("1.75m tall", "1.75", Some("m"), 1),
            ("twenty-five", "25", None, 1),
            ("1e-9", "1e-9", None, 1),
            ("1.8 m tall", "1.8", Some("m"), 2),
            ("3k", "3000", None, 1),
            ("$1.5 M", "1500000", Some("$"), 2),
            ("500 euros and 50 cents", "500.5", Some("€"), 5),
            ("2 hours 30 minutes", "2.5", Some("h"), 4),
            ("3 km and 500 m", "3", Some("km"), 2),
            ("1.000,50 euros", "1000.5", Some("€"), 2),
            ("2,5 kg", "2.5", Some("kg"), 2),
            ("2,5", "2", None, 1),
            ("-4,", "-4", None, 1),
        ] {
            let tokens = token::tokens(said);
            let (amount, taken) = read(&tokens, 0).unwrap_or_else(|| panic!("{said}"));
            assert_eq!(amount.number.to_string(), number, "{said}");
            assert_eq!(amount.unit, unit.and_then(unit::find), "{said}");
            assert_eq!(taken, len, "{said}");
        }
        assert!(read(&token::tokens("16th"), 0).is_some_and(|it| it.0.is_ordinal));
        for said in ["lamp", "CA123456", "12x18", "\"5\""] {
            assert!(read(&token::tokens(said), 0).is_none(), "{said}");
        }
    }
}
