//! The inverted index. The score of a posting uses BM25's saturation of repeated words and its penalty for length,
//! against a fixed length instead of a moving average. It therefore changes only when its element changes. Postings
//! are stored in order of score, and a snapshot of the index is a few pointers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arcstr::ArcStr;
use imbl::OrdMap;
use serde_json::Value;

use super::super::privacy::Privacy;
use super::super::{ElementId, ElementRef};
use super::analyzer::each_term;
use super::rank::{Postings, Words};
use super::runs::Runs;
use crate::datum::{Datum, Sym};

/// The weights of a word in the name, in an alias, in another text, and in a text of a neighbouring element.
const NAME: f32 = 3.0;
const ALIAS: f32 = 2.5;
const OTHER: f32 = 1.0;
const CONTEXT: f32 = 0.25;
/// BM25's saturation of repeated words.
const K1: f32 = 1.2;
/// BM25's penalty for length.
const B: f32 = 0.5;
/// The length, in words, with neither a bonus nor a penalty.
const LENGTH: f32 = 24.0;
/// The number of score levels; they run from 1 to this number.
pub const LEVELS_MAX: u8 = 32;
pub(super) const LEVELS: f32 = LEVELS_MAX as f32;
/// The maximum number of indexed terms per element; further text is not indexed.
const TERMS_MAX: usize = 2048;

/// The inverted index; see the module documentation.
#[derive(Clone, Default)]
pub struct Index {
    postings: OrdMap<ArcStr, Posting>,
    elements: usize,
}

/// The elements that contain a word.
#[derive(Clone)]
enum Posting {
    /// A single element with its level.
    One(u8, ElementId),
    /// Several elements, highest level first.
    Several(Arc<Several>),
}

#[derive(Clone)]
struct Several {
    count: usize,
    levels: Vec<(u8, Nos)>,
}

/// A sorted set of elements.
#[derive(Clone)]
enum Nos {
    Few(Vec<ElementId>),
    Many(Runs),
}

const FEW: usize = 64;

impl Nos {
    fn insert(&mut self, el: ElementId) -> bool {
        match self {
            Self::Few(few) => match few.binary_search(&el) {
                Ok(_) => false,
                Err(at) => {
                    few.insert(at, el);
                    if few.len() > FEW {
                        *self = Self::Many(Runs::of(few));
                    }
                    true
                }
            },
            Self::Many(many) => many.insert(el),
        }
    }

    fn remove(&mut self, el: ElementId) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&el).map(|at| few.remove(at)).is_ok(),
            Self::Many(many) => many.remove(el),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    fn contains(&self, el: ElementId) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&el).is_ok(),
            Self::Many(many) => many.contains(el),
        }
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId]) -> bool) -> bool {
        match self {
            Self::Few(few) => see(few),
            Self::Many(many) => many.each().all(see),
        }
    }
}

impl Posting {
    fn of(mut stands: Vec<(u8, ElementId)>) -> Self {
        if let [(level, el)] = stands.as_slice() {
            return Self::One(*level, *el);
        }
        stands.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let count = stands.len();
        let levels = stands.chunk_by(|a, b| a.0 == b.0).map(|run| {
            let els: Vec<ElementId> = run.iter().map(|(_, el)| *el).collect();
            (run[0].0, if run.len() > FEW { Nos::Many(Runs::of(&els)) } else { Nos::Few(els) })
        });
        Self::Several(Arc::new(Several { count, levels: levels.collect() }))
    }

    fn insert(&mut self, level: u8, el: ElementId) {
        if let Self::One(old_level, old) = *self {
            let mut several = Several { count: 0, levels: Vec::new() };
            several.insert(old_level, old);
            *self = Self::Several(Arc::new(several));
        }
        if let Self::Several(several) = self {
            Arc::make_mut(several).insert(level, el);
        }
    }

    /// Removes an element; returns `true` if no element remains.
    fn remove(&mut self, level: u8, el: ElementId) -> bool {
        match self {
            Self::One(_, only) => *only == el,
            Self::Several(several) => {
                let several = Arc::make_mut(several);
                if let Some(at) = several.levels.iter().position(|(known, _)| *known == level) {
                    several.count -= usize::from(several.levels[at].1.remove(el));
                    if several.levels[at].1.is_empty() {
                        several.levels.remove(at);
                    }
                }
                several.count == 0
            }
        }
    }
}

impl Postings for &Posting {
    fn count(&self) -> usize {
        match self {
            Posting::One(..) => 1,
            Posting::Several(several) => several.count,
        }
    }

    fn level(&self, el: ElementId) -> Option<u8> {
        match self {
            Posting::One(level, only) => (*only == el).then_some(*level),
            Posting::Several(several) => {
                several.levels.iter().find(|(_, nos)| nos.contains(el)).map(|(level, _)| *level)
            }
        }
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        match self {
            Posting::One(level, el) => drop(see(&[*el], *level)),
            Posting::Several(several) => {
                several.levels.iter().all(|(level, nos)| nos.each(&mut |els| see(els, *level)));
            }
        }
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool) {
        match self {
            Posting::One(own, el) if *own == level => drop(see(&[*el])),
            Posting::One(..) => {}
            Posting::Several(several) => {
                if let Some((_, nos)) = several.levels.iter().find(|(own, _)| *own == level) {
                    nos.each(see);
                }
            }
        }
    }
}

impl Several {
    fn insert(&mut self, level: u8, el: ElementId) {
        let at = match self.levels.iter().position(|(known, _)| *known <= level) {
            Some(at) if self.levels[at].0 == level => at,
            place => {
                let at = place.unwrap_or(self.levels.len());
                self.levels.insert(at, (level, Nos::Few(Vec::new())));
                at
            }
        };
        self.count += usize::from(self.levels[at].1.insert(el));
    }
}

impl Index {
    /// Adds, removes or updates an element. An element without words is not stored.
    pub fn change(&mut self, el: ElementId, before: Option<ElementRef<'_>>, after: Option<ElementRef<'_>>) {
        let (old, new) = (before.map(words_of).unwrap_or_default(), after.map(words_of).unwrap_or_default());
        if old == new {
            return;
        }
        for (term, level) in &old {
            if new.binary_search(&(term.clone(), *level)).is_ok() {
                continue;
            }
            if self.postings.get_mut(term).is_some_and(|posting| posting.remove(*level, el)) {
                self.postings.remove(term);
            }
        }
        for (term, level) in &new {
            if old.binary_search(&(term.clone(), *level)).is_ok() {
                continue;
            }
            match self.postings.get_mut(term) {
                Some(posting) => posting.insert(*level, el),
                None => drop(self.postings.insert(term.clone(), Posting::One(*level, el))),
            }
        }
        self.elements = self.elements + usize::from(!new.is_empty()) - usize::from(!old.is_empty());
    }

    /// Returns the number of distinct words.
    pub fn words(&self) -> usize {
        self.postings.len()
    }
}

/// Collected words, from which an index is built at once.
#[derive(Default)]
pub struct Gathered {
    stands: HashMap<ArcStr, Vec<(u8, ElementId)>>,
    elements: usize,
}

impl Gathered {
    /// Adds an element.
    pub fn take(&mut self, el: ElementId, words: Vec<(ArcStr, u8)>) {
        self.elements += usize::from(!words.is_empty());
        for (word, level) in words {
            self.stands.entry(word).or_default().push((level, el));
        }
    }

    /// Builds the index of all added elements.
    pub fn finish(self) -> Index {
        let mut stands: Vec<(ArcStr, Vec<(u8, ElementId)>)> = self.stands.into_iter().collect();
        stands.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let postings = stands.into_iter().map(|(word, stands)| (word, Posting::of(stands))).collect();
        Index { postings, elements: self.elements }
    }
}

impl Words for Index {
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>> {
        self.postings.get(word).map(|posting| Box::new(posting) as Box<dyn Postings>)
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.postings.range(ArcStr::from(first)..).all(|(word, _)| see(word));
    }

    fn elements(&self) -> usize {
        self.elements
    }
}

/// Returns the words of an element in order, each with its level: all words of a concept, and those of a link with
/// contents of its own.
pub fn words_of(look: ElementRef<'_>) -> Vec<(ArcStr, u8)> {
    if matches!(look, ElementRef::Link(link) if link.attributes.is_empty()) {
        return Vec::new();
    }
    let mut weights: BTreeMap<ArcStr, f32> = BTreeMap::new();
    let (mut length, mut count) = (0.0, 0);
    let mut add = |text: &str, field: f32| {
        each_term(text, true, &mut |term, share| {
            if count == TERMS_MAX {
                return;
            }
            count += 1;
            length += field * share;
            match weights.get_mut(term) {
                Some(weight) => *weight += field * share,
                None => drop(weights.insert(term.into(), field * share)),
            }
        });
    };
    if let ElementRef::Concept(concept) = look {
        add(&concept.name, NAME);
    }
    let privacy = Privacy::of(look);
    let is_shown = |key: &Sym| privacy.is_none_or(|privacy| !privacy.hides(key.as_str()));
    for (key, value) in look.attributes().pairs().iter().filter(|(key, _)| is_shown(key)) {
        let field = match key.as_str() {
            "aliases" => ALIAS,
            "context" => CONTEXT,
            _ => OTHER,
        };
        match value {
            Datum::Str(text) => add(text, field),
            Datum::Json(json) => match &**json {
                Value::Array(items) => items.iter().filter_map(Value::as_str).for_each(|text| add(text, field)),
                // Tags are alternative names of the element.
                Value::Object(labels) if key.as_str() == "tags" => {
                    labels.values().flat_map(texts_of).for_each(|text| add(text, field));
                }
                _ => {}
            },
            _ => {}
        }
    }
    let best = K1 + 1.0;
    weights
        .into_iter()
        .map(|(term, weight)| {
            let worth = weight * best / (weight + K1 * (1.0 - B + B * length / LENGTH));
            (term, (worth / best * LEVELS).ceil().clamp(1.0, LEVELS) as u8)
        })
        .collect()
}
/// Returns a text, or the texts in a list.
fn texts_of(value: &Value) -> impl Iterator<Item = &str> {
    let listed = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    value.as_str().into_iter().chain(listed)
}
