//! The kinds of canvases. A kind is a set of rules ([`CanvasKind`]) in one file; this file lists those that come with
//! the daemon. Names, collections and ops are owned by the rules, so rules may also be made of data at run time.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use store::PrincipalId;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::chat::{self, Attachment};
use super::state::Collection;
use super::{Edit, Op, Refusal, State, WriteContext, mind_map};
use crate::perception::{Incoming, Stimulus};

/// The rules of one kind of canvas. All methods are pure: they read a state and return a value.
pub(crate) trait CanvasKind: Send + Sync {
    /// Returns the wire name.
    fn name(&self) -> &str;

    /// Returns the collections of entities. Parents come before nested collections.
    fn collections(&self) -> Arc<[Collection]>;

    /// Returns the wire names of the ops that clients may send.
    fn ops(&self) -> Vec<&str>;

    /// Parses an op. Its name is one of [`Self::ops`].
    ///
    /// # Errors
    /// An error that names the invalid member.
    fn parse(&self, op: Value) -> serde_json::Result<Op>;

    /// Returns the change that `op` makes to `state`.
    ///
    /// # Errors
    /// A [`Refusal`].
    fn decide(&self, state: &State, op: &Op, ask: &WriteContext<'_>) -> Result<Edit, Refusal>;

    /// Returns the ops by which a JSON Patch changes entities: see [`PatchRule`].
    fn patch_rules(&self) -> Vec<PatchRule<'_>>;

    /// Returns a change, which applied `op`, as the rules of perception read it; `None` if it concerns no topic or node.
    fn stimulus<'s>(&self, incoming: &Incoming<'s>, op: Op) -> Option<Box<dyn Stimulus + 's>>;

    /// Returns the principals whose words an answer at `place` may rest on. `by` is the creator of the canvas.
    fn writers<'s>(&self, state: &'s State, place: &str, by: Option<&'s PrincipalId>) -> BTreeSet<&'s str>;

    /// Returns the op of a message that a lifeform posts by itself at `place`.
    fn message(&self, state: &State, place: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>)
    -> Op;

    /// Returns the skill by which a lifeform answers on the canvas.
    fn skill(&self) -> Skill;

    /// Returns the name of the op that removes content permanently, if there is one.
    fn purge(&self) -> Option<&str> {
        None
    }

    /// Returns the attachments that an op adds.
    fn attached<'o>(&self, _op: &'o Op) -> &'o [Attachment] {
        &[]
    }

    /// Returns the hashes of all attachments that the state references.
    fn attachments(&self, _state: &State) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }
}

/// The skill by which a lifeform answers on a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skill {
    /// The lifeform talks: its answer streams into a message, which more words and interruptions change.
    Reply,
    /// The lifeform edits the document: its answer is a change, and is not made twice.
    CoAuthor,
}

/// The ops by which a JSON Patch changes the entities of a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PatchRule<'k> {
    /// The op that sets a member of an entity.
    Member {
        /// The name of the collection.
        collection: &'k str,
        /// The name of the member.
        member: &'k str,
        /// The name of the op.
        op: &'k str,
    },
    /// The ops that add and remove an entity.
    Entity {
        /// The name of the collection.
        collection: &'k str,
        /// The name of the op that adds an entity.
        add: &'k str,
        /// The name of the op that removes an entity; `None` if a patch cannot remove it.
        remove: Option<&'k str>,
    },
}

/// A kind of canvas, by its rules. On the wire and in the store it is a name; an unknown name is refused.
#[derive(Clone)]
pub struct Kind(Arc<dyn CanvasKind>);

/// The known kinds. Those that come with the daemon are listed here.
static KINDS: LazyLock<RwLock<Vec<Kind>>> =
    LazyLock::new(|| RwLock::new(vec![Kind(Arc::new(chat::Chat)), Kind(Arc::new(mind_map::MindMap))]));

impl Kind {
    /// Returns the kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().find(|kind| kind.name() == name).cloned()
    }

    /// Returns the chat.
    pub fn chat() -> Self {
        Self(Arc::new(chat::Chat))
    }

    /// Adds a kind to the known ones, in place of an earlier one with the same name.
    #[cfg(test)]
    pub(crate) fn register(rules: Arc<dyn CanvasKind>) -> Self {
        let kind = Self(rules);
        let mut known = KINDS.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| *other != kind);
        known.push(kind.clone());
        kind
    }

    /// Returns the names of the known kinds.
    pub fn names() -> Vec<String> {
        KINDS.read().unwrap_or_else(PoisonError::into_inner).iter().map(|kind| kind.name().to_owned()).collect()
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &dyn CanvasKind {
        &*self.0
    }

    /// Returns the wire name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns `true` for the kind with this name.
    pub fn is(&self, name: &str) -> bool {
        self.name() == name
    }

    /// Returns an empty canvas of this kind.
    pub fn empty(&self) -> State {
        State::empty(self.0.collections())
    }

    /// Returns the names of the ops of this kind.
    pub fn ops(&self) -> Vec<String> {
        self.0.ops().into_iter().map(str::to_owned).collect()
    }

    /// Parses an op.
    ///
    /// # Errors
    /// [`Refusal::Schema`] names the invalid member.
    pub fn read(&self, op: Value) -> Result<Op, Refusal> {
        let name = op["kind"].as_str().unwrap_or_default();
        let known = self.0.ops();
        if !known.contains(&name) {
            let message = format!("a {} takes {}, not \"{name}\"", self.name(), known.join(", "));
            return Err(Refusal::schema("kind", message));
        }
        self.0.parse(op).map_err(|error| Refusal::schema("op", error))
    }

    /// Returns the refusal of an op of another kind.
    pub(super) fn other_op(rules: &dyn CanvasKind) -> Refusal {
        Refusal::schema("kind", format!("it is no op of a {}", rules.name()))
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Kind {}

impl std::fmt::Debug for Kind {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_tuple("Kind").field(&self.name()).finish()
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self::chat()
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || format!("unknown kind `{name}`, expected one of {}", Self::names().join(", "));
        Self::named(&name).ok_or_else(|| serde::de::Error::custom(unknown()))
    }
}

impl PartialSchema for Kind {
    fn schema() -> RefOr<Schema> {
        let described = "The kind of a canvas: `chat` has users, topics and messages; `zmind` is a mind map, a tree of \
                         nodes with links, comments and proposals.";
        let kind = ObjectBuilder::new().schema_type(Type::String).description(Some(described));
        kind.enum_values(Some(Self::names())).default(Some("chat".into())).into()
    }
}

impl ToSchema for Kind {
    fn name() -> std::borrow::Cow<'static, str> {
        "CanvasKind".into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A list of lines, whose names are data.
    struct List {
        name: String,
        add: String,
        entries: String,
    }

    impl CanvasKind for List {
        fn name(&self) -> &str {
            &self.name
        }

        fn collections(&self) -> Arc<[Collection]> {
            [vec![self.entries.as_str().into()]].into()
        }

        fn ops(&self) -> Vec<&str> {
            vec![&self.add]
        }

        fn parse(&self, op: Value) -> serde_json::Result<Op> {
            serde_json::from_value(op).map(Op::Data)
        }

        fn decide(&self, _state: &State, op: &Op, ask: &WriteContext<'_>) -> Result<Edit, Refusal> {
            let Op::Data(op) = op else { return Err(Kind::other_op(self)) };
            let mut edit = Edit::default();
            let id = op.members["id"].as_str().ok_or_else(|| Refusal::schema("id", "an entry has one"))?;
            edit.put(format!("/{}/{id}", self.entries), json!({"id": id, "by": ask.who.id}));
            Ok(edit)
        }

        fn patch_rules(&self) -> Vec<PatchRule<'_>> {
            vec![PatchRule::Entity { collection: &self.entries, add: &self.add, remove: None }]
        }

        fn stimulus<'s>(&self, _: &Incoming<'s>, _: Op) -> Option<Box<dyn Stimulus + 's>> {
            None
        }

        fn writers<'s>(&self, state: &'s State, _: &str, by: Option<&'s PrincipalId>) -> BTreeSet<&'s str> {
            let entries = state.children(&format!("/{}", self.entries));
            entries.filter_map(|entry| entry["by"].as_str()).chain(by.map(|by| &*by.0)).collect()
        }

        fn message(&self, _: &State, _: &Arc<str>, id: Arc<str>, content: String, _: Option<Arc<str>>) -> Op {
            let op = json!({"kind": self.add, "id": id, "content": content});
            serde_json::from_value(op).map(Op::Data).unwrap()
        }

        fn skill(&self) -> Skill {
            Skill::CoAuthor
        }
    }

    #[test]
    fn a_kind_may_be_made_of_data_at_run_time() {
        let rules = List { name: "list".to_owned(), add: "entry.add".to_owned(), entries: "entries".to_owned() };
        let kind = Kind::register(Arc::new(rules));
        assert_eq!(serde_json::from_value::<Kind>(json!("list")).unwrap(), kind);
        assert!(serde_json::from_value::<Kind>(json!("heap")).unwrap_err().to_string().contains("one of chat, zmind"));
        let refused = kind.read(json!({"kind": "message.append"})).unwrap_err();
        assert!(refused.to_string().contains("a list takes entry.add"), "{refused}");
        let op = kind.read(json!({"kind": "entry.add", "id": "a"})).unwrap();
        assert_eq!((op.name(), json!(op)), ("entry.add", json!({"kind": "entry.add", "id": "a"})));
        let who = store::Principal::system();
        let host = crate::canvas::Host::new("lf", "Iris");
        let ask =
            WriteContext { host: &host, who: &who, base: None, first: 1, rev: 1, at: store::Timestamp::UNIX_EPOCH };
        let mut state = kind.empty();
        let patch = kind.rules().decide(&state, &op, &ask).unwrap().patch();
        state.apply(&patch).unwrap();
        assert_eq!(state.get("/entries/a").unwrap()["by"], "system:daemon");
        assert_eq!(kind.rules().writers(&state, "", None), ["system:daemon"].into());
        // An op of another kind is refused by every kind.
        for other in [Kind::chat(), Kind::named("zmind").unwrap()] {
            assert!(other.rules().decide(&other.empty(), &op, &ask).is_err());
        }
    }
}
