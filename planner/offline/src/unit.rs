//! Units as people write them: what a number measures, and how much of it one is.

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Length,
    Area,
    Volume,
    Mass,
    Duration,
    Temperature,
    Speed,
    Acceleration,
    Charge,
    Current,
    Voltage,
    Resistance,
    Energy,
    Power,
    Force,
    Pressure,
    Frequency,
    Capacitance,
    Inductance,
    Money,
    Share,
    Angle,
    Amount,
    Data,
}

/// A unit.
#[derive(Debug)]
pub(super) struct Unit {
    /// What it measures.
    pub(super) dimension: Dimension,
    /// How much of the dimension's first unit one is; nothing where nobody can say for all times.
    pub(super) factor: Option<f64>,
    /// How much of the dimension's first unit its zero is.
    offset: f64,
    /// How it is written, in lower case, apart by spaces.
    written: &'static str,
}

const fn unit(dimension: Dimension, factor: f64, written: &'static str) -> Unit {
    Unit { dimension, factor: Some(factor), offset: 0.0, written }
}

const fn scale(dimension: Dimension, written: &'static str) -> Unit {
    Unit { dimension, factor: None, offset: 0.0, written }
}

/// A unit whose zero is not the dimension's.
const fn degree(factor: f64, offset: f64, written: &'static str) -> Unit {
    Unit { dimension: Dimension::Temperature, factor: Some(factor), offset, written }
}

use Dimension as D;

/// The units that everybody uses.
const UNITS: &[Unit] = &[
    unit(D::Length, 1.0, "m meter meters metre metres"),
    unit(D::Length, 1e3, "km kms kilometer kilometers kilometre kilometres"),
    unit(D::Length, 1e-2, "cm centimeter centimeters centimetre centimetres"),
    unit(D::Length, 1e-3, "mm millimeter millimeters millimetre millimetres"),
    unit(D::Length, 1e-9, "nm nanometer nanometers"),
    unit(D::Length, 1609.344, "mi mile miles"),
    unit(D::Length, 0.3048, "ft foot feet"),
    unit(D::Length, 0.0254, "inch inches"),
    unit(D::Length, 0.9144, "yd yard yards"),
    scale(D::Length, "light-year light-years"),
    scale(D::Length, "pixel pixels px"),
    unit(D::Area, 1.0, "m² m^2 m2 sqm"),
    unit(D::Area, 0.092_903_04, "ft² ft^2 sqft"),
    unit(D::Area, 4_046.856_422_4, "acre acres"),
    unit(D::Area, 1e4, "hectare hectares"),
    unit(D::Volume, 1.0, "m³ m^3 m3"),
    unit(D::Volume, 1e-3, "l liter liters litre litres"),
    unit(D::Volume, 1e-6, "ml milliliter milliliters"),
    scale(D::Volume, "gallon gallons"),
    scale(D::Volume, "cup cups"),
    scale(D::Volume, "ounce ounces oz"),
    scale(D::Volume, "tablespoon tablespoons"),
    scale(D::Volume, "teaspoon teaspoons"),
    unit(D::Mass, 1.0, "kg kgs kilogram kilograms kilo kilos"),
    unit(D::Mass, 1e-3, "g gram grams"),
    unit(D::Mass, 1e-6, "mg milligram milligrams"),
    unit(D::Mass, 0.453_592_37, "lb lbs pound pounds"),
    unit(D::Duration, 1.0, "s sec secs second seconds"),
    unit(D::Duration, 60.0, "min mins minute minutes"),
    unit(D::Duration, 3600.0, "h hr hrs hour hours"),
    unit(D::Duration, 86_400.0, "day days"),
    unit(D::Duration, 604_800.0, "week weeks"),
    unit(D::Duration, 1e-3, "ms millisecond milliseconds"),
    scale(D::Duration, "month months"),
    scale(D::Duration, "year years yr yrs"),
    scale(D::Duration, "decade decades"),
    scale(D::Duration, "century centuries"),
    scale(D::Duration, "night nights"),
    degree(1.0, 0.0, "celsius °c ºc c centigrade"),
    degree(5.0 / 9.0, -160.0 / 9.0, "fahrenheit °f ºf f"),
    degree(1.0, -273.15, "k kelvin kelvins"),
    scale(D::Temperature, "degree degrees °"),
    unit(D::Speed, 1.0, "m/s"),
    unit(D::Speed, 1e3 / 3600.0, "km/h kmh kph"),
    unit(D::Speed, 0.447_04, "mph"),
    unit(D::Speed, 1_852.0 / 3600.0, "knots knot"),
    unit(D::Acceleration, 1.0, "m/s^2 m/s² m/s2"),
    unit(D::Charge, 1.0, "coulomb coulombs"),
    unit(D::Charge, 1e-6, "µc microcoulomb microcoulombs"),
    unit(D::Current, 1.0, "a amp amps ampere amperes"),
    unit(D::Current, 1e-3, "ma milliampere milliamperes"),
    unit(D::Voltage, 1.0, "v volt volts"),
    unit(D::Resistance, 1.0, "ohm ohms Ω"),
    unit(D::Energy, 1.0, "j joule joules"),
    unit(D::Energy, 1e3, "kj kilojoule kilojoules"),
    unit(D::Energy, 3.6e6, "kwh"),
    scale(D::Energy, "calories calorie kcal"),
    unit(D::Power, 1.0, "w watt watts"),
    unit(D::Power, 1e3, "kw kilowatt kilowatts"),
    unit(D::Force, 1.0, "n newton newtons"),
    unit(D::Pressure, 1.0, "pa pascal pascals"),
    unit(D::Pressure, 101_325.0, "atm atmosphere atmospheres"),
    unit(D::Pressure, 1e5, "bar"),
    unit(D::Pressure, 6_894.757_293_168, "psi"),
    unit(D::Frequency, 1.0, "hz hertz"),
    unit(D::Frequency, 1e6, "mhz"),
    unit(D::Capacitance, 1.0, "farad farads"),
    unit(D::Capacitance, 1e-6, "µf microfarad microfarads"),
    unit(D::Inductance, 1.0, "henry henries"),
    unit(D::Inductance, 1e-3, "mh millihenry millihenries"),
    scale(D::Money, "dollar dollars usd $"),
    scale(D::Money, "euro euros eur €"),
    scale(D::Money, "gbp £ sterling"),
    scale(D::Money, "yen jpy ¥"),
    scale(D::Money, "rupee rupees inr ₹"),
    scale(D::Money, "rmb yuan cny"),
    scale(D::Money, "cent cents"),
    scale(D::Share, "% percent percentage"),
    scale(D::Angle, "radian radians"),
    unit(D::Amount, 1.0, "mol mole moles"),
    scale(D::Data, "byte bytes"),
    scale(D::Data, "kb kilobyte kilobytes"),
    scale(D::Data, "mb megabyte megabytes"),
    scale(D::Data, "gb gigabyte gigabytes"),
    scale(D::Data, "tb terabyte terabytes"),
];

/// Words for what is measured: a `radius` is a length.
const MEASURED: &[(Dimension, &str)] = &[
    (D::Length, "length distance height width radius diameter depth altitude elevation side"),
    (D::Area, "area"),
    (D::Volume, "volume"),
    (D::Mass, "mass weight"),
    (D::Duration, "time duration period term"),
    (D::Temperature, "temperature temp"),
    (D::Speed, "speed velocity"),
    (D::Acceleration, "acceleration"),
    (D::Charge, "charge"),
    (D::Current, "current"),
    (D::Voltage, "voltage"),
    (D::Resistance, "resistance"),
    (D::Energy, "energy"),
    (D::Power, "power"),
    (D::Force, "force"),
    (D::Pressure, "pressure"),
    (D::Frequency, "frequency"),
    (
        D::Money,
        "price cost amount budget salary income fee payment investment revenue value money principal rent loan \
         deposit expense profit gain balance pay wage earning asset liability",
    ),
    (D::Share, "rate percent percentage probability ratio share interest yield level"),
];

/// Returns the unit that a word is.
pub(super) fn find(word: &str) -> Option<&'static Unit> {
    let lower = word.trim_end_matches(['.', ',']).to_lowercase();
    UNITS.iter().find(|it| it.written.split(' ').any(|it| it == lower))
}

/// Returns what a word says is measured.
pub(super) fn measured(word: &str) -> Option<Dimension> {
    MEASURED.iter().find(|(_, words)| words.split_whitespace().any(|it| it == word)).map(|it| it.0)
}

impl PartialEq for Unit {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

/// Returns how many `to` a number of `from` are, where that can be said.
pub(super) fn convert(number: f64, from: &Unit, to: &Unit) -> Option<f64> {
    if from == to {
        return Some(number);
    }
    if from.dimension != to.dimension {
        return None;
    }
    let converted = (number * from.factor? + from.offset - to.offset) / to.factor?;
    // Thirteen digits: `50 mH` are `0.05 H`, not `0.050000000000000003`.
    Some(format!("{converted:.12e}").parse().unwrap_or(converted))
}

/// Returns whether a unit says less than its dimension: `degrees` of whichever scale.
pub(super) fn is_vague(unit: &Unit) -> bool {
    unit.factor.is_none() && unit.dimension == Dimension::Temperature
}

/// Returns the unit that the name of a parameter ends with, where no other word is meant by it.
pub(super) fn named(last: &str) -> Option<&'static Unit> {
    const NAMES: &str = "ms milliseconds seconds minutes hours days weeks kg kilograms grams mg lbs km kilometers \
                         kilometres meters metres cm mm miles feet inches liters litres ml celsius fahrenheit kelvin";
    find(last).filter(|_| NAMES.split_whitespace().any(|it| it == last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_however_they_are_written() {
        for (a, b) in [("kg", "Kilograms"), ("m/s^2", "m/s²"), ("hrs", "hour"), ("%", "percent")] {
            assert_eq!(find(a), find(b));
            assert!(find(a).is_some());
        }
        assert!(find("lamps").is_none());
    }

    #[test]
    fn what_has_a_factor_is_converted() {
        let convert = |number, from, to| convert(number, find(from).unwrap(), find(to).unwrap());
        assert_eq!(convert(50.0, "mH", "henries"), Some(0.05));
        assert_eq!(convert(180.0, "cm", "m"), Some(1.8));
        assert_eq!(convert(2.0, "hours", "minutes"), Some(120.0));
        assert_eq!(convert(68.0, "fahrenheit", "celsius"), Some(20.0));
        assert_eq!(convert(300.0, "kelvin", "°C"), Some(26.85));
        assert_eq!(convert(-40.0, "celsius", "fahrenheit"), Some(-40.0));
        assert_eq!(convert(36.0, "km/h", "m/s"), Some(10.0));
        assert_eq!(convert(3.0, "kg", "kilograms"), Some(3.0));
        assert_eq!(convert(5.0, "dollars", "euros"), None);
        assert_eq!(convert(5.0, "yen", "euros"), None);
        assert_eq!(convert(1.0, "kg", "m"), None);
        assert_eq!(convert(1.0, "months", "days"), None);
    }
}
