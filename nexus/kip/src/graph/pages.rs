//! A persistent array: clones share pages, and a writer copies only the pages that it changes. Numbers are never
//! reused, so a page is freed when its last element is removed.

use std::sync::Arc;

const LEAF: usize = 32;
const FAN: usize = 64;

/// A persistent array; see the module documentation.
pub(super) struct Pages<T> {
    branches: Arc<Vec<Option<Arc<Branch<T>>>>>,
    len: usize,
}

#[derive(Clone)]
struct Branch<T> {
    leaves: [Option<Arc<Leaf<T>>>; FAN],
    used: usize,
}

#[derive(Clone)]
struct Leaf<T> {
    slots: [Option<T>; LEAF],
    used: usize,
}

impl<T> Clone for Pages<T> {
    fn clone(&self) -> Self {
        Self { branches: self.branches.clone(), len: self.len }
    }
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { branches: Arc::default(), len: 0 }
    }
}

fn split(no: u32) -> (usize, usize, usize) {
    let no = no as usize;
    (no / (LEAF * FAN), no / LEAF % FAN, no % LEAF)
}

impl<T: Clone> Pages<T> {
    /// Returns the element under `no`.
    pub(super) fn get(&self, no: u32) -> Option<&T> {
        let (branch, leaf, slot) = split(no);
        self.branches.get(branch)?.as_ref()?.leaves[leaf].as_ref()?.slots[slot].as_ref()
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot of `no`, and creates it if it is missing. A slot with `None` has no element.
    fn slot(&mut self, no: u32) -> (&mut Leaf<T>, usize) {
        let (branch, leaf, slot) = split(no);
        let branches = Arc::make_mut(&mut self.branches);
        if branches.len() <= branch {
            branches.resize_with(branch + 1, || None);
        }
        let fresh = || Arc::new(Branch { leaves: std::array::from_fn(|_| None), used: 0 });
        let branch = Arc::make_mut(branches[branch].get_or_insert_with(fresh));
        if branch.leaves[leaf].is_none() {
            branch.leaves[leaf] = Some(Arc::new(Leaf { slots: std::array::from_fn(|_| None), used: 0 }));
            branch.used += 1;
        }
        match &mut branch.leaves[leaf] {
            Some(leaf) => (Arc::make_mut(leaf), slot),
            None => unreachable!("the leaf was made above"),
        }
    }

    /// Stores an element; returns the one that it replaces.
    pub(super) fn put(&mut self, no: u32, element: T) -> Option<T> {
        let (leaf, slot) = self.slot(no);
        let old = leaf.slots[slot].replace(element);
        if old.is_none() {
            leaf.used += 1;
            self.len += 1;
        }
        old
    }

    /// Returns the element under `no` for modification, and creates it if it is missing.
    pub(super) fn entry(&mut self, no: u32) -> &mut T
    where
        T: Default,
    {
        if self.get(no).is_none() {
            self.put(no, T::default());
        }
        let (leaf, slot) = self.slot(no);
        leaf.slots[slot].get_or_insert_with(T::default)
    }

    /// Removes an element, and its page if it was the last one in it.
    pub(super) fn remove(&mut self, no: u32) -> Option<T> {
        self.get(no)?;
        let (leaf, slot) = self.slot(no);
        let old = leaf.slots[slot].take();
        leaf.used -= 1;
        let empty = leaf.used == 0;
        self.len -= 1;
        if empty {
            let (branch, leaf, _) = split(no);
            let branches = Arc::make_mut(&mut self.branches);
            if let Some(shared) = &mut branches[branch] {
                let inner = Arc::make_mut(shared);
                inner.leaves[leaf] = None;
                inner.used -= 1;
                if inner.used == 0 {
                    branches[branch] = None;
                }
            }
        }
        old
    }

    /// Returns every element with a number greater than `after`, in order, with its number.
    pub(super) fn after(&self, after: u32) -> impl Iterator<Item = (u32, &T)> {
        let (first, ..) = split(after);
        self.branches.iter().enumerate().skip(first).filter_map(|(at, branch)| Some((at, branch.as_ref()?))).flat_map(
            move |(at, branch)| {
                branch.leaves.iter().enumerate().filter_map(|(leaf_at, leaf)| Some((leaf_at, leaf.as_ref()?))).flat_map(
                    move |(leaf_at, leaf)| {
                        leaf.slots.iter().enumerate().filter_map(move |(slot, element)| {
                            let no = ((at * FAN + leaf_at) * LEAF + slot) as u32;
                            Some((no, element.as_ref()?)).filter(|_| no > after)
                        })
                    },
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_the_original_changes() {
        let mut pages = Pages::default();
        for no in [1, 31, 32, 5000, 2_000_000] {
            assert_eq!(pages.put(no, no), None);
        }
        let before = pages.clone();
        pages.put(32, 0);
        pages.remove(5000);
        assert_eq!((before.get(32), pages.get(32)), (Some(&32), Some(&0)));
        assert_eq!((before.get(5000), pages.get(5000)), (Some(&5000), None));
        assert_eq!(pages.after(31).map(|(no, _)| no).collect::<Vec<_>>(), [32, 2_000_000]);
        assert_eq!((before.len(), pages.len()), (5, 4));
    }
}
