//! The given tools of which a model sees the definitions: those that are nearest to what a person said, and those that it finds by
//! `tool_find`.

use std::collections::BTreeSet;

use serde_json::Value;
use store::Batch;

use crate::NeuronError;
use crate::conversation::Conversation;
use crate::invocation::Run;
use crate::llm::ChatRequest;
use crate::neuron::{FirstStep, ToolCall, ToolResult};
use crate::spec::ToolSpec;
use crate::tools::finding::{self, SEARCHES_MAX, TOOL_FIND};
use crate::tools::shortening::shorten;
use crate::tools::{GIVEN_MAX, ToolCard};

/// The maximum number of tokens of the definitions of given tools: in a step of a plan, and elsewhere.
const STEP_TOKENS: usize = 700;
const TALK_TOKENS: usize = 2_000;

impl Run {
    /// Returns the cards of the named tools for which `is_wanted` is true.
    fn cards(&self, is_wanted: impl Fn(&ToolSpec) -> bool) -> Vec<ToolCard> {
        let named = self.spec.tools.iter().filter(|tool| tool.pin.is_some());
        named.filter(|tool| is_wanted(tool)).map(|tool| self.tools.card(tool)).collect()
    }

    async fn order(&self, text: &str, cards: &[ToolCard]) -> Vec<usize> {
        let about: Vec<String> = cards.iter().map(|card| card.about.clone()).collect();
        self.nearest.order(&self.origin, &self.account, text, &about).await
    }

    /// Returns the names of the given tools that a model is not shown, because there are too many, and others are nearer to what a
    /// person said last.
    pub(crate) async fn unlikely(&self, begun: &FirstStep) -> BTreeSet<String> {
        let FirstStep::Conversation(messages) = begun else { return BTreeSet::new() };
        let given: BTreeSet<_> = self.tools.cards(&self.caller.owner).await.into_iter().map(|card| card.name).collect();
        let cards = self.cards(|tool| given.contains(&*tool.name));
        if cards.len() <= GIVEN_MAX {
            return BTreeSet::new();
        }
        let said = messages.iter().rev().find(|message| message.role == "user");
        let said = said.and_then(|message| message.content.as_deref()).unwrap_or_default();
        let order = self.order(said, &cards).await;
        order.into_iter().skip(GIVEN_MAX).map(|place| cards[place].name.to_string()).collect()
    }

    /// Removes the tools that the model is not shown from a request, adds the search for them, and shortens the definitions of the
    /// others.
    pub(crate) fn show_given(&self, request: &mut ChatRequest, talk: &Conversation, may_search: bool) {
        let found = if self.hidden.is_empty() { BTreeSet::new() } else { finding::found(&talk.messages) };
        let name_of = |tool: &Value| tool["function"]["name"].as_str().unwrap_or_default().to_owned();
        request.tools.retain(|tool| {
            let name = name_of(tool);
            !self.hidden.contains(&name) || found.contains(&name)
        });
        if self.caller.owner.starts_with("lifeform:") {
            let is_named = |name: &str| self.spec.tools.iter().any(|tool| tool.pin.is_some() && tool.name == name);
            let mut named: Vec<&mut Value> = request.tools.iter_mut().filter(|tool| is_named(&name_of(tool))).collect();
            shorten(&mut named, if self.caller.binding.is_some() { STEP_TOKENS } else { TALK_TOKENS });
        }
        let left = self.hidden.difference(&found).count();
        let is_over = finding::searches(&talk.messages).count() >= SEARCHES_MAX;
        if may_search && left > 0 && !is_over && self.tool_named(TOOL_FIND).is_none() {
            request.tools.push(finding::definition(left));
        }
    }

    /// Returns `true` if a call searches among the tools that the model is not shown. After the last search there is no such tool.
    pub(crate) fn searches(&self, call: &ToolCall, talk: &Conversation) -> bool {
        let before = || finding::searches(&talk.messages).take_while(|id| *id != call.id).count();
        call.name == TOOL_FIND && self.tool(call).is_none() && !self.hidden.is_empty() && before() < SEARCHES_MAX
    }

    /// Answers a call that searches. What it found is shown from the next answer on.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn search(&self, call: &ToolCall, talk: &mut Conversation) -> Result<(), NeuronError> {
        let answer = match finding::query_of(&call.params) {
            Ok(query) => {
                let found = finding::found(&talk.messages);
                let cards = self.cards(|tool| self.hidden.contains(&tool.name) && !found.contains(&tool.name));
                let order = self.order(&query, &cards).await;
                Ok(finding::result_of(order.iter().map(|place| &cards[*place])))
            }
            Err(why) => Err(why),
        };
        let (result, error) = answer.map_or_else(|why| (None, Some(why)), |found| (Some(found), None));
        talk.say_result(&ToolResult { id: call.id.clone(), result, error, ..ToolResult::default() });
        self.store.commit(talk.write(Batch::new(&self.origin))).await?;
        Ok(())
    }
}
