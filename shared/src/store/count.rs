//! Counts of executions by group. Child executions and dry runs are not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{ExecutionFilter, ExecutionHead, Usage, usage};
use crate::{clock::Timestamp, id::ExecutionId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountGroup {
    State,
    Tool,
    Error,
    Plan,
    Label(String),
    /// The period in which the execution was created. All periods have this length, and the first
    /// period begins with the year 1970 (UTC).
    Bucket(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountQuery {
    pub filter: ExecutionFilter,
    pub groups: Vec<CountGroup>,
    /// The maximum number of groups. With a [bucket](CountGroup::Bucket), the newest buckets come
    /// first. Otherwise the largest groups come first.
    pub first: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionCount {
    /// The values of the keys. A bucket is the time of its beginning, as RFC 3339.
    pub keys: Vec<String>,
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub sample: ExecutionId,
    /// The median of the time from start to end of the finished executions, with an error of at
    /// most a tenth. `None` if no execution is finished.
    pub p50: Option<Duration>,
    pub p95: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub first_at: i64,
    pub last_at: i64,
    /// The id of the execution that was created last. If several were created at this time, it is
    /// the greatest of their ids.
    pub sample: String,
    pub durations: Durations,
}

/// A histogram of durations: the number of executions in each [`Usage::bucket`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations(BTreeMap<u16, u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountFields<'a> {
    pub state: &'a str,
    pub plan: &'a str,
    pub tool: Option<&'a str>,
    pub error: Option<&'a str>,
    pub label: Option<&'a str>,
    /// A time of creation, in microseconds.
    pub created_at: i64,
}

impl Tally {
    /// Returns the tally of one execution. Times are in microseconds. `end` is `None` for an
    /// unfinished execution.
    pub fn of_one(id: &str, created_at: i64, started_at: Option<i64>, end: Option<i64>) -> Self {
        let mut durations = Durations::default();
        if let Some(end) = end {
            let micros = end.saturating_sub(started_at.unwrap_or(created_at));
            durations.add(Duration::from_micros(u64::try_from(micros).unwrap_or_default()));
        }
        let (first_at, last_at) = (created_at, created_at);
        Self { count: 1, first_at, last_at, sample: id.to_owned(), durations }
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.first_at = self.first_at.min(other.first_at);
        if (other.last_at, &other.sample) > (self.last_at, &self.sample) {
            self.sample.clone_from(&other.sample);
        }
        self.last_at = self.last_at.max(other.last_at);
        self.durations.merge(&other.durations);
    }
}

impl Durations {
    pub fn of_bucket(bucket: u16, n: u64) -> Self {
        Self(BTreeMap::from([(bucket, n)]))
    }

    fn add(&mut self, took: Duration) {
        *self.0.entry(Usage::bucket(took)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, n) in &other.0 {
            *self.0.entry(*bucket).or_default() += n;
        }
    }

    /// Removes durations that were added before.
    pub fn remove(&mut self, other: &Self) {
        for (bucket, n) in &other.0 {
            if let Some(there) = self.0.get_mut(bucket) {
                *there = there.saturating_sub(*n);
            }
        }
        self.0.retain(|_, n| *n > 0);
    }

    fn quantile(&self, share: f64) -> Option<Duration> {
        usage::quantile(&self.0, share)
    }

    /// Encodes the histogram: the index of each bucket, followed by its number of durations. Each
    /// byte has seven bits of a number.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 * self.0.len());
        for (bucket, n) in &self.0 {
            for mut number in [u64::from(*bucket), *n] {
                while number >= 0x80 {
                    bytes.push(0x80 | u8::try_from(number & 0x7f).unwrap_or_default());
                    number >>= 7;
                }
                bytes.push(u8::try_from(number).unwrap_or_default());
            }
        }
        bytes
    }

    /// Adds an encoded histogram. Ignores the rest of a damaged histogram.
    pub fn merge_encoded(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.iter();
        let mut next = || {
            let (mut number, mut shift) = (0_u64, 0);
            loop {
                let byte = u64::from(*bytes.next()?);
                number |= (byte & 0x7f).checked_shl(shift)?;
                shift += 7;
                if byte < 0x80 {
                    return Some(number);
                }
            }
        };
        while let (Some(bucket), Some(n)) = (next(), next()) {
            let bucket = u16::try_from(bucket).unwrap_or(u16::MAX);
            let there = self.0.entry(bucket).or_default();
            *there = there.saturating_add(n);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Text(String),
    /// The beginning of a bucket, in microseconds.
    Time(i64),
}

#[derive(Debug)]
pub struct CountTable<'a> {
    groups: &'a [CountGroup],
    tallies: BTreeMap<Vec<Key>, Tally>,
}

impl<'a> CountTable<'a> {
    pub fn new(query: &'a CountQuery) -> Self {
        Self { groups: &query.groups, tallies: BTreeMap::new() }
    }

    /// Adds a tally of executions that have these fields. Does nothing if they lack a key of the
    /// query.
    pub fn add(&mut self, fields: &CountFields<'_>, tally: &Tally) {
        let keys = self.groups.iter().map(|group| fields.key(group));
        let Some(keys) = keys.collect::<Option<Vec<_>>>() else { return };
        match self.tallies.get_mut(&keys) {
            Some(there) => there.merge(tally),
            None => drop(self.tallies.insert(keys, tally.clone())),
        }
    }

    pub fn add_head(&mut self, head: &ExecutionHead) {
        let label = self.groups.iter().find_map(|group| match group {
            CountGroup::Label(key) => head.labels.get(key),
            _ => None,
        });
        let (plan, error) = (head.plan.to_string(), head.error.as_ref());
        let created_at = head.created_at.timestamp_micros();
        let fields = CountFields {
            state: head.state.as_str(),
            plan: &plan,
            tool: error.and_then(|error| error.tool.as_ref()).map(crate::id::ToolName::as_str),
            error: error.map(|error| error.code.as_str()),
            label: label.map(String::as_str),
            created_at,
        };
        let micros = |time: Timestamp| time.timestamp_micros();
        let end = head.finished_at.filter(|_| head.state.is_finished()).map(micros);
        let id = head.execution.to_string();
        let tally = Tally::of_one(&id, created_at, head.started_at.map(micros), end);
        self.add(&fields, &tally);
    }

    pub fn plans(&self) -> BTreeSet<String> {
        let at = self.groups.iter().position(|group| *group == CountGroup::Plan);
        let plan = |keys: &Vec<Key>| match keys.get(at?)? {
            Key::Text(plan) => Some(plan.clone()),
            Key::Time(_) => None,
        };
        self.tallies.keys().filter_map(plan).collect()
    }

    /// Returns `true` if at least `first` groups have newer buckets than an execution created at
    /// `created_at`, in microseconds. Older executions then add no group to the result.
    pub fn has_newer_groups(&self, created_at: i64, first: usize) -> bool {
        let bucket = self.groups.iter().find_map(|group| match group {
            CountGroup::Bucket(length) => Some(bucket_micros(*length)),
            _ => None,
        });
        let Some(length) = bucket.filter(|_| self.tallies.len() >= first) else { return false };
        let bucket = created_at.div_euclid(length) * length;
        let is_newer = |keys: &&Vec<Key>| {
            keys.iter().any(|key| matches!(key, Key::Time(start) if *start > bucket))
        };
        self.tallies.keys().filter(is_newer).count() >= first
    }

    /// Returns the first groups, in the order that [`CountQuery::first`] describes.
    pub fn finish(self, first: usize) -> Vec<ExecutionCount> {
        let time = |keys: &[Key]| {
            keys.iter().find_map(|key| match key {
                Key::Time(start) => Some(*start),
                Key::Text(_) => None,
            })
        };
        let mut groups: Vec<_> = self.tallies.into_iter().collect();
        // The sort is stable, so groups of the same size stay in the order of their keys.
        groups.sort_by(|(one_keys, one), (other_keys, other)| {
            (time(other_keys), other.count).cmp(&(time(one_keys), one.count))
        });
        groups.truncate(first);
        groups.into_iter().filter_map(|(keys, tally)| to_count(keys, &tally)).collect()
    }
}

fn to_count(keys: Vec<Key>, tally: &Tally) -> Option<ExecutionCount> {
    let time = Timestamp::from_timestamp_micros;
    let keys = keys.into_iter().map(|key| match key {
        Key::Text(text) => Some(text),
        Key::Time(start) => Some(time(start)?.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)),
    });
    Some(ExecutionCount {
        keys: keys.collect::<Option<_>>()?,
        count: tally.count,
        first_at: time(tally.first_at)?,
        last_at: time(tally.last_at)?,
        sample: tally.sample.parse().ok()?,
        p50: tally.durations.quantile(0.5),
        p95: tally.durations.quantile(0.95),
    })
}

impl CountFields<'_> {
    fn key(&self, group: &CountGroup) -> Option<Key> {
        let text = match group {
            CountGroup::State => Some(self.state),
            CountGroup::Tool => self.tool,
            CountGroup::Error => self.error,
            CountGroup::Plan => Some(self.plan),
            CountGroup::Label(_) => self.label,
            CountGroup::Bucket(length) => {
                let length = bucket_micros(*length);
                return Some(Key::Time(self.created_at.div_euclid(length) * length));
            }
        };
        text.map(|text| Key::Text(text.to_owned()))
    }
}

/// Returns the length of a bucket in microseconds, at least a millisecond.
pub fn bucket_micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX).max(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_histogram_comes_back_unchanged(
            numbers in prop::collection::btree_map(any::<u16>(), 1..u64::MAX, 0..20),
        ) {
            let durations = Durations(numbers);
            let mut again = Durations::default();
            again.merge_encoded(&durations.encode());
            prop_assert_eq!(&again, &durations);
            again.remove(&durations);
            prop_assert_eq!(again, Durations::default());
        }

        #[test]
        fn a_damaged_histogram_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            Durations::default().merge_encoded(&bytes);
        }
    }
}
