//! A question as a pattern of the graph: concepts, the links that must hold between them, and the concept that is asked for.

use std::borrow::Cow;

use super::{Object, Path, Start};
use crate::formation::{Kind, key_of};

/// The maximum number of links of a query.
pub(crate) const LINKS_MAX: usize = 6;

/// The identity of a concept in a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Identity {
    /// Any concept.
    Any,
    /// Any person.
    AnyPerson,
    /// The person who asks.
    Asker,
    /// The concept with a name.
    Named(Kind, String),
}

/// A concept in a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Concept {
    /// The identity.
    pub(crate) identity: Identity,
    /// The kinds of things that count; empty for all.
    pub(crate) kinds: Vec<String>,
}

/// A link that must hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    /// The place of the subject among the concepts.
    pub(crate) subject: usize,
    /// The predicate; `None` for all of them.
    pub(crate) predicate: Option<Cow<'static, str>>,
    /// The relations that count; empty for all.
    pub(crate) relations: &'static [&'static str],
    /// The place of the object among the concepts.
    pub(crate) object: usize,
}

/// A question as a pattern.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query {
    /// The concepts.
    pub(crate) concepts: Vec<Concept>,
    /// The links, all of which must hold.
    pub(crate) links: Vec<Link>,
    /// The place of the concept that is asked for.
    pub(crate) asked: usize,
    /// `true` if the number is asked for.
    pub(crate) counts: bool,
    /// `true` if what it finds follows from claims and is none itself.
    pub(crate) is_inferred: bool,
}

impl Concept {
    /// Returns a concept without kinds.
    pub(crate) fn of(identity: Identity) -> Self {
        Self { identity, kinds: Vec::new() }
    }

    /// Returns `true` if a text names the concept by a word, which is no name: a theme.
    pub(crate) fn is_word(&self) -> bool {
        matches!(self.identity, Identity::Named(Kind::Theme, _))
    }
}

impl Query {
    /// Returns the place of a concept, which is added if it is new.
    pub(crate) fn add(&mut self, concept: Concept) -> usize {
        self.concepts.push(concept);
        self.concepts.len() - 1
    }

    /// Returns the query of a path.
    pub(crate) fn of(path: &Path) -> Self {
        let mut query = Self { counts: path.counts, ..Self::default() };
        let mut at = query.add(Concept::of(match &path.start {
            Start::Asker => Identity::Asker,
            Start::Named(name) => Identity::Named(Kind::Person, name.clone()),
            Start::Anyone => Identity::AnyPerson,
        }));
        for hop in &path.hops {
            let kind = if hop.predicate == "owns" { Kind::Thing } else { Kind::Person };
            let identity = hop.name.clone().map_or(Identity::Any, |name| Identity::Named(kind, name));
            let object = query.add(Concept { identity, kinds: hop.kinds.clone() });
            let predicate = Some(Cow::Borrowed(hop.predicate));
            query.links.push(Link { subject: at, predicate, relations: hop.relations, object });
            at = object;
        }
        query.asked = at;
        if let Some(end) = &path.end {
            let object = query.add(match &end.object {
                None => Concept::of(Identity::Any),
                Some(Object::Named(kind, name)) => Concept::of(Identity::Named(*kind, name.clone())),
                Some(Object::OfKind(kind)) => Concept { identity: Identity::Any, kinds: vec![kind.clone()] },
            });
            let predicate = end.predicate.clone();
            query.links.push(Link { subject: at, predicate, relations: &[], object });
            query.asked = if end.object.is_some() { at } else { object };
        }
        query
    }

    /// Returns the query with its links in an order in which each one, as far as possible, begins at a concept that is known.
    pub(crate) fn in_order(mut self) -> Self {
        let is_known = |concept: &Concept| matches!(concept.identity, Identity::Asker | Identity::Named(..));
        let mut known: Vec<bool> = self.concepts.iter().map(is_known).collect();
        let mut rest = std::mem::take(&mut self.links);
        while !rest.is_empty() {
            // A person is a better beginning than a word or a place, to which many people are linked.
            let is_common = |at: usize| {
                matches!(self.concepts[at].identity, Identity::Named(Kind::Theme | Kind::Place | Kind::Organization, _))
            };
            let value = |link: &Link| {
                let of = |at: usize| if known[at] { 2 - u8::from(is_common(at)) } else { 0 };
                of(link.subject).max(of(link.object))
            };
            let best = (0..rest.len()).max_by_key(|at| (value(&rest[*at]), std::cmp::Reverse(*at))).unwrap_or_default();
            let link = rest.remove(best);
            (known[link.subject], known[link.object]) = (true, true);
            self.links.push(link);
        }
        self
    }

    /// Returns `true` if the first link, in order, begins at a person, a thing or a company that the query names.
    pub(crate) fn leads_somewhere(&self) -> bool {
        let begins = |at: usize| match &self.concepts[at].identity {
            Identity::Asker => true,
            Identity::Named(kind, _) => !matches!(kind, Kind::Theme | Kind::Place),
            Identity::Any | Identity::AnyPerson => false,
        };
        self.links.first().is_some_and(|link| begins(link.subject) || begins(link.object))
    }

    /// Returns the query of the first links, in order, which asks for the unknown to which the last of them leads; `None` if that leads
    /// to none.
    pub(crate) fn beginning(&self, count: usize) -> Option<Self> {
        let links = self.links.get(..count)?;
        let is_unknown = |at: &&usize| self.concepts[**at].identity == Identity::Any;
        let last = links.last()?;
        let asked = [&last.object, &last.subject].into_iter().find(is_unknown)?;
        let used: Vec<usize> = (0..self.concepts.len())
            .filter(|at| links.iter().any(|link| link.subject == *at || link.object == *at))
            .collect();
        let place = |at: usize| used.iter().position(|used| *used == at).unwrap_or_default();
        let concepts = used.iter().map(|at| self.concepts[*at].clone()).collect();
        let moved = |link: &Link| Link { subject: place(link.subject), object: place(link.object), ..link.clone() };
        let links = links.iter().map(moved).collect();
        let query = Self { concepts, links, asked: place(*asked), ..Self::default() };
        query.can_be_asked().then_some(query)
    }

    /// Returns `true` if the query is small, names something that is known, and if its links hang together.
    pub(crate) fn can_be_asked(&self) -> bool {
        let is_given = |concept: &Concept| !matches!(concept.identity, Identity::Any | Identity::AnyPerson);
        let mut reached = vec![false; self.concepts.len()];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for _ in &self.links {
            for link in &self.links {
                let touches = reached[link.subject] || reached[link.object];
                (reached[link.subject], reached[link.object]) =
                    (reached[link.subject] || touches, reached[link.object] || touches);
            }
        }
        (1..=LINKS_MAX).contains(&self.links.len())
            && self.asked < self.concepts.len()
            && self.concepts.iter().any(is_given)
            && reached.iter().all(|reached| *reached)
    }

    /// Returns `true` if concepts that fit the links are what the question means: two who do the same are two.
    pub(crate) fn are_apart(&self, ids: &[&str]) -> bool {
        self.links.iter().enumerate().all(|(at, one)| {
            self.links[..at].iter().all(|other| {
                let is_same = one.predicate == other.predicate && one.object == other.object;
                !is_same || one.subject == other.subject || ids[one.subject] != ids[other.subject]
            })
        })
    }
}

/// Returns `true` if a word of a question means the theme with this key: it is the same, or it is its last word, of which the others
/// say the kind ("climbing", "rock climbing"). Where words are not parted by spaces, it is the beginning or the end of the theme.
pub(crate) fn is_like(wanted: &str, key: &str) -> bool {
    const SHORT: usize = 2;
    let wanted = key_of(Kind::Theme, wanted);
    let is_part = || match wanted.is_ascii() {
        true => wanted.len() > SHORT && key.strip_suffix(wanted.as_str()).is_some_and(|rest| rest.ends_with(' ')),
        false => wanted.chars().count() >= SHORT && (key.starts_with(&wanted) || key.ends_with(&wanted)),
    };
    wanted == key || is_part()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_what_it_is_a_part_of() {
        for (wanted, known, is) in [
            ("climbing", "rock climbing", true),
            ("tennis", "table tennis", true),
            ("table tennis", "tennis", false),
            ("peanuts", "peanut", true),
            ("nuts", "peanuts", false),
            // The form of a key has no further one.
            ("Japanese", "Japanese", true),
            ("海鲜", "海鲜类", true),
            ("茶", "绿茶", false),
            ("go", "go karts", false),
        ] {
            assert_eq!(is_like(wanted, &key_of(Kind::Theme, known)), is, "{wanted} {known}");
        }
    }

    #[test]
    fn links_begin_at_whom_the_question_names() {
        let link = |subject, predicate: &'static str, object| Link {
            subject,
            predicate: Some(predicate.into()),
            relations: &[],
            object,
        };
        let theme = Identity::Named(Kind::Theme, "sailing".into());
        let concepts = [Identity::Any, theme, Identity::Asker].map(Concept::of).to_vec();
        let links = vec![link(0, "does", 1), link(2, "friend_of", 0)];
        let query = Query { concepts, links, asked: 0, ..Query::default() };
        assert!(query.can_be_asked());
        let ordered: Vec<_> = query.clone().in_order().links.into_iter().filter_map(|link| link.predicate).collect();
        assert_eq!(ordered, ["friend_of", "does"]);
        let parted = Query { links: vec![link(0, "does", 1)], ..query };
        assert!(!parted.can_be_asked());
    }

    #[test]
    fn the_beginning_of_a_query_asks_for_what_it_leads_to() {
        let link = |subject, predicate: &'static str, object| Link {
            subject,
            predicate: Some(predicate.into()),
            relations: &[],
            object,
        };
        let theme = Identity::Named(Kind::Theme, "sailing".into());
        let concepts = [Identity::Any, theme, Identity::Asker, Identity::Any].map(Concept::of).to_vec();
        let links = vec![link(2, "relative_of", 0), link(0, "friend_of", 3), link(3, "does", 1)];
        let query = Query { concepts, links, asked: 0, ..Query::default() };
        assert!(query.leads_somewhere());
        let first = query.beginning(1).unwrap();
        assert_eq!((first.concepts.len(), first.links[0].clone(), first.asked), (2, link(1, "relative_of", 0), 0));
        let second = query.beginning(2).unwrap();
        assert_eq!((second.concepts.len(), second.asked), (3, 2));
        assert_eq!(query.beginning(3).unwrap().asked, 3, "of the last link, the subject is unknown");
        assert_eq!((query.beginning(0), query.beginning(4)), (None, None));
    }

    #[test]
    fn two_who_live_in_one_place_are_two() {
        let link = |subject, object| Link { subject, predicate: Some("lives_in".into()), relations: &[], object };
        let concepts = [Identity::Any, Identity::Asker, Identity::Any].map(Concept::of).to_vec();
        let query = Query { concepts, links: vec![link(0, 2), link(1, 2)], asked: 0, ..Query::default() };
        assert!(query.are_apart(&["a", "b", "c"]));
        assert!(!query.are_apart(&["a", "a", "c"]));
    }
}
