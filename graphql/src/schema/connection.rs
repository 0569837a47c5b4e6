//! Pages of lists, as the Relay specification defines them.

use std::str::FromStr;

use async_graphql::{
    Context, Object, OutputType, Result,
    connection::{Connection, Edge},
};
use engine::Engine;
use shared::store::{AuditFilter, Cursor, ExecutionFilter, Page, PlanFilter, RequestFilter};

use super::{
    error::{ApiError, ApiResult, invalid_argument},
    scalar::to_int,
};

pub(super) const MAX_PAGE_SIZE: usize = 200;
pub(super) const DEFAULT_PAGE_SIZE: i32 = 20;
/// Default of `last`, for lists without pages.
pub(super) const DEFAULT_LAST: i32 = 50;

pub(super) type ListPage<T> = Connection<String, T, ListTotal>;

/// The filter of a list. The items that match it are counted if a client asks for `totalCount`.
pub(super) enum ListTotal {
    Requests(RequestFilter),
    Plans(PlanFilter),
    Executions(ExecutionFilter),
    Audit(AuditFilter),
    Empty,
}

#[Object]
impl ListTotal {
    /// Number of all items of the list, on all pages.
    async fn total_count(&self, ctx: &Context<'_>) -> Result<i64> {
        let store = ctx.data::<Engine>()?.store();
        let total = match self {
            Self::Requests(filter) => store.count_requests(filter).await,
            Self::Plans(filter) => store.count_plans(filter).await,
            Self::Executions(filter) => store.count_heads(filter).await,
            Self::Audit(filter) => store.count_audit_entries(filter).await,
            Self::Empty => Ok(0),
        };
        Ok(to_int(total.map_err(ApiError::from)?))
    }
}

/// Parses `first` and `after`. `Id` is the type of the id in a cursor.
pub(super) fn parse_page<Id: FromStr>(first: Option<i32>, after: Option<&str>) -> ApiResult<Page> {
    let after = match after {
        Some(text) => Some(parse_cursor::<Id>(text)?),
        None => None,
    };
    Ok(Page {
        first: check_count("first", first.unwrap_or(DEFAULT_PAGE_SIZE), MAX_PAGE_SIZE)?,
        after,
    })
}

pub(super) fn check_count(name: &str, requested: i32, maximum: usize) -> ApiResult<usize> {
    let within = usize::try_from(requested).ok().filter(|count| (1..=maximum).contains(count));
    within.ok_or_else(|| {
        invalid_argument(format!("`{name}` is {requested}; it must be from 1 to {maximum}"))
    })
}

fn parse_cursor<Id: FromStr>(text: &str) -> ApiResult<Cursor> {
    let cursor: Option<Cursor> = text.parse().ok();
    cursor.filter(|cursor| cursor.id.parse::<Id>().is_ok()).ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        invalid_argument(format!("`after` is `{text}`; use the `endCursor` of the page before"))
    })
}

pub(super) fn make_page<T: OutputType>(
    page: &Page,
    items: impl IntoIterator<Item = (Cursor, T)>,
    has_more: bool,
    total: ListTotal,
) -> ListPage<T> {
    let mut part = Connection::with_additional_fields(page.after.is_some(), has_more, total);
    part.edges =
        items.into_iter().map(|(cursor, node)| Edge::new(cursor.to_string(), node)).collect();
    part
}

pub(super) fn empty_page<T: OutputType>(page: &Page) -> ListPage<T> {
    make_page(page, [], false, ListTotal::Empty)
}
