//! The tree of frames, and the changes of it by facts.

use super::frame::{Frame, Slot, SlotState, State};
use super::step::{is_node, segment};
use super::{Step, bytes_of};
use crate::graph::{Body, Node, Work};

impl Frame {
    /// Returns the frame, the node and the slot that a step names.
    pub(super) fn find<'s>(&self, step: &'s str) -> Option<(&Frame, &'s str, usize)> {
        let mut frame = self;
        let mut segments = step.split('/').peekable();
        loop {
            let (node, index, fall_back) = segment(segments.next()?);
            if segments.peek().is_none() {
                return Some((frame, node, index));
            }
            let State::Open(slots) = frame.nodes.get(node)? else { return None };
            match slots.get(index).filter(|slot| slot.fall_back == fall_back).map(|slot| &slot.doing) {
                Some(SlotState::Inside(inner)) => frame = inner,
                _ => return None,
            }
        }
    }

    /// Returns `true` if a step is a background step: the output does not depend on it.
    pub(super) fn is_afterthought(&self, step: &str) -> bool {
        let (node, index, fall_back) = segment(step.split('/').next().unwrap_or(step));
        if !self.graph.wanted.contains(node) {
            return true;
        }
        let (Some((_, within)), Some(State::Open(slots))) = (step.split_once('/'), self.nodes.get(node)) else {
            return false;
        };
        match slots.get(index).filter(|slot| slot.fall_back == fall_back).map(|slot| &slot.doing) {
            Some(SlotState::Inside(inner)) => inner.is_afterthought(within),
            _ => false,
        }
    }

    pub(super) fn find_mut<'s>(&mut self, step: &'s str) -> Option<(&mut Frame, &'s str, usize)> {
        let mut frame = self;
        let mut segments = step.split('/').peekable();
        loop {
            let (node, index, fall_back) = segment(segments.next()?);
            if segments.peek().is_none() {
                return Some((frame, node, index));
            }
            let State::Open(slots) = frame.nodes.get_mut(node)? else { return None };
            match slots.get_mut(index).filter(|slot| slot.fall_back == fall_back).map(|slot| &mut slot.doing) {
                Some(SlotState::Inside(inner)) => frame = inner,
                _ => return None,
            }
        }
    }

    pub(super) fn change(&mut self, step: &str, change: impl FnOnce(&mut Slot)) {
        if let Some((frame, node, index)) = self.find_mut(step)
            && let Some(State::Open(slots)) = frame.nodes.get_mut(node)
            && let Some(slot) = slots.get_mut(index)
        {
            change(slot);
        }
    }

    /// Sets the final state of a node or a slot.
    pub(super) fn end(&mut self, step: &str, state: State) {
        let of_slot = !is_node(step);
        let Some((frame, node, index)) = self.find_mut(step) else { return };
        let Some(known) = frame.nodes.get_mut(node) else { return };
        match (known, state) {
            (State::Open(slots), State::Done(output)) if of_slot => {
                if let Some(slot) = slots.get_mut(index) {
                    slot.bytes = bytes_of(&output);
                    (slot.doing, slot.broken) = (SlotState::Done(output), None);
                }
            }
            (known, state) if !of_slot => *known = state,
            _ => {}
        }
    }

    /// Marks a node as failed. Its slots are kept for a later retry.
    pub(super) fn fail(&mut self, step: &str, given_up: bool) {
        let Some((frame, node, _)) = self.find_mut(step) else { return };
        let Some(known) = frame.nodes.get_mut(node) else { return };
        let slots = match known {
            State::Open(slots) => std::mem::take(slots),
            _ => Vec::new(),
        };
        *known = State::Failed { slots, given_up };
    }

    pub(super) fn start(&mut self, step: &str, attempt: u32, fall_back: bool) {
        let of_node = is_node(step);
        let Some((frame, id, index)) = self.find_mut(step) else { return };
        let graph = frame.graph.clone();
        let Some(node) = graph.node(id) else { return };
        let opened = matches!(frame.nodes.get(id), Some(State::Open(_)));
        if of_node && !opened {
            let slots = frame.slots(node).unwrap_or(0);
            let slots = std::iter::repeat_with(Slot::default).take(slots).collect();
            frame.nodes.insert(node.spec.id.clone(), State::Open(slots));
            // Nodes with several slots start them one by one, and a waiting node starts by opening its wait.
            if !matches!(node.work, Work::One(_)) {
                return;
            }
        }
        let doing = match node.body(fall_back) {
            Some(Body::Fascicle(inner)) => {
                let events = frame.reads_at(node, index).unwrap_or_default();
                SlotState::Inside(Box::new(Frame::new(inner.clone(), events.into())))
            }
            _ => SlotState::Working,
        };
        let Some(State::Open(slots)) = frame.nodes.get_mut(id) else { return };
        if index >= slots.len() {
            slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut slots[index];
        if slot.since == 0 || slot.is_fatal || slot.fall_back != fall_back {
            slot.since = attempt;
        }
        (slot.attempt, slot.fall_back, slot.restarts, slot.broken) = (attempt, fall_back, 0, None);
        slot.is_fatal = false;
        slot.doing = doing;
    }

    /// Resets failed nodes and slots for a retry.
    pub(super) fn mend(&mut self) {
        let graph = self.graph.clone();
        for (id, state) in &mut self.nodes {
            match state {
                // The node decides again whether enough of its edges fire.
                State::Skipped => *state = State::Waiting,
                State::Failed { slots, .. } if slots.is_empty() => *state = State::Waiting,
                State::Failed { slots, .. } => *state = State::Open(std::mem::take(slots)),
                _ => {}
            }
            let State::Open(slots) = state else { continue };
            let asks = graph.node(id).is_some_and(|node| matches!(node.work, Work::Wait(..) | Work::Approve(_)));
            for slot in slots {
                slot.broken = None;
                match &mut slot.doing {
                    SlotState::Inside(inner) => inner.mend(),
                    doing @ SlotState::Working => *doing = SlotState::Idle,
                    // The wait may have expired meanwhile, so it is opened again.
                    doing @ SlotState::Paused(_) if asks && !slot.fall_back => *doing = SlotState::Idle,
                    _ => {}
                }
            }
        }
    }

    pub(super) fn under_way(&self, prefix: &str, steps: &mut Vec<Step>) {
        for (id, state) in &self.nodes {
            let State::Open(slots) = state else { continue };
            let several = self.graph.node(id).is_some_and(Node::has_several_slots);
            for (index, slot) in slots.iter().enumerate() {
                let step = if several { format!("{prefix}{id}[{index}]") } else { format!("{prefix}{id}") };
                match &slot.doing {
                    SlotState::Working => steps.push(step.into()),
                    SlotState::Inside(inner) if slot.broken.is_none() => inner.under_way(&slot.within(&step), steps),
                    _ => {}
                }
            }
        }
    }
}
