//! The transitions that follow from a state. The run derives them repeatedly until there are none.

use serde_json::json;
use store::{Event, Timestamp};

use super::frame::{Frame, Slot, SlotState, State, joined};
use super::{Fact, JOINED_BYTES_MAX, OUTPUT_BYTES_MAX, Pause, Step, Wait};
use crate::graph::{Node, Work};
use crate::mapping::{Test, taken};
use crate::spec::Exhausted;

/// A transition that follows from a state.
pub(super) enum Move {
    Note(Fact),
    FailSlot { step: Step, error: String },
    FailNode { step: Step, error: String },
}

impl Frame {
    /// Adds the transitions that follow from the state to `moves`.
    pub(super) fn moves(&self, prefix: &str, wait: u32, now: Timestamp, moves: &mut Vec<Move>) {
        for (id, state) in &self.nodes {
            let Some(node) = self.graph.node(id) else { continue };
            let step = || -> Step { format!("{prefix}{id}").into() };
            match state {
                State::Waiting => match self.runs(node) {
                    None => {}
                    Some(false) => moves.push(Move::Note(Fact::Skipped { step: step() })),
                    Some(true) => self.opening(node, step(), moves),
                },
                State::Open(slots) => self.going_on(node, &step(), slots, wait, now, moves),
                State::Skipped | State::Done(_) | State::Failed { .. } => {}
            }
        }
    }

    fn opening(&self, node: &Node, step: Step, moves: &mut Vec<Move>) {
        let started = Fact::Started { step: step.clone(), attempt: 1, fall_back: false };
        let nothing = |events: &[Event]| node.spec.needs_events && events.is_empty();
        let checked = |events: Vec<Event>| match nothing(&events) {
            true => Ok(events),
            false => self.slots(node).map(|_| events),
        };
        let events = match self.reads(node).and_then(checked) {
            Ok(events) => events,
            Err(error) => return moves.push(Move::FailNode { step, error }),
        };
        moves.push(Move::Note(match &node.work {
            _ if nothing(&events) => Fact::Passed { step },
            Work::Join(into) => Fact::Done { step, output: joined(*into, &events) },
            Work::Branch { cases, otherwise } => {
                let fits = |(_, which, is): &&(_, _, Test)| taken(&events, which).is_some_and(|part| is.holds(part));
                let route = cases.iter().find(fits).map(|(route, ..)| route).or(otherwise.as_ref());
                let sent = route.map(|route| json!({"neuron": route, "events": events}));
                Fact::Done { step, output: sent.into_iter().collect() }
            }
            _ => started,
        }));
    }

    fn going_on(&self, node: &Node, step: &Step, slots: &[Slot], wait: u32, now: Timestamp, moves: &mut Vec<Move>) {
        let several = node.has_several_slots();
        let named = |index: usize| -> Step { if several { format!("{step}[{index}]").into() } else { step.clone() } };
        let room = match &node.work {
            Work::Map { parallel, .. } => *parallel,
            _ => 1,
        };
        let mut under_way = slots.iter().filter(|slot| slot.is_under_way()).count();
        for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.broken.is_none()) {
            match &slot.doing {
                SlotState::Idle if under_way < room => {
                    under_way += 1;
                    let ask = match asked(node, self, wait, now).filter(|_| !slot.fall_back) {
                        Some(Err(error)) => {
                            moves.push(Move::FailSlot { step: named(index), error });
                            continue;
                        }
                        ask => ask.and_then(Result::ok),
                    };
                    moves.push(match ask {
                        // Only one wait per pass can use the next number; the next pass opens the others.
                        Some(_) if moves.iter().any(|next| matches!(next, Move::Note(Fact::Paused { .. }))) => continue,
                        Some(wait) => Move::Note(Fact::Paused { step: named(index), wait }),
                        None => {
                            let (attempt, fall_back) = (slot.attempt + 1, slot.fall_back);
                            Move::Note(Fact::Started { step: named(index), attempt, fall_back })
                        }
                    });
                }
                SlotState::Inside(inner) => {
                    let before = moves.len();
                    inner.moves(&slot.within(&named(index)), wait, now, moves);
                    match inner.came_to().filter(|_| moves.len() == before) {
                        None => {}
                        Some(Ok(output)) => moves.push(Move::Note(Fact::Done { step: named(index), output })),
                        Some(Err(error)) => moves.push(Move::FailSlot { step: named(index), error }),
                    }
                }
                _ => {}
            }
        }
        match &node.work {
            Work::Map { .. } => {
                let bytes: usize = slots.iter().map(|slot| slot.bytes).sum();
                let outputs = slots.iter().filter_map(|slot| match &slot.doing {
                    SlotState::Done(output) => Some(output),
                    _ => None,
                });
                if bytes > JOINED_BYTES_MAX {
                    let error = format!("its outputs have {bytes} bytes, the bound is {JOINED_BYTES_MAX}");
                    moves.push(Move::FailNode { step: step.clone(), error });
                } else if outputs.clone().count() == slots.len() {
                    let output = outputs.cloned().collect();
                    moves.push(Move::Note(Fact::Done { step: step.clone(), output }));
                }
            }
            Work::Repeat { times, until, exhausted, .. } => {
                let Some(Slot { doing: SlotState::Done(output), fall_back, .. }) = slots.last() else { return };
                // A fallback replaces the whole node.
                let (good, last) = (*fall_back || until.holds(output), slots.len() >= *times as usize);
                moves.push(if good || (last && *exhausted == Exhausted::Accept) {
                    Move::Note(Fact::Done { step: step.clone(), output: output.clone() })
                } else if last && node.fall_back.is_some() {
                    Move::Note(Fact::Started { step: named(slots.len()), attempt: 1, fall_back: true })
                } else if last {
                    let error = format!("no round of {times} was good");
                    Move::FailNode { step: step.clone(), error }
                } else {
                    Move::Note(Fact::Started { step: named(slots.len()), attempt: 1, fall_back: false })
                });
            }
            _ => {}
        }
    }
}

/// Returns the wait that a node opens; `Err` if its content is too large.
fn asked(node: &Node, frame: &Frame, n: u32, now: Timestamp) -> Option<Result<Wait, String>> {
    let (pause, timeout_s) = match &node.work {
        Work::Wait(wait, _) => (Pause::Event { event: wait.event.clone() }, wait.timeout_s),
        Work::Approve(approve) => {
            let events = frame.reads(node).unwrap_or_default();
            let bytes = serde_json::to_vec(&events).map_or(0, |text| text.len());
            if bytes > OUTPUT_BYTES_MAX {
                return Some(Err(format!("what is to be approved has {bytes} bytes, the bound is {OUTPUT_BYTES_MAX}")));
            }
            (Pause::Approval { message: approve.message.clone(), by: approve.by.clone(), events }, approve.timeout_s)
        }
        _ => return None,
    };
    let expires_at = timeout_s.map(|seconds| now + jiff::SignedDuration::from_secs(seconds as i64));
    Some(Ok(Wait { n, pause, expires_at }))
}
