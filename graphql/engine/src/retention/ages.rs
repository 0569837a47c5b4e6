//! Ages after which finished executions are removed.

use std::time::Duration;

use shared::execution::ExecutionState;

/// An age for each state in which an execution ends. `None` keeps executions for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionAges {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub cancelled: Option<Duration>,
}

impl From<Duration> for RetentionAges {
    fn from(age: Duration) -> Self {
        Self { completed: Some(age), failed: Some(age), cancelled: Some(age) }
    }
}

impl RetentionAges {
    pub fn of_state(&self, state: ExecutionState) -> Option<Duration> {
        match state {
            ExecutionState::Completed => self.completed,
            ExecutionState::Failed => self.failed,
            ExecutionState::Cancelled => self.cancelled,
            _ => None,
        }
    }

    /// Returns the age if all states have the same age.
    pub fn uniform(&self) -> Option<Duration> {
        self.completed.filter(|age| *self == Self::from(*age))
    }

    pub fn shortest(&self) -> Option<Duration> {
        self.all().into_iter().flatten().min()
    }

    /// Returns the longest age, or `None` if executions in one of the states are kept for ever.
    pub fn longest(&self) -> Option<Duration> {
        // The minimum is `None` if one of the ages is `None`, because `None` is less than any age.
        self.all().into_iter().min().flatten().and(self.all().into_iter().max().flatten())
    }

    fn all(&self) -> [Option<Duration>; 3] {
        [self.completed, self.failed, self.cancelled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_an_age_has_no_longest_age() {
        let days = |n: u64| Some(Duration::from_hours(24 * n));
        let ages = |completed, failed, cancelled| RetentionAges { completed, failed, cancelled };
        for (ages, uniform, shortest, longest) in [
            (ages(days(7), days(90), days(30)), None, days(7), days(90)),
            (ages(days(7), None, days(30)), None, days(7), None),
            (ages(days(7), days(7), days(7)), days(7), days(7), days(7)),
            (ages(None, None, None), None, None, None),
        ] {
            assert_eq!(ages.uniform(), uniform, "{ages:?}");
            assert_eq!((ages.shortest(), ages.longest()), (shortest, longest), "{ages:?}");
        }
    }
}
