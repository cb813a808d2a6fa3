//! Paid embeddings.

use std::sync::Arc;

use store::Stream;
use tokio::sync::oneshot;

use super::{Decision, Payer, buy};
use crate::NeuronError;
use crate::llm::{Model, Usage};

/// The result of paid embeddings.
#[derive(Clone, Debug)]
pub struct PaidVectors {
    /// The vectors, one per text, in order.
    pub vectors: Vec<Vec<f32>>,
    /// The usage; `None` if the provider does not report it.
    pub usage: Option<Usage>,
    /// The id of the call in `calls:{account}`.
    pub call: Arc<str>,
}

/// Returns the embeddings of texts by `model`, paid by `account` like any other call. The record contains only the
/// number of texts, not the texts.
///
/// # Errors
/// Returns the errors of a call of a language model.
pub async fn embed(payer: Payer<'_>, model: &Model, texts: Vec<String>) -> Result<PaidVectors, NeuronError> {
    buy(payer, model, texts, None, None).await
}

/// Embeds texts and returns the vectors before the call is settled, for callers that wait. The reservation is durable
/// by then. If the daemon stops in between, the call is charged in full.
///
/// # Errors
/// Returns the errors of [`embed`].
pub(crate) async fn embed_at_once(
    payer: Payer<'_>,
    model: &Model,
    texts: Vec<String>,
) -> Result<Vec<Vec<f32>>, NeuronError> {
    let (made, heard) = oneshot::channel();
    tokio::select! {
        biased;
        // The spawned task settles the call.
        Ok(vectors) = heard => Ok(vectors),
        paid = buy(payer, model, texts, None, Some(made)) => Ok(paid?.vectors),
    }
}

/// Embeds texts, and writes the decision made from them to an invocation's journal in the commit that pays for them.
pub(crate) async fn embed_to_decide(
    payer: Payer<'_>,
    model: &Model,
    texts: Vec<String>,
    deciding: Option<(Stream, Decision)>,
) -> Result<PaidVectors, NeuronError> {
    buy(payer, model, texts, deciding, None).await
}
