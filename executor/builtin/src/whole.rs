//! Reads whole numbers in parameters. Accepts `2.0`, because JSON Schema counts it as an integer,
//! but serde does not.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Number;

pub(crate) fn read_number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    to_whole_number(&Number::deserialize(from)?)
}

pub(crate) fn read_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(from)?.as_ref().map(to_whole_number).transpose()
}

fn to_whole_number<E: Error>(number: &Number) -> Result<u64, E> {
    let fraction = || number.as_f64().filter(|number| number.fract() == 0.0);
    number
        .as_u64()
        .or_else(|| format!("{:.0}", fraction()?).parse().ok())
        .ok_or_else(|| E::custom(format!("`{number}` is not a whole number of at least 0")))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Deserialize)]
    struct Args {
        #[serde(deserialize_with = "super::read_number")]
        a: u64,
        #[serde(default, deserialize_with = "super::read_option")]
        b: Option<u64>,
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        let table = [
            (json!({ "a": 2 }), Ok((2, None))),
            (json!({ "a": 2.0, "b": null }), Ok((2, None))),
            (json!({ "a": 0, "b": 1e3 }), Ok((0, Some(1_000)))),
            (json!({ "a": 1.5 }), Err("`1.5` is not a whole number of at least 0")),
            (json!({ "a": -1 }), Err("`-1` is not a whole number of at least 0")),
            (json!({ "a": 1e300 }), Err("`1e+300` is not a whole number of at least 0")),
        ];
        for (args, expected) in table {
            let read = |args: Value| serde_json::from_value::<Args>(args);
            let read = read(args).map(|args| (args.a, args.b)).map_err(|err| err.to_string());
            assert_eq!(read, expected.map_err(str::to_owned));
        }
    }
}
