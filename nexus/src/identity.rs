//! The identity of a lifeform: the `id` of `$self` (MISSION K13). It is a public key and not the address that everybody
//! uses, it is given once, and only operators see it. It is kept beside the graph, so that no command can read or change it.

use std::cell::OnceCell;
use std::sync::Arc;

use kip::datum::{Datum, Properties, Sym};
use kip::graph::sorted::{Batch, Place};
use kip::graph::text::Words;
use kip::graph::{Concept, Direction, Edge, ElementId, ElementRef, GraphRead, Ids};
use serde::{Deserialize, Serialize};
use store::principal::Origin;
use store::{Expect, Key, Kind, StoreError};

use super::commons::COMMONS;
use super::{Nexus, NexusError, NexusId};

/// The attribute of `$self` that holds the identity.
const ID: &str = "id";
/// The prefix of the ids of the documents that hold identities; their kind is [`Kind::Meta`].
pub const IDENTITIES: &str = "identity#";

/// The identity of a lifeform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The public key, as a [`did:key`](https://w3c-ccg.github.io/did-key-spec/).
    pub id: Arc<str>,
    /// The name of the key in the daemon's key ring from which the key pair is derived.
    pub key: Arc<str>,
}

/// A source of identities.
pub trait Identities: Send + Sync {
    /// Returns the identity of a new lifeform; `None` if there is no key to derive it from.
    fn identity(&self, nexus: &str) -> Option<Identity>;
}

impl Nexus {
    /// Gives each mind an identity when it is first loaded.
    #[must_use]
    pub fn with_identities(self, identities: Arc<dyn Identities>) -> Self {
        Self { identities: Some(identities), ..self }
    }

    /// Returns the identity of the lifeform to which a mind belongs; `None` for the commons, and for a mind that was loaded
    /// while the daemon had no key.
    ///
    /// # Errors
    /// Fails if the mind cannot be loaded.
    pub async fn identity(&self, nexus: &NexusId) -> Result<Option<Identity>, NexusError> {
        Ok(self.wake(nexus).await?.identity.clone())
    }

    /// Reads the identity of a mind, and stores a new one if it has none.
    pub(super) async fn identify(&self, nexus: &NexusId) -> Result<Option<Identity>, StoreError> {
        let Some(identities) = self.identities.as_ref().filter(|_| &**nexus != COMMONS) else { return Ok(None) };
        let key = Key::new(Kind::Meta, format!("{IDENTITIES}{nexus}"));
        if let Some(known) = self.store.document::<Identity>(&key).await? {
            return Ok(Some(known.value));
        }
        let Some(identity) = identities.identity(nexus) else { return Ok(None) };
        let birth = store::Batch::new(&Origin::system("birth")).put_expecting(key, Expect::Version(0), &identity);
        self.store.commit(birth).await?;
        Ok(Some(identity))
    }
}

/// Returns the id of `$system` in a mind: the principal that speaks for it on canvases.
pub(super) fn system_of(nexus: &NexusId) -> Arc<str> {
    format!("system:{nexus}").into()
}

/// A reader's view of a graph with the identity in `$self` for operators, and without an `id` in it for others. `$system` has the id
/// of its principal, for all.
pub(super) struct Disclosure<'g> {
    graph: &'g dyn GraphRead,
    reserved: [Option<Reserved<'g>>; 2],
}

/// A person of every mind, whose id is not in the graph.
struct Reserved<'g> {
    el: ElementId,
    /// The id, if the reader may see it.
    id: Option<&'g str>,
    shown: OnceCell<Concept>,
}

impl Reserved<'_> {
    fn shown(&self, concept: &Concept) -> Concept {
        let mut shown = concept.clone();
        shown.attributes = match self.id {
            Some(id) => shown.attributes.merged(&Properties::new(vec![(Sym::new(ID), Datum::Str(id.into()))])),
            None => shown.attributes.without(&[ID]),
        };
        shown
    }
}

impl<'g> Disclosure<'g> {
    pub(super) fn new(graph: &'g dyn GraphRead, id: Option<&'g str>, system: &'g str) -> Self {
        let reserved = |name, id| {
            let el = graph.concept(Sym::new("Person"), name)?;
            Some(Reserved { el, id, shown: OnceCell::new() })
        };
        Self { graph, reserved: [reserved("$self", id), reserved("$system", Some(system))] }
    }

    /// Returns `true` if the index of an attribute is that of the ids, which are not in the graph.
    fn is_hidden(&self, kind: Sym, key: Sym) -> bool {
        self.reserved.iter().any(Option::is_some) && kind.as_str() == "Person" && key.as_str() == ID
    }
}

impl GraphRead for Disclosure<'_> {
    #[inline]
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        let Some(reserved) = self.reserved.iter().flatten().find(|reserved| reserved.el == el) else {
            return self.graph.look(el, see);
        };
        self.graph.look(el, &mut |look| match look {
            ElementRef::Concept(concept) => {
                see(ElementRef::Concept(reserved.shown.get_or_init(|| reserved.shown(concept))));
            }
            ElementRef::Link(_) => see(look),
        });
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        self.graph.concept(kind, name)
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        self.graph.link(subject, predicate, object)
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        self.graph.types()
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        self.graph.predicates()
    }

    fn type_len(&self, kind: Sym) -> usize {
        self.graph.type_len(kind)
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        self.graph.predicate_len(predicate)
    }

    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        self.graph.of_type(kind, after, max)
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        self.graph.of_predicate(predicate, after, max)
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        self.graph.concepts(after, max)
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        self.graph.edges(el, way, predicate, see);
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        self.graph.degree(el, way, predicate)
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        if self.is_hidden(batch.kind, batch.key) { None } else { self.graph.sorted(batch) }
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        if self.is_hidden(kind, key) { None } else { self.graph.sorted_len(kind, key) }
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        self.graph.words(links, ask);
    }

    fn ids(&self) -> Ids {
        self.graph.ids()
    }
}
