//! Tool selection: ranks tools for a query by meaning, by words, or by both. A [`Selector`] keeps
//! the index of the last tools and updates only the tools that changed.

mod best;
mod collision;
mod figures;
mod hybrid;
mod index;
mod lexical;
mod outcomes;
mod parts;
mod rows;
mod selector;
#[cfg(test)]
mod tests;
mod vector;
pub(crate) mod words;

pub use self::{
    collision::{Collision, MAX_COLLISIONS, Similarity, TooManyPairs},
    figures::SelectionQuality,
    index::{Centroid, Centroids, Tools},
    outcomes::{MIN_SIMILARITY, Outcomes},
    selector::{
        DEFAULT_MARGIN, LastLoggedError, Match, SelectError, Selection, SelectionRequest, Selector,
    },
    vector::cosine,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criterion {
    /// The cosine to the mean of a tool's examples. For a hit, it exceeds the cosine of the least
    /// similar example by at least the margin.
    #[default]
    Centroid,
    Description,
    /// The words of the tools' names, descriptions, parameters and examples.
    Lexical,
    /// Meaning and words, for the query and for its parts. Planning uses this criterion.
    Hybrid,
}

impl Criterion {
    pub const ALL: [Self; 4] = [Self::Centroid, Self::Description, Self::Lexical, Self::Hybrid];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Centroid => "CENTROID",
            Self::Description => "DESCRIPTION",
            Self::Lexical => "LEXICAL",
            Self::Hybrid => "HYBRID",
        }
    }
}
