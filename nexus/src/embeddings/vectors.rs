//! The vectors of one mind in memory, and the search for similar ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use imbl::HashMap;
use kip::exec::Semantic;
use kip::graph::ElementId;
use simsimd::SpatialSimilarity;

/// The number of vectors per chunk. A chunk is copied when one of its vectors changes during a read.
const CHUNK: usize = 512;
/// The similarity below which two texts do not match: a sentence embedder finds some similarity between any two.
const FLOOR: f32 = 0.25;

/// A unit vector, with each component quantized to a byte.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vector {
    /// The value of one quantization step.
    scale: f32,
    bytes: Box<[i8]>,
}

impl Vector {
    /// Returns the vector of the numbers; `None` if they have no direction.
    pub(super) fn of(numbers: &[f32]) -> Option<Self> {
        let length = numbers.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
        let most = numbers.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        if !(length.is_finite() && length > 0.0) {
            return None;
        }
        let bytes = numbers.iter().map(|number| (number / most * 127.0).round() as i8).collect();
        Some(Self { scale: (f64::from(most) / length / 127.0) as f32, bytes })
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        self.scale.to_le_bytes().into_iter().chain(self.bytes.iter().map(|byte| byte.cast_unsigned())).collect()
    }

    pub(super) fn unpack(bytes: &[u8]) -> Option<Self> {
        let (scale, bytes) = bytes.split_first_chunk::<4>()?;
        Some(Self { scale: f32::from_le_bytes(*scale), bytes: bytes.iter().map(|byte| byte.cast_signed()).collect() })
    }

    /// Returns the cosine similarity of two vectors; 0 for vectors of different lengths.
    fn likeness(&self, (scale, bytes): Packed<'_>) -> f32 {
        // The products of bytes are whole numbers, so the result is exact.
        i8::dot(&self.bytes, bytes).unwrap_or_default() as f32 * self.scale * scale
    }
}

/// A stored vector: the value of one quantization step, and the bytes.
type Packed<'v> = (f32, &'v [i8]);

/// Vectors of one length, and free places. The bytes are contiguous in memory, so that a scan runs at memory speed.
#[derive(Clone, Default)]
struct Chunk {
    els: Vec<Option<ElementId>>,
    scales: Vec<f32>,
    bytes: Vec<i8>,
}

impl Chunk {
    fn at(&self, place: usize, width: usize) -> Option<(ElementId, Packed<'_>)> {
        let el = (*self.els.get(place)?)?;
        Some((el, (self.scales[place], self.bytes.get(place * width..(place + 1) * width)?)))
    }

    fn put(&mut self, place: usize, el: ElementId, vector: &Vector, width: usize) {
        if place == self.els.len() {
            self.els.push(None);
            self.scales.push(0.0);
            self.bytes.resize((place + 1) * width, 0);
        }
        (self.els[place], self.scales[place]) = (Some(el), vector.scale);
        self.bytes[place * width..(place + 1) * width].copy_from_slice(&vector.bytes);
    }
}

/// The vectors of a mind, all with the length of the first one. A clone is a snapshot of a few pointers.
#[derive(Clone, Default)]
pub(crate) struct Table {
    width: usize,
    places: HashMap<ElementId, usize>,
    chunks: Vec<Arc<Chunk>>,
    free: Vec<usize>,
    /// The sum of the vectors.
    sum: Arc<Vec<f32>>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn get(&self, el: ElementId) -> Option<Packed<'_>> {
        let place = *self.places.get(&el)?;
        let (_, vector) = self.chunks.get(place / CHUNK)?.at(place % CHUNK, self.width)?;
        Some(vector)
    }

    /// Stores a vector. A vector of another length is dropped, because it matches none of the others.
    pub(super) fn put(&mut self, el: ElementId, vector: &Vector) {
        if self.places.is_empty() && self.width != vector.bytes.len() {
            *self = Self { width: vector.bytes.len(), sum: vec![0.0; vector.bytes.len()].into(), ..Self::default() };
        }
        if vector.bytes.len() != self.width {
            return self.remove(el);
        }
        self.remove(el);
        add(Arc::make_mut(&mut self.sum).as_mut_slice(), (vector.scale, &vector.bytes), 1.0);
        let next = self.places.len() + self.free.len();
        let place = self.places.get(&el).copied().or_else(|| self.free.pop()).unwrap_or(next);
        self.places.insert(el, place);
        if place / CHUNK == self.chunks.len() {
            self.chunks.push(Arc::default());
        }
        Arc::make_mut(&mut self.chunks[place / CHUNK]).put(place % CHUNK, el, vector, self.width);
    }

    pub(super) fn remove(&mut self, el: ElementId) {
        if let Some(place) = self.places.remove(&el) {
            let chunk = Arc::make_mut(&mut self.chunks[place / CHUNK]);
            if let Some((_, vector)) = chunk.at(place % CHUNK, self.width) {
                add(Arc::make_mut(&mut self.sum).as_mut_slice(), vector, -1.0);
            }
            chunk.els[place % CHUNK] = None;
            self.free.push(place);
        }
    }

    fn each(&self) -> impl Iterator<Item = (ElementId, Packed<'_>)> {
        self.chunks.iter().flat_map(|chunk| (0..chunk.els.len()).filter_map(|place| chunk.at(place, self.width)))
    }
}

/// Adds `factor` times a vector to a sum.
fn add(sum: &mut [f32], (scale, bytes): Packed<'_>, factor: f32) {
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum += factor * scale * f32::from(*byte);
    }
}

/// The number of vectors from which on their mean says what all of them share, and not what the few say.
const CENTRED_FROM: usize = 64;

/// A search term, compared with the vectors of a table after the mean of the table is taken from both. A sentence
/// embedder puts all sentences of one person into one corner; without the mean, their differences count.
struct Centred<'t> {
    term: &'t Vector,
    /// The term without the mean, the mean, and the length of the mean; `None` for a small table.
    mean: Option<(Vector, Vector, f32)>,
    /// The similarity of the term without the mean to the mean, times the length of the mean.
    shift: f32,
}

impl<'t> Centred<'t> {
    fn of(term: &'t Vector, table: &Table) -> Self {
        let whole = Self { term, mean: None, shift: 0.0 };
        if table.len() < CENTRED_FROM || term.bytes.len() != table.width {
            return whole;
        }
        let mean: Vec<f32> = table.sum.iter().map(|sum| sum / table.len() as f32).collect();
        let length = mean.iter().map(|part| part * part).sum::<f32>().sqrt();
        let own = term.bytes.iter().map(|byte| term.scale * f32::from(*byte));
        let without: Vec<f32> = own.zip(&mean).map(|(own, mean)| own - mean).collect();
        let (Some(without), Some(mean)) = (Vector::of(&without), Vector::of(&mean)) else { return whole };
        let shift = without.likeness((mean.scale, &mean.bytes)) * length;
        Self { term, mean: Some((without, mean, length)), shift }
    }

    fn likeness(&self, vector: Packed<'_>) -> f32 {
        let Some((without, mean, length)) = &self.mean else { return self.term.likeness(vector) };
        let along = mean.likeness(vector) * length;
        // The length of the vector without the mean.
        let left = (1.0 - 2.0 * along + length * length).max(0.01).sqrt();
        (without.likeness(vector) - self.shift) / left
    }
}

/// The vectors of a mind, and that of a search term by the same embedder.
pub(crate) struct Compared {
    pub(super) term: Vector,
    pub(super) table: Table,
}

/// The vectors for the search by one term, in a mind and in the commons.
pub(crate) struct Near {
    pub(super) own: Compared,
    /// The vectors of the commons, whose elements have foreign ids here.
    pub(super) commons: Option<Compared>,
    /// `true` if the embedder of the mind knows the script of the term.
    pub(crate) is_read: bool,
}

impl Semantic for Near {
    fn nearest(
        &self,
        _: &str,
        links: bool,
        limit: usize,
        least: Option<f64>,
        fits: &mut dyn FnMut(ElementId) -> bool,
    ) -> Vec<(ElementId, f64)> {
        // The top of the heap is the lowest of the best; similarities are in millionths, so that they can be ordered.
        let mut best: BinaryHeap<Reverse<(u32, Reverse<ElementId>)>> = BinaryHeap::new();
        let least = least.map_or(FLOOR, |least| least as f32);
        let own = Centred::of(&self.own.term, &self.own.table);
        let own = self.own.table.each().map(|(el, vector)| (el, own.likeness(vector)));
        let commons = self.commons.as_ref().map(|commons| (Centred::of(&commons.term, &commons.table), &commons.table));
        let commons = commons
            .iter()
            .flat_map(|(centred, table)| table.each().map(|(el, vector)| (el.abroad(), centred.likeness(vector))));
        for (el, likeness) in own.chain(commons).filter(|(el, _)| el.is_link() == links) {
            if likeness < least {
                continue;
            }
            let entry = Reverse(((likeness.min(1.0) * 1e6) as u32, Reverse(el)));
            if best.len() < limit || best.peek().is_some_and(|least| entry < *least) {
                if fits(el) {
                    best.push(entry);
                }
                if best.len() > limit {
                    best.pop();
                }
            }
        }
        best.into_sorted_vec()
            .into_iter()
            .map(|Reverse((likeness, Reverse(el)))| (el, f64::from(likeness) / 1e6))
            .collect()
    }

    fn likeness(&self, _: &str, el: ElementId) -> Option<f64> {
        let Compared { term, table } = if el.is_abroad() { self.commons.as_ref()? } else { &self.own };
        let vector = table.get(if el.is_abroad() { el.home() } else { el })?;
        Some(f64::from(Centred::of(term, table).likeness(vector)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Vector {
        fn packed(&self) -> Packed<'_> {
            (self.scale, &self.bytes)
        }
    }

    fn vector(seed: u64) -> Vector {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        Vector::of(&(0..64).map(|_| next()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_vector_in_bytes_is_near_the_one_in_numbers() {
        let numbers = |seed: u32| -> Vec<f32> { (0..384).map(|place| ((seed * 7 + place) as f32).sin()).collect() };
        let exact = |one: &[f32], other: &[f32]| {
            let dot = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
            dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
        };
        for seed in 0..50 {
            let (one, other) = (numbers(seed), numbers(seed + 1));
            let (packed, other_packed) = (Vector::of(&one).unwrap(), Vector::of(&other).unwrap());
            let near = packed.likeness(other_packed.packed());
            assert!((near - exact(&one, &other)).abs() < 0.01, "{near}");
            assert_eq!(Vector::unpack(&packed.pack()), Some(packed));
        }
        assert_eq!([&[0.0_f32; 4][..], &[f32::NAN], &[]].map(Vector::of), [None, None, None]);
        let far = Vector::of(&[1e38, 1e38]).unwrap();
        assert!((far.likeness(Vector::of(&[1.0, 1.0]).unwrap().packed()) - 1.0).abs() < 0.01);
        assert_eq!(far.likeness(Vector::of(&[1.0; 3]).unwrap().packed()), 0.0);
    }

    #[test]
    fn a_table_holds_what_was_put_and_not_removed() {
        let mut table = Table::default();
        for no in 1..2_000 {
            table.put(ElementId::concept(no), &vector(no.into()));
        }
        let before = table.clone();
        for no in (1..2_000).step_by(3) {
            table.remove(ElementId::concept(no));
        }
        (5_000..5_100).for_each(|no| table.put(ElementId::link(no), &vector(no.into())));
        table.put(ElementId::concept(2), &vector(9));
        assert_eq!((before.len(), before.each().count()), (1_999, 1_999), "a snapshot stays as it was");
        assert_eq!((table.len(), table.each().count()), (1_333 + 100 - 1 + 1 - 1, 1_333 + 100 - 1));
        let compared = |table| Compared { term: vector(9), table };
        let near = Near { own: compared(table), commons: Some(compared(before)), is_read: true };
        let found = near.nearest("", false, 3, None, &mut |el| el != ElementId::concept(9));
        assert_eq!(found[0], (ElementId::concept(2), found[0].1));
        assert_eq!(found[1].0, ElementId::concept(9).abroad());
        assert!(found[0].1 > 0.98 && found.len() == 3 && found[1].1 >= found[2].1);
        assert!(near.nearest("", true, 10, None, &mut |_| true).iter().all(|(el, _)| el.is_link()));
    }

    #[test]
    fn a_vector_of_another_length_is_not_kept_beside_the_others() {
        let (mut table, odd) = (Table::default(), Vector::of(&[1.0; 3]).unwrap());
        table.put(ElementId::concept(1), &odd);
        table.remove(ElementId::concept(1));
        for no in [1, 3] {
            table.put(ElementId::concept(no), &vector(1));
        }
        table.put(ElementId::concept(1), &odd);
        table.put(ElementId::concept(2), &odd);
        assert_eq!((table.len(), table.get(ElementId::concept(1)), table.get(ElementId::concept(2))), (1, None, None));
        table.remove(ElementId::concept(3));
        table.put(ElementId::concept(2), &odd);
        assert_eq!(table.get(ElementId::concept(2)), Some(odd.packed()));
    }
}
