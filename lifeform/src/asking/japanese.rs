//! Japanese questions as paths.

use super::{Hop, Path};
use crate::formation::Mention;
use crate::formation::japanese::{condition, person};
use crate::formation::vocabulary::{PETS, Relation};

/// The predicates that a question asks for, by its words.
const ASKED: [(&str, &[&str]); 9] = [
    ("lives_in", &["どこに住", "どこで暮ら"]),
    ("works_for", &["どこで働", "どこに勤め", "どこに勤務"]),
    ("comes_from", &["どこの出身", "出身はどこ", "どこから来"]),
    ("likes", &["何が好き", "何が大好き"]),
    ("dislikes", &["何が嫌い", "何が苦手"]),
    ("must_avoid", &["何のアレルギー", "何アレルギー", "何にアレルギー"]),
    ("speaks", &["何語を話", "何語が話"]),
    ("works_as", &["何の仕事", "どんな仕事"]),
    ("studies", &["何を勉強", "何を学", "何を習"]),
];

/// Reads a question.
pub(super) fn read(question: &str) -> Option<Path> {
    let text = question.trim().trim_end_matches(['？', '?', '。', 'か']).replace(['　', ' '], "");
    if let Some((who, _)) = text.split_once("について何を知って").or_else(|| text.split_once("について何を覚えて"))
    {
        return Path::to(&person(who).filter(|who| *who != Mention::Speaker)?).map(|path| path.asking(None));
    }
    if let Some((group, said)) = text.split_once("の中で").or_else(|| text.split_once("のうち")) {
        let said = said.trim_start_matches(['は', '、', 'で']);
        let (said, counts) = match said.strip_prefix("何人が") {
            Some(said) => (said, true),
            None => (["誰が", "どの人が", "どなたが"].iter().find_map(|word| said.strip_prefix(word))?, false),
        };
        let path = Path::to(&person(group)?)?.with(&condition(said)?)?;
        return Some(if counts { path.counting() } else { path });
    }
    if let Some(said) = text.strip_prefix("誰が").or_else(|| text.strip_prefix("どなたが")) {
        return Path::anyone().with(&condition(said)?);
    }
    let (subject, said) = match text.split_once('は') {
        Some((subject, said)) => (subject.trim_end_matches('に'), said.trim_start_matches('、')),
        None => ("私", &*text),
    };
    if let Some(of) = subject.strip_suffix("の名前").filter(|_| said.starts_with('何')) {
        return Path::to(&person(of)?);
    }
    if let Some(of) =
        ["の職業", "の仕事"].iter().find_map(|end| subject.strip_suffix(end)).filter(|_| said.starts_with('何'))
    {
        return Path::to(&person(of)?).map(|path| path.asking(Some("works_as")));
    }
    if let Some(of) = subject.strip_suffix("の出身").filter(|_| said.starts_with("どこ")) {
        return Path::to(&person(of)?).map(|path| path.asking(Some("comes_from")));
    }
    let path = Path::to(&person(subject)?)?;
    if said.starts_with("誰") || said.starts_with("どなた") {
        return Some(path);
    }
    if let Some((predicate, _)) = ASKED.iter().find(|(_, words)| words.iter().any(|word| said.starts_with(word))) {
        return Some(path.asking(Some(predicate)));
    }
    // "弟が何人います", "猫を何匹飼って", "何を飼って"
    let counted = ["が何人", "を何匹", "が何匹", "を何頭", "を何台"]
        .iter()
        .find_map(|word| said.find(word).map(|at| &said[..at]));
    let mut path = path;
    let hop = match counted {
        Some(noun) => match Relation::of_japanese(noun) {
            Some((relation, bytes)) if bytes == noun.len() => Hop::to(relation, None),
            _ => Hop::owns(vec![noun.to_owned()], None),
        },
        None if said.starts_with("何を飼") => Hop::owns(PETS.iter().map(|kind| (*kind).to_owned()).collect(), None),
        None => return None,
    };
    path.hops.push(hop);
    Some(if counted.is_some() { path.counting() } else { path })
}
