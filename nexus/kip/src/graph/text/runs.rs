//! A sorted set of elements in contiguous runs, because scanning elements is the most frequent operation of a search.
//! Clones share the runs, and a writer copies only the run that it changes.

use std::sync::Arc;

use super::super::ElementId;

/// The maximum number of elements per run.
const RUN_MAX: usize = 512;

/// A sorted set of elements; see the module documentation. No run is empty.
#[derive(Clone, Default)]
pub(super) struct Runs(Arc<Vec<Arc<Vec<ElementId>>>>);

impl Runs {
    /// Returns the set of sorted elements.
    pub(super) fn of(els: &[ElementId]) -> Self {
        Self(Arc::new(els.chunks(RUN_MAX).map(|run| Arc::new(run.to_vec())).collect()))
    }

    /// Returns the index of the run that holds an element, or would hold it.
    fn place(&self, el: ElementId) -> usize {
        self.0.partition_point(|run| run.last().is_some_and(|last| *last < el))
    }

    /// Returns `true` if an element is in the set.
    pub(super) fn contains(&self, el: ElementId) -> bool {
        self.0.get(self.place(el)).is_some_and(|run| run.binary_search(&el).is_ok())
    }

    /// Adds an element; returns `true` if it is new.
    pub(super) fn insert(&mut self, el: ElementId) -> bool {
        let place = self.place(el);
        let runs = Arc::make_mut(&mut self.0);
        // New elements usually come last. A full run then stays full, and a new run begins.
        let place = match runs.last() {
            Some(last) if place == runs.len() && last.len() < RUN_MAX => place - 1,
            _ if place == runs.len() => {
                runs.push(Arc::new(vec![el]));
                return true;
            }
            _ => place,
        };
        let run = Arc::make_mut(&mut runs[place]);
        let Err(at) = run.binary_search(&el) else { return false };
        run.insert(at, el);
        if run.len() > RUN_MAX {
            let rest = run.split_off(RUN_MAX / 2);
            runs.insert(place + 1, Arc::new(rest));
        }
        true
    }

    /// Removes an element; returns `true` if it was in the set.
    pub(super) fn remove(&mut self, el: ElementId) -> bool {
        let place = self.place(el);
        let Some(Ok(at)) = self.0.get(place).map(|run| run.binary_search(&el)) else { return false };
        let runs = Arc::make_mut(&mut self.0);
        let run = Arc::make_mut(&mut runs[place]);
        run.remove(at);
        if run.is_empty() {
            runs.remove(place);
        }
        true
    }

    /// Returns `true` if the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all elements in order, one run at a time.
    pub(super) fn each(&self) -> impl Iterator<Item = &[ElementId]> {
        self.0.iter().map(|run| run.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn runs_are_a_set_in_order() {
        let (mut runs, mut set) =
            (Runs::of(&(0..2_000).map(ElementId).collect::<Vec<_>>()), (0..2_000).map(ElementId).collect());
        let mut state = 7_u64;
        for n in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let el = ElementId(if n % 4 == 0 { 4_000 + n } else { (state >> 33) as u32 % 4_000 });
            let set: &mut BTreeSet<ElementId> = &mut set;
            if n % 3 == 0 {
                assert_eq!(runs.remove(el), set.remove(&el));
            } else {
                assert_eq!(runs.insert(el), set.insert(el));
            }
            assert_eq!(runs.contains(el), set.contains(&el));
        }
        assert!(
            runs.each().flatten().eq(set.iter()) && runs.0.iter().all(|run| !run.is_empty() && run.len() <= RUN_MAX)
        );
        let before = runs.clone();
        set.iter().for_each(|el| assert!(runs.remove(*el)));
        assert!(
            runs.is_empty()
                && !runs.contains(ElementId(3))
                && runs.insert(ElementId(3))
                && before.each().flatten().count() == set.len()
        );
    }
}
