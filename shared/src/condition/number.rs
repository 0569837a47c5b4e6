//! Numbers as people mean them: `1`, `1.0` and `1u` are the same.
//!
//! JSON does not say which of its numbers are integers: what one program writes as `2.0`, another
//! writes as `2`. So the two kinds mix freely here, where CEL alone would refuse `2 + 1.5`.

use std::cmp::Ordering;

use super::expr::Operator;

/// The integers there are: those of 64 bits, signed or not.
const INTEGERS: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(u64::MAX as i128);

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Double(f64),
}

/// Compares an integer with a double by their exact values; nothing if that is not a number.
pub(super) fn order(integer: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    let whole = truncated(double);
    integer.cmp(&whole).then(0.0_f64.partial_cmp(&double.fract()).unwrap_or(Ordering::Equal)).into()
}

/// Calculates. Err: why it cannot be done.
pub(super) fn calculate(
    operator: Operator,
    left: Number,
    right: Number,
) -> Result<Number, &'static str> {
    match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => whole(operator, left, right),
        (left, right) if operator == Operator::Remainder => {
            let (Some(left), Some(right)) = (left.integral(), right.integral()) else {
                return Err("needs whole numbers");
            };
            whole(operator, left, right)
        }
        (left, right) => {
            let (left, right) = (left.double(), right.double());
            Ok(Number::Double(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                _ => left / right,
            }))
        }
    }
}

fn whole(operator: Operator, left: i128, right: i128) -> Result<Number, &'static str> {
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        _ if right == 0 => return Err("division by zero"),
        Operator::Remainder => left.checked_rem(right),
        _ => left.checked_div(right),
    };
    result.and_then(integer).map(Number::Integer).ok_or("the result is too large")
}

/// Returns `value` if it is an integer that there is.
pub(super) fn integer(value: i128) -> Option<i128> {
    INTEGERS.contains(&value).then_some(value)
}

impl Number {
    /// Returns its whole part, if that is an integer that there is.
    pub(super) fn whole_part(self) -> Option<i128> {
        match self {
            Self::Integer(it) => Some(it),
            Self::Double(it) => it.is_finite().then(|| truncated(it)).and_then(integer),
        }
    }

    /// Returns it if it is a whole number.
    pub(super) fn integral(self) -> Option<i128> {
        match self {
            Self::Double(it) if it.fract() != 0.0 => None,
            it => it.whole_part(),
        }
    }

    /// Returns the nearest double.
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    pub(super) fn double(self) -> f64 {
        match self {
            Self::Integer(it) => it as f64,
            Self::Double(it) => it,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates far beyond 64 bits")]
fn truncated(double: f64) -> i128 {
    double as i128
}
