//! Import and export of knowledge as capsules (K10).

use kip::capsule::{self, Header};
use kip::exec;
use kip::lang::COMMAND_BYTES_MAX;
use kip::{Answer, Call, Command, Dialect, ErrorKind, KipError, Options, bind_and, envelope};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::principal::{Origin, Role};

use super::command::Command as Write;
use super::writer;
use super::{Nexus, NexusError, NexusId, ScopedView, may_write, redact_messages};

/// The greatest distance in links between a match and an element of its capsule.
const HOPS_MAX: usize = 64;

/// A request for a capsule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The variable of the pattern that names the exported elements.
    pub target: String,
    /// `WHERE {…}`.
    pub pattern: String,
    /// Values for its placeholders.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// The number of links that the capsule reaches around the matches (0 to 64, default 0).
    #[serde(default)]
    pub hops: usize,
    /// The capsule's name.
    #[serde(default = "unnamed")]
    pub name: String,
    /// The capsule's version.
    #[serde(default = "first")]
    pub version: String,
}

fn unnamed() -> String {
    "export".into()
}

fn first() -> String {
    "1.0.0".into()
}

impl Nexus {
    /// Imports a capsule as one transaction. Checks its header, if it has one. An operator's capsule may write
    /// protected elements (R28). With `dry_run`, nothing is written, and the answer is the difference that the
    /// capsule would make.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn import(
        &self,
        nexus: &NexusId,
        text: &str,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<Value, NexusError> {
        let header = match capsule::open(text) {
            Ok(header) => header.unwrap_or_else(|| Header {
                name: "unnamed".into(),
                version: "0".into(),
                sha256: store::Hash::of(text.as_bytes()).hex(),
            }),
            Err(error) => return Ok(json!({"error": error.to_json(text)})),
        };
        if !may_write(&origin.principal, nexus) {
            return Ok(json!({"error": writer::no_right().to_json(text)}));
        }
        let call = Call { command: text.to_owned(), parameters: Map::new() };
        let upserts = bind_and(&call, |command| match command {
            Command::Upsert(_) => Ok(()),
            _ => Err(KipError::new(ErrorKind::Syntax, "a capsule holds UPSERT statements and nothing else")),
        });
        if let Err(error) = upserts {
            return Ok(json!({"error": error.to_json(text)}));
        }
        let privileged = origin.principal.may(Role::Operator);
        let command = Write { privileged, capsule: Some(header.clone()), ..Write::of(call, Dialect::Draft7) };
        if dry_run {
            let tried = self.try_out(nexus, &command, origin).await?;
            let tried = tried.map(|tried| Answer {
                result: json!({"capsule": header, "diff": tried.diff}),
                warnings: tried.warnings,
                ..Answer::default()
            });
            return Ok(redact_messages(envelope(tried, text)));
        }
        Ok(redact_messages(self.perform(nexus, command, origin).await?))
    }

    /// Exports the neighbourhood of the elements that a WHERE block matches, as a capsule with its header: `{result:
    /// {capsule, …}}`.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn export(&self, nexus: &NexusId, query: &Export, origin: &Origin) -> Result<Value, NexusError> {
        let plain = |text: &str| {
            (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        if !plain(&query.name) || !plain(&query.version) || query.hops > HOPS_MAX {
            let message =
                format!("a capsule's name and version are letters, digits and ._- , and hops at most {HOPS_MAX}");
            return Ok(json!({"error": KipError::new(ErrorKind::Parameter, message).to_json("")}));
        }
        let command = format!("EXPORT ?{} {}", query.target.trim_start_matches('?'), query.pattern);
        let call = Call { command, parameters: query.parameters.clone() };
        let loaded = self.wake(nexus).await?;
        let (own, commons) = self.both(nexus, &loaded).await?;
        let seen = ScopedView::by(&origin.principal, nexus, &loaded, own, commons);
        let answered = crate::blocking::block_in_place_if(seen.is_large(), || {
            bind_and(&call, |command| match command {
                Command::Export(export) => {
                    let mut answer =
                        seen.view(|view| exec::neighbourhood(export, query.hops, view, &Options::default()))?;
                    let text = answer.result["capsule"].as_str().unwrap_or_default().to_owned();
                    if text.len() + 256 > COMMAND_BYTES_MAX {
                        let message = format!("a capsule of {} bytes could not be imported again", text.len());
                        return Err(KipError::new(ErrorKind::Execution, message)
                            .code("KIP_4002")
                            .hint("narrow the pattern, or take EXPORT … LIMIT n page by page"));
                    }
                    answer.result["capsule"] = capsule::seal(&query.name, &query.version, &text).into();
                    Ok(answer)
                }
                _ => Err(KipError::new(ErrorKind::Syntax, "the pattern is WHERE {…}")),
            })
        });
        seen.check().inspect_err(|_| self.evict_unreadable(nexus))?;
        Ok(envelope(answered, &call.command))
    }
}
