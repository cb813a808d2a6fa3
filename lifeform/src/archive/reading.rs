//! The import of an archive into a store.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use fascicles::{Definitions, FascicleSpec};
use neurons::{NeuronId, NeuronSpec};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use store::ledger::{AccountOp, Amount};
use store::{Batch, Entry, Expect, Hash, Key, Kind, Op, Origin, Store, Stream, Timestamp, last_version};

use super::{
    AMOUNT_MAX, COMMIT_BYTES, COMMIT_OPS, DEFINITIONS_BYTES_MAX, DEFINITIONS_MAX, Documents, FORMAT, Kept, Line, PAGE,
    SEQ_MAX, VERSIONS_MAX, conversations, is_journal_of, is_of, vetted,
};
use crate::LifeformError;
use crate::life::{Head, Status};
use crate::spec::LifeformId;

/// An archive that is being read. The first pass validates it, and the second one imports it. The lifeform is not
/// visible before the last line was read.
pub(crate) struct Reader {
    /// `true` in the importing pass.
    pub(super) takes_in: bool,
    pub(super) store: Store,
    pub(super) fascicles: fascicles::Fascicles,
    pub(super) origin: Origin,
    pub(super) id: Option<LifeformId>,
    pub(super) head: Option<Box<Head>>,
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    pub(super) lines: u64,
    pub(super) hash: Sha256,
    /// The number of the last entry of each journal so far.
    pub(super) begun: BTreeMap<Stream, u64>,
    pub(super) has_account: bool,
    pub(super) neurons: Vec<(Box<NeuronSpec>, Vec<Entry>)>,
    pub(super) definitions: Vec<(Box<FascicleSpec>, Vec<Entry>)>,
    pub(super) definitions_bytes: usize,
    pub(super) is_whole: bool,
}

/// The outcome of an import.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// The id of the lifeform. It is stopped until it is started.
    pub id: LifeformId,
    /// The definitions that were imported with the lifeform.
    pub adopted: Vec<String>,
    /// The definitions that already existed here and stay unchanged.
    pub kept: Vec<String>,
    /// The rights of the definition that were not imported: trusted principals (`trusts …`), and scopes (`scope …`). A
    /// file does not grant rights; an operator creates a lifeform that has them.
    pub dropped: Vec<String>,
}

pub(super) fn refused(line: u64, why: impl std::fmt::Display) -> LifeformError {
    LifeformError::Spec(format!("line {line} of the archive: {why}"))
}

impl Reader {
    pub(crate) fn new(store: Store, fascicles: fascicles::Fascicles, origin: Origin, takes_in: bool) -> Self {
        let batch = Batch::new(&origin);
        Self {
            takes_in,
            store,
            fascicles,
            origin,
            id: None,
            head: None,
            batch,
            bytes: 0,
            lines: 0,
            hash: Sha256::new(),
            begun: BTreeMap::new(),
            has_account: false,
            neurons: Vec::new(),
            definitions: Vec::new(),
            definitions_bytes: 0,
            is_whole: false,
        }
    }

    /// Returns the lifeform that the first line of an archive names.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] if the line names none.
    pub(crate) fn names(first: &[u8]) -> Result<LifeformId, LifeformError> {
        match serde_json::from_slice(first) {
            Ok(Line::Archive { lifeform, .. }) => Ok(lifeform),
            Ok(_) => Err(refused(1, "an archive begins by saying what it is")),
            Err(error) => Err(refused(1, error)),
        }
    }

    /// Returns `true` once the last line was read.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(super) async fn flush(&mut self, at_least: usize) -> Result<(), LifeformError> {
        if !self.takes_in {
            return Ok(());
        }
        if self.bytes >= at_least || self.batch.ops.len() >= COMMIT_OPS {
            self.bytes = 0;
            self.store.commit(std::mem::replace(&mut self.batch, Batch::new(&self.origin))).await?;
        }
        Ok(())
    }

    pub(super) fn add(&mut self, bytes: usize, change: impl FnOnce(Batch) -> Batch) {
        if !self.takes_in {
            return;
        }
        self.bytes += bytes;
        let batch = std::mem::replace(&mut self.batch, Batch::new(&self.origin));
        self.batch = change(batch);
    }

    /// Processes one line, including its line ending.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] with the line number and the fault.
    pub(crate) async fn line(&mut self, text: &[u8]) -> Result<(), LifeformError> {
        let n = self.lines + 1;
        if self.bytes + text.len() > COMMIT_BYTES {
            self.flush(0).await?;
        }
        let line: Line = serde_json::from_slice(text).map_err(|error| refused(n, error))?;
        if self.is_whole {
            return Err(refused(n, "it goes on after its end"));
        }
        let id = match (&line, &self.id) {
            (Line::Archive { format, lifeform, .. }, None) if format == FORMAT => lifeform.clone(),
            (Line::Archive { format, .. }, None) => {
                return Err(refused(n, format!("{format} is no form that is known here")));
            }
            (_, None) => return Err(refused(n, "an archive begins by saying what it is")),
            (_, Some(id)) => id.clone(),
        };
        match line {
            Line::Archive { .. } if self.id.is_some() => return Err(refused(n, "it begins twice")),
            Line::Archive { .. } => self.begin(id).await?,
            Line::End { lines, sha256, .. } => {
                let is_so = lines == self.lines && sha256 == Hash(self.hash.clone().finalize().into()).hex();
                if !is_so || self.head.is_none() || !self.has_account {
                    return Err(refused(n, "it is not whole: what it holds is not what it says it holds"));
                }
                self.is_whole = true;
            }
            Line::Head(head) if head.id == id => self.head = Some(head),
            Line::Neuron { spec, history } => {
                spec.check().map_err(|why| refused(n, why))?;
                let history = self.history(n, text.len(), history)?;
                self.neurons.push((spec, history));
            }
            Line::Fascicle { spec, history } => {
                let history = self.history(n, text.len(), history)?;
                self.definitions.push((spec, history));
            }
            Line::Document { kind, id: name, body } if is_of(&id, kind, &name) => {
                let body = vetted(&id, kind, &name, &body)
                    .map_err(|why| refused(n, format!("{} {name}: {why}", kind.as_str())))?;
                let put = Op::Put { key: Key::new(kind, name), expect: Expect::Any, body };
                self.add(text_bytes(&put), |mut batch| {
                    batch.push(put);
                    batch
                });
            }
            Line::Entries { stream, entries } if is_journal_of(&id, &stream) => {
                let entries: Vec<Entry> = entries.into_iter().map(Kept::entry).collect();
                let (last, mut next) = match (self.begun.get(&stream), entries.first()) {
                    (Some(last), _) => (*last, last + 1),
                    (None, first) => (0, first.map_or(1, |first| first.seq.max(1))),
                };
                for entry in &entries {
                    if entry.seq != next || entry.seq >= SEQ_MAX || entry.data.first() != Some(&b'{') {
                        return Err(refused(n, format!("{stream}: entry {} is none, or out of order", entry.seq)));
                    }
                    next += 1;
                }
                let bytes = entries.iter().map(|entry| entry.data.len() + 64).sum();
                let is_first = last == 0;
                self.begun.insert(stream.clone(), next - 1);
                self.add(bytes, |batch| {
                    if is_first { batch.forget(stream.clone()) } else { batch }.restore(stream, entries)
                });
            }
            Line::Payload(body) => {
                let body = BASE64_STANDARD.decode(body).map_err(|error| refused(n, error))?;
                self.add(body.len(), |mut batch| {
                    batch.payload(body.into());
                    batch
                });
            }
            Line::Elements(rows) => {
                let unpacked = rows.into_iter().map(|(no, body)| Ok((no, Some(BASE64_STANDARD.decode(body)?.into()))));
                let rows: Result<Vec<(u64, Option<Bytes>)>, base64::DecodeError> = unpacked.collect();
                let rows = rows.map_err(|error| refused(n, error))?;
                for (no, body) in rows.iter().filter_map(|(no, body)| Some((no, body.as_ref()?))) {
                    nexus::check_element(&id, *no, body).map_err(|error| refused(n, error))?;
                }
                let bytes = rows.iter().map(|(_, body)| 16 + body.as_ref().map_or(0, Bytes::len)).sum();
                self.add(bytes, |mut batch| {
                    batch.push(Op::Elements { nexus: id.clone(), rows });
                    batch
                });
            }
            Line::Account(account) => {
                if ![account.balance, account.spent, account.released].into_iter().all(is_bounded) {
                    return Err(refused(n, format!("amounts are at most {AMOUNT_MAX}")));
                }
                self.has_account = true;
                self.add(1_024, |batch| {
                    batch.account(id.clone(), AccountOp::Restore(account), "taken over from an archive")
                });
            }
            Line::Document { kind, id: name, .. } => {
                return Err(refused(n, format!("{} {name} is not of {id}", kind.as_str())));
            }
            Line::Entries { stream, .. } => return Err(refused(n, format!("journal {stream} is not of {id}"))),
            Line::Head(head) => return Err(refused(n, format!("{} is not {id}", head.id))),
        }
        self.lines = n;
        self.hash.update(text);
        self.flush(COMMIT_BYTES).await
    }

    /// Returns the versions of a definition, within the limits.
    pub(super) fn history(&mut self, n: u64, bytes: usize, history: Vec<Kept>) -> Result<Vec<Entry>, LifeformError> {
        let history: Vec<Entry> = history.into_iter().map(Kept::entry).collect();
        self.definitions_bytes += bytes;
        let many = self.neurons.len() + self.definitions.len() >= DEFINITIONS_MAX;
        if many || self.definitions_bytes > DEFINITIONS_BYTES_MAX || last_version(&history) > VERSIONS_MAX {
            let most = format!(
                "at most {DEFINITIONS_MAX} definitions of {DEFINITIONS_BYTES_MAX} bytes, each in {VERSIONS_MAX} versions"
            );
            return Err(refused(n, most));
        }
        Ok(history)
    }

    /// Removes the remains of a terminated lifeform, or of an interrupted import, with this id.
    pub(super) async fn begin(&mut self, id: LifeformId) -> Result<(), LifeformError> {
        let is_id = id.strip_prefix("lf_").is_some_and(|rest| {
            !rest.is_empty() && rest.len() <= 40 && rest.chars().all(|c| c.is_ascii_alphanumeric())
        });
        if !is_id {
            return Err(refused(1, "its lifeform has no name that could be one"));
        }
        let found = self.store.document::<Head>(&Head::key(&id)).await?;
        if found.is_some_and(|found| found.value.status != Status::Terminated) {
            return Err(LifeformError::Refused(crate::Refusal::Exists(format!("lifeform {id}"))));
        }
        if !self.takes_in {
            self.id = Some(id);
            return Ok(());
        }
        let store = self.store.clone();
        let (mut gone, mut journals) = (Vec::new(), Vec::new());
        let mut documents = Documents::of(&store, &id);
        loop {
            let page = documents.next().await?;
            if page.is_empty() {
                break;
            }
            for (kind, name, _) in page {
                match kind {
                    Kind::Canvas => journals.push(Stream::from(format!("canvas:{name}"))),
                    Kind::Job => {
                        let journal: Stream = format!("job:{name}").into();
                        journals.extend(conversations(&store, &journal, &name).await?);
                        journals.push(journal);
                    }
                    _ => {}
                }
                gone.push(Key::new(kind, name));
            }
        }
        journals.extend(["trace", "calls", "ledger", "nexus"].map(|kind| Stream::from(format!("{kind}:{id}"))));
        // Memberships on canvases of other lifeforms end.
        let prefix = format!("in/{id}/");
        for (name, _) in store.documents::<Timestamp>(Kind::Member, &prefix, PAGE).await? {
            let Some(canvas) = name.strip_prefix(&prefix) else { break };
            gone.push(Key::new(Kind::Member, format!("of/{canvas}/{id}")));
            gone.push(Key::new(Kind::Member, name));
        }
        for key in gone {
            self.add(64, |batch| batch.delete(key, Expect::Any));
            self.flush(COMMIT_BYTES).await?;
        }
        for stream in journals {
            self.add(64, |batch| batch.forget(stream));
            self.flush(COMMIT_BYTES).await?;
        }
        let mut from = Some(0);
        while let Some(page) = from {
            let (rows, next) = store.elements(&id, page, 64).await?;
            let rows: Vec<(u64, Option<Bytes>)> = rows.into_iter().map(|(no, _)| (no, None)).collect();
            if !rows.is_empty() {
                let nexus = id.clone();
                self.add(16 * rows.len(), |mut batch| {
                    batch.push(Op::Elements { nexus, rows });
                    batch
                });
                self.flush(COMMIT_BYTES).await?;
            }
            from = next;
        }
        self.id = Some(id);
        Ok(())
    }

    /// Checks that the lifeform uses each definition of the archive. Other definitions would occupy ids.
    pub(super) async fn check_needed(&self, head: &Head) -> Result<(), LifeformError> {
        let id_of = |spec: &NeuronSpec| NeuronId::from(spec.id.as_deref().unwrap_or_default());
        let brought = Definitions {
            fascicles: self.definitions.iter().map(|(spec, _)| (spec.id.clone(), (**spec).clone())).collect(),
            neurons: self.neurons.iter().map(|(spec, _)| (id_of(spec), (**spec).clone())).collect(),
        };
        let needed = self.fascicles.needed_by(head.definition.fascicles(), &brought).await;
        let needed = needed.map_err(|error| LifeformError::Spec(error.to_string()))?;
        let fascicle = brought.fascicles.keys().find(|id| !needed.fascicles.contains_key(*id));
        let neuron = brought.neurons.keys().find(|id| !needed.neurons.contains_key(*id));
        let unneeded = fascicle.map(|id| format!("fascicle {id}")).or(neuron.map(|id| format!("neuron {id}")));
        match unneeded {
            Some(what) => Err(LifeformError::Spec(format!("the archive brings {what}, which nothing of it names"))),
            None => Ok(()),
        }
    }

    /// Makes the lifeform visible, if the archive is complete.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] if the archive is truncated or its definition is not valid here.
    pub(crate) async fn finish(mut self) -> Result<Imported, LifeformError> {
        let (Some(id), Some(mut head), true) = (self.id.take(), self.head.take(), self.is_whole) else {
            return Err(refused(self.lines + 1, "it is cut short"));
        };
        head.definition.check().map_err(LifeformError::Spec)?;
        let dropped = head.definition.drop_rights();
        self.check_needed(&head).await?;
        let (mut adopted, mut kept) = (Vec::new(), Vec::new());
        // A file does not say whose rights its definitions have.
        let author = head.principal().id;
        for (spec, history) in std::mem::take(&mut self.neurons) {
            let is_new = self.fascicles.neurons().adopt(&self.origin, &spec, history, &author).await?;
            let name = format!("neuron {}", spec.id.as_deref().unwrap_or_default());
            if is_new { &mut adopted } else { &mut kept }.push(name);
        }
        let definitions = std::mem::take(&mut self.definitions);
        // Definitions may reference each other, so the invalid ones are retried after the others.
        let mut waiting = definitions;
        while !waiting.is_empty() {
            let (many, mut left, mut why) = (waiting.len(), Vec::new(), String::new());
            for (spec, history) in waiting {
                match self.fascicles.adopt(&self.origin, &spec, history.clone(), &author).await {
                    Ok(true) => adopted.push(format!("fascicle {}", spec.id)),
                    Ok(false) => kept.push(format!("fascicle {}", spec.id)),
                    Err(error) => {
                        why = format!("fascicle {}: {error}", spec.id);
                        left.push((spec, history));
                    }
                }
            }
            if left.len() == many {
                return Err(LifeformError::Spec(why));
            }
            waiting = left;
        }
        for fascicle in head.definition.fascicles() {
            self.fascicles.get(fascicle).await.map_err(|error| LifeformError::Spec(error.to_string()))?;
        }
        head.status = Status::Stopped;
        head.imported_at = Some(self.store.clock().now());
        let note =
            json!({"what": "imported", "status": head.status, "adopted": adopted, "kept": kept, "dropped": dropped});
        self.add(0, |batch| batch.put(Head::key(&id), &head).append(format!("trace:{id}"), "lifeform", &note));
        self.flush(0).await?;
        Ok(Imported { id, adopted, kept, dropped })
    }
}

/// Returns `true` for an amount within the bounds. It may be negative.
pub(super) fn is_bounded(amount: Amount) -> bool {
    [amount.tokens, amount.micro_usd].iter().all(|part| part.unsigned_abs() <= AMOUNT_MAX)
}

pub(super) fn text_bytes(op: &Op) -> usize {
    match op {
        Op::Put { body, .. } => body.len() + 64,
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_number_there_is_is_no_amount() {
        assert_eq!(
            [0, -5, 1 << 52, i64::MAX, i64::MIN].map(|n| is_bounded(Amount::tokens(n))),
            [true, true, true, false, false]
        );
    }
}
