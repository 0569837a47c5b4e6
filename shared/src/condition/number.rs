//! Numbers. `1`, `1.0` and `1u` are equal, because JSON does not distinguish integers from other
//! numbers.

use std::cmp::Ordering;

use super::expr::Operator;

const INTEGER_RANGE: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(u64::MAX as i128);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Double(f64),
}

/// Compares an integer with a double by their exact values. Returns `None` for NaN.
pub(super) fn compare_exactly(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    let whole = truncate_double(double);
    integer.cmp(&whole).then(0.0_f64.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal)).into()
}

pub(super) fn calculate(
    operator: Operator,
    left: Number,
    right: Number,
) -> Result<Number, &'static str> {
    match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => {
            calculate_integers(operator, left, right)
        }
        (left, right) if operator == Operator::Remainder => {
            let (Some(left), Some(right)) = (left.as_integral(), right.as_integral()) else {
                return Err("needs whole numbers");
            };
            calculate_integers(operator, left, right)
        }
        (left, right) => {
            let (left, right) = (left.to_double(), right.to_double());
            Ok(Number::Double(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                _ => left / right,
            }))
        }
    }
}

fn calculate_integers(operator: Operator, left: i128, right: i128) -> Result<Number, &'static str> {
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        _ if right == 0 => return Err("division by zero"),
        Operator::Remainder => left.checked_rem(right),
        _ => left.checked_div(right),
    };
    result.and_then(checked_integer).map(Number::Integer).ok_or("the result is too large")
}

pub(super) fn checked_integer(value: i128) -> Option<i128> {
    INTEGER_RANGE.contains(&value).then_some(value)
}

impl Number {
    pub(super) fn whole_part(self) -> Option<i128> {
        match self {
            Self::Integer(value) => Some(value),
            Self::Double(value) => {
                value.is_finite().then(|| truncate_double(value)).and_then(checked_integer)
            }
        }
    }

    pub(super) fn as_integral(self) -> Option<i128> {
        match self {
            Self::Double(value) if value.fract() != 0.0 => None,
            value => value.whole_part(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the caller wants the nearest double")]
    pub(super) fn to_double(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates far beyond 64 bits")]
fn truncate_double(double: f64) -> i128 {
    double as i128
}
