//! The waits of a run.

use super::{Asked, Run, SlotState, Step, Wait, WaitState};
use crate::graph::Node;

impl Run {
    /// Returns the open waits, with their steps.
    pub fn waits(&self) -> impl Iterator<Item = (&Step, &Wait)> {
        let open = |asked: &&Asked| self.is_open(asked);
        self.asked.iter().filter(open).map(|asked| (&asked.step, &asked.wait))
    }

    fn is_open(&self, asked: &Asked) -> bool {
        let slot = self.slot(&asked.step);
        asked.body.is_none()
            && slot.is_some_and(|(_, slot, _)| matches!(slot.doing, SlotState::Paused(n) if n == asked.wait.n))
    }

    /// Returns the state of a wait, given the digest of an answer.
    pub fn wait_state(&self, wait: u32, body: &str) -> WaitState {
        match self.asked.iter().find(|asked| asked.wait.n == wait) {
            None => WaitState::Unknown,
            Some(Asked { body: Some(given), .. }) if given == body => WaitState::Given,
            Some(Asked { body: Some(_), .. }) => WaitState::GivenOther,
            Some(asked) if !self.status.is_final() && self.is_open(asked) => WaitState::Open,
            Some(_) => WaitState::Over,
        }
    }

    /// Returns a wait, open or answered, with its step, the waiting try of the step, and the node.
    pub(crate) fn asked(&self, wait: u32) -> Option<(&Step, u32, &Wait, &Node)> {
        let asked = self.asked.iter().find(|asked| asked.wait.n == wait)?;
        let (node, slot, _) = self.slot(&asked.step)?;
        Some((&asked.step, slot.attempt, &asked.wait, node))
    }

    pub(super) fn next_wait(&self) -> u32 {
        self.asked.len() as u32 + 1
    }
}
