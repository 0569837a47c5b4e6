//! The weights of evidence. `examples/fit.rs` fits them on the development half of the yardstick.

/// How much each piece of evidence counts.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// The clause's verb is the tool's.
    pub(super) verb: f32,
    /// A noun of the tool is in the clause.
    pub(super) noun: f32,
    /// A noun of the tool's name is not in the clause.
    pub(super) noun_missing: f32,
    /// A word of the clause is in the tool's description.
    pub(super) about: f32,
    /// The clause asks, and the tool reads.
    pub(super) reads: f32,
    /// A required slot has a value.
    pub(super) required: f32,
    /// A required slot has none.
    pub(super) missing: f32,
    /// A word has no place.
    pub(super) unplaced: f32,
    /// A number, a code or a path has no place.
    pub(super) unplaced_value: f32,
    /// A value has the slot's type.
    pub(super) typed: f32,
    /// A cue of the slot stands before a value.
    pub(super) cue: f32,
    /// A preposition of the slot stands before a value.
    pub(super) preposition: f32,
    /// A preposition of another slot stands before a value.
    pub(super) foreign: f32,
    /// A value has, or has not, the form of the slot's example.
    pub(super) form: f32,
    /// A choice or a flag is said.
    pub(super) choice: f32,
    /// Words refer to an earlier step.
    pub(super) reference: f32,
    /// Words behind the verb fill a slot without any cue.
    pub(super) bare: f32,
    /// A text stands between quotation marks.
    pub(super) quoted: f32,
    /// Each word of a text without quotation marks.
    pub(super) length: f32,
    /// The least score of a tool.
    pub(super) least: f32,
    /// The most words without a place for a call that acts.
    pub(super) most_unplaced: f32,
}

pub(super) const WEIGHTS: Weights = Weights {
    verb: 3.0,
    noun: 2.0,
    noun_missing: 0.7,
    about: 0.3,
    reads: 1.2,
    required: 1.0,
    missing: 1.5,
    unplaced: 0.8,
    unplaced_value: 3.0,
    typed: 0.8,
    cue: 1.0,
    preposition: 0.6,
    foreign: 0.5,
    form: 0.8,
    choice: 1.0,
    reference: 1.0,
    bare: 0.4,
    quoted: 0.6,
    length: 0.02,
    least: 2.5,
    most_unplaced: 1.5,
};

impl Weights {
    /// Shifts all weights by a factor, every other one the other way.
    #[cfg(test)]
    pub(super) fn scaled(&self, factor: f32) -> Self {
        let (up, down) = (factor, 2.0 - factor);
        Self {
            verb: self.verb * up,
            noun: self.noun * down,
            noun_missing: self.noun_missing * up,
            about: self.about * down,
            reads: self.reads * up,
            required: self.required * down,
            missing: self.missing * up,
            unplaced: self.unplaced * down,
            unplaced_value: self.unplaced_value * up,
            typed: self.typed * down,
            cue: self.cue * up,
            preposition: self.preposition * down,
            foreign: self.foreign * up,
            form: self.form * down,
            choice: self.choice * up,
            reference: self.reference * down,
            bare: self.bare * up,
            quoted: self.quoted * down,
            length: self.length * up,
            least: self.least * down,
            most_unplaced: self.most_unplaced * up,
        }
    }
}
