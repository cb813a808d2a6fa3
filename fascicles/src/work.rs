//! The work of one step: running a neuron or calling a tool.

use std::sync::Arc;
use std::time::Duration;

use neurons::actors::ActorCell;
use neurons::llm::Class;
use neurons::neuron::ToolCall;
use neurons::tools::{Caller, EffectScope};
use neurons::{CallOptions, LlmError, NeuronError, Stop};
use serde_json::{Value, json};
use store::PrincipalId;
use tokio::time::Instant;

use crate::fascicles::Inner;
use crate::graph::Action;
use crate::job::Head;
use crate::mapping::filled;
use crate::run::{OUTPUT_BYTES_MAX, RunInput, Start, Taint};
use crate::spec::CalledBy;
use crate::step_scheduler::Manner;
use crate::toolbox::{ToolContext, ToolFailure, Toolbox};

/// Returns the name of a step's conversation, in which its neuron or tool is invoked.
pub fn invocation(job: &str, step: &str, attempt: u32) -> Arc<str> {
    format!("{job}/{step}.{attempt}").into()
}

/// The outcome of a step's work.
enum Came {
    /// The output, and the source of untrusted text in it.
    Done(Value, Taint),
    Paused(Vec<ToolCall>),
}

/// Returns `false` for work that cannot be repeated: once it may have been done, it is not tried again.
pub(crate) fn may_repeat(inner: &Inner, leaf: &Action) -> bool {
    !matches!(leaf, Action::Call { tool, .. } if !inner.neurons.may_repeat(tool))
}

/// Runs the work of `start` under the step's `actor` and returns the resulting input for the run. A background step
/// yields to other steps until `yields_until`.
pub(crate) async fn work(
    inner: Arc<Inner>,
    head: Arc<Head>,
    toolbox: Arc<dyn Toolbox>,
    start: Start,
    yields_until: Option<Instant>,
    actor: ActorCell,
) -> RunInput {
    let (step, attempt, conversation) = (start.step.clone(), start.attempt, start.conversation);
    let may_repeat = may_repeat(&inner, &start.leaf);
    tokio::time::sleep(Duration::from_millis(start.delay_ms)).await;
    let manner = match &*start.leaf {
        _ if let Some(until) = yields_until => Manner::After(until),
        Action::Tool { .. } => Manner::Prompt,
        Action::Neuron { .. } | Action::Call { .. } => Manner::Patient,
    };
    // Work without a waiting caller has the lowest priority.
    let class =
        if yields_until.is_some() { Class::Afterthought } else { head.class.unwrap_or(Class::of(&head.origin)) };
    let _turn = inner.turns(head.depth).take(class.wants(&head.origin), head.priority, manner).await;
    let limit = start.timeout_s.map(Duration::from_secs);
    let done = Box::pin(perform(&inner, &head, toolbox, start, class, actor));
    let came = match limit {
        None => done.await,
        Some(limit) => match tokio::time::timeout(limit, done).await {
            Ok(came) => came,
            Err(_) => {
                inner.cancel_within(&invocation(&head.id, &step, conversation)).await;
                Err(ToolFailure { message: "it took longer than its timeout_s".into(), retry: may_repeat })
            }
        },
    };
    match came {
        Ok(Came::Done(output, taint)) => RunInput::Done { step, attempt, output, taint },
        Ok(Came::Paused(calls)) => RunInput::Paused { step, attempt, calls },
        Err(ToolFailure { message: error, retry }) => RunInput::Failed { step, attempt, error, retry },
    }
}

async fn perform(
    inner: &Inner,
    head: &Head,
    toolbox: Arc<dyn Toolbox>,
    start: Start,
    class: Class,
    actor: ActorCell,
) -> Result<Came, ToolFailure> {
    let Start { step, attempt, conversation, again, leaf, authors, taint, input, events, .. } = start;
    let authors: Vec<PrincipalId> = head.authors.iter().chain(&*authors).cloned().collect();
    // The rights of the principal may have changed since the start of the job.
    let owner = inner.neurons.present(&head.origin).because(format!("job:{}/{step}", head.id));
    let origin = inner.neurons.acting(&owner, &authors);
    let node = step.rsplit('/').next().and_then(|name| name.split('[').next()).unwrap_or(&step).into();
    let context = ToolContext { job: head.id.clone(), step, node, attempt, origin, input, events, taint };
    // A neuron's calls belong to the work for which the job runs; a call that the author of a fascicle wrote belongs to its
    // place, too.
    let scope = match (&head.scope, &*leaf) {
        (Some(scope), Action::Neuron { .. }) => scope.clone(),
        (Some(scope), _) => EffectScope { work: format!("{}/{}", scope.work, context.step).into(), ..scope.clone() },
        (None, _) => {
            let work = format!("{}/{}", head.id, context.step).into();
            EffectScope {
                work,
                root: head.root.as_ref().unwrap_or(&head.id).clone(),
                echoes_s: 0,
                echoes_in: None,
                noted_in: None,
                since: None,
            }
        }
    };
    let scope = EffectScope { since: scope.since.or(Some(head.created_at)), ..scope };
    let caller = Caller {
        scope: Some(scope),
        owner: head.owner.clone(),
        job: Some(head.id.clone()),
        step: Some(context.step.clone()),
        binding: None,
        root: Some(head.root.clone().unwrap_or_else(|| head.id.clone())),
        depth: head.depth,
        by_stranger: head.untrusted,
        tainted: taint.is_tainted(),
        authors,
    };
    match &*leaf {
        Action::Tool { name, arguments, by } => {
            let arguments = filled(arguments, &context.events).map_err(ToolFailure::fatal)?;
            match by {
                CalledBy::Owner => {
                    let output = toolbox.call(name, &arguments, &context).await?;
                    let taint = if quotes_untrusted(&output) { Taint::Quoted } else { Taint::Clean };
                    Ok(Came::Done(output, taint))
                }
                CalledBy::Client => {
                    let params = if arguments.is_null() { json!({"events": context.events}) } else { arguments };
                    let id = format!("call_{}_{attempt}", context.step);
                    call_of_client(id, name, &params).map(|call| Came::Paused(vec![call]))
                }
            }
        }
        Action::Call { tool, arguments } => {
            let arguments = filled(arguments, &context.events).map_err(ToolFailure::fatal)?;
            let arguments = if arguments.is_null() { json!({}) } else { arguments };
            let options = CallOptions {
                first: !again,
                caller: Some(caller),
                class: Some(class),
                // All tries of a call have the same idempotency key.
                calls_as: Some(format!("{}/{}", head.id, context.step).into()),
                ..CallOptions::default()
            };
            let invocation = invocation(&head.id, &context.step, conversation);
            let called = inner.neurons.use_tool(&owner, &head.account, &invocation, tool, &arguments, options);
            let stop = called.await.map_err(failure)?;
            Ok(came(stop, inner.neurons.brings_in(&head.owner, tool)))
        }
        Action::Neuron { spec, stream } => {
            let deltas = if *stream { toolbox.listen(&context).await? } else { None };
            let options = CallOptions {
                tier: head.tier,
                output_tokens_max: head.output_tokens_max,
                deltas,
                first: !again,
                caller: Some(caller),
                class: Some(class),
                parent: Some(actor),
                ..CallOptions::default()
            };
            let invocation = invocation(&head.id, &context.step, conversation);
            let input = spec.kind.rules().input_of(&context.events);
            let thought = inner.neurons.think(&owner, &head.account, &invocation, spec, &input, options).await;
            let thought = thought.map_err(failure)?;
            Ok(came(thought.stop, thought.untrusted))
        }
    }
}

/// Returns a call that the client of the job makes.
fn call_of_client(id: String, name: &str, params: &Value) -> Result<ToolCall, ToolFailure> {
    let params = params.to_string();
    if params.len() > OUTPUT_BYTES_MAX {
        let error = format!("its parameters have {} bytes, the bound is {OUTPUT_BYTES_MAX}", params.len());
        return Err(ToolFailure::fatal(error));
    }
    Ok(ToolCall { id, name: name.to_owned(), params, ..ToolCall::default() })
}

/// Returns the outcome of a call that read something outside the daemon, or did not.
fn came(stop: Stop, read_outside: bool) -> Came {
    let taint = if read_outside { Taint::Outside } else { Taint::Clean };
    match stop {
        Stop::Completed(completed) => Came::Done(completed.output, taint),
        Stop::Paused(calls) => Came::Paused(calls),
    }
}

/// Returns `true` if the owner's tool marked a part of its output as untrusted: an event with `untrusted` in its
/// metadata.
fn quotes_untrusted(output: &Value) -> bool {
    let events = output["events"].as_array().into_iter().flatten();
    events.into_iter().any(|event| event["metadata"]["untrusted"] == true)
}

fn failure(error: NeuronError) -> ToolFailure {
    let retry = match &error {
        NeuronError::Llm(error) => {
            !matches!(error, LlmError::Refused { .. } | LlmError::Unavailable(_) | LlmError::Exhausted { .. })
        }
        NeuronError::ToolFailed { repeatable, .. } => *repeatable,
        NeuronError::Overloaded | NeuronError::Share | NeuronError::Died(_) | NeuronError::Tools(_) => true,
        NeuronError::Store(error) => !error.is_ledger_refusal(),
        _ => false,
    };
    ToolFailure { message: error.to_string(), retry }
}
