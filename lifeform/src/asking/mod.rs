//! The questions that the graph of a mind answers exactly: over one or several relations ("Which of my sister's neighbours
//! sails?"), how many, which, where. Rules read them, in English, Chinese and Japanese; what they do not read, a model reads that is
//! strong enough, and otherwise it is left to the recall of statements. `docs/src/internals/knowing.md` explains it.

mod answering;
mod chinese;
mod command;
mod disputing;
mod english;
mod inferring;
mod japanese;
mod linking;
mod query;
pub(crate) mod reading;
mod rows;

pub(crate) use query::Query;
pub(crate) use reading::Read;

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use crate::formation::chinese::person as person_in_chinese;
use crate::formation::japanese::person as person_in_japanese;
use crate::formation::vocabulary::{PETS, Relation};
use crate::formation::{Claim, Kind, Mention, Words};

/// The maximum length of a question that is read, in characters, and of its path, in steps.
const QUESTION_CHARS_MAX: usize = 300;
const HOPS_MAX: usize = 4;
/// The maximum number of mentions of a question that are looked up.
const MENTIONED_MAX: usize = 4;

/// The person or thing at which the path of a question begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Start {
    /// The person who asks.
    Asker,
    /// The person or thing with a name.
    Named(String),
    /// Anyone.
    Anyone,
}

/// A step of a path: from a person to those who are related to it, or to what it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hop {
    /// The predicate.
    pub(crate) predicate: &'static str,
    /// The relations that count; empty for all.
    pub(crate) relations: &'static [&'static str],
    /// The kinds of things that count; empty for all.
    pub(crate) kinds: Vec<String>,
    /// The name that is asked for, if it is said.
    pub(crate) name: Option<String>,
}

/// The last condition of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct End {
    /// The predicate; `None` for all of them.
    pub(crate) predicate: Option<Cow<'static, str>>,
    /// The object that is wanted; `None` if the question asks for it.
    pub(crate) object: Option<Object>,
}

/// The object of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    /// A concept with a name.
    Named(Kind, String),
    /// A thing of a kind.
    OfKind(String),
}

/// A question as a path through the graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// The beginning.
    pub(crate) start: Start,
    /// The steps.
    pub(crate) hops: Vec<Hop>,
    /// The last condition.
    pub(crate) end: Option<End>,
    /// `true` if the number is asked for.
    pub(crate) counts: bool,
}

/// The words by which a question asks for people, or for how many there are.
static ASKS_FOR_PEOPLE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?i)\b(who|whom|whose|which of|how many|who's)\b|谁|几[个位只]|多少|哪[个几些位]|有哪|誰|何人|何匹|いくつ|どっち|どの人|全員|全部";
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns `true` if a text asks something.
pub(crate) fn is_question(text: &str) -> bool {
    let text = text.trim();
    let is_short = text.chars().count() <= QUESTION_CHARS_MAX;
    is_short
        && (text.contains(['?', '？'])
            || ["吗", "呢", "か。", "か", "教えて。", "教えて"].iter().any(|end| text.ends_with(end)))
}

/// Returns `true` if a text asks for people, for their number, or over a relation between them: if the rules do not read it, a
/// model may.
pub(crate) fn asks_for_people(text: &str) -> bool {
    let in_words = || {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
        words.any(|word| Relation::of_english(&word.to_lowercase()).is_some())
    };
    is_question(text) && (ASKS_FOR_PEOPLE.is_match(text) || in_words() || Relation::is_in(text))
}

/// Returns a question as a path; `None` if the rules do not read it.
pub(crate) fn path(question: &str) -> Option<Path> {
    let question = question.trim();
    if question.chars().count() > QUESTION_CHARS_MAX {
        return None;
    }
    let is_in = |from: char, to: char| question.chars().any(|c| (from..=to).contains(&c));
    let path = match () {
        () if is_in('\u{3040}', '\u{30ff}') => japanese::read(question),
        () if is_in('\u{4e00}', '\u{9fff}') => chinese::read(question),
        () => english::read(question),
    };
    // Without a step or a condition it asks for nothing, and of anyone only a condition asks.
    path.filter(|path| path.hops.len() <= HOPS_MAX).filter(|path| match path.start {
        Start::Anyone => path.end.as_ref().is_some_and(|end| end.object.is_some()),
        _ => !path.hops.is_empty() || path.end.is_some(),
    })
}

/// Returns the paths to those whom a question mentions, whether or not the rules read what it asks.
pub(crate) fn mentioned(question: &str) -> Vec<Path> {
    if question.chars().count() > QUESTION_CHARS_MAX {
        return Vec::new();
    }
    let is_in = |from: char, to: char| question.chars().any(|c| (from..=to).contains(&c));
    let mentions = match () {
        () if is_in('\u{3040}', '\u{30ff}') => {
            let end = ["の中", "のうち", "は", "が", "について"].iter().filter_map(|mark| question.find(mark)).min();
            end.and_then(|end| person_in_japanese(question[..end].trim_end_matches('に'))).into_iter().collect()
        }
        () if is_in('\u{4e00}', '\u{9fff}') => {
            person_in_chinese(question).map(|(mention, _)| mention).into_iter().collect()
        }
        () => Words::of(question).mentions(),
    };
    let paths = mentions.iter().filter(|mention| **mention != Mention::Speaker).filter_map(Path::to);
    paths.filter(|path| path.hops.len() <= HOPS_MAX).take(MENTIONED_MAX).collect()
}

/// Returns the kinds of things that a noun means; pets are many.
fn kinds_of(noun: &str) -> Vec<String> {
    match noun {
        "pet" | "pets" | "animal" | "animals" | "宠物" | "动物" | "ペット" => {
            PETS.iter().map(|kind| (*kind).to_owned()).collect()
        }
        "thing" | "things" | "what" => Vec::new(),
        _ => vec![noun.to_owned()],
    }
}

impl Hop {
    /// Returns a step to those who are related.
    fn to(relation: &'static Relation, name: Option<String>) -> Self {
        Self { predicate: relation.predicate, relations: relation.includes, kinds: Vec::new(), name }
    }

    /// Returns a step to things of some kinds.
    fn owns(kinds: Vec<String>, name: Option<String>) -> Self {
        Self { predicate: "owns", relations: &[], kinds, name }
    }
}

impl Path {
    /// Returns the path to a mention.
    fn to(mention: &Mention) -> Option<Self> {
        let from = |of: &Mention, hop: Hop| {
            let mut path = Self::to(of)?;
            path.hops.push(hop);
            Some(path)
        };
        match mention {
            Mention::Speaker => Some(Self { start: Start::Asker, hops: Vec::new(), end: None, counts: false }),
            Mention::Last => None,
            Mention::Named(_, name) => {
                Some(Self { start: Start::Named(name.clone()), hops: Vec::new(), end: None, counts: false })
            }
            Mention::Related { of, relation, name } => from(of, Hop::to(relation, name.clone())),
            Mention::Owned { of, kind, name } => from(of, Hop::owns(kinds_of(kind), name.clone())),
        }
    }

    /// Returns the path of anyone.
    fn anyone() -> Self {
        Self { start: Start::Anyone, hops: Vec::new(), end: None, counts: false }
    }

    /// Returns the path with a condition that asks for an object.
    fn asking(self, predicate: Option<&'static str>) -> Self {
        Self { end: Some(End { predicate: predicate.map(Cow::Borrowed), object: None }), ..self }
    }

    /// Returns the path with the condition that a statement makes of its subject.
    fn with(self, claim: &Claim) -> Option<Self> {
        let object = match &claim.object {
            Mention::Named(kind, name) => Object::Named(*kind, name.clone()),
            Mention::Owned { kind, name: None, .. } => Object::OfKind(kind.clone()),
            Mention::Owned { name: Some(name), .. } => Object::Named(Kind::Thing, name.clone()),
            Mention::Related { name: Some(name), .. } => Object::Named(Kind::Person, name.clone()),
            _ => return None,
        };
        Some(Self { end: Some(End { predicate: Some(claim.predicate.clone()), object: Some(object) }), ..self })
    }

    fn counting(self) -> Self {
        Self { counts: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(question: &str) -> String {
        let Some(path) = path(question) else { return "-".to_owned() };
        let start = match path.start {
            Start::Asker => "I".to_owned(),
            Start::Named(name) => name,
            Start::Anyone => "anyone".to_owned(),
        };
        let hops = path.hops.iter().map(|hop| {
            let which = [hop.relations.join("/"), hop.kinds.join("/"), hop.name.clone().unwrap_or_default()].concat();
            format!(".{}[{which}]", hop.predicate)
        });
        let end = path.end.map(|end| {
            let object = match end.object {
                None => "?".to_owned(),
                Some(Object::Named(_, name)) => name,
                Some(Object::OfKind(kind)) => format!("a {kind}"),
            };
            format!(" {} {object}", end.predicate.as_deref().unwrap_or("*"))
        });
        let counts = if path.counts { "# " } else { "" };
        format!("{counts}{start}{}{}", hops.collect::<String>(), end.unwrap_or_default())
    }

    #[test]
    fn english_questions_become_paths() {
        for (question, is) in [
            ("Which of my sister's neighbours sails?", "I.relative_of[sister].neighbour_of[] does sailing"),
            ("Who of my friends lives in Oslo?", "I.friend_of[] lives_in Oslo"),
            ("Do any of my colleagues have a dog?", "I.colleague_of[] owns a dog"),
            ("Where does my sister live?", "I.relative_of[sister] lives_in ?"),
            ("Where does Henrike work?", "Henrike works_for ?"),
            ("What does my brother Max like?", "I.relative_of[brotherMax] likes ?"),
            ("Where is Ida from?", "Ida comes_from ?"),
            ("What is my sister called?", "I.relative_of[sister]"),
            ("What's my sister's name?", "I.relative_of[sister]"),
            ("What is my dog's name?", "I.owns[dog]"),
            ("Who are Henrike's neighbours?", "Henrike.neighbour_of[]"),
            ("Who is my boss?", "I.knows[boss]"),
            ("What is Tom allergic to?", "Tom must_avoid ?"),
            ("What is Tom's job?", "Tom works_as ?"),
            ("How many sisters do I have?", "# I.relative_of[sister]"),
            ("How many siblings does Ada have?", "# Ada.relative_of[sister/brother/sibling]"),
            ("How many of my friends live in Oslo?", "# I.friend_of[] lives_in Oslo"),
            ("How many dogs do I have?", "# I.owns[dog]"),
            ("Who lives in Gdańsk?", "anyone lives_in Gdańsk"),
            ("Who sails?", "anyone does sailing"),
            ("Who works for Acme?", "anyone works_for Acme"),
            ("Who is allergic to peanuts?", "anyone must_avoid peanuts"),
            ("How many people live in Oslo?", "# anyone lives_in Oslo"),
            ("What languages does Ben speak?", "Ben speaks ?"),
            ("What do I like?", "I likes ?"),
            ("What do you know about Henrike?", "Henrike * ?"),
            ("What do you know about my sister?", "I.relative_of[sister] * ?"),
            ("Who is Ben married to?", "Ben.partner_of[]"),
            ("Which friends of mine climb?", "I.friend_of[] does climbing"),
            ("Which neighbour of my sister's plays the cello?", "I.relative_of[sister].neighbour_of[] does cello"),
            ("So where does Sofie live these days?", "Sofie lives_in ?"),
            ("Who's my boss at the moment?", "I.knows[boss]"),
            ("Where's Niall living now?", "Niall lives_in ?"),
            ("How many neighbours have I told you about?", "# I.neighbour_of[]"),
            ("Which friends have I told you about?", "I.friend_of[]"),
            ("Which company am I working for these days?", "I works_for ?"),
            ("Who do I know that lives in Leeds?", "anyone lives_in Leeds"),
            (
                "What language is my colleague's little daughter learning?",
                "I.colleague_of[].relative_of[daughter] studies ?",
            ),
        ] {
            assert_eq!(read(question), is, "{question}");
        }
        for other in [
            "How are you?",
            "What is the weather like in Oslo?",
            "Can you help me?",
            "What do you know about me?",
            "Who are you?",
            "Tell me a joke.",
        ] {
            assert_eq!(read(other), "-", "{other}");
        }
    }

    #[test]
    fn questions_for_people_are_for_a_model() {
        for asks in [
            "Which of my colleagues is married to someone from Riga?",
            "What does my brother's father-in-law make?",
            "Who are the dentists we've talked about?",
            "我组长的美术老师，她老公教的是哪一科？",
            "一共有几个人不能吃海鲜？",
            "犬に近づけない人を全員教えて。",
            "旦那のお兄さんが通ってるお店、誰がやってるんだっけ？",
        ] {
            assert!(asks_for_people(asks), "{asks}");
        }
        for other in [
            "How are you?",
            "My sister lives in Oslo.",
            "What is the weather like in Oslo?",
            "今天天气怎么样？",
            "元気ですか？",
        ] {
            assert!(!asks_for_people(other), "{other}");
        }
    }

    #[test]
    fn chinese_questions_become_paths() {
        for (question, is) in [
            ("我姐姐的邻居里谁会帆船？", "I.relative_of[sister].neighbour_of[] does 帆船"),
            ("我的朋友中哪些住在上海？", "I.friend_of[] lives_in 上海"),
            ("我姐姐住在哪里？", "I.relative_of[sister] lives_in ?"),
            ("小梅在哪里工作？", "小梅 works_for ?"),
            ("小梅的邻居是谁？", "小梅.neighbour_of[]"),
            ("我姐姐叫什么名字？", "I.relative_of[sister]"),
            ("我有几个弟弟？", "# I.relative_of[brother]"),
            ("我养了几只猫？", "# I.owns[猫]"),
            ("我的朋友里有几个住在上海？", "# I.friend_of[] lives_in 上海"),
            ("谁住在杭州？", "anyone lives_in 杭州"),
            ("我喜欢什么？", "I likes ?"),
            ("我对什么过敏？", "I must_avoid ?"),
            ("小梅是做什么工作的？", "小梅 works_as ?"),
            ("你知道小梅的什么？", "小梅 * ?"),
        ] {
            assert_eq!(read(question), is, "{question}");
        }
        for other in ["你好吗？", "今天天气怎么样？", "你知道我的什么？"] {
            assert_eq!(read(other), "-", "{other}");
        }
    }

    #[test]
    fn japanese_questions_become_paths() {
        for (question, is) in [
            ("姉の隣人の中で誰がヨットをしていますか？", "I.relative_of[sister].neighbour_of[] does ヨット"),
            ("私の友達のうち、誰が大阪に住んでいますか？", "I.friend_of[] lives_in 大阪"),
            ("姉はどこに住んでいますか？", "I.relative_of[sister] lives_in ?"),
            ("弟はどこで働いていますか？", "I.relative_of[brother] works_for ?"),
            ("由美の隣人は誰ですか？", "由美.neighbour_of[]"),
            ("姉の名前は何ですか？", "I.relative_of[sister]"),
            ("私には弟が何人いますか？", "# I.relative_of[brother]"),
            ("私は猫を何匹飼っていますか？", "# I.owns[猫]"),
            ("友達の中で何人が大阪に住んでいますか？", "# I.friend_of[] lives_in 大阪"),
            ("誰が神戸に住んでいますか？", "anyone lives_in 神戸"),
            ("私は何が好きですか？", "I likes ?"),
            ("田中さんの職業は何ですか？", "田中 works_as ?"),
            ("由美について何を知っていますか？", "由美 * ?"),
        ] {
            assert_eq!(read(question), is, "{question}");
        }
        for other in ["元気ですか？", "今日の天気は？", "私について何を知っていますか？"] {
            assert_eq!(read(other), "-", "{other}");
        }
    }
}
