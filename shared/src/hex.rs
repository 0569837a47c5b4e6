//! Bytes as hexadecimal digits.

use std::fmt;

/// Displays bytes as lower-case hexadecimal digits, two for each byte.
#[derive(Clone, Copy, Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Returns bytes as lower-case hexadecimal digits, such as the text of a hash.
pub fn to_hex(bytes: impl AsRef<[u8]>) -> String {
    Hex(bytes.as_ref()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(to_hex([0, 0x0a, 0xff, 0x10]), "000aff10");
        assert_eq!(to_hex([]), "");
    }
}
