//! Writes the BSON of a JSON text, which must be compact as `serde_json` writes it.

use super::{MAX_DEPTH, MICROS, Times, Type};

/// Returns a document whose only field has the value. Lists and objects of more than `max_text`
/// bytes stay text if they are at least two levels inside the value.
pub(super) fn encode(text: &str, times: Times, max_text: usize) -> Result<Vec<u8>, ()> {
    let mut encoder = Encoder::new(text, max_text);
    let document = encoder.start_document();
    encoder.write_element(b"v", 0, times)?;
    encoder.end_document(document);
    if encoder.skip_spaces().is_some() {
        return Err(());
    }
    Ok(encoder.bytes)
}

pub(super) fn encode_text(text: &str) -> Vec<u8> {
    let mut encoder = Encoder::new(text, 0);
    let document = encoder.start_document();
    let place = encoder.start_element(b"v");
    let kind = encoder.write_text(Type::Code, text.as_bytes());
    encoder.bytes[place] = kind as u8;
    encoder.end_document(document);
    encoder.bytes
}

struct Encoder<'a> {
    text: &'a [u8],
    at: usize,
    bytes: Vec<u8>,
    max_text: usize,
}

/// The reason why a container is not stored as BSON: its text is not JSON, or BSON cannot hold it
/// because of its keys or its depth.
enum Fault {
    Syntax,
    Key,
}

impl From<()> for Fault {
    fn from((): ()) -> Self {
        Self::Syntax
    }
}

impl<'a> Encoder<'a> {
    fn new(text: &'a str, max_text: usize) -> Self {
        let bytes = Vec::with_capacity(text.len() + text.len() / 4 + 32);
        Self { text: text.as_bytes(), at: 0, bytes, max_text }
    }

    fn start_document(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        start
    }

    fn end_document(&mut self, start: usize) {
        self.bytes.push(0);
        let len = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Writes the name of a field. Returns the position of the byte for the field's type.
    fn start_element(&mut self, name: &[u8]) -> usize {
        let place = self.bytes.len();
        self.bytes.push(0);
        self.bytes.extend(name);
        self.bytes.push(0);
        place
    }

    fn write_element(&mut self, name: &[u8], depth: usize, times: Times) -> Result<(), ()> {
        let place = self.start_element(name);
        let kind = self.write_value(depth, times)?;
        self.bytes[place] = kind as u8;
        Ok(())
    }

    fn write_value(&mut self, depth: usize, times: Times) -> Result<Type, ()> {
        match self.skip_spaces() {
            Some(b'{' | b'[') => self.write_container(depth, times),
            Some(b'"') => {
                let text = self.read_string()?;
                Ok(self.write_text(Type::String, &text))
            }
            Some(b't') => self.write_word(b"true", Type::Bool, &[1]),
            Some(b'f') => self.write_word(b"false", Type::Bool, &[0]),
            Some(b'n') => self.write_word(b"null", Type::Null, &[]),
            Some(b'-' | b'0'..=b'9') => Ok(self.write_number()),
            _ => Err(()),
        }
    }

    fn write_word(&mut self, word: &[u8], kind: Type, payload: &[u8]) -> Result<Type, ()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(());
        }
        self.at += word.len();
        self.bytes.extend(payload);
        Ok(kind)
    }

    /// Writes a list or an object, or its text if that is too long or BSON cannot hold the value.
    fn write_container(&mut self, depth: usize, times: Times) -> Result<Type, ()> {
        let (start, mark) = (self.at, self.bytes.len());
        let written = if depth >= MAX_DEPTH {
            Err(Fault::Key)
        } else if self.text[start] == b'{' {
            self.write_object(depth, times).map(|()| Type::Document)
        } else {
            self.write_list(depth, times).map(|()| Type::Array)
        };
        // An event is converted at any size, because developers search for its fields. Only its
        // values can stay text.
        let is_large = depth >= 2 && self.at - start > self.max_text;
        match written {
            Err(Fault::Syntax) => Err(()),
            Ok(kind) if !is_large => Ok(kind),
            Ok(_) | Err(Fault::Key) => {
                self.bytes.truncate(mark);
                self.at = start;
                self.skip_container()?;
                let text = &self.text[start..self.at];
                Ok(self.write_text(Type::Code, text))
            }
        }
    }

    fn write_object(&mut self, depth: usize, times: Times) -> Result<(), Fault> {
        let document = self.start_document();
        self.at += 1;
        let mut is_first = true;
        while !self.is_at_end(b'}', is_first)? {
            is_first = false;
            self.skip_spaces();
            let name = self.read_string()?;
            if name.contains(&0) || name.starts_with(b"$") {
                return Err(Fault::Key);
            }
            if self.skip_spaces() != Some(b':') {
                return Err(Fault::Syntax);
            }
            self.at += 1;
            self.skip_spaces();
            if !(times.is_time(&name) && self.write_time(&name)) {
                self.write_element(&name, depth + 1, times.of_field(&name))?;
            }
        }
        self.end_document(document);
        Ok(())
    }

    fn write_list(&mut self, depth: usize, times: Times) -> Result<(), Fault> {
        let document = self.start_document();
        self.at += 1;
        let mut index = Index::default();
        while !self.is_at_end(b']', index.is_first())? {
            let place = self.bytes.len();
            self.bytes.push(0);
            index.write_to(&mut self.bytes);
            let kind = self.write_value(depth + 1, times.of_items())?;
            self.bytes[place] = kind as u8;
        }
        self.end_document(document);
        Ok(())
    }

    fn is_at_end(&mut self, end: u8, is_first: bool) -> Result<bool, ()> {
        match self.skip_spaces() {
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            Some(b',') if !is_first => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if is_first => Ok(false),
            _ => Err(()),
        }
    }

    /// Writes a time as a date. Writes nothing and returns `false` if the value is not a whole
    /// number.
    fn write_time(&mut self, name: &[u8]) -> bool {
        let start = self.at;
        let Some(micros) = parse_integer(self.read_number()) else {
            self.at = start;
            return false;
        };
        let place = self.start_element(name);
        self.bytes[place] = Type::Date as u8;
        self.bytes.extend(micros.div_euclid(1_000).to_le_bytes());
        if micros.rem_euclid(1_000) != 0 {
            let place = self.start_element(&[name, MICROS.as_bytes()].concat());
            self.bytes[place] = Type::Int64 as u8;
            self.bytes.extend(micros.to_le_bytes());
        }
        true
    }

    fn write_number(&mut self) -> Type {
        let digits = self.read_number();
        if let Some(whole) = parse_integer(digits) {
            if let Ok(small) = i32::try_from(whole) {
                self.bytes.extend(small.to_le_bytes());
                return Type::Int32;
            }
            self.bytes.extend(whole.to_le_bytes());
            return Type::Int64;
        }
        let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse::<f64>().ok());
        let number = number.and_then(serde_json::Number::from_f64);
        match number {
            Some(number) if number.to_string().as_bytes() == digits => {
                self.bytes.extend(number.as_f64().unwrap_or_default().to_le_bytes());
                Type::Double
            }
            _ => self.write_text(Type::Code, digits),
        }
    }

    fn write_text(&mut self, kind: Type, text: &[u8]) -> Type {
        let len = i32::try_from(text.len() + 1).unwrap_or(i32::MAX);
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(text);
        self.bytes.push(0);
        kind
    }

    fn read_number(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn read_string(&mut self) -> Result<std::borrow::Cow<'a, [u8]>, ()> {
        let start = self.at;
        let has_escapes = self.skip_string()?;
        let written = &self.text[start..self.at];
        if !has_escapes {
            return Ok(written[1..written.len() - 1].into());
        }
        let text: String = serde_json::from_slice(written).map_err(drop)?;
        Ok(text.into_bytes().into())
    }

    /// Moves past a string. Returns `true` if it has escapes.
    fn skip_string(&mut self) -> Result<bool, ()> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(());
        }
        let mut has_escapes = false;
        self.at += 1;
        loop {
            match self.text.get(self.at).ok_or(())? {
                b'"' => {
                    self.at += 1;
                    return Ok(has_escapes);
                }
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
    }

    fn skip_container(&mut self) -> Result<(), ()> {
        let mut depth = 0_usize;
        loop {
            match self.text.get(self.at).ok_or(())? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1).ok_or(())?,
                _ => (),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Moves past spaces, and returns the next byte without moving past it.
    fn skip_spaces(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }
}

/// Parses an integer whose digits are the same after the conversion to BSON and back.
fn parse_integer(digits: &[u8]) -> Option<i64> {
    if digits.starts_with(b"-0") || digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    let is_whole = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-'));
    str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_whole)
}

#[derive(Default)]
struct Index {
    next: usize,
}

impl Index {
    fn is_first(&self) -> bool {
        self.next == 0
    }

    fn write_to(&mut self, bytes: &mut Vec<u8>) {
        let (mut digits, mut at, mut rest) = ([0_u8; 20], 20, self.next);
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        bytes.extend(&digits[at..]);
        bytes.push(0);
        self.next += 1;
    }
}
