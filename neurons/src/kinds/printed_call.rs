//! Detects tool calls that a model printed as text. Models without training on tools do so, and such a text is no answer
//! for people.

use serde_json::Value;

use crate::spec::ToolSpec;

/// The members of a printed call that name the tool.
const NAMING: [&str; 4] = ["name", "tool", "function", "action"];
/// The marks with which chat templates enclose calls.
const MARKS: [&str; 4] = ["<tool_call>", "<|tool_call|>", "<function_call>", "[TOOL_CALLS]"];

/// Returns the tool that a text calls; `None` if the text is an answer.
pub(super) fn printed_call<'t>(text: &str, tools: &'t [ToolSpec]) -> Option<&'t str> {
    let text = text.trim();
    let first = tools.first()?.name.as_str();
    let named = |name: &str| tools.iter().map(|tool| tool.name.as_str()).find(|known| *known == name);
    if let Some((_, rest)) = MARKS.iter().find_map(|mark| text.split_once(mark)) {
        return Some(tools.iter().map(|tool| tool.name.as_str()).find(|name| rest.contains(name)).unwrap_or(first));
    }
    // `recall({"about": "boat"})`
    if let Some((name, rest)) = text.split_once('(')
        && rest.trim_end().ends_with(')')
        && let Some(known) = named(name.trim())
    {
        return Some(known);
    }
    let json = super::structured_output::unfenced(text);
    let calls = match serde_json::from_str::<Value>(json).ok()? {
        Value::Array(calls) => calls,
        call => vec![call],
    };
    let name_of = |call: &Value| {
        NAMING.iter().find_map(|member| {
            let member = call.get(member)?;
            member.as_str().or_else(|| member["name"].as_str()).and_then(named)
        })
    };
    calls.iter().find_map(name_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_call_is_no_answer() {
        let tool = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
        let tools = [tool("remind"), tool("recall")];
        for (text, called) in [
            (r#"{"name": "recall", "arguments": {"about": "boat"}}"#, Some("recall")),
            ("```json\n{\"tool\": \"recall\", \"about\": \"boat\"}\n```", Some("recall")),
            (r#"[{"function": {"name": "remind", "arguments": "{}"}}]"#, Some("remind")),
            (r#"<tool_call>{"name": "recall"}</tool_call>"#, Some("recall")),
            (r#"Let me look. <tool_call> {"x": 1}"#, Some("remind")),
            (r#"recall({"about": "boat"})"#, Some("recall")),
            ("I recall (a little) that it is green.", None),
            (r#"{"name": "Petrel"}"#, None),
            ("Your boat is called Petrel.", None),
        ] {
            assert_eq!(printed_call(text, &tools), called, "{text}");
            assert_eq!(printed_call(text, &[]), None, "a neuron without tools may write what it likes");
        }
    }
}
