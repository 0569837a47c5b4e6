//! Ids of 24 hexadecimal digits, like those of MongoDB: seconds, a random part, a counter.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU32, Ordering},
};

use shared::clock::Timestamp;

#[derive(Debug)]
pub(super) struct IdSource {
    random: u64,
    counter: AtomicU32,
}

impl IdSource {
    pub(super) fn new() -> Self {
        // Gets random numbers from a hasher, because the standard library seeds hashers from the
        // operating system.
        let draw = || RandomState::new().build_hasher().finish();
        Self {
            random: draw() & 0xff_ffff_ffff,
            counter: AtomicU32::new((draw() & 0xff_ffff) as u32),
        }
    }

    pub(super) fn new_id(&self, now: Timestamp) -> String {
        let seconds = now.timestamp() & 0xffff_ffff;
        let count = self.counter.fetch_add(1, Ordering::Relaxed) & 0xff_ffff;
        format!("{seconds:08x}{:010x}{count:06x}", self.random)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_24_digits_and_different() {
        let ids = IdSource::new();
        let now = Timestamp::from_timestamp(1_704_123_456, 0).unwrap();
        let drawn: BTreeSet<_> = (0..1_000).map(|_| ids.new_id(now)).collect();
        assert_eq!(drawn.len(), 1_000);
        for id in drawn {
            assert!(id.len() == 24 && id.starts_with("6592dc40"), "{id}");
            assert!(
                id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()),
                "{id}"
            );
        }
        assert_ne!(IdSource::new().new_id(now), IdSource::new().new_id(now));
    }
}
