//! The patch of an op, built piece by piece, and the checks that all kinds of canvas share.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Value, json};
use store::{PrincipalKind, Role};

use super::state::escape;
use super::user::{UserView, users_in};
use super::{Refusal, State, WriteContext};

/// A patch of additions and removals. Adding to an existing member replaces it.
#[derive(Clone, Debug, Default)]
pub struct Edit(Vec<PatchOperation>);

impl Edit {
    /// Sets `value` at `path`, and replaces any present value.
    pub fn put(&mut self, path: impl AsRef<str>, value: Value) {
        let path = pointer(path.as_ref());
        self.0.push(PatchOperation::Add(AddOperation { path, value }));
    }

    /// Removes the value at `path`.
    pub fn remove(&mut self, path: impl AsRef<str>) {
        let path = pointer(path.as_ref());
        self.0.push(PatchOperation::Remove(RemoveOperation { path }));
    }

    /// Appends the operations of another edit.
    pub fn then(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The patch.
    pub fn patch(self) -> Patch {
        Patch(self.0)
    }

    /// Adds the writer to the users of the canvas, if it is unknown.
    pub fn introduce(&mut self, state: &State, ask: &WriteContext) {
        let id = &*ask.who.id.0;
        let path = format!("/users/{}", escape(id));
        if state.get(&path).is_none() {
            let is_host = ask.who.id == ask.host.id;
            let name = if is_host { &*ask.host.name } else { id.split_once(':').map_or(id, |(_, name)| name) };
            self.put(path, json!({"id": id, "name": name, "kind": ask.who.kind}));
        }
    }

    /// Records the revision at which an entity changed.
    pub fn touch(&mut self, path: &str, ask: &WriteContext) {
        self.put(format!("{path}/rev"), json!(ask.rev));
    }
}

/// Parses a pointer. All paths consist of escaped segments, so the default is never used.
fn pointer(path: &str) -> PointerBuf {
    PointerBuf::parse(path).unwrap_or_default()
}

/// Returns `true` if the writer may change content of other authors.
pub(super) fn is_operator(ask: &WriteContext) -> bool {
    ask.who.may(Role::Operator) && ask.who.kind != PrincipalKind::Lifeform
}

/// Checks that `entity` has not changed after the revision that the writer saw.
pub(super) fn unchanged(entity: &Value, ask: &WriteContext) -> Result<(), Refusal> {
    let now = entity["rev"].as_u64().unwrap_or(0);
    match ask.base {
        Some(base) if base < now && now < ask.first => {
            Err(Refusal::Stale { base, now, current: entity.clone().into() })
        }
        _ => Ok(()),
    }
}

pub(super) fn check_id(path: &'static str, id: &str) -> Result<(), Refusal> {
    neurons::spec::check_id(id).map_err(|message| Refusal::schema(path, message))
}

/// Checks that a text is not empty and within a limit in bytes.
pub(super) fn check_text(path: &'static str, text: &str, bytes_max: usize) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::schema(path, "must not be empty"));
    }
    check_length(path, text, bytes_max)
}

/// Checks that a text, possibly empty, is within a limit in bytes.
pub(super) fn check_length(path: &'static str, text: &str, bytes_max: usize) -> Result<(), Refusal> {
    match text.len() {
        bytes if bytes > bytes_max => {
            Err(Refusal::schema(path, format!("{bytes} bytes are over the bound of {bytes_max}")))
        }
        _ => Ok(()),
    }
}

/// Returns an order key that sorts by revision, for collections that only grow at the end.
pub(super) fn order(rev: u64) -> String {
    format!("{rev:012}")
}

/// The maximum number of mentions in one text.
const CALLS_MAX: usize = 64;

/// Returns the mentioned names in a text, in lower case: `@name`, or `@kind:name`.
pub(crate) fn called(content: &str) -> BTreeSet<String> {
    let is_name = |c: &char| c.is_alphanumeric() || "-_:.".contains(*c);
    let called =
        content.split('@').skip(1).take(CALLS_MAX).map(|rest| rest.chars().take_while(is_name).collect::<String>());
    // A name may be followed directly by punctuation.
    called.map(|name| name.trim_end_matches(['.', ':']).to_lowercase()).filter(|name| !name.is_empty()).collect()
}

/// Returns the known principals that a text mentions.
pub(super) fn mentions(state: &State, content: &str) -> Vec<String> {
    let called = called(content);
    if called.is_empty() {
        return Vec::new();
    }
    let is_called = |user: &UserView<'_>| {
        [user.id(), user.name()].into_iter().flatten().any(|name| called.contains(&name.to_lowercase()))
    };
    users_in(state).filter(is_called).filter_map(UserView::id).map(str::to_owned).collect()
}
