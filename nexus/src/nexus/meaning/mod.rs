//! Meaning: vectors of what stands in a mind, so that SEARCH finds what is alike and shares no word (superset 8).
//!
//! A mind's vectors are brought up when somebody searches by meaning: what was written since is read from the
//! journal, a few texts are embedded at once, and many in the background, during which the search says how much
//! it does not know yet.

mod kept;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use kip::graph::text::gist_of;
use kip::graph::{El, GraphRead};
use kip::lang::ast::Lit;
use kip::{Call, Command, bind_and};
use tokio::sync::Mutex;

use super::owner::{self, STEPS_BACK_MAX, Snapshot};
use super::{Nexus, NexusId};
use crate::store::{Store, StoreError};
use kept::{Kept, Name, name};
use vectors::{Near, Table, Vector};

/// Makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Its name: vectors of another are not compared with its own.
    fn name(&self) -> &str;
    /// A vector for each text, in order, all of one length.
    ///
    /// # Errors
    /// What went wrong, for whoever searched.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, String>;
}

/// Texts that a search waits for; more are embedded in the background.
const AT_ONCE: usize = 32;
/// Texts of one mind that have a vector; about 100 MB.
const VECTORS_MAX: usize = 1 << 18;
/// Elements that are looked at at once when a mind is gone through.
const STRETCH: usize = 4_096;

/// The vectors of all minds of a daemon.
#[derive(Clone)]
pub(super) struct Meanings {
    embedder: Arc<dyn Embedder>,
    kept: Arc<Kept>,
}

/// The vectors of one mind, shared by those who search it.
#[derive(Clone, Default)]
pub(super) struct Meaning(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The journal entry up to which `table` and `missing` tell of the mind.
    seq: Option<u64>,
    table: Table,
    /// What has no vector yet, and what it says.
    missing: BTreeMap<El, Name>,
    filling: bool,
}

/// What a search by meaning goes by, and what it must be told.
#[derive(Default)]
pub(super) struct Found {
    pub(super) near: Option<Near>,
    pub(super) warnings: Vec<String>,
}

impl Nexus {
    /// Finds by meaning with `embedder`; vectors are kept in `file`, or as long as the daemon lives.
    ///
    /// # Errors
    /// [`StoreError::Io`] when there is not even memory for them.
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>, file: Option<&Path>) -> Result<Self, StoreError> {
        let kept = Kept::open(file).map_err(|error| StoreError::Io(error.to_string()))?;
        Ok(Self { meanings: Some(Meanings { embedder, kept: Arc::new(kept) }), ..self })
    }
}

impl Meanings {
    /// What is near to `term` in a mind, and in the commons.
    pub(super) async fn find(
        &self,
        store: &Store,
        term: &str,
        own: (&NexusId, &Meaning, &Arc<Snapshot>),
        commons: Option<(&NexusId, &Meaning, &Arc<Snapshot>)>,
    ) -> Result<Found, StoreError> {
        let mut warnings = Vec::new();
        let mut tables = Vec::new();
        for (id, meaning, snapshot) in std::iter::once(own).chain(commons) {
            let (table, whole) = self.bring_up(store, id, meaning, snapshot).await?;
            if !whole {
                warnings.push(format!("what stands in {id} is still being read for its meaning; ask again in a while"));
            }
            tables.push(table);
        }
        let mut tables = tables.into_iter();
        let near = match self.of(term).await {
            Ok(term) => Some(Near { term, own: tables.next().unwrap_or_default(), commons: tables.next() }),
            Err(reason) => {
                warnings.push(format!("searched by words alone: {reason}"));
                None
            }
        };
        Ok(Found { near, warnings })
    }

    async fn of(&self, text: &str) -> Result<Vector, String> {
        let name = name(self.embedder.name(), text);
        if let Some(known) = self.kept.get(&name) {
            return Ok(known);
        }
        let made = self.embedder.embed(vec![text.to_owned()]).await?;
        let vector = Vector::of(made.first().ok_or("the embedder made no vector")?);
        owner::beside(true, || self.kept.put(std::iter::once((&name, &vector))));
        Ok(vector)
    }

    /// The vectors of a mind as it stands in `snapshot`, and whether those are all.
    async fn bring_up(
        &self,
        store: &Store,
        id: &NexusId,
        meaning: &Meaning,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(Table, bool), StoreError> {
        let mut state = meaning.0.lock().await;
        if state.seq.is_none_or(|seq| seq < snapshot.seq) {
            let touched: Option<BTreeSet<El>> = match state.seq {
                Some(seq) if snapshot.seq - seq <= STEPS_BACK_MAX => {
                    let entries = owner::read_journal(store, id, seq, snapshot.seq).await?;
                    Some(entries.iter().flat_map(|(_, entry)| entry.touched()).collect())
                }
                _ => None,
            };
            owner::beside(touched.is_none(), || match touched {
                Some(touched) => touched.into_iter().for_each(|el| self.look_again(&mut state, el, snapshot)),
                None => {
                    *state = State { filling: state.filling, ..State::default() };
                    each(snapshot.mind.read(), &mut |el| {
                        self.look_again(&mut state, el, snapshot);
                        state.table.len() + state.missing.len() < VECTORS_MAX
                    });
                }
            });
            state.seq = Some(snapshot.seq);
        }
        if (1..=AT_ONCE).contains(&state.missing.len()) {
            let missing: Vec<(El, Name)> = state.missing.iter().map(|(el, name)| (*el, *name)).collect();
            if let Ok(made) = self.embed(&missing, snapshot).await {
                state.take_up(made);
            }
        } else if !state.missing.is_empty() && !state.filling {
            state.filling = true;
            tokio::spawn(self.clone().fill(meaning.clone(), snapshot.clone()));
        }
        Ok((state.table.clone(), state.missing.is_empty()))
    }

    /// Takes up what an element says now.
    fn look_again(&self, state: &mut State, el: El, snapshot: &Snapshot) {
        let Some(gist) = gist(snapshot, el) else {
            state.table.remove(el);
            state.missing.remove(&el);
            return;
        };
        let name = name(self.embedder.name(), &gist);
        match self.kept.get(&name) {
            Some(vector) => {
                state.missing.remove(&el);
                state.table.put(el, vector);
            }
            // What it said before is no longer what it means.
            None => {
                state.table.remove(el);
                state.missing.insert(el, name);
            }
        }
    }

    /// Vectors of what is still as it was when it was found missing.
    async fn embed(&self, missing: &[(El, Name)], snapshot: &Snapshot) -> Result<Vec<(El, Name, Vector)>, String> {
        let gists = missing.iter().filter_map(|(el, known)| {
            let gist = gist(snapshot, *el)?;
            (name(self.embedder.name(), &gist) == *known).then_some((*el, *known, gist))
        });
        let (found, texts): (Vec<(El, Name)>, Vec<String>) = gists.map(|(el, name, gist)| ((el, name), gist)).unzip();
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let made = self.embedder.embed(texts).await?;
        let vectors = found.into_iter().zip(made).map(|((el, name), made)| (el, name, Vector::of(&made)));
        let vectors: Vec<(El, Name, Vector)> = vectors.collect();
        owner::beside(true, || self.kept.put(vectors.iter().map(|(_, name, vector)| (name, vector))));
        Ok(vectors)
    }

    /// Embeds what is missing in a mind, some at a time, until nothing is or it fails.
    async fn fill(self, meaning: Meaning, snapshot: Arc<Snapshot>) {
        loop {
            let some: Vec<(El, Name)> = {
                let mut state = meaning.0.lock().await;
                let some = state.missing.iter().take(AT_ONCE).map(|(el, name)| (*el, *name)).collect();
                state.filling = !state.missing.is_empty();
                some
            };
            if some.is_empty() {
                return;
            }
            let made = self.embed(&some, &snapshot).await;
            let mut state = meaning.0.lock().await;
            match made {
                Ok(made) if !made.is_empty() => state.take_up(made),
                // What was written meanwhile is told by a later snapshot; the next search begins anew from there.
                Ok(_) => {
                    state.filling = false;
                    return;
                }
                Err(reason) => {
                    tracing::warn!(reason, "meanings cannot be made now");
                    state.filling = false;
                    return;
                }
            }
        }
    }
}

impl State {
    fn take_up(&mut self, made: Vec<(El, Name, Vector)>) {
        for (el, name, vector) in made {
            if self.missing.get(&el) == Some(&name) {
                self.missing.remove(&el);
                self.table.put(el, vector);
            }
        }
    }
}

/// What a call searches for by meaning, if it does: without MODE a search goes by words and meaning.
pub(super) fn term_of(call: &Call) -> Option<String> {
    if !call.command.to_ascii_uppercase().contains("SEARCH") {
        return None;
    }
    let text = |lit: &Lit<'_>| lit.to_json().as_str().map(str::to_owned);
    let found = bind_and(call, |command| {
        let Command::Search(search) = command else { return Ok(None) };
        let by_words = search
            .mode
            .as_ref()
            .and_then(|(mode, _)| text(mode))
            .is_some_and(|mode| mode.eq_ignore_ascii_case("keyword"));
        Ok(if by_words { None } else { text(&search.term.0) })
    });
    found.ok().flatten()
}

fn gist(snapshot: &Snapshot, el: El) -> Option<String> {
    let mut gist = None;
    snapshot.mind.read().look(el, &mut |look| gist = gist_of(look));
    gist
}

/// Calls `see` with every element of a graph until it answers `false`.
fn each(graph: &dyn GraphRead, see: &mut dyn FnMut(El) -> bool) {
    for links in [false, true] {
        let mut after = if links { El::link(0) } else { El::concept(0) };
        loop {
            let some = if links { graph.of_predicate(None, after, STRETCH) } else { graph.concepts(after, STRETCH) };
            let Some(last) = some.last() else { break };
            after = *last;
            if !some.into_iter().all(&mut *see) {
                return;
            }
        }
    }
}
