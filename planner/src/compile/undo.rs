//! What undoes a step.

use serde_json::Value;
use shared::plan::StepPolicy;

use super::{
    parameters::{Given, Room},
    parse, policy,
    report::Report,
    tools::{self, Choice},
};
use crate::catalog::Catalog;

/// The call that undoes a step, with all that is known of it alone.
pub(super) struct Undo<'a> {
    /// The tool.
    pub(super) choice: Choice<'a>,
    /// The parameters.
    pub(super) given: Given,
    /// How it is carried out.
    pub(super) policy: StepPolicy,
}

/// Where a compensation has its parameters.
pub(super) const PARAMETERS: &str = "compensate.parameters";

impl<'a> Undo<'a> {
    /// Reads a step's `compensate`; what is wrong is reported.
    pub(super) fn read(
        at: usize,
        written: &Value,
        catalog: &'a Catalog,
        room: &mut Room,
        report: &mut Report,
    ) -> Option<Self> {
        if written.is_null() {
            return None;
        }
        let draft = parse::compensation(at, written, report)?;
        let choice = tools::choose_undo(at, &draft, catalog, report);
        let given = room.read(at, PARAMETERS, draft.parameters.as_ref(), report);
        let policy = policy::read_undo(at, &draft, &choice, report);
        Some(Self { choice, given, policy })
    }
}
