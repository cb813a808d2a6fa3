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
    /// One for each text, in order.
    pub vectors: Vec<Vec<f32>>,
    /// The usage; `None` if the provider does not report it.
    pub usage: Option<Usage>,
    /// The call's id in `calls:{account}`.
    pub call: Arc<str>,
}

/// The embeddings of texts by `model`, paid from `account` like any other call. The texts are not recorded, only how
/// many they were.
///
/// # Errors
/// As a call of a language model.
pub async fn embed(payer: Payer<'_>, model: &Model, texts: Vec<String>) -> Result<PaidVectors, NeuronError> {
    buy(payer, model, texts, None, None).await
}

/// Embeds texts for a caller that waits: it has the vectors before the call is settled. The reservation is durable by
/// then, and is charged in full if the daemon ends in between.
///
/// # Errors
/// As [`embed`].
pub(crate) async fn embed_at_once(
    payer: Payer<'_>,
    model: &Model,
    texts: Vec<String>,
) -> Result<Vec<Vec<f32>>, NeuronError> {
    let (made, heard) = oneshot::channel();
    tokio::select! {
        biased;
        // The call is the daemon's, and settled by it.
        Ok(vectors) = heard => Ok(vectors),
        paid = buy(payer, model, texts, None, Some(made)) => Ok(paid?.vectors),
    }
}

/// The same; what they decide is written to an invocation's journal in the commit that pays for them.
pub(crate) async fn embed_to_decide(
    payer: Payer<'_>,
    model: &Model,
    texts: Vec<String>,
    deciding: Option<(Stream, Decision)>,
) -> Result<PaidVectors, NeuronError> {
    buy(payer, model, texts, deciding, None).await
}
