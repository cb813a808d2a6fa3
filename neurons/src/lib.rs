//! neurons
