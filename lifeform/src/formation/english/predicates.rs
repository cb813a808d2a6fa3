//! The predicates of English sentences: what a verb and its objects say of a subject.

use super::super::mention::{Claim, Kind, Mention};
use super::super::vocabulary::{PETS, Relation, activity, is_symmetric};
use super::Words;
use super::lists::{ADJECTIVES, ADVERBS, ENDS, NO_THEMES, OCCUPATIONS, OWNED, PRONOUNS};

/// The number of words after a subject within which its predicate may begin.
const LATER_WORDS: usize = 7;

/// The names of times at which people work, and the words after "as" that name no job: "as well", "as hard as", "as a rule".
const FEASTS: [&str; 12] = [
    "easter",
    "christmas",
    "pentecost",
    "thanksgiving",
    "halloween",
    "ramadan",
    "passover",
    "hanukkah",
    "carnival",
    "advent",
    "congress",
    "new year",
];
const NO_JOBS: [&str; 16] = [
    "well", "usual", "soon", "long", "far", "always", "hard", "much", "little", "fast", "rule", "excuse", "result",
    "favour", "joke", "test",
];

impl Words {
    /// Returns the claims of what follows a subject.
    pub(super) fn said_of(&self, subjects: &[Mention], at: usize) -> Vec<Claim> {
        let (mut claims, mut at) = (Vec::new(), at);
        if let [first, others @ ..] = subjects
            && !others.is_empty()
            && let Some(pairs) = self.pairs(first, others, at)
        {
            return pairs;
        }
        // "Bianca is six and already learning Welsh"
        let is_verb =
            |at: &usize| subjects.first().is_some_and(|subject| self.predicate(subject, *at, false).is_some());
        let later =
            (at + 1..self.len().min(at + LATER_WORDS)).filter(|at| self.is(at - 1, &["and", "but", "who", ","]));
        if !is_verb(&at) {
            let Some(begin) = later.filter(|at| !self.begins_mention(*at)).find(is_verb) else { return claims };
            at = begin;
        }
        let mut continues = false;
        loop {
            let mut next = None;
            for subject in subjects {
                let Some((more, end)) = self.predicate(subject, at, continues) else { break };
                claims.extend(more);
                next = Some(end);
            }
            // "… and works for Acme", "… as an engineer"
            let Some(end) = next.filter(|end| *end > at) else { break };
            continues = true;
            at = self.skip(end, &["and", ",", "who", "but"]);
            if at >= self.len() || (at == end && !self.is(at, &["as", "for", "at"])) {
                break;
            }
        }
        claims
    }

    /// Returns the claims of "Tom and Eva are neighbours".
    pub(super) fn pairs(&self, first: &Mention, others: &[Mention], at: usize) -> Option<Vec<Claim>> {
        let noun = self.skip(at, &["are", "have", "been", "good", "best", "close", "old", "both"]);
        let relation = match self.lower(noun) {
            "married" | "engaged" => Relation::named("partner")?,
            word => {
                Relation::of_english(word).filter(|(relation, is_many)| *is_many && is_symmetric(relation.predicate))?.0
            }
        };
        let claim = |other: &Mention| {
            let Mention::Named(_, name) = other else { return None };
            Some(Claim::new(
                first.clone(),
                relation.predicate,
                Mention::related(first.clone(), relation, Some(name.clone())),
            ))
        };
        others.iter().map(claim).collect()
    }

    /// Returns the claims of one verb and its objects, and the place after them.
    pub(super) fn predicate(&self, subject: &Mention, at: usize, continues: bool) -> Option<(Vec<Claim>, usize)> {
        let begin = self.skip(at, &ADVERBS);
        let (mut at, mut is_negated) = (begin, false);
        while self.is(at, &["do", "does", "did", "am", "has", "have", "been", "not", "never", "no", "longer", "can"])
            || self.is(at, &ADVERBS)
        {
            let is_verb = self.is(at, &["has", "have", "am"])
                && !self.is(
                    at + 1,
                    &["not", "been", "never", "moved", "adopted", "lived", "just", "recently", "always", "also"],
                )
                && !self.lower(at + 1).ends_with("ing");
            if is_verb {
                break;
            }
            is_negated |= self.is(at, &["not", "never", "no"]);
            // "I didn't eat lunch" is over.
            if self.is(at, &["did"]) {
                return None;
            }
            at += 1;
        }
        let verb = self.lower(at).to_owned();
        // "Niall's moved to Cork"
        if verb == "'s" && self.is(at + 1, &["moved", "adopted", "joined", "got", "bought"]) {
            return self.predicate(subject, at + 1, continues);
        }
        if ["is", "are", "am", "'s", "was"].contains(&&*verb) {
            return self.being(subject, at, is_negated);
        }
        if !subject.is_person() {
            return match &*verb {
                "lives" | "live" => self.at_place(subject, "lives_in", at + 1, is_negated),
                _ => None,
            };
        }
        let themes = |predicate: &'static str, at: usize| {
            let (themes, next) = self.themes(at)?;
            Some((
                themes
                    .into_iter()
                    .map(|theme| Claim::new(subject.clone(), predicate, Mention::theme(theme)))
                    .collect::<Vec<_>>(),
                next,
            ))
        };
        match &*verb {
            "live" | "lives" | "living" => self.at_place(subject, "lives_in", at + 1, is_negated),
            "moved" if !is_negated => {
                let to = match self.is(at + 1, &["from"]) {
                    true => self.name(at + 2)?.1,
                    false => at + 1,
                };
                let (place, next) = self.is(to, &["to", "into"]).then(|| self.place(to + 1))??;
                Some((vec![Claim::new(subject.clone(), "lives_in", place)], next))
            }
            "come" | "comes" if self.is(at + 1, &["from"]) && !is_negated => {
                let (place, next) = self.place(at + 2)?;
                Some((vec![Claim::new(subject.clone(), "comes_from", place)], next))
            }
            "work" | "works" | "working" if !is_negated => self.work(subject, at),
            "as" | "for" | "at" if !is_negated && continues && self.speaks_of_work(at) => self.work(subject, at),
            "study" | "studies" | "studying" | "learn" | "learns" | "learning" if !is_negated => {
                themes("studies", at + 1)
            }
            "speak" | "speaks" if !is_negated => themes("speaks", at + 1),
            "like" | "likes" | "love" | "loves" | "enjoy" | "enjoys" | "adore" | "adores" | "prefer" | "prefers" => {
                themes(if is_negated { "dislikes" } else { "likes" }, at + 1)
            }
            "hate" | "hates" | "dislike" | "dislikes" => themes("dislikes", at + 1).filter(|_| !is_negated),
            "stand" if is_negated => themes("dislikes", at + 1),
            "eat" | "eats" | "drink" | "drinks" if is_negated => themes("must_avoid", at + 1),
            "must" if self.is(at + 1, &["avoid"]) => themes("must_avoid", at + 2),
            "must" if self.is(at + 1, &["not"]) && self.is(at + 2, &["eat", "drink"]) => themes("must_avoid", at + 3),
            "play" | "plays" if !is_negated && !self.is_figure(at + 1) => themes("does", at + 1),
            "go" | "goes" if !is_negated => {
                let doing = activity(self.lower(at + 1)).filter(|_| self.lower(at + 1).ends_with("ing"))?;
                Some((vec![Claim::new(subject.clone(), "does", Mention::theme(doing))], at + 2))
            }
            "own" | "owns" | "have" | "has" | "got" | "adopted" | "bought" | "keep" | "keeps" if !is_negated => {
                self.having(subject, at + 1, ["own", "owns", "adopted", "bought"].contains(&&*verb))
            }
            "joined" if !is_negated => {
                let (name, next) = self.name(self.skip(at + 1, &["the", "a"]))?;
                Some((vec![Claim::new(subject.clone(), "member_of", Mention::Named(Kind::Organization, name))], next))
            }
            "belongs" | "belong" if self.is(at + 1, &["to"]) && !is_negated => {
                let (name, next) = self.name(self.skip(at + 2, &["the", "a"]))?;
                Some((vec![Claim::new(subject.clone(), "member_of", Mention::Named(Kind::Organization, name))], next))
            }
            // "Tom sails", and not "Tom runs a shop".
            other => {
                // "Rock climbing was awesome" says it of nobody.
                let is_noun = other.ends_with("ing") && at == begin;
                let doing = activity(other).filter(|_| !is_negated && !is_noun)?;
                let ends = at + 1 >= self.len()
                    || self.is(at + 1, &ENDS)
                    || self.is(at + 1, &[",", "and", "a"])
                    || self.is(at + 1, &ADVERBS);
                let is_a_lot = !self.is(at + 1, &["a"]) || self.is(at + 2, &["lot"]);
                (ends && is_a_lot).then(|| (vec![Claim::new(subject.clone(), "does", Mention::theme(doing))], at + 1))
            }
        }
    }

    pub(super) fn at_place(
        &self,
        subject: &Mention,
        predicate: &'static str,
        at: usize,
        is_negated: bool,
    ) -> Option<(Vec<Claim>, usize)> {
        let (place, next) = self.is(at, &["in"]).then(|| self.place(at + 1))??;
        (!is_negated).then(|| (vec![Claim::new(subject.clone(), predicate, place)], next))
    }

    pub(super) fn place(&self, at: usize) -> Option<(Mention, usize)> {
        let (name, next) = self.name(self.skip(at, &["the"]))?;
        Some((Mention::Named(Kind::Place, name), next))
    }

    /// Returns `true` if a word before a place speaks of work: "moved to Oslo at Easter" names no company.
    fn speaks_of_work(&self, at: usize) -> bool {
        (0..at).any(|before| self.is(before, &["work", "works", "working"]))
    }

    pub(super) fn work(&self, subject: &Mention, at: usize) -> Option<(Vec<Claim>, usize)> {
        let (mut claims, mut next) = (Vec::new(), if self.is(at, &["work", "works", "working"]) { at + 1 } else { at });
        if self.is(next, &["for", "at", "with"])
            && let Some((name, end)) = self.name(self.skip(next + 1, &["the"]))
            && !FEASTS.contains(&&*name.to_lowercase())
        {
            claims.push(Claim::new(subject.clone(), "works_for", Mention::Named(Kind::Organization, name)));
            next = end;
        }
        if self.is(next, &["as"]) && !self.is(next + 1, &NO_JOBS) && !self.is(next + 2, &NO_JOBS) {
            let (themes, end) = self.themes(next + 1)?;
            claims.extend(
                themes.into_iter().take(1).map(|theme| Claim::new(subject.clone(), "works_as", Mention::theme(theme))),
            );
            next = end;
        }
        (!claims.is_empty()).then_some((claims, next))
    }

    /// Returns the claims of a form of "to be".
    pub(super) fn being(&self, subject: &Mention, at: usize, is_negated: bool) -> Option<(Vec<Claim>, usize)> {
        let after = self.skip(at + 1, &ADVERBS);
        let is_past = self.is(at, &["was"]);
        if is_negated || self.is(after, &["not", "no", "never"]) {
            return None;
        }
        let claim = |predicate: &'static str, object: Mention| Claim::new(subject.clone(), predicate, object);
        // "My sister is called Henrike", "My sister's name is Henrike", "My neighbour is Tom"
        let is_called = self.is(after, &["called", "named"]);
        if let Some((name, next)) =
            self.name(if is_called { after + 1 } else { after }).filter(|(_, next)| !self.is(*next, &["'s"]))
        {
            let renamed = match subject {
                Mention::Owned { of, kind, .. } if kind == "name" => Some((**of).clone()),
                Mention::Related { name: None, .. } => Some(subject.clone()),
                Mention::Owned { name: None, .. } if is_called => Some(subject.clone()),
                _ => None,
            };
            let named =
                renamed.filter(|mention| !matches!(mention, Mention::Speaker)).map(|mention| mention.with_name(name));
            return named.and_then(|mention| Some((vec![mention.implied().pop()?], next)));
        }
        if !subject.is_person() || is_past {
            return None;
        }
        if self.is(after, &["from"]) {
            let (place, next) = self.place(after + 1)?;
            return Some((vec![claim("comes_from", place)], next));
        }
        if self.is(after, &["allergic"]) && self.is(after + 1, &["to"]) {
            let (themes, next) = self.themes(after + 2)?;
            return Some((themes.into_iter().map(|theme| claim("must_avoid", Mention::theme(theme))).collect(), next));
        }
        if self.is(after, &["married", "engaged"]) && self.is(after + 1, &["to"]) {
            let (name, next) = self.name(after + 2)?;
            let partner = Mention::related(subject.clone(), Relation::named("partner")?, Some(name));
            return Some((vec![claim("partner_of", partner)], next));
        }
        if self.is(after, &["living", "working", "studying", "learning"]) {
            return self.predicate(subject, after, false);
        }
        if self.is(after, &["a", "an", "the"]) && self.is(after + 1, &["member"]) && self.is(after + 2, &["of"]) {
            let (name, next) = self.name(self.skip(after + 3, &["the", "a"]))?;
            return Some((vec![claim("member_of", Mention::Named(Kind::Organization, name))], next));
        }
        // "Tom is my neighbour", "Tom is a neighbour of my sister"
        if let (Mention::Named(Kind::Person, name), Some((mut mentions, next))) = (subject, self.one_of(after))
            && let Some(mention @ Mention::Related { name: None, .. }) = mentions.pop()
        {
            let mention = mention.with_name(name.clone());
            return Some((vec![mention.implied().pop()?], next));
        }
        let noun = self.skip(after, &["a", "an"]);
        let (mut themes, next) = (noun > after).then(|| self.themes(noun))??;
        let theme = themes.swap_remove(0);
        let last = theme.split(' ').next_back()?;
        let is_work = OCCUPATIONS.contains(&last) && theme.split(' ').count() <= 3;
        (is_work && Relation::of_english(last).is_none_or(|(relation, _)| relation.predicate == "knows"))
            .then(|| (vec![claim("works_as", Mention::theme(theme))], next))
    }

    /// Returns the claims of what a person has.
    pub(super) fn having(&self, subject: &Mention, at: usize, is_own: bool) -> Option<(Vec<Claim>, usize)> {
        const COUNTS: [&str; 14] =
            ["a", "an", "one", "two", "three", "four", "five", "six", "the", "some", "another", "new", "old", "little"];
        let (mut claims, mut at) = (Vec::new(), at);
        loop {
            let noun = self.skip(self.skip(at, &COUNTS), &ADJECTIVES);
            if noun == at || noun >= self.len() {
                break;
            }
            if let Some((relation, _)) = Relation::of_english(self.lower(noun)) {
                let begin = self.skip(noun + 1, &[",", "called", "named", ":"]);
                let mut next = begin;
                while let Some((name, end)) = self.name(next) {
                    claims.push(Claim::new(
                        subject.clone(),
                        relation.predicate,
                        Mention::related(subject.clone(), relation, Some(name)),
                    ));
                    next = self.skip(end, &[",", "and"]);
                }
                at = if next == begin { noun + 1 } else { next };
                if next == begin {
                    break;
                }
                continue;
            }
            let (kind, end) = self.noun(noun)?;
            let begin = self.skip(end, &[",", "called", "named"]);
            let named = self.name(begin).filter(|_| begin > end);
            let last = kind.split(' ').next_back().unwrap_or_default();
            let last = last.strip_suffix('s').unwrap_or(last);
            if named.is_none() && !is_own && !PETS.contains(&last) && !OWNED.contains(&last) {
                break;
            }
            let (name, next) = named.map_or((None, end), |(name, next)| (Some(name), next));
            claims.push(Claim::new(
                subject.clone(),
                "owns",
                Mention::Owned { of: Box::new(subject.clone()), kind, name },
            ));
            at = self.skip(next, &[",", "and"]);
            if at == next {
                break;
            }
        }
        (!claims.is_empty()).then_some((claims, at))
    }

    /// Returns `true` for what is played as a figure of speech: "a crucial role".
    fn is_figure(&self, at: usize) -> bool {
        const FIGURES: [&str; 6] = ["role", "part", "trick", "tricks", "host", "fool"];
        let noun = self.noun(self.skip(at, &["a", "an", "the"]));
        noun.is_some_and(|(noun, _)| noun.split(' ').next_back().is_some_and(|last| FIGURES.contains(&last)))
    }

    /// Returns a noun of at most three words, in lower case, and the place after it; `None` for a doing that is cut short by a pronoun.
    pub(super) fn noun(&self, at: usize) -> Option<(String, usize)> {
        const NOUN_WORDS_MAX: usize = 3;
        let mut end = at;
        while end < self.len()
            && end < at + NOUN_WORDS_MAX
            && !self.is(end, &ENDS)
            && !self.is(end, &[",", "and", "or", "called", "named", "'s"])
            && !self.is(end, &PRONOUNS)
        {
            end += 1;
        }
        // "making it a better place", "helping them"
        let is_cut = self.is(end, &PRONOUNS) && end == at + 1 && self.lower(at).ends_with("ing");
        let end = (at..end).rev().find(|at| !self.is(*at, &["a", "an", "the"])).map_or(at, |last| last + 1);
        (end > at && !is_cut).then(|| (self.text(at, end).to_lowercase(), end))
    }

    /// Returns the themes of a list, and the place after it.
    pub(crate) fn themes(&self, at: usize) -> Option<(Vec<String>, usize)> {
        let (mut themes, mut at) = (Vec::new(), at);
        loop {
            let begin = self.skip(at, &["the", "a", "an", "some", "both", "any", "all"]);
            if self.is(begin, &NO_THEMES) {
                break;
            }
            // "I like to sail"
            if self.is(begin, &["to"]) {
                if let Some(doing) = activity(self.lower(begin + 1)) {
                    themes.push(doing);
                    at = begin + 2;
                }
                break;
            }
            let Some((theme, next)) = self.noun(begin) else { break };
            themes.push(theme);
            at = self.skip(next, &[",", "and", "or"]);
            // "I like tea, and Tom has a dog", "I like tea and live in Oslo"
            let is_over = at == next || self.is_clause(at);
            if is_over {
                at = next;
                break;
            }
        }
        (!themes.is_empty()).then_some((themes, at))
    }

    /// Returns `true` if a new clause begins at a place.
    pub(super) fn is_clause(&self, at: usize) -> bool {
        const BEGIN: [&str; 24] = [
            "i", "he", "she", "they", "we", "it", "my", "his", "her", "live", "lives", "work", "works", "have", "has",
            "am", "is", "was", "like", "likes", "hate", "hates", "speak", "speaks",
        ];
        self.is(at, &BEGIN) || (self.is_name(at) && self.name(at).is_some_and(|(_, next)| self.is(next, &BEGIN)))
    }
}
