use std::{collections::BTreeSet, time::Duration};

use shared::{
    execution::ExecutionState,
    store::{ExecutionHead, LabelFilter},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub ages: RetentionAges,
    /// Only the first rule whose labels an execution has applies to the execution.
    pub rules: Vec<RetentionRule>,
    /// The age of audit entries. `None` keeps them for ever.
    pub audit: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    pub labels: Vec<LabelFilter>,
    pub ages: RetentionAges,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionAges {
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub cancelled: Option<Duration>,
}

impl From<Duration> for RetentionPolicy {
    fn from(age: Duration) -> Self {
        RetentionAges::from(age).into()
    }
}

impl From<RetentionAges> for RetentionPolicy {
    fn from(ages: RetentionAges) -> Self {
        Self { ages, ..Self::default() }
    }
}

impl From<Duration> for RetentionAges {
    fn from(age: Duration) -> Self {
        Self { completed: Some(age), failed: Some(age), cancelled: Some(age) }
    }
}

impl RetentionPolicy {
    /// Returns the age after which an execution is removed. `None` keeps it.
    pub fn age_of(&self, head: &ExecutionHead) -> Option<Duration> {
        let applies =
            |rule: &&RetentionRule| rule.labels.iter().all(|label| label.matches(&head.labels));
        let rule = self.rules.iter().find(applies);
        rule.map_or(self.ages, |rule| rule.ages).age_of_state(head.state)
    }

    pub fn single_age(&self) -> Option<Duration> {
        self.ages.single_age().filter(|_| self.rules.is_empty())
    }

    pub fn all_ages(&self) -> BTreeSet<Duration> {
        let rules = self.rules.iter().flat_map(|rule| rule.ages.list_ages());
        rules.chain(self.ages.list_ages()).flatten().collect()
    }
}

impl RetentionAges {
    fn age_of_state(&self, state: ExecutionState) -> Option<Duration> {
        match state {
            ExecutionState::Completed => self.completed,
            ExecutionState::Failed => self.failed,
            ExecutionState::Cancelled => self.cancelled,
            _ => None,
        }
    }

    pub fn single_age(&self) -> Option<Duration> {
        self.completed.filter(|age| *self == Self::from(*age))
    }

    fn list_ages(&self) -> [Option<Duration>; 3] {
        [self.completed, self.failed, self.cancelled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "an age is optional")]
    fn days(n: u64) -> Option<Duration> {
        Some(Duration::from_hours(24 * n))
    }

    #[test]
    fn all_ages_are_those_of_states_and_rules() {
        let ages = RetentionAges { completed: days(7), failed: days(90), cancelled: None };
        let rule = |ages| RetentionRule { labels: Vec::new(), ages };
        for (rules, uniform, all) in [
            (Vec::new(), None, vec![days(7), days(90)]),
            (vec![rule(RetentionAges::default())], None, vec![days(7), days(90)]),
            (
                vec![rule(RetentionAges { failed: days(1), ..ages })],
                None,
                vec![days(1), days(7), days(90)],
            ),
        ] {
            let policy = RetentionPolicy { ages, rules, audit: None };
            assert_eq!(policy.single_age(), uniform, "{policy:?}");
            assert_eq!(policy.all_ages(), all.into_iter().flatten().collect(), "{policy:?}");
        }
        let week = RetentionPolicy::from(days(7).unwrap());
        assert_eq!(week.single_age(), days(7));
        assert_eq!(week.all_ages().len(), 1);
        let kept = RetentionPolicy { rules: vec![rule(RetentionAges::default())], ..week };
        assert_eq!(kept.single_age(), None);
    }
}
