//! The tool calls of an invocation as they ran, for the record of what was done.

use jiff::SignedDuration;
use serde_json::{Map, Value};
use store::{Store, StoreError, Timestamp};

use super::{Kept, Replied, stream};
use crate::kinds::tool_augmented::FINALIZE;
use crate::tools::finding::TOOL_FIND;
use crate::tools::handles::RESULT_READ;

/// A tool call that has a result.
#[derive(Clone, Debug, PartialEq)]
pub struct CallMade {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as the model wrote them. Secrets are not filled in.
    pub arguments: Map<String, Value>,
    /// The result, as the model read it.
    pub result: String,
    /// `true` if the call was done.
    pub succeeded: bool,
    /// The time from the model's answer to the result, with the time for an approval.
    pub took: SignedDuration,
}

/// Returns the tool calls of an invocation that have a result, in order; none if its journal is gone.
///
/// # Errors
/// Returns the store's error.
pub async fn calls_made(store: &Store, invocation: &str) -> Result<Vec<CallMade>, StoreError> {
    let (stream, mut after, mut made) = (stream(invocation), 0, Vec::new());
    let mut open: Vec<(String, String, Map<String, Value>, Timestamp)> = Vec::new();
    loop {
        let page = store.entries(&stream, after, usize::MAX).await?;
        let Some(last) = page.last() else { return Ok(made) };
        after = last.seq;
        for entry in &page {
            match &*entry.kind {
                "reply" => {
                    let calls = entry.decode::<Replied>()?.message.tool_calls.unwrap_or_default().into_iter();
                    let calls =
                        calls.filter(|call| !matches!(call.function.name.as_str(), FINALIZE | RESULT_READ | TOOL_FIND));
                    open.extend(calls.map(|call| {
                        let arguments = serde_json::from_str(&call.function.arguments).unwrap_or_default();
                        (call.id, call.function.name, arguments, entry.at)
                    }));
                }
                "message" => {
                    let kept: Kept = entry.decode()?;
                    let of = |id: &String| open.iter().position(|(call, ..)| call == id);
                    let Some(place) = kept.message.tool_call_id.as_ref().and_then(of) else { continue };
                    let (_, tool, arguments, at) = open.remove(place);
                    let (result, took) = (kept.message.content.unwrap_or_default(), entry.at.duration_since(at));
                    made.push(CallMade { tool, arguments, result, succeeded: !kept.failed, took });
                }
                _ => {}
            }
        }
    }
}
