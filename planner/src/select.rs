//! Which of these tools does a query need next? By meaning, by words, or by both.
//!
//! A tool is known by the vectors of its description and of its examples ([`Centroid`] is their
//! middle), and by its words. A [`Selector`] keeps an index of the tools that it was last asked
//! about; where the tools change, only what is new is read and embedded.

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
mod words;

pub use self::{
    collision::{COLLISIONS, Collision, Similarity, TooManyPairs},
    figures::Figures,
    index::{Centroid, Centroids, Tools},
    outcomes::{NEAR, Outcomes},
    selector::{Ask, MARGIN, Match, SelectError, Selection, Selector, Told},
    vector::cosine,
};

/// By what tools are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Criterion {
    /// The cosine to the middle of their examples, which must be near enough for a hit.
    #[default]
    Centroid,
    /// The cosine to their description.
    Description,
    /// The words of their name, description, parameters and examples.
    Lexical,
    /// Meaning and words together, each part of a query by itself: what planning uses.
    Hybrid,
}

impl Criterion {
    /// Every criterion.
    pub const ALL: [Self; 4] = [Self::Centroid, Self::Description, Self::Lexical, Self::Hybrid];

    /// Returns its name, as the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Centroid => "CENTROID",
            Self::Description => "DESCRIPTION",
            Self::Lexical => "LEXICAL",
            Self::Hybrid => "HYBRID",
        }
    }
}
