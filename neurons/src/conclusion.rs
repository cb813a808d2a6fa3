//! The end of an invocation, written once: in the commit that pays for the answer which completes it, or by whoever ends
//! it otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nexus::store::Op;

use crate::invocation::Spent;
use crate::kinds::Event;
use crate::llm::ChatReply;
use crate::neuron::{self, Completed, Step};
use crate::spec::NeuronSpec;

/// What is written with an answer, made from it.
pub(crate) type WithAnswer = Box<dyn FnOnce(&ChatReply) -> Vec<Op> + Send>;

/// What says that an invocation completed, made from its output and all that was used.
type WhenCompleted = dyn Fn(Completed, &Spent) -> Vec<Op> + Send + Sync;

/// What is longer than this is not written beside the answer, but in a commit of its own.
const BYTES_MAX: usize = 1 << 20;

/// Clones are one conclusion.
#[derive(Clone)]
pub(crate) struct Conclusion {
    /// Whether somebody has taken it upon himself to write it.
    taken: Arc<AtomicBool>,
    /// What says that the invocation completed.
    completed: Arc<WhenCompleted>,
}

impl Conclusion {
    pub(crate) fn new(completed: impl Fn(Completed, &Spent) -> Vec<Op> + Send + Sync + 'static) -> Self {
        Self { taken: Arc::default(), completed: Arc::new(completed) }
    }

    /// Whether it is the caller's to write; once.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::SeqCst)
    }

    /// What is written with the next answer, should it complete the invocation. `spent` is what was used before it.
    pub(crate) fn with_answer(
        self,
        spec: Arc<NeuronSpec>,
        given: Vec<Event>,
        tries: u32,
        mut spent: Spent,
    ) -> WithAnswer {
        Box::new(move |reply| {
            let Ok(Step::Completed(completed)) = neuron::step(&spec, &given, reply, tries) else { return Vec::new() };
            spent.note(reply.usage);
            let ops = (self.completed)(completed, &spent);
            let bytes: usize = ops.iter().map(|op| if let Op::Put { body, .. } = op { body.len() } else { 0 }).sum();
            if bytes <= BYTES_MAX && self.take() { ops } else { Vec::new() }
        })
    }
}
