//! Embeddings: vectors of the elements of a mind, so that SEARCH finds similar ones that share no word (superset 8).
//!
//! A mind's vectors are updated when a search by meaning comes. Changes since the last update are read from the
//! journal; a task of its own embeds elements without a vector. A search waits for a few texts, and warns if many are
//! still missing.

mod kept;
mod vectors;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use kip::graph::text::{GIST_CHARS_MAX, gist_of};
use kip::graph::{El, GraphRead, Scoped};
use kip::lang::ast::Lit;
use kip::{Call, Command, bind_and};
use store::principal::Origin;
use store::{Store, StoreError};
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio::time::Instant;

use super::owner::{self, STEPS_BACK_MAX, Snapshot};
use super::wake::Awake;
use super::{Nexus, NexusId};
use kept::{Kept, Name, name};
pub(super) use vectors::Near;
use vectors::{Table, Vector};

/// Makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + 'static {
    /// Returns the embedder's name with its provider's: vectors of different embedders are not compared.
    fn name(&self) -> &str;
    /// A vector for each text, in order, all of one length.
    ///
    /// # Errors
    /// [`EmbedError`].
    async fn embed(&self, origin: &Origin, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// The reason why there are no vectors.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// The texts are at fault, or one of them; the same texts would be refused again.
    #[error("{0}")]
    Refused(String),
    /// The embedder, or what pays it, is; later it may go.
    #[error("{0}")]
    Failed(String),
}

/// Texts that a search waits for, and that are embedded together.
const AT_ONCE: usize = 32;
/// Texts of one mind that have a vector; about 100 MB.
const VECTORS_MAX: usize = 1 << 18;
/// Terms whose vectors are remembered.
const TERMS_MAX: usize = 1_024;
/// Elements that are looked at at once when a mind is gone through.
const STRETCH: usize = 4_096;
/// Elements that may be looked at on a thread that has others to serve.
const SHORT: usize = 256;
/// A search that has waited so long for meaning goes by words alone.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a failure an embedder is left alone for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// The vectors of all minds of a daemon.
#[derive(Clone)]
pub(super) struct Meanings {
    embedder: Arc<dyn Embedder>,
    kept: Arc<Kept>,
    /// The vectors of recent search terms.
    terms: Arc<Mutex<HashMap<Name, Arc<OnceCell<Vector>>>>>,
    /// Texts are embedded by one mind at a time, so that what several say is embedded once.
    turn: Arc<Semaphore>,
}

/// The vectors of one mind, shared by those who search it.
#[derive(Default)]
pub(super) struct Meaning {
    state: Mutex<State>,
    /// Notified when the task that embeds missing elements has ended.
    filled: Notify,
}

#[derive(Default)]
struct State {
    /// The journal entry up to which `table` and `missing` tell of the mind.
    seq: Option<u64>,
    table: Table,
    /// The elements without a vector, with the names of their texts.
    missing: BTreeMap<El, Name>,
    /// Elements that a search waits for, which are embedded first.
    asked: BTreeSet<El>,
    /// The texts that the embedder refuses.
    refused: HashSet<Name>,
    /// There is more in the mind than may have a vector.
    full: bool,
    filling: bool,
    /// The last failure of the embedder, and the time until which it is not asked.
    failed: Option<(String, Instant)>,
}

/// The text of an element, as far as it is known.
enum Said {
    Nothing,
    Known(Vector),
    Unknown(Name),
}

/// The vectors of a search by meaning, with the warnings for its caller.
#[derive(Default)]
pub(super) struct Found {
    pub(super) near: Option<Near>,
    pub(super) warnings: Vec<String>,
}

/// A mind to be searched.
pub(super) type Searched<'s> = (&'s NexusId, &'s Arc<Awake>, &'s Arc<Snapshot>);

impl Nexus {
    /// Finds by meaning with `embedder`; vectors are kept in `file`, or as long as their mind is in memory.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>, file: Option<&Path>) -> Self {
        let (kept, turn) = (Arc::new(Kept::open(file)), Arc::new(Semaphore::new(1)));
        Self { meanings: Some(Meanings { embedder, kept, terms: Arc::default(), turn }), ..self }
    }
}

impl Meanings {
    /// Returns the elements near to `term` in a mind, and in the commons beside it.
    pub(super) async fn find(
        &self,
        store: &Store,
        term: &str,
        origin: &Origin,
        own: Searched<'_>,
        commons: Option<Searched<'_>>,
    ) -> Result<Found, StoreError> {
        let (mut tables, mut warnings) = (Vec::new(), Vec::new());
        for mind in std::iter::once(own).chain(commons) {
            let (table, warning) = self.bring_up(store, mind, origin).await?;
            tables.push(table);
            warnings.extend(warning);
        }
        let mut tables = tables.into_iter();
        let late = |_| Err(EmbedError::Failed("the embedder takes too long".into()));
        let near = match tokio::time::timeout(PATIENCE, self.of(term, origin)).await.unwrap_or_else(late) {
            Ok(term) => Some(Near { term, own: tables.next().unwrap_or_default(), commons: tables.next() }),
            Err(error) => {
                warnings = vec![format!("searched by words alone: {error}")];
                None
            }
        };
        Ok(Found { near, warnings })
    }

    /// The vector of what is searched. A searcher who goes away leaves it to the next one.
    async fn of(&self, term: &str, origin: &Origin) -> Result<Vector, EmbedError> {
        let text: String = term.trim().chars().take(GIST_CHARS_MAX).collect();
        let name = name(self.embedder.name(), &text);
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
        let (embedder, origin) = (self.embedder.clone(), origin.clone());
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

    /// Returns the vectors of a mind in the state of `snapshot`, with a warning if some that the searcher sees are
    /// missing.
    async fn bring_up(
        &self,
        store: &Store,
        (id, awake, snapshot): Searched<'_>,
        origin: &Origin,
    ) -> Result<(Table, Option<String>), StoreError> {
        let meaning = &awake.meaning;
        loop {
            let seq = meaning.state().seq;
            if seq.is_some_and(|seq| seq >= snapshot.seq) {
                break;
            }
            let touched: Option<BTreeSet<El>> = match seq {
                Some(seq) if snapshot.seq - seq <= STEPS_BACK_MAX => {
                    let entries = owner::read_journal(store, id, seq, snapshot.seq).await?;
                    Some(entries.iter().flat_map(|(_, entry)| entry.touched()).collect())
                }
                _ => None,
            };
            let long = touched.as_ref().is_none_or(|touched| touched.len() > SHORT);
            let looked = owner::beside(long, || self.look(touched, snapshot));
            // Whoever was faster has looked at the same.
            if meaning.state().take_in(seq, snapshot.seq, looked) {
                break;
            }
        }
        let wanted: Vec<(El, Name)> = {
            let mut state = meaning.state();
            let rests = state.failed.as_ref().is_some_and(|(_, until)| Instant::now() < *until);
            if !state.missing.is_empty() && !state.filling && !rests {
                state.filling = true;
                tokio::spawn(self.clone().fill(id.clone(), Arc::downgrade(awake)));
            }
            // What is hidden from a searcher keeps it from nothing.
            let scopes = crate::sight::scopes(&origin.principal, id);
            let seen = Scoped::new(snapshot.mind.read(), snapshot.mind.limited(), scopes.as_ref());
            let missing = state.missing.iter().filter(|(el, _)| seen.has(**el));
            let wanted: Vec<(El, Name)> = missing.take(AT_ONCE + 1).map(|(el, name)| (*el, *name)).collect();
            if wanted.len() <= AT_ONCE {
                state.asked.extend(wanted.iter().map(|(el, _)| *el));
            }
            wanted
        };
        if wanted.len() <= AT_ONCE {
            // Only for what was missing now, not for what others write meanwhile; and not for ever.
            let _ = tokio::time::timeout(PATIENCE, meaning.until_embedded(&wanted)).await;
        }
        let state = meaning.state();
        Ok((state.table.clone(), state.warning(id, &wanted)))
    }

    /// Returns the texts of elements: of the touched ones, or of all.
    fn look(&self, touched: Option<BTreeSet<El>>, snapshot: &Snapshot) -> Vec<(El, Said)> {
        let (mut looked, mut count) = (Vec::new(), 0);
        let mut see = |el: El| {
            let said = match gist(snapshot, el).map(|gist| name(self.embedder.name(), &gist)) {
                None => Said::Nothing,
                Some(name) => self.kept.get(&name).map_or(Said::Unknown(name), Said::Known),
            };
            count += usize::from(!matches!(said, Said::Nothing));
            looked.push((el, said));
            // One more than may have a vector, so that it is seen that there are more.
            count <= VECTORS_MAX
        };
        match touched {
            Some(touched) => touched.into_iter().for_each(|el| {
                let _ = see(el);
            }),
            None => each(snapshot.mind.read(), &mut see),
        }
        looked
    }

    /// Embeds what is missing in a mind, some at a time, until nothing is, it fails, or the mind is let go.
    async fn fill(self, id: NexusId, awake: Weak<Awake>) {
        let origin = Origin::system(&format!("meaning of {id}"));
        while let Some(awake) = awake.upgrade() {
            let ending = Ending(&awake.meaning);
            let failed = self.fill_some(&awake, &origin).await.err();
            let mut state = awake.meaning.state();
            if let Some(reason) = &failed {
                tracing::warn!(nexus = %id, reason, "meanings cannot be made now");
                state.failed = Some((reason.clone(), Instant::now() + PAUSE));
            }
            // Under one lock, so that a search that misses a vector also sees whether a task embeds it.
            state.filling = failed.is_none() && !state.missing.is_empty();
            let goes_on = state.filling;
            awake.meaning.filled.notify_waiters();
            drop(state);
            ending.end();
            if !goes_on {
                return;
            }
        }
    }

    async fn fill_some(&self, awake: &Awake, origin: &Origin) -> Result<(), String> {
        let _turn = self.turn.acquire().await.map_err(|closed| closed.to_string())?;
        let some = awake.meaning.state().next();
        let snapshot = awake.snapshot().await.map_err(|error| error.to_string())?;
        let made = self.embed(&some, &snapshot, origin).await?;
        awake.meaning.state().take_up(&some, made);
        Ok(())
    }

    /// The vectors of what is missing, by what it says; `None` where the embedder refused it.
    async fn embed(
        &self,
        missing: &[(El, Name)],
        snapshot: &Snapshot,
        origin: &Origin,
    ) -> Result<HashMap<Name, Option<Vector>>, String> {
        let (mut made, mut texts) = (HashMap::new(), BTreeMap::new());
        for (el, wanted) in missing {
            // Another mind may have had it meanwhile; a later snapshot has what changed since.
            if let Some(known) = self.kept.get(wanted) {
                made.insert(*wanted, Some(known));
            } else if let Some(gist) = gist(snapshot, *el).filter(|gist| name(self.embedder.name(), gist) == *wanted) {
                texts.insert(*wanted, gist);
            }
        }
        let (names, texts): (Vec<Name>, Vec<String>) = texts.into_iter().unzip();
        match self.embed_all(&names, texts.clone(), origin).await {
            Ok(all) => made.extend(all),
            Err(EmbedError::Failed(reason)) => return Err(reason),
            // One of them is at fault; the others are not to wait for it.
            Err(EmbedError::Refused(_)) => {
                for (name, text) in names.into_iter().zip(texts) {
                    match self.embed_all(&[name], vec![text], origin).await {
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
        names: &[Name],
        texts: Vec<String>,
        origin: &Origin,
    ) -> Result<HashMap<Name, Option<Vector>>, EmbedError> {
        if texts.is_empty() {
            return Ok(HashMap::new());
        }
        let made = self.embedder.embed(origin, texts).await?;
        let vectors: HashMap<Name, Option<Vector>> =
            names.iter().copied().zip(made.iter().map(|made| Vector::of(made))).collect();
        let whole = vectors.iter().filter_map(|(name, vector)| Some((name, vector.as_ref()?)));
        owner::beside(true, || self.kept.put(whole));
        Ok(vectors)
    }
}

/// Notifies the waiting tasks that no task embeds any more, also when that one panics.
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
        state.failed = Some(("whoever embeds has stopped".into(), Instant::now() + PAUSE));
        self.0.filled.notify_waiters();
    }
}

impl Meaning {
    /// Waits until none of these is missing any more, or nobody embeds.
    async fn until_embedded(&self, wanted: &[(El, Name)]) {
        loop {
            let mut told = std::pin::pin!(self.filled.notified());
            told.as_mut().enable();
            {
                let state = self.state();
                if !state.filling || !state.lacks(wanted) {
                    return;
                }
            }
            told.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes in what elements say at entry `to`, if nobody else has changed it since entry `from`.
    fn take_in(&mut self, from: Option<u64>, to: u64, looked: Vec<(El, Said)>) -> bool {
        if self.seq != from {
            return false;
        }
        for (el, said) in looked {
            self.table.remove(el);
            self.missing.remove(&el);
            let has_room = self.table.len() + self.missing.len() < VECTORS_MAX;
            match said {
                Said::Nothing => {}
                _ if !has_room => self.full = true,
                Said::Known(vector) => self.table.put(el, &vector),
                Said::Unknown(name) if self.refused.contains(&name) => {}
                // What it said before is no longer what it means.
                Said::Unknown(name) => drop(self.missing.insert(el, name)),
            }
        }
        self.seq = Some(to);
        true
    }

    /// Takes out what is to be embedded next: what searches wait for, and then whatever is missing.
    fn next(&mut self) -> Vec<(El, Name)> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let mut asked = asked.filter_map(|el| Some((el, *self.missing.get(&el)?)));
        let mut next: Vec<(El, Name)> = asked.by_ref().take(AT_ONCE).collect();
        let left: BTreeSet<El> = asked.map(|(el, _)| el).collect();
        let known: BTreeSet<El> = next.iter().map(|(el, _)| *el).collect();
        let others = self.missing.iter().filter(|(el, _)| !known.contains(*el));
        next.extend(others.take(AT_ONCE - known.len()).map(|(el, name)| (*el, *name)));
        self.asked = left;
        next
    }

    /// Takes up vectors. What was tried and has none is not tried again as it is.
    fn take_up(&mut self, tried: &[(El, Name)], mut made: HashMap<Name, Option<Vector>>) {
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
    fn lacks(&self, wanted: &[(El, Name)]) -> bool {
        wanted.iter().any(|(el, name)| self.missing.get(el) == Some(name))
    }

    /// Returns the warning for a searcher who needed these elements.
    fn warning(&self, id: &NexusId, wanted: &[(El, Name)]) -> Option<String> {
        let all = wanted.len() > AT_ONCE;
        if (all && self.missing.is_empty()) || (!all && !self.lacks(wanted)) {
            return self.full.then(|| format!("only a part of {id}, which is very large, is searched by meaning"));
        }
        Some(match &self.failed {
            Some((reason, _)) => format!("what stands in {id} cannot all be read for its meaning now: {reason}"),
            None => format!("what stands in {id} is still being read for its meaning; ask again in a while"),
        })
    }
}

/// Returns the term that a call searches for by meaning, if it does: without MODE a search uses words and meaning.
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
