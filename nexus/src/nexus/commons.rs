//! The commons, and a mind seen together with it (MISSION "One memory"). What all share stands in one graph, the
//! concepts of three types and the links between them; every other mind sees what its scopes show of that as its
//! own, and writes such concepts there.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kip::datum::{Bag, Datum, Sym};
use kip::exec::Change;
use kip::graph::sorted::{Batch, Place};
use kip::graph::text::{Standing, Words};
use kip::graph::{
    Edge, El, GraphRead, GraphWrite, Limited, Link, Look, Record, SCOPES_KEY, Scoped, Union, Veil, Veiled, Way,
    counted, hidden_with_links, hides_with_ends,
};
use kip::{ErrorKind, KipError, reads_through};
use serde_json::{Value, json};

use super::mind::Mind;
use crate::principal::{Principal, Role};

/// The nexus that all share.
pub const COMMONS: &str = "commons";
/// The types whose concepts stand there.
pub const SHARED: [&str; 3] = ["Knowledge", "Resource", "Scope"];
/// The metadata key that says who may change and delete an element of the commons.
pub const OWNER_KEY: &str = "owner";

fn is_shared(kind: Sym) -> bool {
    SHARED.contains(&kind.as_str())
}

/// Scopes of somebody; `None` sees everything.
pub(super) type Scopes = Option<BTreeSet<Arc<str>>>;

/// Lends the view of a mind that somebody has: what their scopes show of it, and of the commons.
pub(super) fn view<R>(
    own: (&dyn GraphRead, &Scopes),
    commons: Option<(&dyn GraphRead, &Scopes)>,
    then: impl FnOnce(&dyn GraphRead) -> R,
) -> R {
    let (own, scopes) = own;
    let Some((commons, commons_scopes)) = commons else { return then(&Scoped::new(own, scopes.as_ref())) };
    let seen = Scoped::new(commons, commons_scopes.as_ref());
    let shared = Veiled::behind(Shared { own, hidden: OnceCell::new() }, &seen);
    let abroad = Abroad(&shared);
    then(&Union(&Scoped::beside(&abroad, own, scopes.as_ref()), &abroad))
}

/// What of the commons others do not see: concepts of other types, and definitions they have themselves.
struct Shared<'g> {
    own: &'g dyn GraphRead,
    /// What is hidden, by type or predicate: found out once a view, when it is first asked for.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl Shared<'_> {
    fn shows(&self, look: Look<'_>) -> bool {
        match look {
            Look::Concept(concept) => {
                is_shared(concept.kind)
                    || (concept.kind.as_str().starts_with('$')
                        && self.own.concept(concept.kind, &concept.name).is_none())
            }
            Look::Link(_) => true,
        }
    }
}

impl Shared<'_> {
    /// What is not shared is little: the commons' own schema.
    fn hidden(&self, graph: &dyn GraphRead) -> &HashMap<(bool, Sym), usize> {
        self.hidden.get_or_init(|| {
            let kinds = graph.types().into_iter().map(|(kind, _)| kind).filter(|kind| !is_shared(*kind));
            let others = kinds.flat_map(|kind| graph.of_type(kind, El::NONE, usize::MAX));
            hidden_with_links(graph, others.filter(|el| self.hides(graph, *el)).collect())
        })
    }
}

impl Veil for Shared<'_> {
    fn is_open(&self) -> bool {
        false
    }

    fn hides(&self, graph: &dyn GraphRead, el: El) -> bool {
        hides_with_ends(graph, el, &|_, look| look.is_none_or(|look| !self.shows(look)))
    }

    fn hidden_concepts(&self, graph: &dyn GraphRead, kind: Option<Sym>) -> usize {
        counted(self.hidden(graph), false, kind)
    }

    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        counted(self.hidden(graph), true, predicate)
    }
}

/// The commons with its elements named as other minds name them.
struct Abroad<'g>(&'g dyn GraphRead);

impl Abroad<'_> {
    /// Where a walk in order goes on here, after an element of the one before or of this one.
    fn after(after: El) -> El {
        match after {
            here if here.is_abroad() => here.home(),
            link if link.is_link() => El::FIRST_LINK,
            _ => El::NONE,
        }
    }

    fn named(els: Vec<El>) -> Vec<El> {
        els.into_iter().map(El::abroad).collect()
    }
}

impl GraphRead for Abroad<'_> {
    fn look(&self, el: El, see: &mut dyn FnMut(Look<'_>)) {
        if el.is_abroad() {
            self.0.look(el.home(), &mut |look| match look {
                Look::Concept(_) => see(look),
                Look::Link(_) => see(outward(look.record()).look()),
            });
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<El> {
        self.0.concept(kind, name).map(El::abroad)
    }

    fn link(&self, subject: El, predicate: Sym, object: El) -> Option<El> {
        let both = subject.is_abroad() && object.is_abroad();
        self.0.link(subject.home(), predicate, object.home()).filter(|_| both).map(El::abroad)
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        self.0.types()
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        self.0.predicates()
    }

    fn type_len(&self, kind: Sym) -> usize {
        // Of other types nothing is shared, and nothing need be counted.
        if is_shared(kind) || kind.as_str().starts_with('$') { self.0.type_len(kind) } else { 0 }
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        self.0.predicate_len(predicate)
    }

    fn of_type(&self, kind: Sym, after: El, max: usize) -> Vec<El> {
        Self::named(self.0.of_type(kind, Self::after(after), max))
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: El, max: usize) -> Vec<El> {
        Self::named(self.0.of_predicate(predicate, Self::after(after), max))
    }

    fn concepts(&self, after: El, max: usize) -> Vec<El> {
        Self::named(self.0.concepts(Self::after(after), max))
    }

    fn edges(&self, el: El, way: Way, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        if el.is_abroad() {
            self.0.edges(el.home(), way, predicate, &mut |edge| {
                see(Edge { predicate: edge.predicate, other: edge.other.abroad(), link: edge.link.abroad() })
            });
        }
    }

    fn degree(&self, el: El, way: Way, predicate: Option<Sym>) -> usize {
        if el.is_abroad() { self.0.degree(el.home(), way, predicate) } else { 0 }
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, El)>> {
        // Of one place, what stands here comes after what stands in the mind itself.
        let after = batch.after.map(|(place, el)| (place.clone(), if el.is_abroad() { el.home() } else { El::NONE }));
        let found = self.0.sorted(&Batch { after: after.as_ref(), ..*batch })?;
        Some(found.into_iter().map(|(place, el)| (place, el.abroad())).collect())
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        self.0.sorted_len(kind, key)
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        self.0.words(links, &mut |words| ask(&WordsAbroad(words)));
    }

    fn limited(&self) -> Limited {
        self.0.limited().iter().map(|el| el.abroad()).collect()
    }
}

struct WordsAbroad<'w>(&'w dyn Words);

struct StandingAbroad<'w>(Box<dyn Standing + 'w>);

impl Words for WordsAbroad<'_> {
    fn standing(&self, word: &str) -> Option<Box<dyn Standing + '_>> {
        Some(Box::new(StandingAbroad(self.0.standing(word)?)))
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.0.words_from(first, see);
    }

    fn elements(&self) -> usize {
        self.0.elements()
    }
}

impl Standing for StandingAbroad<'_> {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn level(&self, el: El) -> Option<u8> {
        if el.is_abroad() { self.0.level(el.home()) } else { None }
    }

    fn each(&self, see: &mut dyn FnMut(El, u8) -> bool) {
        self.0.each(&mut |el, level| see(el.abroad(), level));
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(El) -> bool) {
        self.0.at(level, &mut |el| see(el.abroad()));
    }
}

/// A mind and the commons, to be written as one.
pub(super) struct Overlay<'m> {
    own: &'m mut Mind,
    commons: &'m mut Mind,
    by: &'m Principal,
    scopes: Scopes,
    /// Set when a link of the commons was to lead into one mind.
    crossed: &'m Cell<bool>,
}

impl<'m> Overlay<'m> {
    /// `own` over `commons`, written by `by`.
    pub(super) fn new(own: &'m mut Mind, commons: &'m mut Mind, by: &'m Principal, crossed: &'m Cell<bool>) -> Self {
        let scopes = super::scopes(by, &COMMONS.into());
        Self { own, commons, by, scopes, crossed }
    }

    fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        view((self.own.read(), &None), Some((self.commons.read(), &self.scopes)), then)
    }

    /// Says whose a new concept is and, unless it says so itself, shows it to nobody else.
    fn own_up(&self, bag: &Bag) -> Bag {
        if self.by.may(Role::Operator) {
            return bag.clone();
        }
        let id = self.by.id.0.as_ref();
        let said = [(OWNER_KEY, Datum::Str(id.into())), (SCOPES_KEY, Datum::Json(Arc::new(json!([id]))))];
        Bag::new(said.into_iter().map(|(key, value)| (Sym::new(key), value)).collect()).merged(bag)
    }
}

impl GraphRead for Overlay<'_> {
    reads_through!(view);

    // A writer may hide a thing from itself, and still writes it.
    fn record(&self, el: El) -> Option<Record> {
        if el.is_abroad() { self.commons.read().record(el.home()).map(outward) } else { self.own.read().record(el) }
    }
}

impl GraphWrite for Overlay<'_> {
    fn add(&mut self, record: Record) -> El {
        let stands_there = match &record {
            Record::Concept(concept) => is_shared(concept.kind),
            // What the commons does not know how to say is said at home.
            Record::Link(link) => {
                link.subject.is_abroad()
                    && link.object.is_abroad()
                    && self.commons.read().concept(Sym::new("$PropositionType"), link.predicate.as_str()).is_some()
            }
        };
        match record {
            Record::Concept(mut concept) if stands_there => {
                concept.metadata = self.own_up(&concept.metadata);
                self.commons.write().add(Record::Concept(concept)).abroad()
            }
            Record::Link(mut link) if stands_there => {
                link.metadata = self.own_up(&link.metadata);
                self.commons.write().add(homeward(Record::Link(link))).abroad()
            }
            record => self.own.write().add(record),
        }
    }

    fn put(&mut self, el: El, record: Record) {
        if el.is_abroad() {
            if matches!(&record, Record::Link(link) if !(link.subject.is_abroad() && link.object.is_abroad())) {
                return self.crossed.set(true);
            }
            self.commons.write().put(el.home(), homeward(record));
        } else {
            self.own.write().put(el, record);
        }
    }

    fn remove(&mut self, el: El) {
        if el.is_abroad() { self.commons.write().remove(el.home()) } else { self.own.write().remove(el) }
    }

    // Its own links are a mind's own, wherever they lead.
    fn links_at(&self, el: El) -> BTreeSet<El> {
        let mut found = self.own.read_links(el);
        self.view(|graph| {
            for way in [Way::Out, Way::In] {
                graph.edges(el, way, None, &mut |edge| {
                    found.insert(edge.link);
                    true
                });
            }
        });
        found
    }

    fn unmake(&mut self, el: El) {
        if el.is_abroad() { self.commons.write().unmake(el.home()) } else { self.own.write().unmake(el) }
    }
}

/// A record of the commons as other minds see it.
fn outward(record: Record) -> Record {
    match record {
        Record::Link(link) => {
            Record::Link(Link { subject: link.subject.abroad(), object: link.object.abroad(), ..link })
        }
        concept => concept,
    }
}

/// A record of the commons as the commons itself holds it.
fn homeward(record: Record) -> Record {
    match record {
        Record::Link(link) => Record::Link(Link { subject: link.subject.home(), object: link.object.home(), ..link }),
        concept => concept,
    }
}

/// Changes to a mind, and to the commons as the commons names them.
pub(super) fn split(changes: Vec<Change>) -> (Vec<Change>, Vec<Change>) {
    let (theirs, own): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(|change| change.el.is_abroad());
    let home = |change: Change| Change {
        el: change.el.home(),
        before: change.before.map(homeward),
        after: change.after.map(homeward),
    };
    (own, theirs.into_iter().map(home).collect())
}

/// Whether somebody may change the commons so; `changes` are made already (MISSION R2). Only the owner changes or
/// deletes, nobody shows a thing to a scope he is not in, and nothing is taken from under what others hold on it.
///
/// # Errors
/// `KIP_4003` saying what is not his to do.
pub(super) fn check_rights(commons: &dyn GraphRead, changes: &[Change], by: &Principal) -> Result<(), KipError> {
    let refuse = |what: String| Err(KipError::new(ErrorKind::Execution, what).code("KIP_4003"));
    for Change { el, before, after } in changes {
        let id = el.abroad();
        match (before, after) {
            (None, Some(Record::Concept(new))) if commons.concept(new.kind, &new.name) != Some(*el) => {
                return refuse(format!("the name \"{}\" is taken in the commons", new.name));
            }
            (None, Some(Record::Link(new))) if commons.link(new.subject, new.predicate, new.object) != Some(*el) => {
                return refuse(format!("\"{}\" is said of these two already", new.predicate.as_str()));
            }
            _ => {}
        }
        let operator = by.may(Role::Operator);
        if let Some(before) = before
            && !operator
            && !is_owner(commons, changes, before, by)
        {
            return refuse(format!("{id} belongs to somebody else"));
        }
        if after.is_none() && [Way::Out, Way::In].iter().any(|way| commons.degree(*el, *way, None) > 0) {
            return refuse(format!("others hold on to {id}"));
        }
        if operator {
            continue;
        }
        if let Some(after) = after {
            let had: Vec<String> = before.as_ref().map(scopes_of).unwrap_or_default();
            let mut new = scopes_of(after).into_iter().filter(|scope| !had.contains(scope));
            if let Some(scope) = new.find(|scope| !by.scopes.iter().any(|own| *own.0 == **scope)) {
                return refuse(format!("{id} cannot be shown to {scope}, which is no scope of {}", by.id));
            }
            if !is_owner(commons, changes, after, by) {
                return refuse(format!("{id} cannot be given to somebody else"));
            }
        }
    }
    Ok(())
}

/// Whose an element is says its metadata; a link without that is its subject's, as that was before the changes.
fn is_owner(commons: &dyn GraphRead, changes: &[Change], record: &Record, by: &Principal) -> bool {
    let owner = |look: Look<'_>| look.metadata().named(OWNER_KEY).map(Datum::to_json);
    let owns = |owner: Value| owner.as_str() == Some(&*by.id.0);
    match (owner(record.look()), record) {
        (Some(said), _) => owns(said),
        (None, Record::Concept(_)) => false,
        (None, Record::Link(link)) => {
            let before = changes.iter().find(|change| change.el == link.subject).map(|change| change.before.as_ref());
            let mut said = before.flatten().and_then(|before| owner(before.look()));
            if before.is_none() {
                commons.look(link.subject, &mut |look| said = owner(look));
            }
            said.is_some_and(owns)
        }
    }
}

fn scopes_of(record: &Record) -> Vec<String> {
    match record.look().metadata().named(SCOPES_KEY) {
        Some(Datum::Str(scope)) => vec![scope.to_string()],
        Some(Datum::Json(listed)) => {
            listed.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}
