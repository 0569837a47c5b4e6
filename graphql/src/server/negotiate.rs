#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `application/json`: a well-formed request gets status 200 even if it fails.
    Json,
    /// `application/graphql-response+json`: the HTTP status shows whether the operation was
    /// executed.
    GraphqlResponse,
    /// `text/event-stream`. Used only if the client names this type, and not for wildcards.
    EventStream,
}

impl Format {
    /// The formats, the preferred format first. This sequence decides if a client gives several
    /// formats the same weight and the same precision.
    const BY_PREFERENCE: [Self; 3] = [Self::GraphqlResponse, Self::Json, Self::EventStream];

    fn media_type(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("application", "json"),
            Self::GraphqlResponse => ("application", "graphql-response+json"),
            Self::EventStream => ("text", "event-stream"),
        }
    }
}

/// Chooses the best format, or `None` if the client accepts none. A wildcard means JSON, because
/// older clients do not know `application/graphql-response+json`.
pub(super) fn choose_format(accept: &str) -> Option<Format> {
    let ranges: Vec<Range<'_>> = accept.split(',').filter_map(Range::parse).collect();
    if ranges.is_empty() {
        return accept.trim().is_empty().then_some(Format::Json);
    }
    let mut best: Option<(u16, Precision, Format)> = None;
    for format in Format::BY_PREFERENCE {
        let Some((precision, weight)) = best_weight(&ranges, format) else { continue };
        if weight > 0 && best.is_none_or(|(w, p, _)| (weight, precision) > (w, p)) {
            best = Some((weight, precision, format));
        }
    }
    best.map(|(_, _, format)| format)
}

pub(super) fn accepts_stream(accept: &str) -> bool {
    let ranges: Vec<Range<'_>> = accept.split(',').filter_map(Range::parse).collect();
    best_weight(&ranges, Format::EventStream).is_some_and(|(_, weight)| weight > 0)
}

/// The precision with which a range names a format. Later values are more precise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    /// A range with a wildcard, for a format other than JSON.
    AnyWildcard,
    /// The range `*/*`, for JSON.
    FullWildcard,
    /// The range `application/*`, for JSON.
    SubtypeWildcard,
    Exact,
}

fn best_weight(ranges: &[Range<'_>], format: Format) -> Option<(Precision, u16)> {
    let named = ranges.iter().filter_map(|range| Some((range.precision(format)?, range.weight)));
    named.max()
}

struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    /// The weight in thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut weight = 1000;
        for parameter in parts {
            if let Some((name, value)) = parameter.split_once('=')
                && name.trim().eq_ignore_ascii_case("q")
            {
                weight = parse_weight(value.trim())?;
            }
        }
        Some(Self { kind: kind.trim(), subtype: subtype.trim(), weight })
    }

    fn precision(&self, format: Format) -> Option<Precision> {
        let (kind, subtype) = format.media_type();
        if self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype) {
            return Some(Precision::Exact);
        }
        let wild_type = self.kind.eq_ignore_ascii_case(kind) && self.subtype == "*";
        let wild = self.kind == "*" && self.subtype == "*";
        match format {
            Format::Json if wild_type => Some(Precision::SubtypeWildcard),
            Format::Json if wild => Some(Precision::FullWildcard),
            Format::GraphqlResponse if wild_type || wild => Some(Precision::AnyWildcard),
            Format::Json | Format::GraphqlResponse | Format::EventStream => None,
        }
    }
}

fn parse_weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u16 = whole.parse().ok().filter(|whole| *whole <= 1)?;
    let padded: u16 = format!("{decimals:0<3}").parse().ok()?;
    Some((whole * 1000 + padded).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Option<Format>) {
        assert_eq!(choose_format(accept), expected, "Accept: {accept}");
    }

    #[test]
    fn the_format_with_the_highest_weight_wins() {
        use Format::{EventStream, GraphqlResponse, Json};
        check("", Some(Json));
        check("*/*", Some(Json));
        check("application/*", Some(Json));
        check("application/json", Some(Json));
        check("Application/JSON; charset=utf-8", Some(Json));
        check("application/graphql-response+json", Some(GraphqlResponse));
        check("application/graphql-response+json, application/json", Some(GraphqlResponse));
        check("application/json, application/graphql-response+json", Some(GraphqlResponse));
        check("application/json, text/plain, */*", Some(Json));
        check("application/graphql-response+json, */*", Some(GraphqlResponse));
        check("application/json;q=0.9, application/graphql-response+json;q=0.8", Some(Json));
        check("application/graphql-response+json;q=0.5, */*", Some(Json));
        check("application/json;q=0, */*", Some(GraphqlResponse));
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Some(Json));
        check("text/event-stream", Some(EventStream));
        check("text/event-stream, */*;q=0.1", Some(EventStream));
        check("text/event-stream;q=0.1, application/json", Some(Json));
        check("text/event-stream, application/json", Some(Json));
    }

    #[test]
    fn an_unsupported_accept_header_is_rejected() {
        check("text/html", None);
        check("text/*", None);
        check("application/json;q=0", None);
        check("*/*;q=0.000", None);
        check("application/json;q=2", None);
        check("application/json;q=high", None);
        check("nonsense", None);
    }

    #[test]
    fn an_event_stream_must_be_requested_by_name() {
        assert!(accepts_stream("text/event-stream"));
        assert!(accepts_stream("application/json, text/event-stream;q=0.1"));
        assert!(!accepts_stream("text/event-stream;q=0"));
        assert!(!accepts_stream("*/*"));
    }
}
