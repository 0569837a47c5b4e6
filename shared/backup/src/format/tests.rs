use std::{io::Cursor, sync::Arc};

use proptest::prelude::*;
use serde_json::json;
use shared::{
    clock::Timestamp,
    store::{Record, RecordKind},
};

use super::*;

fn header() -> BackupHeader {
    BackupHeader {
        faber: "0.1.0".to_owned(),
        created_at: "2026-01-02T03:04:05Z".to_owned(),
        store: "memory".to_owned(),
    }
}

fn entry(name: &str, text: &str) -> Entry {
    let (kind, at) = (RecordKind::Memory, Timestamp::UNIX_EPOCH);
    Entry::Record(Record { kind, name: name.to_owned(), value: Arc::new(json!(text)), at })
}

fn write_file(entries: &[Entry]) -> Vec<u8> {
    let mut file = FileWriter::new(Vec::new(), &header()).unwrap();
    for entry in entries {
        file.write_line(entry.type_name(), &entry.encode()).unwrap();
    }
    file.finish().unwrap()
}

fn read_file(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let mut file = FileReader::open(Cursor::new(bytes))?;
    let mut lines = Vec::new();
    while let Some((entry, len)) = file.next_entry()? {
        let line = entry.encode();
        assert_eq!(line.len(), len);
        lines.push(line);
    }
    Ok(lines)
}

/// Replaces the checksum by the correct one, as a writer of wrong content would.
fn seal(bytes: &mut [u8]) {
    let (content, checksum) = bytes.split_at_mut(bytes.len() - 32);
    checksum.copy_from_slice(&Sha256::digest(content));
}

#[test]
fn a_file_is_read_as_it_was_written_and_again_after_a_rewind() {
    let entries = [entry("a", "one"), entry("b", &"x".repeat(3 << 20)), entry("c", "ö\n\u{0}")];
    let bytes = write_file(&entries);
    let lines: Vec<_> = entries.iter().map(Entry::encode).collect();
    assert_eq!(read_file(&bytes).unwrap(), lines);
    let mut file = FileReader::open(Cursor::new(&bytes)).unwrap();
    assert_eq!(*file.header(), header());
    for _ in 0..2 {
        let mut read = 0;
        while file.next_entry().unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, 3);
        assert!(file.next_entry().unwrap().is_none(), "the end stays the end");
        file.rewind().unwrap();
    }
    assert!(read_file(&write_file(&[])).unwrap().is_empty());
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let bytes = write_file(&[entry("a", "one"), entry("b", "two")]);
    for len in 0..bytes.len() {
        let refused = read_file(&bytes[..len]).unwrap_err();
        match (len, &refused) {
            (0..8, FormatError::NotBackup) | (8.., FormatError::Damaged(_)) => (),
            _ => panic!("{len}: {refused:?}"),
        }
    }
    let longer = [bytes.as_slice(), b"\n"].concat();
    assert!(matches!(read_file(&longer), Err(FormatError::Damaged(_))));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = write_file(&[entry("a", "one"), entry("b", "two")]);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refused = read_file(&flipped).unwrap_err();
        match (bit / 8, &refused) {
            (0..8, FormatError::NotBackup) | (8.., FormatError::Damaged(_)) => (),
            _ => panic!("bit {bit}: {refused:?}"),
        }
    }
}

#[test]
fn a_newer_format_is_told_from_a_damaged_file() {
    let mut bytes = write_file(&[entry("a", "one")]);
    bytes[8] = 2;
    assert!(matches!(read_file(&bytes), Err(FormatError::Damaged(_))), "its checksum is wrong");
    seal(&mut bytes);
    assert!(matches!(read_file(&bytes), Err(FormatError::TooNew { found: 2 })));
    assert!(matches!(read_file(b"SQLite format 3\0"), Err(FormatError::NotBackup)));
}

#[test]
fn wrong_counts_are_refused_even_with_a_correct_checksum() {
    let bytes = write_file(&[entry("a", "one")]);
    let place = bytes.windows(10).position(|part| part == br#""record":1"#).unwrap();
    let mut wrong = bytes.clone();
    wrong[place + 9] = b'2';
    seal(&mut wrong);
    let refused = read_file(&wrong).unwrap_err();
    assert!(
        matches!(&refused, FormatError::Damaged(why) if why == "it lacks entries"),
        "{refused:?}"
    );
}

proptest! {
    #[test]
    fn no_content_with_a_correct_checksum_panics(
        entries in prop::collection::vec(("[a-z]{1,8}", ".{0,40}"), 0..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let entries: Vec<_> = entries.iter().map(|(name, text)| entry(name, text)).collect();
        let mut bytes = write_file(&entries);
        let len = bytes.len() - 32;
        for (index, byte) in &changes {
            bytes[index.index(len)] = *byte;
        }
        seal(&mut bytes);
        match read_file(&bytes) {
            Ok(lines) => prop_assert!(!changes.is_empty() || lines.len() == entries.len()),
            Err(_) => prop_assert!(!changes.is_empty()),
        }
    }
}
