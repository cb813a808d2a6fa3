//! A complete lifeform as an archive that another daemon can import. The archive consists of lines of JSON. The first
//! line is the header; the last line contains the number of lines and their hash. Definitions come first, and the head,
//! which makes the lifeform visible, comes last.
//!
//! The archive contains: the head, the agenda, the account with its statements and calls, the canvases with their logs
//! and attachments, the mind with its journal, the jobs (unfinished ones continue after the import) and traces, and the
//! fascicles and stored neurons that the lifeform uses. It does not contain: links into the commons, memberships on
//! canvases of other lifeforms, and tokens.

mod documents;
mod reading;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use fascicles::run::Fact;
use fascicles::{Definitions, FascicleSpec};
use neurons::NeuronSpec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::ledger::Account;
use store::{Cause, Entry, Hash, Kind, Principal, PrincipalId, Store, StoreError, Stream, Timestamp};
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, BufWriter};

use crate::LifeformError;
use crate::agenda::{Agenda, PlanStep};
use crate::attention::Reading;
use crate::canvas::CanvasHead;
use crate::life::Head;
use crate::spec::LifeformId;
use documents::{Documents, is_journal_of, is_of};
pub use reading::Imported;
pub(crate) use reading::Reader;

/// The format name in the first line.
pub const FORMAT: &str = "lifeformd.archive/1";
/// The maximum length of a line, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// The maximum size of all definitions of an archive, in bytes, and the maximum number of versions of one.
const DEFINITIONS_BYTES_MAX: usize = 64 << 20;
const VERSIONS_MAX: u64 = 10_000;
/// The target size of one line's content, unless a single item is larger; and the limits of one commit, in bytes and
/// changes.
const PART_BYTES: usize = 512 << 10;
const COMMIT_BYTES: usize = 1 << 20;
const COMMIT_OPS: usize = 512;
/// The number of documents per read.
const PAGE: usize = 512;
/// The maximum amount in an account, and the maximum number of an entry.
const AMOUNT_MAX: u64 = 1 << 52;
const SEQ_MAX: u64 = 1 << 52;
/// The maximum number of fascicles and neurons that one lifeform uses.
const DEFINITIONS_MAX: usize = 1_000;
/// The maximum number of conversations of one step that are searched.
const CONVERSATIONS_MAX: u32 = 1_000;

/// A journal entry with the unchanged text of its data.
#[derive(Serialize, Deserialize)]
struct Kept {
    seq: u64,
    at: Timestamp,
    by: PrincipalId,
    cause: Cause,
    kind: Arc<str>,
    data: Box<RawValue>,
}

impl Kept {
    fn of(entry: &Entry) -> Result<Self, LifeformError> {
        let text = String::from_utf8_lossy(&entry.data).into_owned();
        let data = RawValue::from_string(text).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let Entry { seq, at, by, cause, kind, .. } = entry.clone();
        Ok(Self { seq, at, by, cause, kind, data })
    }

    fn entry(self) -> Entry {
        let Self { seq, at, by, cause, kind, data } = self;
        Entry { seq, at, by, cause, kind, data: Bytes::from(String::from(Box::<str>::from(data))) }
    }
}

/// A line of an archive.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Archive { format: String, lifeform: LifeformId, name: String, made_at: Timestamp },
    Neuron { spec: Box<NeuronSpec>, history: Vec<Kept> },
    Fascicle { spec: Box<FascicleSpec>, history: Vec<Kept> },
    Document { kind: Kind, id: Arc<str>, body: Box<RawValue> },
    Entries { stream: Stream, entries: Vec<Kept> },
    Payload(String),
    Elements(Vec<(u64, String)>),
    Account(Box<Account>),
    Head(Box<Head>),
    End { lines: u64, left_out: usize, sha256: String },
}

/// The writer of an archive, line by line.
pub(crate) struct Writer<'w> {
    out: &'w mut BufWriter<File>,
    lines: u64,
    hash: Sha256,
}

impl<'w> Writer<'w> {
    pub(crate) fn new(out: &'w mut BufWriter<File>) -> Self {
        Self { out, lines: 0, hash: Sha256::new() }
    }

    async fn line(&mut self, line: &Line) -> Result<(), LifeformError> {
        let mut text = serde_json::to_vec(line).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        text.push(b'\n');
        self.lines += 1;
        self.hash.update(&text);
        self.out.write_all(&text).await.map_err(|error| StoreError::Io(error.to_string()).into())
    }

    /// Writes the entries of a journal after `floor`. Returns the payloads that they reference.
    async fn stream(&mut self, store: &Store, stream: &Stream, floor: u64) -> Result<Vec<Hash>, LifeformError> {
        let upto = store.head(stream).await?;
        let (mut after, mut spoken_of) = (floor, Vec::new());
        while after < upto {
            let mut page = store.entries(stream, after, usize::MAX).await?;
            page.retain(|entry| entry.seq <= upto);
            if page.first().map(|first| first.seq) != Some(after + 1) {
                return Err(StoreError::Corrupt(format!("{stream}: entry {} is missing", after + 1)).into());
            }
            let bytes = |entry: &Entry| entry.data.len() + 128;
            for part in parts(page, bytes) {
                after = part.last().map_or(after, |last| last.seq);
                spoken_of.extend(part.iter().flat_map(|entry| payloads_of(&entry.data)));
                let entries = part.iter().map(Kept::of).collect::<Result<_, _>>()?;
                self.line(&Line::Entries { stream: stream.clone(), entries }).await?;
            }
        }
        Ok(spoken_of)
    }

    /// Writes a halted lifeform. Documents come before the journals, which may be ahead of them.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn write(
        mut self,
        store: &Store,
        nexus: &nexus::Nexus,
        fascicles: &fascicles::Fascicles,
        head: &Head,
    ) -> Result<(), LifeformError> {
        let id = &head.id;
        let name = head.definition.name.clone();
        let made_at = store.clock().now();
        self.line(&Line::Archive { format: FORMAT.into(), lifeform: id.clone(), name, made_at }).await?;
        let kept = |entries: Vec<Entry>| entries.iter().map(Kept::of).collect::<Result<Vec<_>, _>>();
        let needed = fascicles.needed_by(head.definition.fascicles(), &Definitions::default()).await?;
        for (neuron, spec) in needed.neurons {
            let history = kept(fascicles.neurons().journal(&neuron).await?)?;
            self.line(&Line::Neuron { spec: Box::new(spec), history }).await?;
        }
        for (fascicle, spec) in needed.fascicles.into_iter().filter(|(id, _)| !fascicles.is_shipped(id)) {
            let history = kept(fascicles.journal(&fascicle).await?)?;
            self.line(&Line::Fascicle { spec: Box::new(spec), history }).await?;
        }
        let mut mind = nexus.portable(id);
        loop {
            let elements = mind.next().await?;
            if elements.is_empty() {
                break;
            }
            for part in parts(elements, |(_, body)| body.len() + 16) {
                let packed = part.into_iter().map(|(no, body)| (no, BASE64_STANDARD.encode(body))).collect();
                self.line(&Line::Elements(packed)).await?;
            }
        }
        let (mut canvases, mut jobs, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        let mut documents = Documents::of(store, id);
        loop {
            let page = documents.next().await?;
            if page.is_empty() {
                break;
            }
            for (kind, name, body) in page {
                let read = || serde_json::from_str::<Value>(body.get()).unwrap_or_default();
                match kind {
                    Kind::Canvas => canvases.push((name.clone(), read()["floor"].as_u64().unwrap_or_default())),
                    Kind::Job => {
                        payloads.extend(read()["plan"].as_str().and_then(Hash::parse));
                        jobs.push(name.clone());
                    }
                    Kind::Attachment => payloads.extend(read()["hash"].as_str().and_then(Hash::parse)),
                    _ => {}
                }
                self.line(&Line::Document { kind, id: name, body }).await?;
            }
        }
        for job in jobs {
            let stream: Stream = format!("job:{job}").into();
            for conversation in conversations(store, &stream, &job).await? {
                payloads.extend(self.stream(store, &conversation, 0).await?);
            }
            self.stream(store, &stream, 0).await?;
        }
        for (canvas, floor) in canvases {
            self.stream(store, &format!("canvas:{canvas}").into(), floor).await?;
        }
        for kind in ["trace", "calls", "nexus"] {
            self.stream(store, &format!("{kind}:{id}").into(), 0).await?;
        }
        if let Some(account) = store.account(id).await? {
            self.stream(store, &format!("ledger:{id}").into(), 0).await?;
            self.line(&Line::Account(Box::new(account))).await?;
        }
        payloads.sort_unstable();
        payloads.dedup();
        for hash in payloads {
            if let Some(body) = store.payload(&hash).await? {
                self.line(&Line::Payload(BASE64_STANDARD.encode(body))).await?;
            }
        }
        self.line(&Line::Head(Box::new(head.clone()))).await?;
        let (lines, sha256) = (self.lines, Hash(self.hash.clone().finalize().into()).hex());
        self.line(&Line::End { lines, left_out: mind.left_out(), sha256 }).await
    }
}

/// Splits values into parts that each fit into one line.
fn parts<T>(all: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut parts, mut part, mut size) = (Vec::new(), Vec::new(), 0);
    for one in all {
        size += bytes(&one);
        if size > PART_BYTES && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            size = bytes(&one);
        }
        part.push(one);
    }
    parts.extend(Some(part).filter(|part| !part.is_empty()));
    parts
}

/// Returns the payloads with long messages that an entry of a conversation references.
fn payloads_of(data: &[u8]) -> Vec<Hash> {
    fn look(value: &Value, found: &mut Vec<Hash>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| match value.as_str() {
                Some(hash) if name == "content_hash" => found.extend(Hash::parse(hash)),
                _ => look(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| look(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_slice(data) {
        look(&value, &mut found);
    }
    found
}

/// Returns a document of an archive in the form that may be stored here. Documents that name or represent other
/// principals are refused.
fn vetted(id: &str, kind: Kind, name: &str, body: &RawValue) -> Result<Bytes, String> {
    let mut value: Value = serde_json::from_str(body.get()).map_err(|error| error.to_string())?;
    match kind {
        // The log differs from another one with the same first entries, so subscribers must not resume from it.
        Kind::Canvas if value.is_object() => {
            serde_json::from_value::<CanvasHead>(value.clone()).map_err(|error| error.to_string())?;
            value["epoch"] = json!(uuid::Uuid::new_v4().simple().to_string()[..8]);
        }
        Kind::Job if value.is_object() => {
            let is_own = value["id"] == name && value["owner"] == format!("lifeform:{id}") && value["account"] == id;
            if !is_own {
                return Err("a job is its own, under its name, and paid by it".into());
            }
            // The original requester has no rights here. The job continues as the lifeform itself.
            value["origin"]["principal"] = json!(Principal::lifeform(id));
            value["untrusted"] = json!(true);
        }
        Kind::Running if !name.ends_with(&format!("/{}", value.as_str().unwrap_or("/"))) => {
            return Err("a mark names the job it is of".into());
        }
        Kind::Canvas | Kind::Job => return Err("it is no object".into()),
        Kind::Cursor => drop(serde_json::from_value::<Reading>(value.clone()).map_err(|error| error.to_string())?),
        Kind::Agenda => {
            let mut agenda: Agenda = serde_json::from_value(value).map_err(|error| error.to_string())?;
            agenda.mark_imported();
            return Ok(store::json(&agenda));
        }
        Kind::Plan => {
            let mut plan: Vec<PlanStep> = serde_json::from_value(value).map_err(|error| error.to_string())?;
            plan.iter_mut().for_each(PlanStep::mark_imported);
            return Ok(store::json(&plan));
        }
        Kind::Nexus if !value.is_object() => return Err("it is no object".into()),
        _ => return Ok(String::from(Box::<str>::from(body.to_owned())).into()),
    }
    Ok(value.to_string().into())
}

/// Returns the journals of the model conversations of a job's steps.
async fn conversations(store: &Store, job: &Stream, id: &str) -> Result<Vec<Stream>, LifeformError> {
    let mut found = Vec::new();
    let mut steps: Vec<Arc<str>> = Vec::new();
    let mut after = 0;
    loop {
        let page = store.entries(job, after, usize::MAX).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for entry in &page {
            if let Ok(Fact::Started { step, .. }) = entry.decode::<Fact>()
                && !steps.contains(&step)
            {
                steps.push(step);
            }
        }
    }
    for step in steps {
        for n in 0..CONVERSATIONS_MAX {
            let stream: Stream = format!("invocation:{id}/{step}.{n}").into();
            match store.head(&stream).await? {
                0 if n > 0 => break,
                0 => {}
                _ => found.push(stream),
            }
        }
    }
    Ok(found)
}
