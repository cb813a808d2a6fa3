//! The ops on proposals.

use serde_json::json;

use super::super::edit::{check_length, is_operator};
use super::super::{Edit, Refusal, State, WriteContext};
use super::view::ProposalView;
use super::{LINE_BYTES_MAX, OTHERS_MAX, Op, PROPOSED_MAX, changed, decide, found, made};

pub(super) fn propose(state: &State, id: &str, reason: &str, ops: &[Op], ask: &WriteContext) -> Result<Edit, Refusal> {
    check_length("reason", reason, LINE_BYTES_MAX)?;
    if ops.is_empty() || ops.len() > PROPOSED_MAX {
        return Err(Refusal::schema("ops", format!("a proposal has 1 to {PROPOSED_MAX} ops")));
    }
    // Only ops that would be valid now can be proposed.
    done(state, ops, ask)?;
    let proposal = json!({"ops": ops, "reason": reason, "status": "open"});
    made(state, "proposals", id, proposal, OTHERS_MAX, ask)
}

/// Returns the edits of several ops. Each op is decided on the result of those before it.
pub(super) fn done(state: &State, ops: &[Op], ask: &WriteContext) -> Result<Edit, Refusal> {
    let (mut trial, mut whole) = (state.clone(), Edit::default());
    // The base revision guards the proposal, not the entities that it changes.
    let ask = &WriteContext { base: None, ..*ask };
    for (at, op) in ops.iter().enumerate() {
        if matches!(op, Op::Propose { .. } | Op::Accept { .. } | Op::Reject { .. }) {
            return Err(Refusal::schema(format!("ops/{at}"), "a proposal is not about proposals"));
        }
        let edit = decide(&trial, op, ask)?;
        let misfit = |error: crate::canvas::state::Misfit| Refusal::State(error.to_string());
        trial.apply(&edit.clone().patch()).map_err(misfit)?;
        whole.then(edit);
    }
    Ok(whole)
}

pub(super) fn open_proposal<'a>(state: &'a State, id: &str) -> Result<ProposalView<'a>, Refusal> {
    let proposal = ProposalView::of(found(state, "proposals", id)?);
    match proposal.status() {
        "open" => Ok(proposal),
        decided => Err(Refusal::State(format!("the proposal was {decided} already"))),
    }
}

pub(super) fn accept(state: &State, id: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    let proposal = open_proposal(state, id)?;
    if proposal.is_by(&ask.who.id) && !is_operator(ask) {
        return Err(Refusal::Forbidden("somebody else decides what you proposed".into()));
    }
    let ops =
        proposal.ops().map_err(|error| Refusal::State(format!("the proposal cannot be read any more: {error}")))?;
    let mut edit = done(state, &ops, ask)?;
    edit.then(changed("proposals", id, &[("status", json!("accepted")), ("decided_by", json!(ask.who.id))], ask));
    Ok(edit)
}
