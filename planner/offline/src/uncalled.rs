//! Tools that fit a query and are not planned: those that can only be selected, and those whose set
//! is switched off.

use super::{
    planning::Planning,
    profile::Profile,
    token::{Kind, Token},
    words,
};
use planner::{PlanningError, Proposal, catalog::Catalog};

/// Tools that are not planned and are looked at where nothing else fits.
const LISTED: usize = 1_024;
/// Returns what was planned, or why not and which other tool the query asks for.
pub(super) fn heed(
    planning: Planning<'_>,
    tokens: &[Token],
    catalog: &Catalog,
) -> Result<Proposal, PlanningError> {
    let is_named = planning.called().iter().any(|it| self::is_named(it, tokens));
    match (planning.finish(), uncalled(tokens, catalog)) {
        (Ok(_), Some(name)) if !is_named => Err(not_callable(&name, None)),
        (Err(err), Some(name)) => Err(not_callable(&name, Some(err))),
        (Err(err), None) => Err(told_of_inactive(err, tokens, catalog)),
        (planned, _) => planned,
    }
}

/// Returns whether all of a tool's name is said.
fn is_named(profile: &Profile, tokens: &[Token]) -> bool {
    let has = |stem: &String| tokens.iter().any(|it| it.kind == Kind::Word && it.stem == *stem);
    profile.verbs.first().is_some_and(has)
        && !profile.nouns.is_empty()
        && profile.nouns.iter().all(has)
}

/// Returns the tool that a query names, where it is one that can be selected and not called.
fn uncalled(tokens: &[Token], catalog: &Catalog) -> Option<String> {
    let listed = catalog.tools().iter().filter(|it| it.is_active && !it.definition.is_callable);
    let names = listed.take(LISTED).map(|it| (it, it.definition.name.as_str().to_owned()));
    names
        .map(|(it, name)| Profile::read(&it.definition, name))
        .find(|it| is_named(it, tokens))
        .map(|it| it.name)
}

/// Adds to why there is no plan which tool a query asks for that is switched off.
fn told_of_inactive(err: PlanningError, tokens: &[Token], catalog: &Catalog) -> PlanningError {
    let PlanningError::NoPlan { message, nearest, notes } = err else { return err };
    let off = catalog.tools().iter().filter(|it| !it.is_active && it.definition.is_callable);
    let orders = |it: &Profile| {
        let words = || tokens.iter().filter(|it| it.kind == Kind::Word).map(|it| &it.stem);
        let is_verb = |stem: &String| {
            it.verbs.contains(stem)
                || it.family.is_some_and(|family| words::families(stem).first() == Some(&family))
        };
        words().any(is_verb)
            && !it.nouns.is_empty()
            && it.nouns.iter().all(|noun| words().any(|it| it == noun))
    };
    let found = off
        .take(LISTED)
        .map(|it| Profile::read(&it.definition, it.definition.qualified_name().as_str().to_owned()))
        .find(orders);
    let message = match found {
        Some(it) => format!(
            "{message}; plan.inactive_tool: `{}` may do that, and its set `{}` is switched off (switch it on: \
             `faber toolsets activate {}`)",
            it.name, it.tool.set, it.tool.set
        ),
        None => message,
    };
    PlanningError::NoPlan { message, nearest, notes }
}

/// Says that the tool which a query asks for cannot be called.
fn not_callable(name: &str, err: Option<PlanningError>) -> PlanningError {
    let (why, others, notes) = match err {
        Some(PlanningError::NoPlan { message, nearest, notes }) => {
            (format!("; {message}"), nearest, notes)
        }
        Some(other) => return other,
        None => (String::new(), Vec::new(), Vec::new()),
    };
    let message = format!(
        "plan.not_callable: `{name}` is what the query asks for, and it can be selected, not called: give it a \
         `run` in its tools file{why}"
    );
    let nearest = std::iter::once(name.to_owned()).chain(others).collect();
    PlanningError::NoPlan { message, nearest, notes }
}
