//! The names of steps: paths in the tree of frames.

use super::Step;

/// Marks the steps within a fallback, to distinguish them from the steps within the replaced work.
pub(super) const FALL_BACK: char = '!';

/// Splits a segment of a step into the node, the index of the slot, and `true` for a fallback.
pub(super) fn segment(text: &str) -> (&str, usize, bool) {
    let (text, fall_back) = text.strip_suffix(FALL_BACK).map_or((text, false), |text| (text, true));
    let (node, index) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((node, index)) => (node, index.parse().unwrap_or(usize::MAX)),
        None => (text, 0),
    };
    (node, index, fall_back)
}

/// Returns `true` if a step names a whole node.
pub(super) fn is_node(step: &str) -> bool {
    !step.ends_with(']')
}

/// Returns the step of the node that contains a slot.
pub(super) fn node_of(step: &Step) -> Step {
    match step.strip_suffix(']').and_then(|slot| slot.rsplit_once('[')) {
        Some((node, _)) => node.into(),
        None => step.clone(),
    }
}

/// Returns the step whose graph contains a step; `None` at the top level.
pub(super) fn parent_of(step: &str) -> Option<Step> {
    step.rsplit_once('/').map(|(parent, _)| parent.strip_suffix(FALL_BACK).unwrap_or(parent).into())
}

/// Returns the last segment of a step.
pub(super) fn name_of(step: &str) -> &str {
    step.rsplit_once('/').map_or(step, |(_, name)| name)
}
