use engine::access::Token;

use crate::claims::Claims;

#[derive(Clone, Debug)]
pub struct Rule {
    pub claim: String,
    pub value: String,
    /// The rights. The name is replaced by the name of the caller.
    pub rights: Token,
}

pub(crate) fn find_rule(rules: &[Rule], claims: &Claims) -> Option<usize> {
    rules.iter().position(|rule| claims.contains(&rule.claim, &rule.value))
}
