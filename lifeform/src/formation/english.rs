//! The claims of English sentences, by rules.

mod lists;
mod other_names;
mod predicates;

use lists::{ADJECTIVES, ADVERBS, BEGINS, NOUNS, OWN_WORDS, OWNED, SUPPOSES};

use super::mention::{Claim, Mention};
use super::vocabulary::{PETS, Relation};

/// A word of an English sentence.
#[derive(Clone, Debug)]
struct Word {
    text: String,
    lower: String,
}

/// The words of an English sentence. Marks and the possessive ending are words of their own.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<Word>);

/// Returns `true` if a sentence claims nothing.
pub(super) fn supposes(sentence: &str) -> bool {
    let words = Words::of(sentence);
    let used = words.0.windows(2).any(|pair| pair[0].lower == "used" && pair[1].lower == "to");
    // May is a month, too.
    let is_one = |word: &Word| SUPPOSES.contains(&&*word.lower) && word.text != "May";
    is_quoting(sentence) || used || words.0.iter().any(is_one)
}

fn is_quoting(sentence: &str) -> bool {
    sentence.contains(['"', '“', '”', '«'])
}

/// Returns the claims of a sentence: of each mention of a person in it, what follows says. A relation with a name ("my brother
/// Tom") is claimed by its mention alone, even where the sentence supposes something of him.
pub(super) fn read(sentence: &str) -> Vec<Claim> {
    if is_quoting(sentence) {
        return Vec::new();
    }
    let (words, supposes) = (Words::of(sentence), supposes(sentence));
    let (mut claims, mut at) = (if supposes { Vec::new() } else { words.other_names() }, 0);
    // The persons of the sentence so far, of whom "she" may speak.
    let mut persons: Vec<Mention> = Vec::new();
    while at < words.len() {
        let Some((mentions, next)) = Some(at).filter(|at| words.begins_mention(*at)).and_then(|at| words.people(at))
        else {
            at += 1;
            continue;
        };
        // "My sisters live in Oslo" names none of them.
        let is_many = Relation::of_english(words.lower(next - 1)).is_some_and(|(_, is_many)| is_many);
        let mentions: Vec<Mention> = mentions.into_iter().filter_map(|mention| mention.of_last(&persons)).collect();
        for mention in &mentions {
            let is_named =
                matches!(mention, Mention::Related { name: Some(_), .. } | Mention::Owned { name: Some(_), .. });
            claims.extend(mention.implied().pop().filter(|_| is_named));
        }
        let before = claims.len();
        if !supposes && !is_many && !mentions.is_empty() {
            claims.extend(words.said_of(&mentions, words.skip(next, &[","])));
        }
        // The first word of a sentence has a capital letter in any case.
        let is_first_word = at == 0 && claims.len() == before && matches!(mentions[..], [Mention::Named(..)]);
        let others = mentions
            .into_iter()
            .filter(|mention| mention.is_person() && !matches!(mention, Mention::Speaker | Mention::Last));
        for other in others.filter(|_| !is_first_word) {
            if !persons.contains(&other) {
                persons.push(other);
            }
        }
        at = next.max(at + 1);
    }
    claims
}

impl Words {
    /// Returns the words of a text.
    pub(crate) fn of(text: &str) -> Self {
        let text = text.replace(['’', '‘'], "'");
        let mut words = Vec::new();
        let mut push = |text: &str| {
            if !text.is_empty() {
                words.push(Word { text: text.to_owned(), lower: text.to_lowercase() });
            }
        };
        for piece in text.split(|c: char| c.is_whitespace() || "()[]".contains(c)) {
            let bare = piece.trim_matches(|c: char| !c.is_alphanumeric() && c != '\'').trim_start_matches('\'');
            let (before, after) = match piece.find(bare).filter(|_| !bare.is_empty()) {
                Some(at) => (&piece[..at], &piece[at + bare.len()..]),
                None => (piece, ""),
            };
            let mark = |text: &str| if text.contains([',', ';', ':', '–', '—']) { "," } else { "" };
            push(mark(before));
            let lower = bare.to_lowercase();
            match lower.as_str() {
                "i'm" => ["I", "am"].into_iter().for_each(&mut push),
                "i've" => ["I", "have"].into_iter().for_each(&mut push),
                "we've" => ["we", "have"].into_iter().for_each(&mut push),
                "we're" => ["we", "are"].into_iter().for_each(&mut push),
                "cannot" | "can't" => ["can", "not"].into_iter().for_each(&mut push),
                _ if lower.ends_with("n't") => [&bare[..bare.len() - 3], "not"].into_iter().for_each(&mut push),
                _ if lower.ends_with("'d") => [&bare[..bare.len() - 2], "would"].into_iter().for_each(&mut push),
                _ if lower.ends_with("'ll") => [&bare[..bare.len() - 3], "will"].into_iter().for_each(&mut push),
                _ if lower.ends_with("'re") => [&bare[..bare.len() - 3], "are"].into_iter().for_each(&mut push),
                _ if lower.ends_with("'ve") => [&bare[..bare.len() - 3], "have"].into_iter().for_each(&mut push),
                _ if lower.ends_with("'s") => [&bare[..bare.len() - 2], "'s"].into_iter().for_each(&mut push),
                _ if lower.ends_with("s'") => [&bare[..bare.len() - 1], "'s"].into_iter().for_each(&mut push),
                _ => push(bare),
            }
            push(mark(after));
        }
        Self(words)
    }

    /// Returns `true` if the mention of a person may begin at a place.
    fn begins_mention(&self, at: usize) -> bool {
        let before = at.checked_sub(1);
        // "There's Otto" is no possession.
        let beings = ["there", "here", "it", "that", "what", "who", "where", "he", "she"];
        let is_being = |before: usize| before > 0 && self.is(before - 1, &beings);
        let is_owned = before.is_some_and(|before| {
            self.is(before, &["my", "our", "his", "her", "their", "your"])
                || (self.is(before, &["'s"]) && !is_being(before))
        });
        let is_own_word =
            self.is(at, &OWN_WORDS) && !is_owned && !before.is_some_and(|before| self.is(before, &ADJECTIVES));
        // What one is in is a place: "in Hull with his wife".
        let is_place = before.is_some_and(|before| self.is(before, &["in", "at", "near", "into", "around", "outside"]));
        let is_name = self.is_name(at) && !is_owned && !is_place && before.is_none_or(|before| !self.is_name(before));
        let is_article = self.is(at, &["a", "an", "the"])
            && before.is_none_or(|before| !self.is(before, &["is", "'s", "are", "was"]));
        is_own_word || is_name || is_article || self.is(at, &BEGINS)
    }

    /// Returns the one condition that the predicate of a question makes, if it is all of the rest.
    pub(crate) fn condition(&self, at: usize) -> Option<Claim> {
        let (mut claims, end) = self.predicate(&Mention::Speaker, at, false)?;
        (claims.len() == 1 && self.skip(end, &ADVERBS) >= self.len()).then(|| claims.pop())?
    }

    /// Returns all mentions of persons, and of things of persons.
    pub(crate) fn mentions(&self) -> Vec<Mention> {
        let begins = (0..self.len()).filter(|at| self.begins_mention(*at));
        begins.filter_map(|at| self.people(at)).flat_map(|(mentions, _)| mentions).collect()
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a word in lower case; empty beyond the end.
    pub(crate) fn lower(&self, at: usize) -> &str {
        self.0.get(at).map_or("", |word| word.lower.as_str())
    }

    /// Returns `true` if one of these words is at a place.
    pub(crate) fn is(&self, at: usize, words: &[&str]) -> bool {
        at < self.0.len() && words.contains(&self.lower(at))
    }

    /// Returns `true` if a word may begin a name.
    pub(crate) fn is_name(&self, at: usize) -> bool {
        const NO_NAMES: [&str; 152] = [
            "i",
            "the",
            "a",
            "an",
            "my",
            "our",
            "his",
            "her",
            "their",
            "your",
            "it",
            "this",
            "that",
            "there",
            "in",
            "on",
            "at",
            "we",
            "he",
            "she",
            "they",
            "you",
            "and",
            "but",
            "so",
            "yes",
            "no",
            "monday",
            "tuesday",
            "wednesday",
            "thursday",
            "friday",
            "saturday",
            "sunday",
            "also",
            "both",
            "yesterday",
            "today",
            "tomorrow",
            "last",
            "next",
            "now",
            "then",
            "once",
            "meanwhile",
            "sadly",
            "luckily",
            "honestly",
            "actually",
            "maybe",
            "did",
            "do",
            "does",
            "is",
            "are",
            "was",
            "were",
            "what",
            "which",
            "who",
            "whom",
            "whose",
            "where",
            "when",
            "why",
            "how",
            "tell",
            "if",
            "after",
            "before",
            "since",
            "because",
            "everyone",
            "somebody",
            "nobody",
            "none",
            "poor",
            "dear",
            "ok",
            "okay",
            "oh",
            "well",
            "thanks",
            "thank",
            "hello",
            "hi",
            "hey",
            "good",
            "great",
            "morning",
            "sorry",
            "please",
            "most",
            "some",
            "many",
            "all",
            "every",
            "each",
            "another",
            "other",
            "here",
            "these",
            "those",
            "perhaps",
            "have",
            "has",
            "had",
            "can",
            "could",
            "would",
            "will",
            "should",
            "let",
            "not",
            "just",
            "only",
            "even",
            "still",
            "ask",
            "looks",
            "sounds",
            "seems",
            "feels",
            "smells",
            "tastes",
            "little",
            "such",
            "few",
            "several",
            "much",
            "more",
            "better",
            "nothing",
            "something",
            "everything",
            "someone",
            "anyone",
            "nice",
            "lovely",
            "small",
            "besides",
            "instead",
            "although",
            "though",
            "while",
            "during",
            "without",
            "speaking",
            "being",
            "having",
            "getting",
            "going",
        ];
        let Some(word) = self.0.get(at) else { return false };
        word.text.chars().next().is_some_and(char::is_uppercase) && !NO_NAMES.contains(&&*word.lower)
    }

    /// Returns the name that begins at a place, and the place after it.
    pub(crate) fn name(&self, at: usize) -> Option<(String, usize)> {
        const WORDS_MAX: usize = 4;
        let particle = |at: usize| self.is(at, &["of", "the", "de", "van", "von", "da"]) && self.is_name(at + 1);
        let mut end = at;
        while end < at + WORDS_MAX
            && (self.is_name(end) || (end > at && self.is(end, &["de", "van", "von", "da"]) && particle(end)))
        {
            end += 1;
        }
        (end > at).then(|| (self.text(at, end), end))
    }

    fn text(&self, from: usize, to: usize) -> String {
        let words: Vec<&str> = self.0[from..to].iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }

    /// Returns the persons, or the thing of a person, that a noun phrase mentions, and the place after it.
    pub(crate) fn people(&self, at: usize) -> Option<(Vec<Mention>, usize)> {
        let (mut all, mut next) = self.one_of(at)?;
        // "Tom and Eva are neighbours"
        while self.is(next, &["and"]) {
            let Some((others, end)) = self.one_of(next + 1).filter(|(others, _)| others.iter().all(Mention::is_person))
            else {
                break;
            };
            // "I have a dog and Tom has a cat" is of one subject each.
            if self.is(next + 1, &["i", "he", "she", "they", "we"]) {
                break;
            }
            all.extend(others);
            next = end;
        }
        Some((all, next))
    }

    fn one_of(&self, at: usize) -> Option<(Vec<Mention>, usize)> {
        match self.lower(at) {
            "i" | "we" => return Some((vec![Mention::Speaker], at + 1)),
            "my" | "our" => return self.of_person(Mention::Speaker, at + 1),
            "he" | "she" | "they" => return Some((vec![Mention::Last], at + 1)),
            word if OWN_WORDS.contains(&word) => return self.of_person(Mention::Speaker, at),
            "his" | "her" | "their" => return self.of_person(Mention::Last, at + 1),
            "a" | "an" | "the" | "one" => {
                // "a neighbour of my sister", "the boss of Tom"
                let noun = self.skip(at + 1, &ADJECTIVES);
                let (relation, _) = Relation::of_english(self.lower(noun)).filter(|_| self.is(noun + 1, &["of"]))?;
                let (mut of, next) = self.one_of(noun + 2)?;
                let of = of.pop().filter(|of| of.is_person() && self.lower(noun + 2) != "we")?;
                return Some((vec![Mention::related(of, relation, None)], next));
            }
            _ => {}
        }
        let (name, next) = self.name(at)?;
        if self.is(next, &["'s"])
            && self.is_owning(next + 1)
            && let Some(found) = self.of_person(Mention::person(name.clone()), next + 1)
        {
            return Some(found);
        }
        // "Tom, my neighbour, sails"
        if self.is(next, &[","])
            && self.is(next + 1, &["my", "our", "his", "her", "their"])
            && let Some((mut mentions, end)) = self.one_of(next + 1)
            && let Some(mention @ Mention::Related { name: None, .. }) = mentions.pop()
        {
            let end = if self.is(end, &[","]) { end + 1 } else { end };
            return Some((vec![mention.with_name(name)], end));
        }
        Some((vec![Mention::person(name)], next))
    }

    /// Returns `true` if a noun follows the possessive ending, which may also stand for "is".
    fn is_owning(&self, at: usize) -> bool {
        const IS: [&str; 12] =
            ["a", "an", "the", "in", "from", "called", "named", "allergic", "married", "not", "my", "very"];
        let noun = self.skip(at, &ADJECTIVES);
        Relation::of_english(self.lower(noun)).is_some()
            || (noun < self.len() && !self.is(noun, &IS) && !self.lower(noun).ends_with("ing") && !self.is_name(noun))
    }

    fn skip(&self, mut at: usize, words: &[&str]) -> usize {
        while self.is(at, words) {
            at += 1;
        }
        at
    }

    /// Returns what belongs to a person: relatives and friends, or a thing.
    fn of_person(&self, of: Mention, at: usize) -> Option<(Vec<Mention>, usize)> {
        let noun = self.skip(at, &ADJECTIVES);
        let Some((relation, is_many)) = Relation::of_english(self.lower(noun)) else { return self.thing_of(of, noun) };
        let mut next = noun + 1;
        if self.is(next, &["'s"])
            && self.is_owning(next + 1)
            && let Some(found) = self.of_person(Mention::related(of.clone(), relation, None), next + 1)
        {
            return Some(found);
        }
        let mut names = Vec::new();
        let begin = if self.is(next, &[","]) && self.is_name(next + 1) { next + 1 } else { next };
        if let Some((name, end)) = self.name(begin).filter(|_| begin == next || self.is_apposed(begin)) {
            names.push(name);
            next = end;
            while is_many && self.is(next, &[",", "and"]) {
                let Some((name, end)) = self.name(self.skip(next, &[",", "and"])) else { break };
                names.push(name);
                next = end;
            }
            if begin != noun + 1 && self.is(next, &[","]) {
                next += 1;
            }
        }
        if let ([name], true) = (&names[..], self.is(next, &["'s"]) && self.is_owning(next + 1)) {
            return self.of_person(Mention::related(of, relation, Some(name.clone())), next + 1);
        }
        let related = |name: Option<String>| Mention::related(of.clone(), relation, name);
        let mentions = match names.is_empty() {
            true => vec![related(None)],
            false => names.into_iter().map(|name| related(Some(name))).collect(),
        };
        Some((mentions, next))
    }

    /// Returns `true` if a name between commas explains what is before it: "my sister, Henrike, lives".
    fn is_apposed(&self, at: usize) -> bool {
        self.name(at).is_some_and(|(_, end)| end == self.len() || self.is(end, &[",", "and"]))
    }

    fn thing_of(&self, of: Mention, at: usize) -> Option<(Vec<Mention>, usize)> {
        const KIND_WORDS_MAX: usize = 2;
        const VERBS: [&str; 8] = ["is", "are", "was", "'s", "called", "named", "has", "lives"];
        let mut end = at;
        while end < at + KIND_WORDS_MAX
            && end < self.len()
            && !self.is_name(end)
            && !self.is(end, &VERBS)
            && !self.is(end, &[",", "and", "of"])
        {
            end += 1;
        }
        let last = self.lower(end.saturating_sub(1));
        let last = last.strip_suffix('s').unwrap_or(last);
        let is_kind = PETS.contains(&last) || OWNED.contains(&last) || NOUNS.contains(&last);
        let kind = self
            .0
            .get(at..end)
            .filter(|kind| !kind.is_empty() && is_kind)?
            .iter()
            .map(|word| word.lower.as_str())
            .collect::<Vec<_>>()
            .join(" ");
        let (name, next) = self.name(end).map_or((None, end), |(name, next)| (Some(name), next));
        Some((vec![Mention::Owned { of: Box::new(of), kind, name }], next))
    }
}
