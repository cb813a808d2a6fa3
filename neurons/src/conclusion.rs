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

/// An answer longer than this is not written twice in one commit.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Clones are one conclusion.
#[derive(Clone)]
pub(crate) struct Conclusion {
    /// Whether somebody has taken it upon himself to write it.
    taken: Arc<AtomicBool>,
    /// What says that the invocation completed.
    completed: Arc<dyn Fn(Completed, &Spent) -> Vec<Op> + Send + Sync>,
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
            if reply.text.len() > ANSWER_BYTES_MAX {
                return Vec::new();
            }
            match neuron::step(&spec, &given, reply, tries) {
                Ok(Step::Completed(completed)) if self.take() => {
                    spent.note(reply.usage);
                    (self.completed)(completed, &spent)
                }
                _ => Vec::new(),
            }
        })
    }
}
