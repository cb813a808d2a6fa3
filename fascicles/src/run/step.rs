//! The names of steps: a way through the tree of frames.

use super::Step;

/// Marks the steps within a fall-back: they are others than those within what it replaces.
pub(super) const FALL_BACK: char = '!';

/// A step's segment: the node, which of its slots, and whether it is within its fall-back.
pub(super) fn segment(text: &str) -> (&str, usize, bool) {
    let (text, fall_back) = text.strip_suffix(FALL_BACK).map_or((text, false), |text| (text, true));
    let (node, index) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((node, index)) => (node, index.parse().unwrap_or(usize::MAX)),
        None => (text, 0),
    };
    (node, index, fall_back)
}

/// Returns `true` if a step is a whole node.
pub(super) fn is_node(step: &str) -> bool {
    !step.ends_with(']')
}

/// The step of the node that a slot belongs to.
pub(super) fn node_of(step: &Step) -> Step {
    match step.strip_suffix(']').and_then(|slot| slot.rsplit_once('[')) {
        Some((node, _)) => node.into(),
        None => step.clone(),
    }
}

/// Returns the step whose graph contains a step.
pub(super) fn parent_of(step: &str) -> Option<Step> {
    step.rsplit_once('/').map(|(parent, _)| parent.strip_suffix(FALL_BACK).unwrap_or(parent).into())
}

/// The last segment.
pub(super) fn name_of(step: &str) -> &str {
    step.rsplit_once('/').map_or(step, |(_, name)| name)
}
