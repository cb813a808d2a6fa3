//! The journal entry of a write. Every entry has an author and a cause; this module adds the command and its inverse,
//! so that a change can be traced, undone, and stepped back over.

use std::collections::BTreeSet;

use kip::capsule::Header;
use kip::exec::Change;
use kip::graph::{Direction, ElementId, GraphRead, GraphWrite, Ids, Record};
use kip::{ErrorKind, KipError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::Hash;

/// The maximum size of a command in the journal, in bytes. A longer command is stored by its hash; the inverse still
/// holds its effect.
const COMMAND_BYTES_MAX: usize = 4096;

/// One entry of the stream `nexus:{id}`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Written {
    /// The command, or `sha256:…` for a long one.
    pub(super) command: String,
    /// The parameters; empty if they are long.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) parameters: Map<String, Value>,
    /// The header of the capsule, if the command was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) capsule: Option<Header>,
    /// The number of the entry that this entry undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) undoes: Option<u64>,
    /// New elements: runs of numbers, each with its first number and its length.
    pub(super) created: Vec<(ElementId, u32)>,
    /// The earlier state of changed elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) changed: Vec<(ElementId, Record)>,
    /// The earlier state of removed elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) removed: Vec<(ElementId, Record)>,
}

impl Written {
    /// Returns the entry of a command.
    pub(super) fn of(command: &str, parameters: &Map<String, Value>, changes: &[Change]) -> Self {
        let long = command.len() > COMMAND_BYTES_MAX;
        let command = if long { format!("sha256:{}", Hash::of(command.as_bytes()).hex()) } else { command.to_owned() };
        let parameters =
            Some(parameters).filter(|all| Value::Object((*all).clone()).to_string().len() <= COMMAND_BYTES_MAX);
        let mut written = Self { command, parameters: parameters.cloned().unwrap_or_default(), ..Self::default() };
        for change in changes {
            match (&change.before, &change.after) {
                (None, _) => match written.created.last_mut() {
                    Some((first, count)) if first.0 + *count == change.el.0 => *count += 1,
                    _ => written.created.push((change.el, 1)),
                },
                (Some(before), Some(_)) => written.changed.push((change.el, before.clone())),
                (Some(before), None) => written.removed.push((change.el, before.clone())),
            }
        }
        written
    }

    fn created(&self) -> impl DoubleEndedIterator<Item = ElementId> {
        self.created.iter().flat_map(|(first, count)| (0..*count).map(|n| ElementId(first.0 + n)))
    }

    /// Reverts the entry on a graph in the state directly after it.
    pub(super) fn step_back(&self, graph: &mut dyn GraphWrite) {
        let mut gone: Vec<ElementId> = self.created().collect();
        // Links are removed before the elements that they connect.
        gone.sort_unstable_by(|a, b| b.cmp(a));
        for el in gone {
            graph.remove(el);
        }
        let mut back: Vec<&(ElementId, Record)> = self.changed.iter().chain(&self.removed).collect();
        back.sort_unstable_by_key(|(el, _)| *el);
        for (el, record) in back {
            graph.put(*el, record.clone());
        }
    }

    /// Returns the elements that the entry created, changed or removed.
    pub(super) fn touched(&self) -> impl Iterator<Item = ElementId> {
        self.created().chain(self.changed.iter().chain(&self.removed).map(|(el, _)| *el))
    }

    /// Returns the changes for an undo, in an order in which every link has its ends. `later` holds the later entries
    /// by number.
    ///
    /// # Errors
    /// `KIP_3005`, naming the later changes that depend on the entry.
    pub(super) fn inverse(
        &self,
        seq: u64,
        later: &[(u64, Self)],
        graph: &dyn GraphRead,
    ) -> Result<Vec<(ElementId, Option<Record>)>, KipError> {
        let refuse =
            |what: String, hint: &str| Err(KipError::new(ErrorKind::Execution, what).code("KIP_3005").hint(hint));
        let ids = graph.ids();
        // An entry and its undo cancel out, and so do an undo and its own undo.
        let mut gone: BTreeSet<u64> = BTreeSet::new();
        let mine: BTreeSet<ElementId> = self.touched().collect();
        for (no, entry) in later.iter().rev() {
            if gone.contains(no) {
                continue;
            }
            if let Some(undone) = entry.undoes.filter(|undone| *undone >= seq) {
                gone.insert(undone);
                continue;
            }
            if let Some(el) = entry.touched().find(|el| mine.contains(el)) {
                return refuse(
                    format!("entry {no} touched {} afterwards", ids.show(el)),
                    "undo the later entry first, or write what should stand now",
                );
            }
        }
        if gone.contains(&seq) {
            return refuse(format!("entry {seq} is undone already"), "undo the undo to have it again");
        }
        for el in self.created() {
            for way in [Direction::Out, Direction::In] {
                let mut stranger = None;
                graph.edges(el, way, None, &mut |edge| {
                    stranger = Some(edge.link).filter(|link| !mine.contains(link));
                    stranger.is_none()
                });
                if let Some(link) = stranger {
                    return refuse(
                        format!("{} was linked to {} afterwards", ids.show(link), ids.show(el)),
                        "remove that link first",
                    );
                }
            }
        }
        for (el, record) in &self.removed {
            let taken = match record {
                Record::Concept(concept) => graph.concept(concept.kind, &concept.name),
                Record::Link(link) => graph.link(link.subject, link.predicate, link.object),
            };
            if taken.is_some() {
                return refuse(format!("{} was made again", ids.show(*el)), "merge or remove the new one first");
            }
            if let Record::Link(link) = record
                && [link.subject, link.object]
                    .iter()
                    .any(|end| !end.is_abroad() && !graph.has(*end) && !mine.contains(end))
            {
                return refuse(format!("{} lost an end", ids.show(*el)), "bring that end back first");
            }
        }
        let mut steps: Vec<(ElementId, Option<Record>)> = self.created().map(|el| (el, None)).collect();
        steps.sort_by_key(|(el, _)| std::cmp::Reverse(*el));
        let mut back: Vec<(ElementId, Option<Record>)> =
            self.changed.iter().chain(&self.removed).map(|(el, record)| (*el, Some(record.clone()))).collect();
        back.sort_by_key(|(el, _)| *el);
        steps.extend(back);
        Ok(steps)
    }
}

/// Returns the changes for a review before an import: new elements, changed elements with their changes, and removed
/// elements.
pub(super) fn diff(changes: &[Change], ids: &Ids) -> Value {
    const LISTED: usize = 200;
    let (mut created, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    let shown = |el: ElementId, record: &Record| {
        let mut json = record.look().to_json(el, ids);
        if let Some(metadata) = json["metadata"].as_object_mut() {
            metadata.retain(|key, _| !key.starts_with('_'));
        }
        json
    };
    for change in changes {
        match (&change.before, &change.after) {
            (None, Some(after)) => created.push(shown(change.el, after)),
            (Some(before), Some(after)) => {
                changed.push(serde_json::json!({"before": shown(change.el, before), "after": shown(change.el, after)}));
            }
            (Some(before), None) => removed.push(shown(change.el, before)),
            (None, None) => {}
        }
    }
    let counts = [created.len(), changed.len(), removed.len()];
    [&mut created, &mut changed, &mut removed].into_iter().for_each(|list| list.truncate(LISTED));
    serde_json::json!({
        "counts": {"created": counts[0], "changed": counts[1], "removed": counts[2]},
        "created": created, "changed": changed, "removed": removed,
    })
}
