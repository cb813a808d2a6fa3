//! The scores of elements while the words of a query are processed.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::super::ElementId;
use super::rank::Hit;

/// The number of elements per page.
const PAGE: usize = 1 << 10;
/// The number of elements that one comparison skips if none of them has a sufficient score.
const GLANCE: usize = 32;
/// The number of high bits in an element number that determine its sort. Elements of one sort have adjacent numbers.
const SORT_BITS: u32 = 2;

/// Scores by element; see the module documentation. The score of an element that was not found is 0.
#[derive(Default)]
pub(super) struct Scores {
    pages: Vec<Page>,
    /// The page index plus one, by sort and position; 0 means that there is no page.
    places: [Vec<u32>; 1 << SORT_BITS],
    /// The index of the most recently used page.
    last: usize,
    len: usize,
}

struct Page {
    /// The number of the first element on the page.
    first: u32,
    scores: Box<[f32; PAGE]>,
}

/// Returns the number of scores greater than `bound`. Branch-free, so that several scores are compared at once.
fn above(scores: &[f32], bound: f32) -> usize {
    scores.iter().map(|score| u32::from(*score > bound)).sum::<u32>() as usize
}

impl Scores {
    /// Returns the number of elements with a score.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds `more` to the scores of sorted elements. With `lets_in` false, only elements that have a score already
    /// count.
    pub(super) fn add(&mut self, els: &[ElementId], more: f32, lets_in: bool) {
        let page_of = |el: &ElementId| el.0 / PAGE as u32;
        for together in els.chunk_by(|one, next| page_of(one) == page_of(next)) {
            let Some(place) = self.place(page_of(&together[0]) * PAGE as u32, lets_in) else { continue };
            let scores = &mut self.pages[place].scores;
            for el in together {
                let score = &mut scores[el.0 as usize % PAGE];
                let fresh = *score == 0.0;
                if lets_in || !fresh {
                    *score += more;
                    self.len += usize::from(fresh);
                }
            }
        }
    }

    /// Raises the score of an element to at least `least`.
    pub(super) fn raise(&mut self, el: ElementId, least: f32) {
        let Some(score) = self.slot(el, least > 0.0) else { return };
        let fresh = *score == 0.0 && least > 0.0;
        *score = score.max(least);
        self.len += usize::from(fresh);
    }

    /// Returns the score of an element.
    pub(super) fn get(&mut self, el: ElementId) -> f32 {
        self.slot(el, false).map_or(0.0, |score| *score)
    }

    #[inline]
    fn slot(&mut self, el: ElementId, make: bool) -> Option<&mut f32> {
        let (first, at) = (el.0 - el.0 % PAGE as u32, el.0 as usize % PAGE);
        if self.pages.get(self.last).is_none_or(|page| page.first != first) {
            self.last = self.place(first, make)?;
        }
        Some(&mut self.pages[self.last].scores[at])
    }

    fn place(&mut self, first: u32, make: bool) -> Option<usize> {
        let sort = (first >> (u32::BITS - SORT_BITS)) as usize;
        let at = (first << SORT_BITS >> SORT_BITS) as usize / PAGE;
        let places = &mut self.places[sort];
        match places.get(at) {
            Some(place) if *place > 0 => Some(*place as usize - 1),
            _ if !make => None,
            _ => {
                if places.len() <= at {
                    places.resize(at + 1, 0);
                }
                self.pages.push(Page { first, scores: Box::new([0.0; PAGE]) });
                places[at] = self.pages.len() as u32;
                Some(self.pages.len() - 1)
            }
        }
    }

    /// Replaces every score by the result of `give`.
    pub(super) fn change(&mut self, give: impl Fn(ElementId, f32) -> f32) {
        for page in &mut self.pages {
            for (glance, scores) in page.scores.chunks_exact_mut(GLANCE).enumerate() {
                if above(scores, 0.0) == 0 {
                    continue;
                }
                for (at, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
                    *score = give(ElementId(page.first + (glance * GLANCE + at) as u32), *score);
                }
            }
        }
    }

    /// Removes the elements with a score below `least`.
    pub(super) fn drop_below(&mut self, least: f32) {
        self.len = 0;
        for page in &mut self.pages {
            page.scores.iter_mut().for_each(|score| *score = if *score >= least { *score } else { 0.0 });
            self.len += above(&*page.scores, 0.0);
        }
    }

    /// Returns the number of scores greater than `bound`.
    fn count_above(&self, bound: f32) -> usize {
        self.pages.iter().map(|page| above(&*page.scores, bound)).sum()
    }

    /// Returns the scores in groups for one comparison, each with the number of its first element.
    fn glances(&self) -> impl Iterator<Item = (u32, &[f32])> {
        self.pages.iter().flat_map(|page| (page.first..).step_by(GLANCE).zip(page.scores.chunks_exact(GLANCE)))
    }

    /// Returns the elements with scores greater than `bound`, in no particular order.
    pub(super) fn above(&self, bound: f32) -> impl Iterator<Item = Hit> {
        self.glances().filter(move |(_, scores)| above(scores, bound) > 0).flat_map(move |(first, scores)| {
            let found = (first..).zip(scores).filter(move |(_, score)| **score > bound);
            found.map(|(no, score)| (ElementId(no), *score))
        })
    }

    /// Returns up to `limit` elements that score more than `bound` and that `fits` accepts, best first. Calls `fits`
    /// only for elements that would be among them.
    pub(super) fn best(&self, limit: usize, bound: f32, fits: &mut dyn FnMut(ElementId) -> bool) -> Vec<Hit> {
        // The top of the heap is the lowest of the best scores.
        let mut best: BinaryHeap<Reverse<Ranked>> = BinaryHeap::new();
        let mut bound = bound;
        for (first, scores) in self.glances() {
            if above(scores, bound) == 0 {
                continue;
            }
            for (no, score) in (first..).zip(scores).filter(|(_, score)| **score > bound) {
                let ranked = Reverse(Ranked(*score, Reverse(ElementId(no))));
                let is_among = best.len() < limit || best.peek().is_some_and(|least| ranked < *least);
                if is_among && fits(ElementId(no)) {
                    best.push(ranked);
                    if best.len() > limit {
                        best.pop();
                    }
                }
            }
            if best.len() == limit {
                // An element with an equal score may be older and thus rank higher.
                bound = best.peek().map_or(bound, |Reverse(Ranked(least, _))| bound.max(least.next_down()));
            }
        }
        best.into_sorted_vec().into_iter().map(|Reverse(Ranked(score, Reverse(el)))| (el, score)).collect()
    }

    /// Returns the lowest score of the `limit` best elements that `fits` accepts, if all of them score more than
    /// `bound`.
    pub(super) fn least_of_the_best(
        &self,
        limit: usize,
        bound: f32,
        fits: &mut dyn FnMut(ElementId) -> bool,
    ) -> Option<f32> {
        if self.len < limit || self.count_above(bound) < limit {
            return None;
        }
        let best = self.best(limit, bound, fits);
        best.last().filter(|_| best.len() == limit).map(|(_, score)| *score)
    }
}

/// A score with its element. Of two equal scores, that of the older element ranks higher.
#[derive(PartialEq)]
struct Ranked(f32, Reverse<ElementId>);

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_every_sort_of_element_stand_apart() {
        let mut scores = Scores::default();
        let els = [
            ElementId::concept(1),
            ElementId::concept(70_000),
            ElementId::link(1),
            ElementId::concept(1).abroad(),
            ElementId::link(70_000).abroad(),
        ];
        for (no, el) in els.into_iter().enumerate() {
            scores.add(&[el], no as f32 + 1.0, true);
            scores.add(&[el], 0.5, false);
        }
        scores.add(&[ElementId::concept(2)], 9.0, false);
        scores.raise(ElementId::concept(1), 3.5);
        assert_eq!((scores.len(), scores.get(ElementId::concept(2)), scores.get(ElementId::concept(1))), (5, 0.0, 3.5));
        let order: Vec<ElementId> = scores.best(9, 0.0, &mut |_| true).into_iter().map(|(el, _)| el).collect();
        assert_eq!(order, [els[4], els[3], els[0], els[2], els[1]]);
        assert_eq!(scores.least_of_the_best(2, 4.0, &mut |_| true), Some(4.5));
        assert_eq!(scores.least_of_the_best(2, 4.0, &mut |el| el != els[4]), None);
        scores.drop_below(3.5);
        scores.change(|_, score| score + 1.0);
        assert_eq!((scores.len(), scores.get(els[1]), scores.get(els[2])), (4, 0.0, 4.5));
    }
}
