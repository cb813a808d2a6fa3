//! Requests and answers (K7, draft7 §6), and an in-memory engine that answers them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::exec::{self, Answer, Dialect, Draft, Options, Shape};
use crate::graph::{Graph, GraphRead};
use crate::lang::ast::Find;
use crate::lang::{self, Command, ErrorKind, KipError};

/// The capsules that every new nexus receives, in order (K3).
pub const CAPSULES: [(&str, &str); 5] = [
    ("genesis", include_str!("../../../config/capsules/genesis.kip")),
    ("person", include_str!("../../../config/capsules/person.kip")),
    ("self", include_str!("../../../config/capsules/self.kip")),
    ("system", include_str!("../../../config/capsules/system.kip")),
    ("memory", include_str!("../../../config/capsules/memory.kip")),
];

/// The maximum number of commands in one batch.
pub const BATCH_MAX: usize = 256;

/// One call of `execute_kip`: a command, or a batch of them (superset 14).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The whole command, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Several commands, run in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<One>>,
    /// Values for the placeholders; shared by a batch.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Checks syntax and logic without writing anything (default `false`).
    #[serde(default)]
    pub dry_run: bool,
    /// Refuses every command that can write (superset 15; default `false`).
    #[serde(default)]
    pub readonly: bool,
    /// The specification that applies where draft7 and the release candidates conflict.
    #[serde(default)]
    pub dialect: Dialect,
    /// The form of the result: rows or columns.
    #[serde(default)]
    pub result_shape: Option<Shape>,
}

/// One command of a batch, with or without its own parameters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields, expecting = "a command of a batch is a text, or {command, parameters?}")]
pub enum One {
    /// The text.
    Text(String),
    /// The text with values that take precedence over the shared ones.
    With {
        /// The text.
        command: String,
        /// The values of the parameters, by name.
        #[serde(default)]
        parameters: Map<String, Value>,
    },
}

/// One command of a request, ready for preparation.
#[derive(Clone, Debug)]
pub struct Call {
    /// The text.
    pub command: String,
    /// The values of all its placeholders.
    pub parameters: Map<String, Value>,
}

impl Request {
    /// Returns a command without parameters.
    ///
    /// ```
    /// use kip::{Engine, Request};
    /// let mut engine = Engine::born(|| 0);
    /// let answer = engine.execute(&Request::new("DESCRIBE DOMAINS"));
    /// assert!(answer.get("error").is_none());
    /// ```
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..Self::default() }
    }

    /// Returns a command with values for its placeholders.
    ///
    /// ```
    /// use kip::{Engine, Request};
    /// use serde_json::json;
    /// let mut engine = Engine::born(|| 0);
    /// let command = r#"UPSERT { CONCEPT { {type: "Domain", name: $name} } }"#;
    /// engine.execute(&Request::with(command, json!({"name": "Ships"})));
    /// let answer = engine.execute(&Request::new(r#"FIND(?d.name) WHERE { ?d {type: "Domain", name: "Ships"} }"#));
    /// assert_eq!(answer["result"], json!(["Ships"]));
    /// ```
    pub fn with(command: impl Into<String>, parameters: Value) -> Self {
        let parameters = if let Value::Object(parameters) = parameters { parameters } else { Map::new() };
        Self { command: Some(command.into()), parameters, ..Self::default() }
    }

    /// Returns the options for running the commands.
    pub fn options(&self) -> Options<'static> {
        Options { dialect: self.dialect, shape: self.result_shape, ..Options::default() }
    }

    /// Returns `true` if a command of the request may write, judged by the first word of each.
    ///
    /// ```
    /// use kip::Request;
    /// assert!(Request::new(r#"UPSERT { CONCEPT { {type: "Domain", name: "Ships"} } }"#).may_write());
    /// assert!(!Request::new("DESCRIBE DOMAINS").may_write());
    /// assert!(!Request { readonly: true, ..Request::new("DELETE CONCEPT ?x DETACH WHERE { }") }.may_write());
    /// ```
    pub fn may_write(&self) -> bool {
        let seems_to = |text: &str| lang::parser::seems_to_write(text);
        let one = |one: &One| match one {
            One::Text(command) | One::With { command, .. } => seems_to(command),
        };
        let writes = self.command.as_deref().is_some_and(seems_to) || self.commands.iter().flatten().any(one);
        writes && !self.readonly && !self.dry_run
    }

    /// Returns the commands in order, and `true` if they are a batch.
    ///
    /// # Errors
    /// `parameter` for a request with both `command` and `commands`, with neither, or with too many.
    ///
    /// ```
    /// use kip::Request;
    /// use serde_json::json;
    /// let batch: Request = serde_json::from_value(json!({"commands": ["DESCRIBE DOMAINS", "DESCRIBE PRIMER"]})).unwrap();
    /// let (calls, is_batch) = batch.calls().unwrap();
    /// assert_eq!((calls.len(), is_batch), (2, true));
    /// assert!(Request::default().calls().is_err());
    /// ```
    pub fn calls(&self) -> Result<(Vec<Call>, bool), KipError> {
        let wrong = |what: &str| Err(KipError::new(ErrorKind::Parameter, what));
        let call = |command: &str, own: Option<&Map<String, Value>>| {
            let mut parameters = self.parameters.clone();
            parameters.extend(own.cloned().unwrap_or_default());
            Call { command: command.to_owned(), parameters }
        };
        match (&self.command, &self.commands) {
            (Some(command), None) => Ok((vec![call(command, None)], false)),
            (None, Some(commands)) if commands.len() > BATCH_MAX => {
                wrong(&format!("a batch holds at most {BATCH_MAX} commands"))
            }
            (None, Some(commands)) => Ok((
                commands
                    .iter()
                    .map(|one| match one {
                        One::Text(command) => call(command, None),
                        One::With { command, parameters } => call(command, Some(parameters)),
                    })
                    .collect(),
                true,
            )),
            (Some(_), Some(_)) => wrong("give either command or commands, not both"),
            (None, None) => wrong("give a command"),
        }
    }
}

/// Parses a command, binds its parameters and passes it to `then`.
///
/// # Errors
/// `syntax` and `parameter` errors, and the errors of `then`.
pub fn bind_and<R>(call: &Call, then: impl FnOnce(&Command<'_>) -> Result<R, KipError>) -> Result<R, KipError> {
    let mut command = lang::parse(&call.command)?;
    lang::bind(&mut command, &call.parameters)?;
    then(&command)
}

/// Returns the response object (RESOLUTIONS §1.1).
pub fn envelope(answered: Result<Answer, KipError>, command: &str) -> Value {
    match answered {
        Err(error) => json!({"error": error.to_json(command)}),
        Ok(answer) => {
            let mut body = Map::from_iter([("result".to_owned(), answer.result)]);
            if let Some(cursor) = answer.next_cursor {
                body.insert("next_cursor".into(), cursor.into());
            }
            if !answer.warnings.is_empty() {
                body.insert("warnings".into(), answer.warnings.into());
            }
            Value::Object(body)
        }
    }
}

/// An in-memory nexus for a single caller.
#[derive(Clone)]
pub struct Engine {
    /// The graph.
    pub graph: Graph,
    clock: fn() -> i64,
}

impl Engine {
    /// Returns an engine with the shipped capsules; `clock` returns the time in microseconds since 1970.
    ///
    /// # Panics
    /// When a shipped capsule fails; a test rules this out.
    pub fn born(clock: fn() -> i64) -> Self {
        let mut engine = Self { graph: Graph::new(), clock };
        for (name, text) in CAPSULES {
            let answer =
                engine.write(&Call { command: text.into(), parameters: Map::new() }, true, &Options::default());
            assert!(answer.is_ok(), "capsule {name}: {answer:?}");
        }
        engine
    }

    /// Runs a request and returns its response.
    ///
    /// ```
    /// use kip::{Engine, Request};
    /// let mut engine = Engine::born(|| 0);
    /// let refused = engine.execute(&Request::new("FIND ships"));
    /// assert_eq!(refused["error"]["kind"], "syntax");
    /// ```
    pub fn execute(&mut self, request: &Request) -> Value {
        let (calls, batch) = match request.calls() {
            Ok(calls) => calls,
            Err(error) => return json!({"error": error.to_json("")}),
        };
        let options = request.options();
        let mut answers = Vec::with_capacity(calls.len());
        for call in &calls {
            let (answered, wrote) = self.call(call, request, &options);
            // A write that fails at run time ends the batch; failed reads and syntax errors do not.
            let stop = answered.as_ref().is_err_and(|error| wrote && error.kind != ErrorKind::Syntax);
            answers.push(envelope(answered, &call.command));
            if stop {
                break;
            }
        }
        if batch { json!({"result": answers}) } else { answers.pop().unwrap_or_default() }
    }

    fn call(&mut self, call: &Call, request: &Request, options: &Options<'_>) -> (Result<Answer, KipError>, bool) {
        if lang::parser::seems_to_write(&call.command) {
            if request.readonly {
                return (Err(read_only()), true);
            }
            if request.dry_run {
                let mut copy = self.clone();
                let tried = copy.write(call, false, options);
                return (tried, true);
            }
            return (self.write(call, false, options), true);
        }
        let answered = bind_and(call, |command| {
            if let Command::Find(Find { as_of: Some((_, span)), .. })
            | Command::Explain(Find { as_of: Some((_, span)), .. }) = command
            {
                return Err(
                    KipError::new(ErrorKind::Execution, "this engine keeps no journal to look back in").at(*span)
                );
            }
            if request.dry_run {
                return exec::check(command, &self.graph).map(|()| Answer::of(json!({})));
            }
            exec::read(command, &self.graph, options)
        });
        if let Ok(answer) = &answered {
            for (kind, key) in &answer.wants {
                self.graph.sort_by(*kind, *key);
            }
        }
        (answered, false)
    }

    fn write(&mut self, call: &Call, privileged: bool, options: &Options<'_>) -> Result<Answer, KipError> {
        bind_and(call, |command| {
            let mut draft = Draft::new(&mut self.graph, (self.clock)(), privileged);
            match exec::write(command, &mut draft, options) {
                Ok(result) => {
                    let (_, warnings) = draft.finish();
                    Ok(Answer { result, warnings, ..Answer::default() })
                }
                Err(error) => {
                    draft.undo();
                    Err(error)
                }
            }
        })
    }
}

/// Returns the refusal of a write in a read-only request.
pub fn read_only() -> KipError {
    KipError::new(ErrorKind::Execution, "this request is read-only, and the command writes").code("KIP_4003")
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (concepts, links) = self.graph.len();
        write!(f, "Engine({concepts} concepts, {links} links, {} types)", self.graph.types().len())
    }
}
