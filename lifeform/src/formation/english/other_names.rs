//! The claims of English sentences that a name is another one of a person.

use super::super::mention::{Claim, Mention};
use super::super::vocabulary::{Relation, SAME_AS};
use super::Words;

impl Words {
    /// Returns the claims that names are other ones of people: "Rike is short for Henrike", "my sister's nickname is Rike", "Tom and
    /// Thomas are the same person", "call me Rike". The subject is the other name.
    pub(super) fn other_names(&self) -> Vec<Claim> {
        const DENIED: [&str; 12] = [
            "never",
            "not",
            "no",
            "hate",
            "hates",
            "dislike",
            "dislikes",
            "stop",
            "nobody",
            "wish",
            "sometimes",
            "once",
        ];
        if (0..self.len()).any(|at| self.is(at, &DENIED)) {
            return Vec::new();
        }
        (0..self.len())
            .filter_map(|at| self.nickname(at).or_else(|| self.called(at)).or_else(|| self.same(at)))
            .collect()
    }

    /// Returns the claim of "my sister's nickname is Rike", for the place of "nickname".
    fn nickname(&self, at: usize) -> Option<Claim> {
        let is_said = self.is(at, &["nickname"]) && self.is(at + 1, &["is", "'s"]);
        let (name, _) = self.name(at + 2).filter(|_| is_said)?;
        let before = at.checked_sub(1)?;
        let one = match self.lower(before) {
            "my" => Mention::Speaker,
            "his" | "her" => self.only_person(before)?,
            "'s" => self.mention_until(before)?,
            _ => return None,
        };
        Some(Claim::new(Mention::person(name), SAME_AS, one))
    }

    /// Returns the one person whom the words before a place name, and the person of whom the talk spoke last if they name none.
    fn only_person(&self, end: usize) -> Option<Mention> {
        let mentions = (0..end).filter(|at| self.begins_mention(*at)).filter_map(|at| self.people(at));
        let others = |mention: &Mention| mention.is_person() && !matches!(mention, Mention::Speaker | Mention::Last);
        let mut named: Vec<Mention> = mentions.flat_map(|(mentions, _)| mentions).filter(others).collect();
        // "My sister Henrike" is mentioned by its relation and by its name.
        named.dedup_by(|later, first| later.own_name().is_some() && later.own_name() == first.own_name());
        match named.len() {
            0 => Some(Mention::Last),
            1 => named.pop(),
            _ => None,
        }
    }

    /// Returns the claim of "everybody calls me Rike", for the place of the verb.
    fn called(&self, at: usize) -> Option<Claim> {
        let is_said = self.is(at, &["call", "calls"]) && self.is(at + 1, &["me"]);
        let (name, end) = self.name(at + 2).filter(|_| is_said)?;
        let is_name =
            name.chars().skip(1).any(char::is_lowercase) && Relation::of_english(&name.to_lowercase()).is_none();
        let ends = end >= self.len() || self.is(end, &[",", "and", "but"]);
        (is_name && ends).then(|| Claim::new(Mention::person(name), SAME_AS, Mention::Speaker))
    }

    /// Returns the claim of two mentions that are said to be of one person, for the place of the first.
    fn same(&self, at: usize) -> Option<Claim> {
        let (mut mentions, next) = Some(at).filter(|at| self.begins_mention(*at)).and_then(|at| self.people(at))?;
        let is_between = self.is(next, &["is", "'s"]);
        let other = match &mentions[..] {
            [_, _] if self.is(next, &["are"]) && self.are(next + 1, &["the", "same", "person"]) => mentions.pop()?,
            [_] if is_between && self.are(next + 1, &["the", "same", "person", "as"]) => self.mention_at(next + 5)?,
            [_] if is_between && self.are(next + 1, &["short", "for"]) => self.mention_at(next + 3)?,
            [_] if is_between => {
                let noun = self.skip(next + 1, &["a", "an", "the", "just", "only"]);
                let is_nickname = self.is(noun, &["nickname"]) && self.is(noun + 1, &["for", "of"]);
                self.mention_at(noun + 2).filter(|_| is_nickname)?
            }
            _ => return None,
        };
        // The name is the one that is only a name.
        match (mentions.pop()?, other) {
            (name @ Mention::Named(..), one) | (one, name @ Mention::Named(..)) => Some(Claim::new(name, SAME_AS, one)),
            _ => None,
        }
    }

    /// Returns `true` if these words follow each other at a place.
    fn are(&self, at: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(later, word)| self.lower(at + later) == *word)
    }

    /// Returns the one person whose mention begins at a place.
    fn mention_at(&self, at: usize) -> Option<Mention> {
        let (mut mentions, _) = self.people(at)?;
        mentions.pop().filter(|mention| mentions.is_empty() && mention.is_person())
    }

    /// Returns the one person whose mention ends before a place.
    fn mention_until(&self, end: usize) -> Option<Mention> {
        let begins = (0..end).filter(|at| self.begins_mention(*at));
        let whole = |at: usize| self.people(at).filter(|(mentions, next)| *next == end && mentions.len() == 1);
        begins.filter_map(whole).find_map(|(mut mentions, _)| mentions.pop()).filter(Mention::is_person)
    }
}
