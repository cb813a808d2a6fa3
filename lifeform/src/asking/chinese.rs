//! Chinese questions as paths.

use super::{Hop, Path};
use crate::formation::Mention;
use crate::formation::chinese::{condition, person};
use crate::formation::vocabulary::{PETS, Relation};

/// The words after a group of people.
const AMONG: [&str; 6] = ["里面", "之中", "当中", "里", "中", "之间"];
/// The words for which of them, and for how many of them.
const WHICH: [&str; 9] = ["有谁", "谁", "哪一个", "哪几个", "哪个", "哪些人", "哪些", "哪位", "有哪些"];
const HOW_MANY: [&str; 6] = ["有几个人", "有几个", "有多少人", "有多少", "几个", "多少人"];
/// The predicates that a question asks for, by its words.
const ASKED: [(&str, &[&str]); 10] = [
    ("lives_in", &["住在哪", "住哪", "家在哪"]),
    ("comes_from", &["来自哪", "是哪里人", "是哪儿人"]),
    ("must_avoid", &["对什么过敏", "不能吃什么"]),
    ("dislikes", &["不喜欢什么", "讨厌什么"]),
    ("likes", &["喜欢什么", "喜欢哪些", "最喜欢什么"]),
    ("speaks", &["会说什么", "说什么语", "会什么语"]),
    ("works_as", &["是做什么", "做什么工作", "的职业是什么", "的工作是什么"]),
    ("studies", &["学什么", "学的是什么", "在学什么"]),
    ("does", &["会什么", "常做什么"]),
    ("works_for", &["在哪里工作", "在哪儿工作", "在哪家公司", "在哪里上班", "在哪儿上班"]),
];

/// Reads a question.
pub(super) fn read(question: &str) -> Option<Path> {
    let text = question.trim().trim_end_matches(['？', '?', '。', '呢', '啊']);
    let text = ["请问", "你知道吗，"].iter().fold(text, |text, word| text.strip_prefix(word).unwrap_or(text));
    if let Some(path) = about(text) {
        return Some(path);
    }
    if let Some(said) = text.strip_prefix('谁') {
        return Path::anyone().with(&condition(said)?);
    }
    let (mention, rest) = person(text)?;
    let after =
        |words: &[&str], text: &str| words.iter().filter(|word| text.starts_with(**word)).map(|word| word.len()).max();
    if let Some(bytes) = after(&AMONG, rest) {
        let rest = rest[bytes..].trim_start_matches('，');
        let (bytes, counts) = match after(&HOW_MANY, rest) {
            Some(bytes) => (bytes, true),
            None => (after(&WHICH, rest)?, false),
        };
        let path = Path::to(&mention)?.with(&condition(&rest[bytes..])?)?;
        return Some(if counts { path.counting() } else { path });
    }
    let path = Path::to(&mention)?;
    if ["叫什么", "的名字是什么", "的名字叫什么", "是谁"]
        .iter()
        .any(|words| rest.strip_prefix(words).is_some_and(|more| ["", "名字"].contains(&more)))
    {
        return Some(path);
    }
    if let Some((predicate, _)) = ASKED.iter().find(|(_, words)| {
        // "喜欢什么时候去" asks for something else.
        after(words, rest).is_some_and(|bytes| rest[bytes..].chars().count() <= 4 && !rest[bytes..].contains("时"))
    }) {
        return Some(path.asking(Some(predicate)));
    }
    // "有几个弟弟", "养了几只猫", "有哪些朋友", "有什么宠物"
    let had = ["有", "养了", "养着", "养"].iter().find_map(|word| rest.strip_prefix(word))?;
    let (noun, counts) = match ["几", "多少"].iter().find_map(|word| had.strip_prefix(word)) {
        Some(noun) => (noun.trim_start_matches(['个', '只', '条', '位', '匹', '艘', '辆', '头']), true),
        None => (["哪些", "什么"].iter().find_map(|word| had.strip_prefix(word))?, false),
    };
    let mut path = path;
    path.hops.push(match Relation::of_chinese(noun) {
        Some((relation, bytes)) if bytes == noun.len() => Hop::to(relation, None),
        _ if noun == "宠物" || noun == "动物" => {
            Hop::owns(PETS.iter().map(|kind| (*kind).to_owned()).collect(), None)
        }
        _ => Hop::owns(vec![noun.to_owned()], None),
    });
    Some(if counts { path.counting() } else { path })
}

/// Reads "你知道小梅的什么？".
fn about(text: &str) -> Option<Path> {
    let rest = text.strip_prefix('你')?.trim_start_matches(['还', '都']);
    let rest = ["知道", "记得", "了解"].iter().find_map(|word| rest.strip_prefix(word))?.trim_start_matches("关于");
    let who = ["的什么", "的哪些", "什么", "哪些"].iter().find_map(|word| rest.find(word).map(|at| &rest[..at]))?;
    // The name ends where the question goes on.
    let (mention, rest) = person(&format!("{who}是"))
        .map(|(mention, rest)| (mention, rest.len()))
        .filter(|(mention, _)| *mention != Mention::Speaker)?;
    (rest == '是'.len_utf8()).then(|| Path::to(&mention))?.map(|path| path.asking(None))
}
