//! How alike two texts are, by the words they share.

use std::collections::BTreeSet;
use std::sync::Arc;

use nexus::kip::graph::text::terms;

/// The words of a text, each once.
pub(crate) type Words = BTreeSet<Arc<str>>;

/// See [`Words`].
pub(crate) fn words(text: &str) -> Words {
    terms(text).into_iter().collect()
}

/// The share of all their words that two texts have in common, from 0 to 1.
pub(crate) fn likeness(one: &Words, other: &Words) -> f64 {
    let shared = one.intersection(other).count();
    shared as f64 / (one.len() + other.len() - shared).max(1) as f64
}
