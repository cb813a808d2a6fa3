//! Converts a walk through a trace to OpenTelemetry spans: OTLP in its JSON encoding (`opentelemetry-proto` 1.x, as for
//! the `/v1/traces` of a collector), with the names of the GenAI semantic conventions.

use std::collections::HashMap;
use std::sync::Arc;

use fascicles::run::{Fact, Status};
use lifeform::trace::{Step, Walk};
use serde_json::{Value, json};
use store::{Hash, Timestamp};

/// A span under construction.
struct Span {
    name: String,
    start: Timestamp,
    end: Timestamp,
    /// The references that other entries use for this span as their cause.
    cause: Vec<Arc<str>>,
    attributes: Vec<Value>,
    failed: Option<String>,
    /// The span kind: 1 for internal, 3 for a request to another service.
    kind: u8,
}

fn attribute(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Bool(is) => json!({"boolValue": is}),
        Value::String(text) => json!({"stringValue": text}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": key, "value": value})
}

/// The spans of a walk, by the references that name them.
#[derive(Default)]
struct Spans {
    order: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, Span>,
}

impl Spans {
    fn open(&mut self, name: Arc<str>, span: Span) {
        if self.by_name.insert(name.clone(), span).is_none() {
            self.order.push(name);
        }
    }

    fn take(&mut self, step: &Step) {
        let entry = &step.entry;
        let data = entry.to_json()["data"].take();
        let stream = step.reference.rsplit_once('@').map_or(&*step.reference, |(stream, _)| stream);
        let span = |name: String, attributes: Vec<Value>| Span {
            name,
            start: entry.at,
            end: entry.at,
            cause: entry.cause.0.clone(),
            attributes,
            failed: None,
            kind: 1,
        };
        if let (Some(job), Ok(fact)) = (stream.strip_prefix("job:"), entry.decode::<Fact>()) {
            let of = |step: &str| Arc::from(format!("job:{job}/{step}"));
            let whole: Arc<str> = stream.into();
            match fact {
                Fact::Accepted { .. } => {
                    let cause = entry.cause.0.iter().map(|cause| &**cause).collect::<Vec<_>>().join(" ");
                    let attributes = vec![
                        attribute("gen_ai.operation.name", &json!("invoke_agent")),
                        attribute("lifeformd.job", &json!(job)),
                        attribute("lifeformd.cause", &json!(cause)),
                    ];
                    // The span name contains the lifeform. The job is an attribute, so that spans of one kind have the
                    // same name.
                    let agent = job.split('.').next().unwrap_or(job);
                    self.open(whole, span(format!("invoke_agent {agent}"), attributes));
                }
                Fact::Started { step, attempt, .. } => {
                    let attributes = vec![attribute("lifeformd.attempt", &json!(attempt))];
                    let started = Span { cause: vec![whole], ..span(step.to_string(), attributes) };
                    self.open(of(&step), started);
                }
                Fact::Done { step, .. } | Fact::Passed { step } => self.end(&of(&step), entry.at, None),
                Fact::Failed { step, error, .. } => self.end(&of(&step), entry.at, Some(error)),
                Fact::Ended { status, error } => {
                    let error = error.or_else(|| (status != Status::Completed).then(|| format!("{status:?}")));
                    self.end(&whole, entry.at, error);
                }
                _ => {}
            }
            return;
        }
        if stream.starts_with("calls:") {
            let name: Arc<str> = format!("call:{}", data["call"].as_str().unwrap_or_default()).into();
            if &*entry.kind == "sent" {
                let attributes = vec![
                    attribute("gen_ai.operation.name", &json!("chat")),
                    attribute("gen_ai.request.model", &data["model"]),
                    attribute("gen_ai.provider.name", &data["provider"]),
                ];
                let model = data["model"].as_str().unwrap_or_default();
                self.open(name, Span { kind: 3, ..span(format!("chat {model}"), attributes) });
            } else if let Some(call) = self.by_name.get_mut(&name) {
                call.end = entry.at;
                call.failed = data["error"].as_str().map(str::to_owned);
                let usage = [
                    ("gen_ai.usage.input_tokens", "prompt_tokens"),
                    ("gen_ai.usage.output_tokens", "completion_tokens"),
                ];
                call.attributes.extend(usage.iter().map(|(key, member)| attribute(key, &data["usage"][*member])));
            }
            return;
        }
        let (kind, _) = stream.split_once(':').unwrap_or((stream, ""));
        let attributes =
            vec![attribute("lifeformd.ref", &json!(step.reference)), attribute("lifeformd.by", &json!(entry.by))];
        self.open(step.reference.clone(), span(format!("{kind} {}", entry.kind), attributes));
    }

    fn end(&mut self, name: &str, at: Timestamp, failed: Option<String>) {
        if let Some(span) = self.by_name.get_mut(name) {
            // A step that was skipped after a failure counts as failed.
            (span.end, span.failed) = (at, failed.or(span.failed.take()));
        }
    }
}

/// Returns a walk as an `ExportTraceServiceRequest`. With `reasons`, it includes the reasons for failures, which may
/// quote messages.
pub(crate) fn export(lifeform: &str, walk: &Walk, reasons: bool) -> Value {
    let mut spans = Spans::default();
    spans.take(&walk.from);
    walk.forward.iter().for_each(|step| spans.take(step));
    let trace = &Hash::of(walk.from.reference.as_bytes()).hex()[..32];
    let id_of = |name: &str| Hash::of(format!("{}\n{name}", walk.from.reference).as_bytes()).hex()[..16].to_owned();
    let nanos = |at: Timestamp| at.as_nanosecond().to_string();
    let root = spans.order.first().cloned();
    let shown = spans.order.iter().filter_map(|name| Some((name, spans.by_name.get(name)?))).map(|(name, span)| {
        let named = span.cause.iter().rev().find(|cause| *cause != name && spans.by_name.contains_key(*cause));
        let parent = named.or(root.as_ref()).filter(|parent| *parent != name);
        let mut shown = json!({
            "traceId": trace, "spanId": id_of(name), "name": span.name, "kind": span.kind,
            "startTimeUnixNano": nanos(span.start), "endTimeUnixNano": nanos(span.end.max(span.start)),
            "attributes": span.attributes,
        });
        if let Some(parent) = parent {
            shown["parentSpanId"] = json!(id_of(parent));
        }
        if let Some(error) = &span.failed {
            shown["status"] = json!({"code": 2});
            if reasons {
                shown["status"]["message"] = json!(error);
            }
        }
        shown
    });
    let resource = [attribute("service.name", &json!("lifeformd")), attribute("gen_ai.agent.id", &json!(lifeform))];
    let scope = json!({"name": "lifeformd", "version": env!("CARGO_PKG_VERSION")});
    json!({
        "resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": shown.collect::<Vec<_>>()}]}],
    })
}
