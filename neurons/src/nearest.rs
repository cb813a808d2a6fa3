//! The order of texts by how near they are to another one, in words and, with an embedder, in meaning: of many tools a model sees
//! the nearest to its task.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use store::{Hash, Origin, Store};

use crate::NeuronError;
use crate::kinds::router::likeness;
use crate::llm::paid::{self, Payer};
use crate::llm::wire::TEXTS_MAX;
use crate::llm::{Class, Models};

/// The maximum number of vectors that are kept in memory.
const VECTORS_MAX: usize = 4_096;
/// The maximum length of a text that is embedded, in characters.
const TEXT_CHARS: usize = 600;
/// The weight of words beside meaning.
const WORDS: f32 = 0.35;
/// The words that say nothing of a task.
const PLAIN: [&str; 24] = [
    "the", "and", "for", "you", "your", "that", "this", "with", "from", "what", "when", "where", "which", "how", "can",
    "could", "please", "would", "will", "are", "was", "has", "have", "need",
];

/// The vectors of texts that rarely change.
#[derive(Default)]
struct Vectors(Mutex<HashMap<Hash, Arc<[f32]>>>);

impl Vectors {
    fn get(&self, text: &str) -> Option<Arc<[f32]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&Hash::of(text.as_bytes())).cloned()
    }

    fn keep(&self, text: &str, vector: Arc<[f32]>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= VECTORS_MAX {
            kept.clear();
        }
        kept.insert(Hash::of(text.as_bytes()), vector);
    }
}

/// Returns the words of a text that tell of what it speaks, without the endings of English.
fn telling(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    let words = words.filter(|word| word.chars().count() > 2 && !PLAIN.contains(&word.as_str()));
    words
        .map(|word| {
            let stem = ["ing", "ed", "es", "s"].iter().find_map(|end| word.strip_suffix(end));
            stem.filter(|stem| stem.len() > 3).map_or(word.clone(), str::to_owned)
        })
        .collect()
}

/// Returns the share of the telling words of a text that others have.
fn shares(text: &str, others: &[String]) -> Vec<f32> {
    let own = telling(text);
    let share = |other: &String| {
        let common = telling(other).intersection(&own).count();
        common as f32 / own.len().max(1) as f32
    };
    others.iter().map(share).collect()
}

/// The embedder that compares texts, with the vectors that it keeps.
pub(crate) struct Nearest {
    store: Store,
    models: Models,
    vectors: Vectors,
}

impl Nearest {
    /// Creates a comparison without vectors.
    pub(crate) fn new(store: Store, models: Models) -> Self {
        Self { store, models, vectors: Vectors::default() }
    }

    /// Returns the places of texts, the nearest to `text` first: see [`crate::Neurons::nearest`].
    pub(crate) async fn order(&self, origin: &Origin, account: &Arc<str>, text: &str, texts: &[String]) -> Vec<usize> {
        let mut scores = shares(text, texts);
        match self.meanings(origin, account, text, texts).await {
            Ok(Some(meanings)) => {
                scores.iter_mut().zip(meanings).for_each(|(score, meaning)| *score = WORDS * *score + meaning);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "words alone say which tools are near"),
        }
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
        order
    }

    /// Returns the similarity of meaning of texts to another one; `None` without an embedder.
    async fn meanings(
        &self,
        origin: &Origin,
        account: &Arc<str>,
        text: &str,
        texts: &[String],
    ) -> Result<Option<Vec<f32>>, NeuronError> {
        let Ok(embedder) = self.models.embedder() else { return Ok(None) };
        let cut = |text: &str| text.chars().take(TEXT_CHARS).collect::<String>();
        let (own, others): (String, Vec<String>) = (cut(text), texts.iter().map(|text| cut(text)).collect());
        let mut known: HashMap<&str, Arc<[f32]>> = HashMap::new();
        known.extend(others.iter().filter_map(|text| Some((text.as_str(), self.vectors.get(text)?))));
        let missing: Vec<&String> = others.iter().filter(|text| !known.contains_key(text.as_str())).collect();
        let wanted: Vec<&String> = std::iter::once(&own).chain(missing).collect();
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(wanted.len());
        for some in wanted.chunks(TEXTS_MAX) {
            let payer = Payer { store: &self.store, origin, account, class: Class::Answer };
            vectors
                .extend(paid::embed(payer, embedder, some.iter().map(|text| (*text).clone()).collect()).await?.vectors);
        }
        let mut vectors = vectors.into_iter();
        let Some(near_to) = vectors.next() else { return Ok(None) };
        for (text, vector) in wanted.into_iter().skip(1).zip(vectors) {
            let vector: Arc<[f32]> = vector.into();
            self.vectors.keep(text, vector.clone());
            known.insert(text, vector);
        }
        let near = |text: &String| known.get(text.as_str()).map_or(0.0, |vector| likeness(&near_to, vector));
        Ok(Some(others.iter().map(near).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_without_their_endings() {
        let texts =
            ["book(place, nights)! Books a place to stay.", "trains(from, to) Lists trains.", "note Writes a note."];
        let scores = shares("Please list the train connections", &texts.map(str::to_owned));
        assert!(scores[1] > scores[0] && scores[1] > scores[2], "{scores:?}");
        assert_eq!(shares("", &texts.map(str::to_owned)), [0.0; 3]);
    }
}
