//! Opaque ids: the form of element numbers outside a graph.
//!
//! Elements are numbered in order of creation. If a number were shown, a reader who creates one element now and one
//! later could count the hidden elements created in between. An id is therefore the number behind a permutation with
//! a secret key per graph: seven consonants after `C:` or `P:`. Elements older than the key keep the number as their
//! id.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use super::ElementId;
use super::record::NUMBERS;

/// The letters of an id. They form no words, and none resembles a digit.
const LETTERS: &[u8; 20] = b"bcdfghjklmnpqrstvwxz";
/// The number of letters in an id; 20^7 is greater than [`NUMBERS`].
const LETTERS_COUNT: usize = 7;
/// The number of rounds of the Feistel network, which splits a number into two halves of [`HALF_BITS`].
const ROUNDS: u8 = 6;
const HALF_BITS: u32 = NUMBERS.trailing_zeros() / 2;
/// The prefix of the id of a commons element.
const COMMONS: &str = "commons/";

/// The id scheme of one graph's own elements: the key, and the first concept and the first link with an opaque id.
/// Without a key, ids are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Numbering {
    key: u128,
    from: (u32, u32),
}

/// The stored form of a numbering. It needs validation, because it may come from a foreign archive.
#[derive(Deserialize)]
struct Stored {
    key: u128,
    from: (u32, u32),
}

impl TryFrom<Stored> for Numbering {
    type Error = String;

    fn try_from(Stored { key, from }: Stored) -> Result<Self, String> {
        // If only a few numbers were hidden, converting one of them would take many steps.
        let is_well = |first: u32| (1..=NUMBERS / 2).contains(&first);
        let numbering = Self { key, from };
        if numbering.is_plain() || (is_well(from.0) && is_well(from.1)) {
            Ok(numbering)
        } else {
            Err(format!("ids cannot be hidden from {from:?} on: the bound is {}", NUMBERS / 2))
        }
    }
}

/// The id schemes of a graph: for its own elements and for those of the commons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    own: Numbering,
    commons: Numbering,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { key: 0, from: (NUMBERS, NUMBERS) }
    }
}

impl Numbering {
    /// Returns a numbering with opaque ids for concepts and links from the numbers `from` on; both are at least 1.
    pub fn keyed(key: u128, from: (u32, u32)) -> Self {
        Self { key, from: (from.0.max(1), from.1.max(1)) }
    }

    /// Returns `true` if all ids are numbers.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    fn first(&self, is_link: bool) -> u32 {
        if is_link { self.from.1 } else { self.from.0 }
    }

    /// Permutes a hidden number to another hidden number, or back.
    fn moved(&self, no: u32, is_link: bool, back: bool) -> u32 {
        let first = self.first(is_link);
        if no < first {
            return no;
        }
        let mut moved = self.permuted(no, is_link, back);
        // A result in the range of visible numbers is permuted again.
        while moved < first {
            moved = self.permuted(moved, is_link, back);
        }
        moved
    }

    fn permuted(&self, no: u32, is_link: bool, back: bool) -> u32 {
        const HALF: u32 = (1 << HALF_BITS) - 1;
        let (mut left, mut right) = (no >> HALF_BITS, no & HALF);
        for round in 0..ROUNDS {
            let round = if back { ROUNDS - 1 - round } else { round };
            let mut hash = SipHasher24::new_with_key(&self.key.to_le_bytes());
            hash.write_u8(round << 1 | u8::from(is_link));
            if back {
                hash.write_u32(left);
                (left, right) = (right ^ (hash.finish() as u32 & HALF), left);
            } else {
                hash.write_u32(right);
                (left, right) = (right, left ^ (hash.finish() as u32 & HALF));
            }
        }
        left << HALF_BITS | right
    }
}

impl From<Numbering> for Ids {
    fn from(own: Numbering) -> Self {
        Self { own, commons: Numbering::default() }
    }
}

impl Ids {
    /// Returns these id schemes, with those of `others` in place of plain ones. A union of two graphs takes each
    /// scheme from the part that knows it.
    pub fn or(self, others: Self) -> Self {
        let known = |one: Numbering, other| if one.is_plain() { other } else { one };
        Self { own: known(self.own, others.own), commons: known(self.commons, others.commons) }
    }

    /// Returns the commons' own id scheme in the form for another graph.
    pub fn abroad(self) -> Self {
        Self { own: Numbering::default(), commons: self.own }
    }

    fn of(&self, el: ElementId) -> &Numbering {
        if el.is_abroad() { &self.commons } else { &self.own }
    }

    /// Returns the permuted number of an element for a cursor. It reveals no count.
    pub fn hide(&self, el: ElementId) -> u32 {
        self.moved(el, false)
    }

    /// Returns the element of a number from [`Ids::hide`].
    pub fn seek(&self, hidden: u32) -> ElementId {
        ElementId(self.moved(ElementId(hidden), true))
    }

    fn moved(&self, el: ElementId, back: bool) -> u32 {
        let no = el.home().no();
        el.0 & !(NUMBERS - 1) | self.of(el).moved(no, el.is_link(), back)
    }

    /// Returns the id of an element: `C:bcdfghj` for a concept, `P:bcdfghj` for a link. In another graph, the id of a
    /// commons element has the prefix `commons/`. An element older than the key has an id such as `C:7`.
    pub fn show(&self, el: ElementId) -> String {
        let (no, numbering) = (el.home().no(), self.of(el));
        let head = match (el.is_abroad(), el.is_link()) {
            (false, false) => "C:",
            (false, true) => "P:",
            (true, false) => "commons/C:",
            (true, true) => "commons/P:",
        };
        if no < numbering.first(el.is_link()) {
            return format!("{head}{no}");
        }
        let mut letters = [LETTERS[0]; LETTERS_COUNT];
        let mut rest = numbering.moved(no, el.is_link(), false) as usize;
        for letter in letters.iter_mut().rev() {
            *letter = LETTERS[rest % LETTERS.len()];
            rest /= LETTERS.len();
        }
        letters.iter().fold(head.to_owned(), |id, letter| id + char::from(*letter).encode_utf8(&mut [0; 4]))
    }

    /// Parses an id of [`Ids::show`], or the older form `P:…:treats`. The element need not exist.
    pub fn parse(&self, id: &str) -> Option<ElementId> {
        let (el, is_number) = read(id)?;
        let numbering = self.of(el);
        let no = el.home().no();
        let is_shown = no < numbering.first(el.is_link());
        // Each element has exactly one valid id.
        (is_number == is_shown).then(|| self.seek(el.0))
    }

    /// Returns `true` for a text in the form of an id, of any graph.
    pub fn is_id(text: &str) -> bool {
        read(text).is_some()
    }
}

/// Parses an id without its prefix. The flag is `true` for an id in digits.
fn read(id: &str) -> Option<(ElementId, bool)> {
    let (is_abroad, id) = id.strip_prefix(COMMONS).map_or((false, id), |rest| (true, rest));
    let (kind, rest) = id.split_once(':')?;
    let (written, predicate) = rest.split_once(':').map_or((rest, None), |(no, predicate)| (no, Some(predicate)));
    let digits = written.parse::<u32>().ok().filter(|no| *no > 0 && no.to_string() == written);
    let no = digits.or_else(|| letters(written)).filter(|no| *no < NUMBERS)?;
    let el = match (kind, predicate) {
        ("C", None) => ElementId::concept(no),
        ("P", _) => ElementId::link(no),
        _ => return None,
    };
    Some((if is_abroad { el.abroad() } else { el }, digits.is_some()))
}

fn letters(text: &str) -> Option<u32> {
    let fold = |no: u32, letter: u8| {
        let at = LETTERS.iter().position(|known| *known == letter)?;
        no.checked_mul(LETTERS.len() as u32)?.checked_add(at as u32)
    };
    (text.len() == LETTERS_COUNT).then(|| text.bytes().try_fold(0, fold)).flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keyed() -> Ids {
        Ids::from(Numbering::keyed(7, (1, 1))).or(Ids::from(Numbering::keyed(8, (40, 60))).abroad())
    }

    #[test]
    fn ids_read_back_and_nothing_else_is_one() {
        let plain = Ids::default();
        for id in ["C:7", "P:7", "commons/C:7", "commons/P:7"] {
            assert_eq!(plain.show(plain.parse(id).unwrap()), id);
        }
        assert_eq!(plain.parse("P:12:treats"), Some(ElementId::link(12)));
        for wrong in [
            "",
            "7",
            "C:",
            "C:0",
            "C:-1",
            "C:7:x",
            "C:07",
            "C:+7",
            "Q:7",
            "C:4294967295",
            "P: 7",
            "commons/commons/C:7",
            "C:1073741831",
            "C:bcdfgh",
            "C:bcdfghji",
            "C:bcdfgha",
            "C:BCDFGHJ",
            "C:zzzzzzz",
        ] {
            assert!(!Ids::is_id(wrong) && plain.parse(wrong).is_none() && keyed().parse(wrong).is_none(), "{wrong}");
        }
        assert!(Ids::is_id("C:bcdfghj") && plain.parse("C:bcdfghj").is_none(), "here ids are numbers");
    }

    #[test]
    fn a_key_hides_numbers_and_gives_each_element_one_id() {
        let ids = keyed();
        let mut seen = BTreeSet::new();
        for no in (1..3_000).chain(NUMBERS - 100..NUMBERS) {
            for el in [
                ElementId::concept(no),
                ElementId::link(no),
                ElementId::concept(no).abroad(),
                ElementId::link(no).abroad(),
            ] {
                let id = ids.show(el);
                assert_eq!((ids.parse(&id), ids.seek(ids.hide(el))), (Some(el), el), "{id}");
                assert!(Ids::is_id(&id) && seen.insert(id));
            }
        }
        // Older elements keep their numbers, and no other element has a number as its id.
        let old = ElementId::concept(39).abroad();
        assert_eq!((ids.show(old), ids.hide(old)), ("commons/C:39".into(), old.0));
        assert!(["C:39", "P:39", "commons/C:40", "commons/P:60"].iter().all(|id| ids.parse(id).is_none()));
    }

    #[test]
    fn what_is_shown_does_not_follow_the_order_of_creation() {
        let ids = keyed();
        let shown: Vec<u32> = (1..=2_000).map(|no| ids.hide(ElementId::concept(no))).collect();
        let rising = shown.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((900..1_100).contains(&rising), "{rising} of 1999 rise");
        let near = shown.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < NUMBERS / 1_000).count();
        assert!(near < 20, "{near} of 1999 lie close");
        assert_ne!(ids.show(ElementId::concept(1))[2..], ids.show(ElementId::link(1))[2..]);
        assert_ne!(ids.show(ElementId::concept(1)), Ids::from(Numbering::keyed(9, (1, 1))).show(ElementId::concept(1)));
    }
}
