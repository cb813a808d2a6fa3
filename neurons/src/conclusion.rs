//! The final commit of an invocation, which happens once: either the commit that pays for the completing answer, or a
//! commit of the task that ends the invocation otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::Op;

use crate::invocation::Spent;
use crate::kinds::Event;
use crate::llm::ChatReply;
use crate::neuron::{self, Completed, Step};
use crate::spec::NeuronSpec;

/// A function that derives the operations to commit with an answer.
pub(crate) type WithAnswer = Box<dyn FnOnce(&ChatReply) -> Vec<Op> + Send>;

/// A function that derives the operations that mark an invocation as completed, from its output and its usage.
type WhenCompleted = dyn Fn(Completed, &Spent) -> Vec<Op> + Send + Sync;

/// The maximum size of an output that is committed with the answer, in bytes. A larger output has a commit of its own.
const BYTES_MAX: usize = 1 << 20;

/// The final commit of an invocation. Clones share one state.
#[derive(Clone)]
pub(crate) struct Conclusion {
    /// Set once a task has claimed the right to write the final commit.
    taken: Arc<AtomicBool>,
    /// Derives the operations that mark the invocation as completed.
    completed: Arc<WhenCompleted>,
}

impl Conclusion {
    pub(crate) fn new(completed: impl Fn(Completed, &Spent) -> Vec<Op> + Send + Sync + 'static) -> Self {
        Self { taken: Arc::default(), completed: Arc::new(completed) }
    }

    /// Claims the right to write the final commit. Returns `true` for the first caller only.
    pub(crate) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::SeqCst)
    }

    /// Returns the operations to commit with the next answer if that answer completes the invocation. `spent` is the
    /// usage before the answer.
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
