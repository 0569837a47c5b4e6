//! The weights of evidence. They are round numbers set by hand, because fitted values are no better
//! on queries that they were not fitted on.

macro_rules! weights {
    ($($(#[$about:meta])* $name:ident: $value:expr,)*) => {
        #[derive(Clone, Debug)]
        pub struct Weights {
            $($(#[$about])* pub $name: f32,)*
        }

        impl Default for Weights {
            fn default() -> Self {
                Self { $($name: $value,)* }
            }
        }

        impl Weights {
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            pub fn values_mut(&mut self) -> Vec<&mut f32> {
                vec![$(&mut self.$name),*]
            }
        }
    };
}

weights! {
    verb: 3.0,
    /// The description begins with the verb, or the verb names what the tool makes or sets.
    described: 2.6,
    synonym: 2.4,
    akin: 2.2,
    related: 1.0,
    noun: 2.0,
    noun_missing: 0.8,
    reads: 1.2,
    required: 1.0,
    missing: 1.5,
    unplaced: 0.8,
    /// No slot takes a value of the clause, or a noun of another tool.
    unplaced_value: 2.8,
    typed: 0.8,
    /// A value has a form that is more usual for other slots.
    unusual: 0.3,
    cue: 1.0,
    preposition: 0.6,
    /// In a lookup, the factor for the points of the values, and the cost of a value in small
    /// letters.
    foreign: 0.5,
    /// A value has, or has not, the form that the slot asks for.
    form: 0.8,
    near_form: 0.4,
    choice: 1.0,
    reference: 1.0,
    /// Words after the verb fill a slot without any cue. For a name, the weight counts twice.
    bare: 0.4,
    quoted: 0.6,
    text: 0.4,
    length: 0.02,
    least: 1.0,
    /// Maximum cost of the words that no slot takes, for a call that acts. For a call that reads,
    /// it is twice as high.
    most_unplaced: 1.5,
}
