//! The claims that a model reads in a batch of statements. They are kept only as far as the words of the statements bear them
//! out, and only with the predicates of the vocabulary.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::mention::{Claim, Kind, Mention};
use super::predicates::Predicates;
use super::resolving::{plain, words};
use super::vocabulary::{Relation, SAME_AS, is_symmetric};
use super::{Words, chinese, japanese, supposes};

/// A claim as a model writes it.
#[derive(Debug, Deserialize)]
struct Written {
    n: usize,
    s: String,
    p: String,
    o: String,
    #[serde(default)]
    relation: String,
}

/// The talk in which statements were made, as far as all who heard them heard it.
pub(crate) struct Talk<'t> {
    /// The other sentences: questions, orders, and what was said before.
    pub(crate) around: &'t [String],
    /// The ids of the people who heard the statements.
    pub(crate) people: &'t BTreeSet<String>,
}

/// The maximum length of a subject or an object, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Returns the claims that a model read in statements, each with the place of its statement, and the number of those that the
/// words do not bear out, or whose predicate is unknown. A name may stand elsewhere in the talk, or be that of one of its people.
pub(crate) fn read(
    answer: &Value,
    talk: &Talk<'_>,
    statements: &[&str],
    predicates: &Predicates,
) -> (Vec<(usize, Claim)>, usize) {
    let written = answer["claims"].as_array().into_iter().flatten();
    let (mut claims, mut rejected): (Vec<(usize, Claim)>, usize) = (Vec::new(), 0);
    for one in written {
        let claim = Written::deserialize(one).ok().and_then(|written| claim_of(&written, talk, statements, predicates));
        match claim {
            Some((at, claim)) => {
                let implied = claim.subject.implied().into_iter().chain(claim.object.implied());
                for claim in implied.chain(std::iter::once(claim)) {
                    if claim.subject != claim.object && !claims.contains(&(at, claim.clone())) {
                        claims.push((at, claim));
                    }
                }
            }
            None => rejected += 1,
        }
    }
    (claims, rejected)
}

fn claim_of(
    written: &Written,
    talk: &Talk<'_>,
    statements: &[&str],
    predicates: &Predicates,
) -> Option<(usize, Claim)> {
    let fits = |text: &str| text.chars().count() <= NAME_CHARS_MAX;
    let at = written.n.checked_sub(1).filter(|_| fits(&written.s) && fits(&written.o))?;
    let statement = statements.get(at)?;
    let said = plain(statement);
    // "His brother Emrys would never …": he is the brother in any case.
    let is_named = Relation::of_words(&written.relation).is_some_and(|of| of.stands_before(&plain(&written.o), &said));
    if !is_named && is_supposed(statement, &written.o) {
        return None;
    }
    // A claim links two concepts.
    if plain(&written.s) == plain(&written.o) {
        return None;
    }
    let predicate = written.p.as_str();
    let kinds = predicates.kinds(predicate)?;
    let subject = match kinds.0 {
        // The instructions of the model ask for a name instead of "she".
        Kind::Person => person(&written.s).filter(|subject| *subject != Mention::Last)?,
        kind => Mention::Named(kind, written.s.trim().to_owned()),
    };
    let claim = match kinds {
        (_, Kind::Person) if predicates.is_own(predicate) => {
            Claim::new(subject, predicate.to_owned(), person(&written.o).filter(|object| *object != Mention::Last)?)
        }
        (_, Kind::Person) if predicate == SAME_AS => {
            let name = matches!(subject, Mention::Named(..)).then_some(subject)?;
            Claim::new(name, SAME_AS, person(&written.o).filter(|object| *object != Mention::Last)?)
        }
        (_, Kind::Person) => related(subject, predicate, &written.relation, &written.o)?,
        (_, kind) if predicates.is_own(predicate) => {
            Claim::new(subject, predicate.to_owned(), Mention::Named(kind, written.o.trim().to_owned()))
        }
        (_, kind) => Claim::new(subject.clone(), predicate.to_owned(), object(&written.o, kind, &subject)),
    };
    // A name may stand in another sentence of the talk, of which "she" speaks; "you" is one of its people.
    let around = talk.around.iter().map(String::as_str);
    let heard: Vec<String> = around.chain(statements[..=at].iter().copied()).map(plain).collect();
    let is_of_talk = |name: &str| talk.people.iter().any(|who| who.split_once(':').is_some_and(|(_, own)| own == name));
    let names = |mention: &Mention| {
        names_of(mention)
            .iter()
            .map(|name| plain(name))
            .all(|name| is_of_talk(&name) || heard.iter().any(|said| says(said, &name, false)))
    };
    let is_said = match &claim.object {
        // An activity has another form in the sentence: "sails". "She, too" does what was said before.
        Mention::Named(Kind::Theme | Kind::Thing, name) => {
            let name = plain(name);
            says(&said, &name, true) || (says_too(&said) && heard.iter().any(|said| says(said, &name, true)))
        }
        // "An Estonian" comes from Estonia.
        Mention::Named(Kind::Place, name) => names(&claim.object) || is_of_place(&said, &plain(name)),
        object => names(object),
    };
    (names(&claim.subject) && is_said).then_some((at, claim))
}

/// Returns `true` if a statement says of one person what an earlier one said of another. The statement is in its plain form.
fn says_too(said: &str) -> bool {
    const WORDS: [&str; 12] =
        [" too", "also", "as well", "likewise", "same", "so do", "so is", "not only", "也", "同样", "も", "同じ"];
    WORDS.iter().any(|word| said.contains(word))
}

/// Returns `true` if a text says where something is from by a word that begins like the place: "Estonian". Both are in their plain form.
fn is_of_place(said: &str, place: &str) -> bool {
    const ENDING_MAX: usize = 3;
    const PLACE_MIN: usize = 5;
    let begins = |word: &String| word.starts_with(place) && word.len() <= place.len() + ENDING_MAX;
    place.is_ascii() && place.len() >= PLACE_MIN && words(said).iter().any(begins)
}

/// Returns `true` if the parts of a statement that say the object suppose, wish, deny or quote; a model has read the whole. A name in
/// marks of quotation is no quotation.
fn is_supposed(statement: &str, object: &str) -> bool {
    const PARTS: [&str; 9] = [" and ", " but ", " so ", " because ", " while ", " who ", " which ", "而且", "但"];
    let name = object.split(['(', '（']).next().unwrap_or_default().trim();
    let statement = statement.replace(&format!("「{name}」"), name).replace(&format!("“{name}”"), name);
    let parted = PARTS.iter().fold(statement.clone(), |text, word| text.replace(word, ","));
    let parts: Vec<&str> = parted.split([',', ';', '—', '–', '，', '、', '。', '；']).collect();
    let said = parts.iter().filter(|part| says(&plain(part), &plain(name), true)).collect::<Vec<_>>();
    match said.is_empty() {
        true => supposes(&statement),
        false => said.iter().all(|part| supposes(part)),
    }
}

/// Returns `true` if a text holds all words of a name, or words with the same stems. In a script without spaces, it holds the name.
pub(crate) fn says(text: &str, name: &str, by_stem: bool) -> bool {
    const SHORT: usize = 3;
    if !name.is_ascii() {
        return text.contains(name);
    }
    let (said, wanted) = (words(text), words(name));
    let is_said = |word: &String| {
        let stem = word
            .strip_suffix("ing")
            .or_else(|| word.strip_suffix('s'))
            .filter(|stem| stem.len() >= SHORT)
            .unwrap_or(word);
        let stem = &stem[..stem.len().min(if stem.len() > SHORT + 1 { stem.len() - 1 } else { stem.len() })];
        said.iter().any(|other| other == word || (by_stem && word.len() > SHORT && other.starts_with(stem)))
    };
    !wanted.is_empty() && wanted.iter().all(is_said)
}

/// Returns the claim of a relation between people.
fn related(subject: Mention, predicate: &str, relation: &str, object: &str) -> Option<Claim> {
    let named = || Relation::of_words(relation).filter(|of| of.predicate == predicate);
    let relation = match predicate {
        "friend_of" => Relation::named("friend"),
        "neighbour_of" => Relation::named("neighbour"),
        "colleague_of" => Relation::named("colleague"),
        "partner_of" => named().or_else(|| Relation::named("partner")),
        _ => named(),
    }?;
    let (subject, object) = match (subject, person(object)?) {
        // "Tom is a neighbour of my sister": she has the neighbour Tom.
        (Mention::Named(Kind::Person, name), object @ (Mention::Related { .. } | Mention::Speaker))
            if is_symmetric(predicate) =>
        {
            (object, Mention::person(name))
        }
        both => both,
    };
    match object {
        Mention::Named(Kind::Person, name) => {
            Some(Claim::new(subject.clone(), relation.predicate, Mention::related(subject, relation, Some(name))))
        }
        // "I have the sister: my sister"
        Mention::Related { of, relation: own, name } if *of == subject && own.predicate == relation.predicate => {
            Some(Claim::new(subject, own.predicate, Mention::Related { of, relation: own, name }))
        }
        _ => None,
    }
}

/// Returns the person that a model names.
pub(crate) fn person(text: &str) -> Option<Mention> {
    let text = text.trim();
    if ["i", "me", "we", "我", "我们", "私", "僕"].contains(&text.to_lowercase().as_str()) {
        return Some(Mention::Speaker);
    }
    // "部長", "奶奶": a relation by itself is one of the speaker.
    if let Some(relation) = Relation::of_own_word(text) {
        return Some(Mention::related(Mention::Speaker, relation, None));
    }
    let words = Words::of(text);
    let whole = words.people(0).filter(|(mentions, next)| mentions.len() == 1 && *next == words.len());
    if let Some((mut mentions, _)) = whole {
        return mentions.pop();
    }
    let is_in = |from: char, to: char| text.chars().any(|c| (from..=to).contains(&c));
    match () {
        () if is_in('\u{3040}', '\u{30ff}') || text.contains('の') => japanese::person(text),
        () if is_in('\u{4e00}', '\u{9fff}') => {
            let clause = format!("{text}是");
            chinese::person(&clause)
                .filter(|(_, rest)| *rest == "是")
                .map(|(mention, _)| mention)
                .or_else(|| Some(Mention::person(text)))
        }
        () if text.is_empty() => None,
        () => Some(Mention::person(text)),
    }
}

fn object(text: &str, kind: Kind, subject: &Mention) -> Mention {
    let text = text.trim();
    if kind != Kind::Thing {
        return Mention::Named(kind, text.to_owned());
    }
    let of = Box::new(subject.clone());
    match text.strip_suffix([')', '）']).and_then(|text| text.split_once(['(', '（'])) {
        Some((name, kind)) => Mention::Owned { of, kind: kind.trim().to_owned(), name: Some(name.trim().to_owned()) },
        None if text.starts_with(char::is_uppercase) => {
            Mention::Owned { of, kind: "thing".to_owned(), name: Some(text.to_owned()) }
        }
        None => {
            let kind =
                ["a ", "an ", "the ", "my "].iter().find_map(|article| text.strip_prefix(article)).unwrap_or(text);
            Mention::Owned { of, kind: kind.to_owned(), name: None }
        }
    }
}

/// Returns the names in a mention.
fn names_of(mention: &Mention) -> Vec<&str> {
    match mention {
        Mention::Speaker | Mention::Last => Vec::new(),
        Mention::Named(_, name) => vec![name],
        Mention::Related { of, name, .. } => names_of(of).into_iter().chain(name.as_deref()).collect(),
        Mention::Owned { of, kind, name } => {
            let own = match name {
                Some(name) => name,
                None => kind,
            };
            names_of(of).into_iter().chain([own.as_str()]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SAID: [&str; 10] = [
        "My sister, you know, the one called Henrike, has settled in Gdańsk.",
        "She sails a lot.",
        "Maybe Tom lives in Oslo.",
        "我姐姐小梅定居在杭州。",
        "Patrick lives in Bristol and will never move to Leeds.",
        "杏は今は「こもれび」っていう花屋にいる。",
        "Gdańsk, in the north of Poland, is cold.",
        "Henrike's brother Emrys would never get it wet.",
        "Your husband Huw likes boats, and there is an Estonian, Toomas.",
        "Toomas sails, too.",
    ];

    fn read_one(claim: &Value) -> Vec<String> {
        let (around, people) = (["How is Mira?".to_owned()], ["user:dilys".to_owned()].into());
        let talk = Talk { around: &around, people: &people };
        read(&json!({"claims": [claim]}), &talk, &SAID, &Predicates::default())
            .0
            .into_iter()
            .map(|(at, claim)| format!("{at} {claim}"))
            .collect()
    }

    #[test]
    fn what_the_words_bear_out_is_taken() {
        for (claim, is) in [
            (
                json!({"n": 1, "s": "I", "p": "relative_of", "relation": "sister", "o": "Henrike"}),
                vec!["0 I relative_of sister(Henrike)"],
            ),
            (json!({"n": 1, "s": "Henrike", "p": "lives_in", "o": "Gdańsk"}), vec!["0 Henrike lives_in Gdańsk"]),
            (json!({"n": 2, "s": "Henrike", "p": "does", "o": "sailing"}), vec!["1 Henrike does sailing"]),
            (json!({"n": 2, "s": "Mira", "p": "does", "o": "sailing"}), vec!["1 Mira does sailing"]),
            (json!({"n": 5, "s": "Patrick", "p": "lives_in", "o": "Bristol"}), vec!["4 Patrick lives_in Bristol"]),
            (
                json!({"n": 8, "s": "Henrike", "p": "relative_of", "relation": "brother", "o": "Emrys"}),
                vec!["7 Henrike relative_of brother(Emrys)"],
            ),
            (json!({"n": 9, "s": "dilys", "p": "partner_of", "o": "Huw"}), vec!["8 dilys partner_of partner(Huw)"]),
            (json!({"n": 9, "s": "Toomas", "p": "comes_from", "o": "Estonia"}), vec!["8 Toomas comes_from Estonia"]),
            (json!({"n": 10, "s": "Toomas", "p": "likes", "o": "boats"}), vec!["9 Toomas likes boats"]),
            (json!({"n": 7, "s": "Gdańsk", "p": "located_in", "o": "Poland"}), vec!["6 Gdańsk located_in Poland"]),
            (json!({"n": 6, "s": "杏", "p": "works_for", "o": "こもれび"}), vec!["5 杏 works_for こもれび"]),
            (
                json!({"n": 1, "s": "my sister", "p": "lives_in", "o": "Gdańsk"}),
                vec!["0 I relative_of sister", "0 I.sister lives_in Gdańsk"],
            ),
            (
                json!({"n": 4, "s": "姐姐", "p": "lives_in", "o": "杭州"}),
                vec!["3 I relative_of sister", "3 I.sister lives_in 杭州"],
            ),
            (
                json!({"n": 4, "s": "我姐姐", "p": "lives_in", "o": "杭州"}),
                vec!["3 I relative_of sister", "3 I.sister lives_in 杭州"],
            ),
        ] {
            assert_eq!(read_one(&claim), is, "{claim}");
        }
    }

    #[test]
    fn a_claim_that_is_too_long_costs_the_others_nothing() {
        let long = json!({"n": 1, "s": "Henrike", "p": "lives_in", "o": "Gdańsk ".repeat(20)});
        let short = json!({"n": 1, "s": "Henrike", "p": "lives_in", "o": "Gdańsk"});
        let (claims, rejected) = read(
            &json!({"claims": [long, short]}),
            &Talk { around: &[], people: &BTreeSet::new() },
            &SAID,
            &Predicates::default(),
        );
        assert_eq!((claims.len(), rejected), (1, 1));
    }

    #[test]
    fn what_the_words_do_not_bear_out_is_dropped() {
        for claim in [
            json!({"n": 1, "s": "Henrike", "p": "lives_in", "o": "Berlin"}),
            json!({"n": 1, "s": "Eva", "p": "lives_in", "o": "Gdańsk"}),
            json!({"n": 2, "s": "Henrike", "p": "does", "o": "chess"}),
            json!({"n": 3, "s": "Tom", "p": "lives_in", "o": "Oslo"}),
            json!({"n": 5, "s": "Patrick", "p": "lives_in", "o": "Leeds"}),
            json!({"n": 11, "s": "Henrike", "p": "lives_in", "o": "Gdańsk"}),
            json!({"n": 1, "s": "Henrike", "p": "related_to", "o": "Gdańsk"}),
            json!({"n": 1, "s": "I", "p": "relative_of", "relation": "enemy", "o": "Henrike"}),
            json!({"n": 1, "s": "Henrike"}),
            json!({"n": 1, "s": "Henrike", "p": "likes", "o": "Henrike"}),
            json!("claims"),
        ] {
            assert_eq!(read_one(&claim), [""; 0], "{claim}");
        }
    }
}
