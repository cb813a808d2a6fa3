//! The claims of English sentences, by rules.

use super::mention::{Claim, Kind, Mention};
use super::vocabulary::{PETS, Relation, activity};

/// The words with which a sentence claims nothing: it supposes, wishes or tells of the past.
const SUPPOSES: [&str; 37] = [
    "none",
    "neither",
    "nobody",
    "few",
    "hardly",
    "think",
    "thinks",
    "thought",
    "doubt",
    "doubts",
    "guess",
    "apparently",
    "next",
    "maybe",
    "perhaps",
    "might",
    "may",
    "could",
    "would",
    "should",
    "if",
    "wish",
    "hope",
    "hopes",
    "dreamt",
    "dreamed",
    "dream",
    "imagine",
    "suppose",
    "pretend",
    "probably",
    "possibly",
    "almost",
    "nearly",
    "unless",
    "whether",
    "will",
];
/// Words between a subject and its verb that change nothing.
const ADVERBS: [&str; 18] = [
    "now",
    "currently",
    "really",
    "also",
    "still",
    "just",
    "usually",
    "always",
    "often",
    "actually",
    "both",
    "all",
    "mostly",
    "regularly",
    "sometimes",
    "already",
    "recently",
    "finally",
];
/// Adjectives before a relation.
const ADJECTIVES: [&str; 22] = [
    "older",
    "elder",
    "eldest",
    "oldest",
    "younger",
    "youngest",
    "little",
    "big",
    "best",
    "old",
    "good",
    "close",
    "new",
    "twin",
    "dear",
    "other",
    "second",
    "first",
    "next-door",
    "closest",
    "great",
    "baby",
];
/// The words that end a noun phrase.
const ENDS: [&str; 52] = [
    "because", "since", "when", "with", "on", "every", "at", "in", "for", "but", "that", "which", "who", "so", "as",
    "after", "before", "while", "during", "from", "to", "now", "too", "also", "very", "most", "more", "than", "is",
    "are", "was", "by", "near", "of", "if", "these", "lately", "again", "together", "there", "here", "today", "each",
    "twice", "once", "although", "though", "until", "till", "without", "about", "whenever",
];
/// The beginnings of what is no theme.
const NO_THEMES: [&str; 24] = [
    "it",
    "you",
    "this",
    "that",
    "how",
    "him",
    "her",
    "his",
    "them",
    "my",
    "your",
    "their",
    "me",
    "us",
    "our",
    "what",
    "being",
    "having",
    "everything",
    "nothing",
    "one",
    "not",
    "people",
    "i",
];
/// The kinds of things that a person owns who has one: a boat, and not an idea.
const OWNED: [&str; 34] = [
    "boat",
    "yacht",
    "car",
    "bike",
    "bicycle",
    "motorcycle",
    "motorbike",
    "van",
    "house",
    "cottage",
    "cabin",
    "flat",
    "apartment",
    "farm",
    "garden",
    "piano",
    "guitar",
    "violin",
    "drum",
    "telescope",
    "camera",
    "laptop",
    "caravan",
    "camper",
    "canoe",
    "kayak",
    "tractor",
    "truck",
    "scooter",
    "vineyard",
    "shop",
    "bakery",
    "restaurant",
    "aquarium",
];
/// Further nouns after an owner that are read: what a person is called and does, and pets as such.
const NOUNS: [&str; 7] = ["name", "job", "profession", "occupation", "work", "pet", "animal"];
/// Occupations.
const OCCUPATIONS: [&str; 96] = [
    "baker",
    "teacher",
    "plumber",
    "painter",
    "carpenter",
    "lawyer",
    "engineer",
    "designer",
    "driver",
    "farmer",
    "gardener",
    "firefighter",
    "butcher",
    "tailor",
    "writer",
    "singer",
    "dancer",
    "actor",
    "doctor",
    "professor",
    "author",
    "editor",
    "tutor",
    "sculptor",
    "translator",
    "dentist",
    "therapist",
    "artist",
    "scientist",
    "chemist",
    "biologist",
    "physicist",
    "psychologist",
    "journalist",
    "florist",
    "pharmacist",
    "pianist",
    "cellist",
    "violinist",
    "guitarist",
    "programmer",
    "developer",
    "manager",
    "waiter",
    "barber",
    "jeweller",
    "photographer",
    "researcher",
    "reporter",
    "banker",
    "builder",
    "welder",
    "roofer",
    "bricklayer",
    "paramedic",
    "cobbler",
    "nurse",
    "cook",
    "chef",
    "pilot",
    "judge",
    "mechanic",
    "surgeon",
    "midwife",
    "clerk",
    "guard",
    "monk",
    "priest",
    "architect",
    "vet",
    "coach",
    "poet",
    "spy",
    "scribe",
    "blacksmith",
    "locksmith",
    "goldsmith",
    "accountant",
    "student",
    "consultant",
    "assistant",
    "librarian",
    "musician",
    "electrician",
    "physician",
    "politician",
    "technician",
    "magician",
    "beautician",
    "optician",
    "historian",
    "comedian",
    "guide",
    "model",
    "soldier",
    "sailor",
];
/// A word of an English sentence.
#[derive(Clone, Debug)]
struct Word {
    text: String,
    lower: String,
}

/// The words of an English sentence. Marks and the possessive ending are words of their own.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<Word>);

/// The number of words after a subject within which its predicate may begin.
const LATER_WORDS: usize = 7;
/// The words for parents and grandparents that need no owner: "mum lives in Leeds".
const OWN_WORDS: [&str; 8] = ["mum", "mom", "dad", "daddy", "grandma", "grandpa", "granny", "grandad"];
/// The words with which the mention of a person begins.
const BEGINS: [&str; 10] = ["i", "we", "my", "our", "he", "she", "they", "his", "her", "their"];

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
    let (mut claims, mut at) = (Vec::new(), 0);
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
        let is_name = self.is_name(at) && !is_owned && before.is_none_or(|before| !self.is_name(before));
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
        const NO_NAMES: [&str; 119] = [
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

    /// Returns the claims of what follows a subject.
    fn said_of(&self, subjects: &[Mention], at: usize) -> Vec<Claim> {
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
    fn pairs(&self, first: &Mention, others: &[Mention], at: usize) -> Option<Vec<Claim>> {
        let noun = self.skip(at, &["are", "have", "been", "good", "best", "close", "old", "both"]);
        let relation = match self.lower(noun) {
            "married" | "engaged" => Relation::named("partner")?,
            word => {
                Relation::of_english(word)
                    .filter(|(relation, is_many)| *is_many && super::vocabulary::is_symmetric(relation.predicate))?
                    .0
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
    fn predicate(&self, subject: &Mention, at: usize, continues: bool) -> Option<(Vec<Claim>, usize)> {
        let mut at = self.skip(at, &ADVERBS);
        let mut is_negated = false;
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
            "as" | "for" | "at" if !is_negated && continues => self.work(subject, at),
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
            "play" | "plays" if !is_negated => themes("does", at + 1),
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
                let doing = activity(other).filter(|_| !is_negated)?;
                let ends = at + 1 >= self.len()
                    || self.is(at + 1, &ENDS)
                    || self.is(at + 1, &[",", "and", "a"])
                    || self.is(at + 1, &ADVERBS);
                let is_a_lot = !self.is(at + 1, &["a"]) || self.is(at + 2, &["lot"]);
                (ends && is_a_lot).then(|| (vec![Claim::new(subject.clone(), "does", Mention::theme(doing))], at + 1))
            }
        }
    }

    fn at_place(
        &self,
        subject: &Mention,
        predicate: &'static str,
        at: usize,
        is_negated: bool,
    ) -> Option<(Vec<Claim>, usize)> {
        let (place, next) = self.is(at, &["in"]).then(|| self.place(at + 1))??;
        (!is_negated).then(|| (vec![Claim::new(subject.clone(), predicate, place)], next))
    }

    fn place(&self, at: usize) -> Option<(Mention, usize)> {
        let (name, next) = self.name(self.skip(at, &["the"]))?;
        Some((Mention::Named(Kind::Place, name), next))
    }

    fn work(&self, subject: &Mention, at: usize) -> Option<(Vec<Claim>, usize)> {
        let (mut claims, mut next) = (Vec::new(), if self.is(at, &["work", "works", "working"]) { at + 1 } else { at });
        if self.is(next, &["for", "at", "with"])
            && let Some((name, end)) = self.name(self.skip(next + 1, &["the"]))
        {
            claims.push(Claim::new(subject.clone(), "works_for", Mention::Named(Kind::Organization, name)));
            next = end;
        }
        if self.is(next, &["as"]) {
            let (themes, end) = self.themes(next + 1)?;
            claims.extend(
                themes.into_iter().take(1).map(|theme| Claim::new(subject.clone(), "works_as", Mention::theme(theme))),
            );
            next = end;
        }
        (!claims.is_empty()).then_some((claims, next))
    }

    /// Returns the claims of a form of "to be".
    fn being(&self, subject: &Mention, at: usize, is_negated: bool) -> Option<(Vec<Claim>, usize)> {
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
    fn having(&self, subject: &Mention, at: usize, is_own: bool) -> Option<(Vec<Claim>, usize)> {
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

    /// Returns a noun of at most three words, in lower case, and the place after it.
    fn noun(&self, at: usize) -> Option<(String, usize)> {
        const NOUN_WORDS_MAX: usize = 3;
        let mut end = at;
        while end < self.len()
            && end < at + NOUN_WORDS_MAX
            && !self.is(end, &ENDS)
            && !self.is(end, &[",", "and", "or", "called", "named", "'s"])
        {
            end += 1;
        }
        (end > at).then(|| (self.text(at, end).to_lowercase(), end))
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
    fn is_clause(&self, at: usize) -> bool {
        const BEGIN: [&str; 24] = [
            "i", "he", "she", "they", "we", "it", "my", "his", "her", "live", "lives", "work", "works", "have", "has",
            "am", "is", "was", "like", "likes", "hate", "hates", "speak", "speaks",
        ];
        self.is(at, &BEGIN) || (self.is_name(at) && self.name(at).is_some_and(|(_, next)| self.is(next, &BEGIN)))
    }
}
