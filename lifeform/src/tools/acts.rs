//! The tool `acts`: what an earlier step of the job did by tools, for a step that checks its text.

use fascicles::{ToolContext, ToolFailure};
use neurons::conversation::messages;
use serde_json::{Value, json};

use super::{LifeformToolbox, cut, unmarked};

/// The maximum number of acts in a prompt, and the maximum length of a call and of its result, in characters.
const ACTS_MAX: usize = 12;
const CALL_CHARS: usize = 300;
const RESULT_CHARS: usize = 500;
/// The maximum number of conversations of a step: it has another one after each restart.
const CONVERSATIONS_MAX: u32 = 16;

impl LifeformToolbox {
    /// Returns the calls of a step's tools with their results, as an event for a model: `{step}`, the node's id. Returns no
    /// event if it called none.
    pub(super) async fn acts(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
        let step = arguments["step"].as_str().ok_or_else(|| ToolFailure::fatal("acts wants step: the id of a node"))?;
        let acts: Vec<String> = self.talks_of(step, context).await?.iter().flat_map(|talk| acts_in(talk)).collect();
        let events: Vec<Value> = (!acts.is_empty())
            .then(|| {
                let skipped = acts.len().saturating_sub(ACTS_MAX);
                json!({"role": "system", "content": format!("<acts>\n{}\n</acts>", acts[skipped..].join("\n"))})
            })
            .into_iter()
            .collect();
        Ok(json!({"events": events}))
    }

    /// Returns `true` if a model called a tool for the answer of a job.
    pub(super) async fn has_called(&self, tool: &str, context: &ToolContext) -> Result<bool, ToolFailure> {
        for step in ["answer", "draft"] {
            let talks = self.talks_of(step, context).await?;
            let mut calls =
                talks.iter().flatten().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
            if calls.any(|call| call["function"]["name"] == tool) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn talks_of(&self, step: &str, context: &ToolContext) -> Result<Vec<Vec<Value>>, ToolFailure> {
        let mut talks = Vec::new();
        for n in 0..CONVERSATIONS_MAX {
            let invocation = format!("{}/{step}.{n}", context.job).into();
            let talk = messages(self.plans.store(), &invocation).await.map_err(ToolFailure::passing)?;
            if talk.is_empty() && n > 0 {
                break;
            }
            talks.push(talk);
        }
        Ok(talks)
    }
}

/// Returns a line for each call of a conversation that has a result.
fn acts_in(talk: &[Value]) -> Vec<String> {
    let result_of = |id: &Value| {
        let result = talk.iter().find(|message| message["role"] == "tool" && message["tool_call_id"] == *id)?;
        Some(cut(&unmarked(result["content"].as_str().unwrap_or_default()), RESULT_CHARS))
    };
    let calls = talk.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    calls
        .filter_map(|call| {
            let result = result_of(&call["id"])?;
            let (name, arguments) = (call["function"]["name"].as_str()?, call["function"]["arguments"].as_str()?);
            Some(format!("- {name} {} → {result}", cut(&unmarked(arguments), CALL_CHARS)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_are_the_calls_that_have_results() {
        let call = |id: &str| json!({"id": id, "function": {"name": "remind", "arguments": "{\"text\": \"<rent>\"}"}});
        let talk = [
            json!({"role": "user", "content": "Remind me."}),
            json!({"role": "assistant", "tool_calls": [call("a"), call("b")]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "Set for 9:00."}),
        ];
        assert_eq!(acts_in(&talk), ["- remind {\"text\": \"‹rent›\"} → Set for 9:00."]);
    }
}
