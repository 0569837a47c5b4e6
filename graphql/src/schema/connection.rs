//! Pages of lists, as the Relay specification defines them.

use std::str::FromStr;

use async_graphql::{
    Context, Object, OutputType, Result,
    connection::{Connection, Edge},
};
use engine::Engine;
use shared::store::{
    AuditFilter, Cursor, ExecutionFilter, Page, PlanFilter, RecordKind, RequestFilter,
};

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
    SavedPlans,
    /// Calls outside plans of the tool with this name, or of all tools.
    ToolCalls(Option<String>),
    Empty,
}

#[Object]
impl ListTotal {
    /// Number of all items of the list, on all pages.
    async fn total_count(&self, ctx: &Context<'_>) -> Result<i64> {
        let engine = ctx.data::<Engine>()?;
        let store = engine.store();
        let total = match self {
            Self::Requests(filter) => store.count_requests(filter).await,
            Self::Plans(filter) => store.count_plans(filter).await,
            Self::Executions(filter) => store.count_heads(filter).await,
            Self::Audit(filter) => store.count_audit_entries(filter).await,
            Self::SavedPlans => store
                .count_records(RecordKind::SavedPlan, "", usize::MAX)
                .await
                .map(|count| count as u64),
            Self::ToolCalls(tool) => {
                let count = engine.tools.count_calls(tool.as_deref()).await;
                return Ok(to_int(count.map_err(ApiError::from)?));
            }
            Self::Empty => Ok(0),
        };
        Ok(to_int(total.map_err(ApiError::from)?))
    }
}

/// Arguments of a list with pages in both directions.
pub(super) struct PageArguments {
    pub(super) first: Option<i32>,
    pub(super) after: Option<String>,
    pub(super) last: Option<i32>,
    pub(super) before: Option<String>,
}

impl PageArguments {
    /// Parses the arguments of a field. `Id` is the type of the id in a cursor.
    pub(super) fn parse<Id: FromStr>(self, ctx: &Context<'_>) -> ApiResult<Page> {
        // If the document has no `first`, the default of the schema does not forbid `last`.
        let is_first_written = ctx.item.node.get_argument("first").is_some();
        self.to_page::<Id>(is_first_written)
    }

    fn to_page<Id: FromStr>(&self, is_first_written: bool) -> ApiResult<Page> {
        let after = self.after.as_deref().map(parse_after::<Id>).transpose()?;
        let before = self.before.as_deref().map(parse_before::<Id>).transpose()?;
        let Some(last) = self.last else {
            let first = self.first.unwrap_or(DEFAULT_PAGE_SIZE);
            let first = check_count("first", first, MAX_PAGE_SIZE)?;
            return Ok(Page { after, before, ..Page::first_items(first) });
        };
        if is_first_written && self.first.is_some() {
            return Err(invalid_argument(
                "`first` and `last` exclude each other: use `first` with `after` to page \
                 forwards, or `last` with `before` to page backwards",
            ));
        }
        let last = check_count("last", last, MAX_PAGE_SIZE)?;
        Ok(Page { after, before, ..Page::last_items(last) })
    }
}

/// Parses `first` and `after` of a list that has no pages backwards.
pub(super) fn parse_page<Id: FromStr>(first: Option<i32>, after: Option<&str>) -> ApiResult<Page> {
    let after = after.map(parse_after::<Id>).transpose()?;
    let first = check_count("first", first.unwrap_or(DEFAULT_PAGE_SIZE), MAX_PAGE_SIZE)?;
    Ok(Page { after, ..Page::first_items(first) })
}

pub(super) fn check_count(name: &str, requested: i32, maximum: usize) -> ApiResult<usize> {
    let within = usize::try_from(requested).ok().filter(|count| (1..=maximum).contains(count));
    within.ok_or_else(|| {
        invalid_argument(format!("`{name}` is {requested}; it must be from 1 to {maximum}"))
    })
}

pub(super) fn parse_after<Id: FromStr>(text: &str) -> ApiResult<Cursor> {
    parse_cursor::<Id>(text).ok_or_else(|| {
        let text = clip_cursor(text);
        invalid_argument(format!("`after` is `{text}`; use the `endCursor` of the page before"))
    })
}

fn parse_before<Id: FromStr>(text: &str) -> ApiResult<Cursor> {
    parse_cursor::<Id>(text).ok_or_else(|| {
        let text = clip_cursor(text);
        invalid_argument(format!("`before` is `{text}`; use the `startCursor` of the next page"))
    })
}

fn parse_cursor<Id: FromStr>(text: &str) -> Option<Cursor> {
    let cursor: Option<Cursor> = text.parse().ok();
    cursor.filter(|cursor| cursor.id.parse::<Id>().is_ok())
}

fn clip_cursor(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(super) fn make_page<T: OutputType>(
    page: &Page,
    items: impl IntoIterator<Item = (Cursor, T)>,
    has_more: bool,
    total: ListTotal,
) -> ListPage<T> {
    // As the Relay specification says, the other direction only has the cursor to go by.
    let (has_previous, has_next) = if page.from_end {
        (has_more, page.before.is_some())
    } else {
        (page.after.is_some(), has_more)
    };
    let mut part = new_page(has_previous, has_next, total);
    part.edges =
        items.into_iter().map(|(cursor, node)| Edge::new(cursor.to_string(), node)).collect();
    part
}

pub(super) fn new_page<T: OutputType>(
    has_previous: bool,
    has_next: bool,
    total: ListTotal,
) -> ListPage<T> {
    Connection::with_additional_fields(has_previous, has_next, total)
}

pub(super) fn empty_page<T: OutputType>(page: &Page) -> ListPage<T> {
    make_page(page, [], false, ListTotal::Empty)
}

#[cfg(test)]
mod tests {
    use shared::id::ExecutionId;

    use super::*;

    fn describe_page(first: Option<i32>, last: Option<i32>, is_first_written: bool) -> String {
        let arguments = PageArguments { first, after: None, last, before: None };
        match arguments.to_page::<ExecutionId>(is_first_written) {
            Ok(Page { first, from_end: false, .. }) => format!("first {first}"),
            Ok(Page { first, from_end: true, .. }) => format!("last {first}"),
            Err(err) => {
                let message = async_graphql::Error::from(err).message;
                message.split([';', ':']).next().unwrap_or_default().to_owned()
            }
        }
    }

    #[test]
    fn first_and_last_exclude_each_other() {
        let both = "`first` and `last` exclude each other";
        for (first, last, is_first_written, expected) in [
            (Some(20), None, false, "first 20"),
            (None, None, true, "first 20"),
            (Some(7), None, true, "first 7"),
            (Some(20), Some(5), false, "last 5"),
            (None, Some(5), true, "last 5"),
            (Some(20), Some(5), true, both),
            (Some(0), Some(5), true, both),
            (Some(20), Some(0), false, "`last` is 0"),
            (Some(20), Some(201), false, "`last` is 201"),
            (Some(-1), None, true, "`first` is -1"),
        ] {
            let found = describe_page(first, last, is_first_written);
            assert_eq!(found, expected, "{first:?} {last:?} {is_first_written}");
        }
    }

    #[test]
    fn a_cursor_of_another_list_is_rejected() {
        for (text, is_valid) in [
            ("5.exec_1_aaaaaaaaa", true),
            ("5.plan_1_aaaaaaaaa", false),
            ("exec_1_aaaaaaaaa", false),
        ] {
            for is_after in [true, false] {
                let cursor = Some(text.to_owned());
                let (after, before) = if is_after { (cursor, None) } else { (None, cursor) };
                let arguments = PageArguments { first: None, after, last: None, before };
                let page = arguments.to_page::<ExecutionId>(false);
                assert_eq!(page.is_ok(), is_valid, "{text} {is_after}");
            }
        }
    }
}
