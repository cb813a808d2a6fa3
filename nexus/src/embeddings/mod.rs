//! Embeddings: vectors of the elements of a mind. With them, SEARCH finds similar elements that share no word
//! (superset 8).
//!
//! A semantic search updates the vectors of its mind. It reads the changes since the last update from the journal; a
//! separate task embeds elements without a vector. A search waits for a few texts, and warns if many are still
//! missing.

mod kept;
mod script;
mod vectors;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use kip::graph::text::{GIST_CHARS_MAX, gist_of};
use kip::graph::{ElementId, GraphRead, Scoped};
use kip::lang::ast::Lit;
use kip::{Call, Command, bind_and};
use store::principal::Origin;
use store::{Store, StoreError};
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio::time::Instant;

use super::cache::LoadedNexus;
use super::writer::{self, STEPS_BACK_MAX, Snapshot};
use super::{Nexus, NexusId};
use kept::{Kept, Name, name};
use script::Words;
pub use script::is_latin;
pub(super) use vectors::Near;
use vectors::{Compared, Table, Vector};

/// Makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the name of the embedder and its provider. Vectors of different embedders are not compared.
    fn name(&self) -> &str;
    /// Returns `true` if the embedder knows the script of a text. The default is `true`.
    fn reads(&self, _text: &str) -> bool {
        true
    }
    /// Returns one vector per text, in order, all of the same length.
    ///
    /// # Errors
    /// [`EmbedError`].
    async fn embed(&self, origin: &Origin, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// The reason why an embedder returned no vectors.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// The embedder refused one or all of the texts; it would refuse the same texts again.
    #[error("{0}")]
    Refused(String),
    /// The embedder failed or its payment failed; a later attempt may succeed.
    #[error("{0}")]
    Failed(String),
}

/// The maximum number of texts that a search waits for, and that one call embeds.
const AT_ONCE: usize = 32;
/// The maximum number of elements with a vector per mind; about 100 MB.
const VECTORS_MAX: usize = 1 << 18;
/// The maximum number of cached vectors of search terms.
const TERMS_MAX: usize = 1_024;
/// The number of elements per step of a scan over a mind.
const STRETCH: usize = 4_096;
/// The maximum number of elements that may be read without moving the work off the async thread.
const SHORT: usize = 256;
/// The time that a search waits for missing vectors.
const PATIENCE: Duration = Duration::from_secs(5);
/// The warning of a search for a term in a script that the embedder of the mind does not know.
pub const UNKNOWN_SCRIPT: &str =
    "the embedder does not know the script of the term, so similarities of meaning say little";
/// The types whose concepts define what others may be.
const DEFINITIONS: [&str; 3] = ["$ConceptType", "$PropositionType", "Domain"];
/// The pause after a failure of the embedder.
const PAUSE: Duration = Duration::from_secs(10);

/// The vectors of all minds of a daemon.
#[derive(Clone)]
pub(super) struct EmbeddingIndex {
    embedder: Arc<dyn Embedder>,
    /// The embedder of minds with many words in other scripts than the Latin one.
    multilingual: Option<Arc<dyn Embedder>>,
    kept: Arc<Kept>,
    /// The vectors of recent search terms.
    terms: Arc<Mutex<HashMap<Name, Arc<OnceCell<Vector>>>>>,
    /// A permit of one: only one mind embeds at a time, so a text in several minds is embedded once.
    turn: Arc<Semaphore>,
}

/// The vectors of one mind, shared by its searches.
#[derive(Default)]
pub(super) struct Meaning {
    state: Mutex<State>,
    /// Notified when the embedding task has made progress or ended.
    filled: Notify,
}

#[derive(Default)]
struct State {
    /// The journal entry up to which `table` and `missing` are current.
    seq: Option<u64>,
    /// The number of times that the mind has changed its embedder.
    generation: u64,
    /// The number of words by script, of all texts that were read since the mind was loaded.
    words: Words,
    /// `true` if the vectors are those of the multilingual embedder. A mind keeps it as long as it is loaded.
    is_multilingual: bool,
    table: Table,
    /// The elements without a vector, with the keys of their texts.
    missing: BTreeMap<ElementId, Name>,
    /// Elements that a search waits for; the task embeds them first.
    asked: BTreeSet<ElementId>,
    /// The keys of texts that the embedder refused.
    refused: HashSet<Name>,
    /// Set when the mind has more elements than may have a vector.
    full: bool,
    filling: bool,
    /// The last failure of the embedder, and the end of the pause after it.
    failed: Option<(String, Instant)>,
}

/// The text of an element and the state of its vector.
enum Said {
    Nothing,
    Known(Vector),
    Unknown(Name),
}

/// The texts of elements, with the number of words in them by script.
struct Looked {
    texts: Vec<(ElementId, Said)>,
    words: Words,
}

/// The vectors for a semantic search, with the warnings for its caller.
#[derive(Default)]
pub(super) struct Found {
    pub(super) near: Option<Near>,
    pub(super) warnings: Vec<String>,
}

/// A mind to search: its id, its loaded nexus and a snapshot.
pub(super) type Searched<'s> = (&'s NexusId, &'s Arc<LoadedNexus>, &'s Arc<Snapshot>);

impl Nexus {
    /// Enables semantic search with `embedder`. Vectors are cached in `file`; with `None`, only as long as their mind
    /// is in memory.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>, file: Option<&Path>) -> Self {
        let (kept, turn) = (Arc::new(Kept::open(file)), Arc::new(Semaphore::new(1)));
        let index = EmbeddingIndex { embedder, multilingual: None, kept, terms: Arc::default(), turn };
        Self { embedding_index: Some(index), ..self }
    }

    /// Sets the embedder of the minds in which at least a tenth of the words are in other scripts than the Latin one;
    /// [`Self::with_embedder`] sets that of all others. Such a mind has vectors of its own.
    #[must_use]
    pub fn with_multilingual_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        if let Some(index) = &mut self.embedding_index {
            index.multilingual = Some(embedder);
        }
        self
    }
}

impl EmbeddingIndex {
    /// Returns the elements similar to `term` in a mind and in the commons.
    pub(super) async fn find(
        &self,
        store: &Store,
        term: &str,
        origin: &Origin,
        own: Searched<'_>,
        commons: Option<Searched<'_>>,
    ) -> Result<Found, StoreError> {
        let (embedder, table, warning) = self.bring_up(store, own, origin).await?;
        let (is_read, mut warnings) = (embedder.reads(term), Vec::from_iter(warning));
        let beside = match commons {
            Some(commons) => Some(self.bring_up(store, commons, origin).await?),
            None => None,
        };
        let of = async |embedder: &Arc<dyn Embedder>| {
            let late = |_| Err(EmbedError::Failed("the embedder takes too long".into()));
            tokio::time::timeout(PATIENCE, self.of(embedder, term, origin)).await.unwrap_or_else(late)
        };
        let of_commons = async {
            let (embedder, table, warning) = beside?;
            Some((of(&embedder).await.map(|term| Compared { term, table }), warning))
        };
        let (term, of_commons) = tokio::join!(of(&embedder), of_commons);
        let own = match term {
            Ok(term) => Compared { term, table },
            Err(error) => {
                return Ok(Found { near: None, warnings: vec![format!("searched by words alone: {error}")] });
            }
        };
        let commons = match of_commons {
            Some((Ok(compared), warning)) => {
                warnings.extend(warning);
                Some(compared)
            }
            Some((Err(error), _)) => {
                warnings.push(format!("the commons is not searched by meaning: {error}"));
                None
            }
            None => None,
        };
        warnings.extend((!is_read).then(|| UNKNOWN_SCRIPT.to_owned()));
        Ok(Found { near: Some(Near { own, commons, is_read }), warnings })
    }

    /// Returns the embedder of a mind, by the scripts of its words.
    fn embedder_of(&self, state: &State) -> &Arc<dyn Embedder> {
        match &self.multilingual {
            Some(multilingual) if state.is_multilingual => multilingual,
            _ => &self.embedder,
        }
    }

    /// Returns the vector of a search term. If the caller is dropped, the call continues and fills the cache for the
    /// next search.
    async fn of(&self, embedder: &Arc<dyn Embedder>, term: &str, origin: &Origin) -> Result<Vector, EmbedError> {
        let text: String = term.trim().chars().take(GIST_CHARS_MAX).collect();
        let name = name(embedder.name(), &text);
        let cell = {
            let mut terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner);
            if terms.len() >= TERMS_MAX && !terms.contains_key(&name) {
                terms.clear();
            }
            terms.entry(name).or_default().clone()
        };
        if let Some(known) = cell.get() {
            return Ok(known.clone());
        }
        let (embedder, origin) = (embedder.clone(), origin.clone());
        let made = tokio::spawn(async move {
            let make = async || {
                let made = embedder.embed(&origin, vec![text]).await?;
                let vector = made.first().and_then(|made| Vector::of(made));
                vector.ok_or_else(|| EmbedError::Failed("the embedder made no vector of it".into()))
            };
            cell.get_or_try_init(make).await.cloned()
        });
        made.await.unwrap_or_else(|panic| Err(EmbedError::Failed(panic.to_string())))
    }

    /// Updates the vectors of a mind to the state of `snapshot` and returns them with their embedder, and a warning if
    /// vectors of elements that the caller sees are missing.
    async fn bring_up(
        &self,
        store: &Store,
        (id, loaded, snapshot): Searched<'_>,
        origin: &Origin,
    ) -> Result<(Arc<dyn Embedder>, Table, Option<String>), StoreError> {
        let meaning = &loaded.meaning;
        loop {
            let (seq, generation, embedder) = {
                let state = meaning.state();
                (state.seq, state.generation, self.embedder_of(&state).clone())
            };
            if seq.is_some_and(|seq| seq >= snapshot.seq) {
                break;
            }
            let touched: Option<BTreeSet<ElementId>> = match seq {
                Some(seq) if snapshot.seq - seq <= STEPS_BACK_MAX => {
                    let entries = writer::read_journal(store, id, seq, snapshot.seq).await?;
                    Some(entries.iter().flat_map(|(_, entry)| entry.touched()).collect())
                }
                _ => None,
            };
            let long = touched.as_ref().is_none_or(|touched| touched.len() > SHORT);
            let looked = crate::blocking::block_in_place_if(long, || self.look(&*embedder, touched, snapshot));
            let mut state = meaning.state();
            // A concurrent search may have applied the same changes first.
            if state.take_in((seq, generation), snapshot.seq, looked)
                && !(self.multilingual.is_some() && state.outgrows_latin())
            {
                break;
            }
        }
        let wanted: Vec<(ElementId, Name)> = {
            let mut state = meaning.state();
            let rests = state.failed.as_ref().is_some_and(|(_, until)| Instant::now() < *until);
            if !state.missing.is_empty() && !state.filling && !rests {
                state.filling = true;
                tokio::spawn(self.clone().fill(id.clone(), Arc::downgrade(loaded)));
            }
            // A search does not wait for elements that its caller cannot see.
            let scopes = crate::view::scopes(&origin.principal, id);
            let seen = Scoped::new(snapshot.mind.read(), snapshot.mind.limited(), scopes.as_ref());
            let missing = state.missing.iter().filter(|(el, _)| seen.has(**el));
            let wanted: Vec<(ElementId, Name)> = missing.take(AT_ONCE + 1).map(|(el, name)| (*el, *name)).collect();
            if wanted.len() <= AT_ONCE {
                state.asked.extend(wanted.iter().map(|(el, _)| *el));
            }
            wanted
        };
        if wanted.len() <= AT_ONCE {
            // Waits only for the texts that are missing now, not for later writes, and with a timeout.
            let _ = tokio::time::timeout(PATIENCE, meaning.until_embedded(&wanted)).await;
        }
        let state = meaning.state();
        Ok((self.embedder_of(&state).clone(), state.table.clone(), state.warning(id, &wanted)))
    }

    /// Returns the texts of the touched elements, or of all elements for `None`, and the number of their words.
    fn look(&self, embedder: &dyn Embedder, touched: Option<BTreeSet<ElementId>>, snapshot: &Snapshot) -> Looked {
        let (mut looked, mut words, mut count) = (Vec::new(), Words::default(), 0);
        let mut see = |el: ElementId| {
            let said = match gist(snapshot, el) {
                None => Said::Nothing,
                Some(gist) => {
                    // Words that no embedder knows do not decide on one.
                    let is_known = self.multilingual.as_ref().is_some_and(|embedder| embedder.reads(&gist));
                    if is_known && !is_definition(snapshot, el) {
                        words.count(&gist);
                    }
                    let name = name(embedder.name(), &gist);
                    self.kept.get(&name).map_or(Said::Unknown(name), Said::Known)
                }
            };
            count += usize::from(!matches!(said, Said::Nothing));
            looked.push((el, said));
            // Reads one element more than may have a vector, so that an overflow is noticed.
            count <= VECTORS_MAX
        };
        match touched {
            Some(touched) => touched.into_iter().for_each(|el| {
                let _ = see(el);
            }),
            None => each(snapshot.mind.read(), &mut see),
        }
        Looked { texts: looked, words }
    }

    /// Embeds the missing texts of a mind in batches, until none is missing, the embedder fails, or the mind is
    /// evicted.
    async fn fill(self, id: NexusId, loaded: Weak<LoadedNexus>) {
        let origin = Origin::system(&format!("meaning of {id}"));
        while let Some(loaded) = loaded.upgrade() {
            let ending = Ending(&loaded.meaning);
            let failed = self.fill_some(&loaded, &origin).await.err();
            let mut state = loaded.meaning.state();
            if let Some(reason) = &failed {
                tracing::warn!(nexus = %id, reason, "meanings cannot be made now");
                state.failed = Some((reason.clone(), Instant::now() + PAUSE));
            }
            // Under one lock, so that a search that misses a vector also sees whether a task is embedding.
            state.filling = failed.is_none() && !state.missing.is_empty();
            let goes_on = state.filling;
            loaded.meaning.filled.notify_waiters();
            drop(state);
            ending.end();
            if !goes_on {
                return;
            }
        }
    }

    async fn fill_some(&self, loaded: &LoadedNexus, origin: &Origin) -> Result<(), String> {
        let _turn = self.turn.acquire().await.map_err(|closed| closed.to_string())?;
        let (some, embedder) = {
            let mut state = loaded.meaning.state();
            (state.next(), self.embedder_of(&state).clone())
        };
        let snapshot = loaded.snapshot().await.map_err(|error| error.to_string())?;
        let made = self.embed(&*embedder, &some, &snapshot, origin).await?;
        loaded.meaning.state().take_up(&some, made);
        Ok(())
    }

    /// Returns the vectors of the missing elements by the key of their text; `None` for a text that the embedder
    /// refused.
    async fn embed(
        &self,
        embedder: &dyn Embedder,
        missing: &[(ElementId, Name)],
        snapshot: &Snapshot,
        origin: &Origin,
    ) -> Result<HashMap<Name, Option<Vector>>, String> {
        let (mut made, mut texts) = (HashMap::new(), BTreeMap::new());
        for (el, wanted) in missing {
            // Another mind may have embedded the text meanwhile. A later snapshot covers an element that changed
            // since.
            if let Some(known) = self.kept.get(wanted) {
                made.insert(*wanted, Some(known));
            } else if let Some(gist) = gist(snapshot, *el).filter(|gist| name(embedder.name(), gist) == *wanted) {
                texts.insert(*wanted, gist);
            }
        }
        let (names, texts): (Vec<Name>, Vec<String>) = texts.into_iter().unzip();
        match self.embed_all(embedder, &names, texts.clone(), origin).await {
            Ok(all) => made.extend(all),
            Err(EmbedError::Failed(reason)) => return Err(reason),
            // One text of the batch is at fault, so each text is embedded separately.
            Err(EmbedError::Refused(_)) => {
                for (name, text) in names.into_iter().zip(texts) {
                    match self.embed_all(embedder, &[name], vec![text], origin).await {
                        Ok(one) => made.extend(one),
                        Err(EmbedError::Failed(reason)) => return Err(reason),
                        Err(EmbedError::Refused(reason)) => {
                            tracing::warn!(reason, "a text has no meaning to the embedder");
                            made.insert(name, None);
                        }
                    }
                }
            }
        }
        Ok(made)
    }

    async fn embed_all(
        &self,
        embedder: &dyn Embedder,
        names: &[Name],
        texts: Vec<String>,
        origin: &Origin,
    ) -> Result<HashMap<Name, Option<Vector>>, EmbedError> {
        if texts.is_empty() {
            return Ok(HashMap::new());
        }
        let made = embedder.embed(origin, texts).await?;
        let vectors: HashMap<Name, Option<Vector>> =
            names.iter().copied().zip(made.iter().map(|made| Vector::of(made))).collect();
        let whole = vectors.iter().filter_map(|(name, vector)| Some((name, vector.as_ref()?)));
        crate::blocking::block_in_place_if(true, || self.kept.put(whole));
        Ok(vectors)
    }
}

/// Notifies waiting searches that no task is embedding, even if the task panics.
struct Ending<'m>(&'m Meaning);

impl Ending<'_> {
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.filling = false;
        state.failed = Some(("the task that embeds has stopped".into(), Instant::now() + PAUSE));
        self.0.filled.notify_waiters();
    }
}

impl Meaning {
    /// Waits until all of these elements have a vector or no task is embedding.
    async fn until_embedded(&self, wanted: &[(ElementId, Name)]) {
        loop {
            let mut notified = std::pin::pin!(self.filled.notified());
            notified.as_mut().enable();
            {
                let state = self.state();
                if !state.filling || !state.lacks(wanted) {
                    return;
                }
            }
            notified.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Applies the texts of elements as of entry `to`, unless another search has changed the state since the entry and
    /// generation `from`.
    fn take_in(&mut self, from: (Option<u64>, u64), to: u64, looked: Looked) -> bool {
        if (self.seq, self.generation) != from {
            return false;
        }
        self.words.add(looked.words);
        for (el, said) in looked.texts {
            self.table.remove(el);
            self.missing.remove(&el);
            let has_room = self.table.len() + self.missing.len() < VECTORS_MAX;
            match said {
                Said::Nothing => {}
                _ if !has_room => self.full = true,
                Said::Known(vector) => self.table.put(el, &vector),
                Said::Unknown(name) if self.refused.contains(&name) => {}
                // The vector of the previous text no longer applies.
                Said::Unknown(name) => drop(self.missing.insert(el, name)),
            }
        }
        self.seq = Some(to);
        true
    }

    /// Drops all vectors and returns `true` if the words of the mind have come to need the multilingual embedder.
    fn outgrows_latin(&mut self) -> bool {
        let outgrows = !self.is_multilingual && self.words.are_multilingual();
        if outgrows {
            let generation = self.generation + 1;
            *self = Self { is_multilingual: true, generation, filling: self.filling, ..Self::default() };
        }
        outgrows
    }

    /// Returns the elements to embed next, which stay `missing` until [`Self::take_up`]: first those that searches wait
    /// for, then any missing ones.
    fn next(&mut self) -> Vec<(ElementId, Name)> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let mut asked = asked.filter_map(|el| Some((el, *self.missing.get(&el)?)));
        let mut next: Vec<(ElementId, Name)> = asked.by_ref().take(AT_ONCE).collect();
        let left: BTreeSet<ElementId> = asked.map(|(el, _)| el).collect();
        let known: BTreeSet<ElementId> = next.iter().map(|(el, _)| *el).collect();
        let others = self.missing.iter().filter(|(el, _)| !known.contains(*el));
        next.extend(others.take(AT_ONCE - known.len()).map(|(el, name)| (*el, *name)));
        self.asked = left;
        next
    }

    /// Adds new vectors. A tried text without a vector is not tried again.
    fn take_up(&mut self, tried: &[(ElementId, Name)], mut made: HashMap<Name, Option<Vector>>) {
        self.failed = None;
        self.refused.extend(made.extract_if(|_, vector| vector.is_none()).map(|(name, _)| name));
        for (el, name) in tried {
            if self.missing.get(el) != Some(name) {
                continue;
            }
            self.missing.remove(el);
            if let Some(Some(vector)) = made.get(name) {
                self.table.put(*el, vector);
            }
        }
    }

    /// Returns `true` if any of these elements has no vector yet.
    fn lacks(&self, wanted: &[(ElementId, Name)]) -> bool {
        wanted.iter().any(|(el, name)| self.missing.get(el) == Some(name))
    }

    /// Returns the warning for a search that needed these elements.
    fn warning(&self, id: &NexusId, wanted: &[(ElementId, Name)]) -> Option<String> {
        let all = wanted.len() > AT_ONCE;
        if (all && self.missing.is_empty()) || (!all && !self.lacks(wanted)) {
            return self.full.then(|| format!("only a part of {id}, which is very large, is searched by meaning"));
        }
        Some(match &self.failed {
            Some((reason, _)) => format!("some elements of {id} have no vector now: {reason}"),
            None => format!("some elements of {id} have no vector yet; ask again in a while"),
        })
    }
}

/// Returns the term of a call that uses semantic search, otherwise `None`. A SEARCH without MODE uses words and
/// meaning.
pub(super) fn term_of(call: &Call) -> Option<String> {
    if !call.command.to_ascii_uppercase().contains("SEARCH") {
        return None;
    }
    let text = |lit: &Lit<'_>| lit.to_json().as_str().map(str::to_owned);
    let found = bind_and(call, |command| {
        let Command::Search(search) = command else { return Ok(None) };
        let mode = search.mode.as_ref().map(|(mode, _)| text(mode).unwrap_or_default().to_lowercase());
        let by_meaning = mode.is_none_or(|mode| mode == "hybrid" || mode == "semantic");
        Ok(text(&search.term.0).filter(|term| by_meaning && !term.trim().is_empty()))
    });
    found.ok().flatten()
}

/// Returns `true` for a type, a predicate or a domain, whose labels are in several languages whatever the mind says.
fn is_definition(snapshot: &Snapshot, el: ElementId) -> bool {
    let mut is = false;
    snapshot.mind.read().look(el, &mut |look| is = DEFINITIONS.contains(&look.kind().as_str()));
    is
}

fn gist(snapshot: &Snapshot, el: ElementId) -> Option<String> {
    let mut gist = None;
    snapshot.mind.read().look(el, &mut |look| gist = gist_of(look));
    gist
}

/// Calls `see` for every element of a graph until `see` returns `false`.
fn each(graph: &dyn GraphRead, see: &mut dyn FnMut(ElementId) -> bool) {
    for links in [false, true] {
        let mut after = if links { ElementId::link(0) } else { ElementId::concept(0) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_by_the_former_embedder_adds_nothing() {
        let looked = || {
            let mut words = Words::default();
            words.count("我妹妹叫小兰");
            Looked { texts: vec![(ElementId::concept(1), Said::Unknown([1; 16]))], words }
        };
        let mut state = State::default();
        assert!(state.take_in((None, 0), 7, looked()) && state.outgrows_latin());
        assert!(!state.take_in((None, 0), 7, looked()), "another search began before the change");
        assert!(state.missing.is_empty() && state.is_multilingual);
        assert!(state.take_in((None, 1), 7, looked()) && !state.outgrows_latin());
        assert_eq!(state.missing.len(), 1);
    }
}
