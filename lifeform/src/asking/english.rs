//! English questions as paths.

use super::{Hop, Path, kinds_of};
use crate::formation::vocabulary::Relation;
use crate::formation::{Mention, Words};

/// The auxiliaries before a subject.
const DO: [&str; 2] = ["do", "does"];
const BE: [&str; 6] = ["is", "are", "am", "was", "were", "'s"];
/// The words with which a question about members of a group begins.
const WHICH: [&str; 9] = ["which", "who", "any", "many", "all", "one", "some", "anyone", "those"];

/// The words before a question, and behind it, that have no meaning of their own.
const BEFORE: [&str; 9] = ["so ", "and ", "remind me, ", "remind me: ", "ok, ", "okay, ", "hey, ", "well, ", "also, "];
const BEHIND: [&str; 9] = [
    " at the moment",
    " these days",
    " right now",
    " nowadays",
    " currently",
    " again",
    " now",
    " today",
    " by the way",
];

/// Returns a question without what stands before and behind it.
fn plain(question: &str) -> &str {
    let mut text = question.trim().trim_end_matches(['?', '!', '.', ' ']);
    let lower = |text: &str, from: usize, to: usize| text.get(from..to).unwrap_or_default().to_lowercase();
    while let Some(word) = BEFORE.iter().find(|word| lower(text, 0, word.len()) == **word) {
        text = text[word.len()..].trim_start();
    }
    while let Some(word) =
        BEHIND.iter().find(|word| text.len() > word.len() && lower(text, text.len() - word.len(), text.len()) == **word)
    {
        text = text[..text.len() - word.len()].trim_end_matches([',', ' ']);
    }
    text
}

/// Reads a question.
pub(super) fn read(question: &str) -> Option<Path> {
    let words = Words::of(plain(question));
    // "Iris, which of …"
    let begin = if words.is_name(0) && words.lower(1) == "," { 2 } else { 0 };
    let counts = words.is(begin, &["how"]) && words.is(begin + 1, &["many"]);
    let is_which = words.is(begin, &["which", "what"]) && words.is(begin + 2, &["have"]);
    let path = about(&words, begin)
        .or_else(|| if is_which { how_many(&words, begin + 1) } else { None })
        .or_else(|| of_a_group(&words, begin))
        .or_else(|| if counts { how_many(&words, begin + 2) } else { None })
        .or_else(|| of_one(&words, begin))
        .or_else(|| of_anyone(&words, begin))?;
    Some(if counts { path.counting() } else { path })
}

/// Reads "What do you know about Henrike?".
fn about(words: &Words, begin: usize) -> Option<Path> {
    const KNOW: [&str; 3] = ["know", "remember", "tell"];
    let about = (begin..words.len())
        .find(|at| words.is(*at, &["about"]) && (begin..*at).any(|before| words.is(before, &KNOW)))?;
    let (mention, next) = one(words, about + 1)?;
    (next == words.len() && mention != Mention::Speaker).then(|| Path::to(&mention))?.map(|path| path.asking(None))
}

/// Reads "Which of my sister's neighbours sails?" and "Which friends of mine climb?".
fn of_a_group(words: &Words, begin: usize) -> Option<Path> {
    let of = (begin + 1..words.len()).find(|at| words.is(*at, &["of"]))?;
    if words.is(of + 1, &["mine", "ours"]) {
        let (relation, _) = Relation::of_english(words.lower(of.checked_sub(1)?))?;
        let path = Path::to(&Mention::related(Mention::Speaker, relation, None))?;
        return path.with(&words.condition(of + 2)?);
    }
    let (group, next) = one(words, of + 1)?;
    // "which neighbour of my sister's plays the cello"
    if let Some((relation, _)) =
        Relation::of_english(words.lower(of - 1)).filter(|_| words.is(begin, &["which", "who", "how"]))
    {
        let next = if words.is(next, &["'s"]) { next + 1 } else { next };
        return Path::to(&Mention::related(group, relation, None))?.with(&words.condition(next)?);
    }
    if !words.is(of - 1, &WHICH) {
        return None;
    }
    Path::to(&group)?.with(&words.condition(next)?)
}

/// Reads what follows "how many": "sisters do I have", "people live in Oslo".
fn how_many(words: &Words, at: usize) -> Option<Path> {
    if words.is(at, &["people", "persons", "others"]) {
        return Path::anyone().with(&words.condition(at + 1)?);
    }
    if words.is(at + 1, &["have"]) && words.is(at + 2, &["i"]) && words.is(at + 3, &["told", "mentioned"]) {
        return Some(having(Path::to(&Mention::Speaker)?, words, at));
    }
    let aux = (at + 1..words.len()).find(|at| words.is(*at, &DO))?;
    let (owner, next) = one(words, aux + 1)?;
    let is_whole = words.is(next, &["have", "own", "keep", "got"]) && next + 1 == words.len();
    let path = Path::to(&owner).filter(|_| is_whole)?;
    Some(having(path, words, aux - 1))
}

/// Returns the path to what a person has, as a noun names it.
fn having(mut path: Path, words: &Words, noun: usize) -> Path {
    let noun = words.lower(noun);
    path.hops.push(match Relation::of_english(noun) {
        Some((relation, _)) => Hop::to(relation, None),
        None => Hop::owns(kinds_of(noun.strip_suffix('s').unwrap_or(noun)), None),
    });
    path
}

/// Reads a question about one person: "Where does my sister live?", "What is my sister called?".
fn of_one(words: &Words, begin: usize) -> Option<Path> {
    let is_asking =
        words.is(begin, &["who", "what", "where", "which", "do", "does", "is", "are", "name", "list", "whom"]);
    let aux = (begin..words.len()).find(|at| words.is(*at, &DO) || words.is(*at, &BE)).filter(|_| is_asking)?;
    let (mention, next) = one(words, aux + 1)?;
    let verb = words.lower(next);
    let path = |mention: &Mention| Path::to(mention);
    // "What time does Tom work?" asks for no place.
    let is_where = words.is(begin, &["where"]);
    let of_place = ["company", "firm", "city", "town", "country", "place", "village", "office"];
    let asks_place = is_where || (begin + 1..aux).any(|at| words.is(at, &of_place));
    let is_whole =
        |at: usize| at >= words.len() || (at + 1 == words.len() && words.is(at, &["in", "for", "at", "from", "to"]));
    if words.is(aux, &DO) {
        let predicate = match verb {
            "live" if asks_place => "lives_in",
            "work" if words.is(next + 1, &["as"]) => "works_as",
            "work" if asks_place => "works_for",
            "come" if asks_place => "comes_from",
            "like" | "love" | "enjoy" => "likes",
            "hate" | "dislike" => "dislikes",
            "speak" => "speaks",
            "study" | "learn" => "studies",
            "play" => "does",
            "do" if words.is(next + 1, &["for"]) && words.is(next + 3, &["living"]) => "works_as",
            "do" if words.is(begin, &["what"]) => "does",
            "have" | "own" | "keep" if is_whole(next + 1) => {
                return Some(having(path(&mention)?, words, aux.checked_sub(1)?));
            }
            _ => return None,
        };
        let is_living = words.is(next + 1, &["for", "as"]);
        return (is_whole(next + 1) || is_living).then(|| path(&mention))?.map(|path| path.asking(Some(predicate)));
    }
    match (&mention, verb) {
        (Mention::Owned { of, kind, name: None }, _)
            if ["job", "profession", "occupation", "work"].contains(&&**kind) =>
        {
            Some(path(of)?.asking(Some("works_as")))
        }
        (Mention::Owned { of, kind, name: None }, "") if kind == "name" => path(of),
        // "my dog's name" is a thing whose kind ends so.
        (Mention::Owned { of, kind, name: None }, "'s") if words.is(next + 1, &["name"]) => {
            path(&Mention::Owned { of: of.clone(), kind: kind.clone(), name: None })
        }
        (_, "from") if is_whole(next + 1) => Some(path(&mention)?.asking(Some("comes_from"))),
        (_, "allergic") if is_whole(next + 1) => Some(path(&mention)?.asking(Some("must_avoid"))),
        (_, "married" | "engaged") if is_whole(next + 1) => {
            path(&Mention::related(mention, Relation::named("partner")?, None))
        }
        (_, "studying" | "learning") if is_whole(next + 1) => Some(path(&mention)?.asking(Some("studies"))),
        (_, "living") if asks_place && is_whole(next + 1) => Some(path(&mention)?.asking(Some("lives_in"))),
        (_, "working") if asks_place && is_whole(next + 1) => Some(path(&mention)?.asking(Some("works_for"))),
        (Mention::Named(..) | Mention::Speaker, _) => None,
        (_, "") if is_where => Some(path(&mention)?.asking(Some("lives_in"))),
        (_, "" | "called" | "named") => path(&mention),
        _ => None,
    }
}

/// Reads "Who lives in Gdańsk?" and "Who do I know that lives in Leeds?".
fn of_anyone(words: &Words, begin: usize) -> Option<Path> {
    let knows = words.is(begin + 1, &["do"]) && words.is(begin + 2, &["i", "we"]) && words.is(begin + 3, &["know"]);
    let said = if knows && words.is(begin + 4, &["that", "who"]) { begin + 5 } else { begin + 1 };
    words.is(begin, &["who"]).then(|| Path::anyone().with(&words.condition(said)?))?
}

/// Returns the one person, or thing of a person, at a place.
fn one(words: &Words, at: usize) -> Option<(Mention, usize)> {
    let (mentions, next) = words.people(at)?;
    <[Mention; 1]>::try_from(mentions).ok().map(|[mention]| (mention, next))
}
