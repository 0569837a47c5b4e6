//! Pages of lists, as the Relay specification defines them.

use std::str::FromStr;

use async_graphql::{
    OutputType,
    connection::{Connection, Edge},
};
use shared::store::{Cursor, Page};

use super::error::{ApiResult, invalid};

/// Largest page.
pub(super) const MOST: usize = 200;
/// Default page size.
pub(super) const FIRST: i32 = 20;
/// Default of `last`, for lists without pages.
pub(super) const LAST: i32 = 50;

/// Page of a list.
pub(super) type Part<T> = Connection<String, T>;

/// Parses `first` and `after`. `Id` is the type of the id in a cursor.
pub(super) fn page<Id: FromStr>(first: Option<i32>, after: Option<&str>) -> ApiResult<Page> {
    let after = match after {
        Some(text) => Some(cursor::<Id>(text)?),
        None => None,
    };
    Ok(Page { first: count("first", first.unwrap_or(FIRST), MOST)?, after })
}

/// Checks that a page size is between 1 and `most`.
pub(super) fn count(name: &str, asked: i32, most: usize) -> ApiResult<usize> {
    let within = usize::try_from(asked).ok().filter(|count| (1..=most).contains(count));
    within.ok_or_else(|| invalid(format!("`{name}` is {asked}; it must be from 1 to {most}")))
}

fn cursor<Id: FromStr>(text: &str) -> ApiResult<Cursor> {
    let cursor: Option<Cursor> = text.parse().ok();
    cursor.filter(|cursor| cursor.id.parse::<Id>().is_ok()).ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        invalid(format!("`after` is `{text}`; use the `endCursor` of the page before"))
    })
}

pub(super) fn part<T: OutputType>(
    page: &Page,
    items: impl IntoIterator<Item = (Cursor, T)>,
    has_more: bool,
) -> Part<T> {
    let mut part = Connection::new(page.after.is_some(), has_more);
    part.edges = items.into_iter().map(|(at, node)| Edge::new(at.to_string(), node)).collect();
    part
}

pub(super) fn nothing<T: OutputType>(page: &Page) -> Part<T> {
    part(page, [], false)
}
