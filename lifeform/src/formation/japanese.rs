//! The claims of Japanese sentences, by rules.

use super::mention::{Claim, Kind, Mention};
use super::vocabulary::{Relation, SAME_AS};

/// The words with which a sentence claims nothing: it supposes, wishes, tells of the past, passes on or quotes.
const SUPPOSES: [&str; 26] = [
    "ていました",
    "ていた",
    "でした",
    "の頃",
    "のころ",
    "だったら",
    "かも",
    "だろう",
    "でしょう",
    "もし",
    "たい",
    "つもり",
    "らしい",
    "そうです",
    "ようです",
    "予定",
    "昔",
    "以前",
    "「",
    "」",
    "『",
    "夢で",
    "たら",
    "ほしい",
    "欲しい",
    "てみ",
];
/// The endings after a name.
const HONORIFICS: [&str; 6] = ["さん", "くん", "君", "ちゃん", "様", "さま"];
/// The ends of occupations.
const OCCUPATIONS: [&str; 22] = [
    "師",
    "員",
    "家",
    "医者",
    "医師",
    "士",
    "者",
    "教師",
    "エンジニア",
    "デザイナー",
    "プログラマー",
    "ライター",
    "シェフ",
    "パイロット",
    "大工",
    "警察官",
    "学生",
    "教授",
    "記者",
    "漁師",
    "マネージャー",
    "農家",
];

/// Returns `true` if a sentence claims nothing.
pub(super) fn supposes(sentence: &str) -> bool {
    SUPPOSES.iter().any(|word| sentence.contains(word))
}

/// Returns the claims of a sentence.
pub(super) fn read(sentence: &str) -> Vec<Claim> {
    let text = sentence.trim().trim_end_matches(['。', '！', '.', '!', 'ね', 'よ']).replace(['　', ' '], "");
    let text =
        ["実は、", "実は", "今は", "あと、"].iter().fold(&*text, |text, word| text.strip_prefix(word).unwrap_or(text));
    let (subject, said) = match text.split_once('は').filter(|(before, _)| !before.contains('、') && !before.is_empty())
    {
        Some((before, rest)) => (before, rest.trim_start_matches('、')),
        None => ("私", text),
    };
    // "姉の名前は由美です"
    if let Some(of) = subject.strip_suffix("の名前") {
        let called = without_copula(said);
        let mention =
            person(of).filter(|mention| !matches!(mention, Mention::Speaker | Mention::Last | Mention::Named(..)));
        let named = mention
            .filter(|_| is_name(called))
            .and_then(|mention| mention.with_name(bare(called).to_owned()).implied().pop());
        return named.into_iter().collect();
    }
    if let Some(claim) = other_name(subject, without_copula(said)) {
        return vec![claim];
    }
    let Some(subject) = person(subject) else { return Vec::new() };
    said_of(&subject, said)
}

/// Returns the claim that a name is another one of a person: "麻衣のあだ名はマイマイ", "マイマイは麻衣のあだ名", "マイマイと麻衣は同じ人".
fn other_name(subject: &str, said: &str) -> Option<Claim> {
    const NICKNAMES: [&str; 4] = ["のあだ名", "のニックネーム", "の愛称", "の別名"];
    let of = |text: &str| NICKNAMES.iter().find_map(|word| text.strip_suffix(word).map(str::to_owned));
    let (name, one) = match (of(subject), of(said)) {
        (Some(one), _) => (said, one),
        (_, Some(one)) => (subject, one),
        _ if ["同じ人", "同じ人物", "同一人物"].contains(&said) => {
            let (name, one) = subject.split_once('と')?;
            (name, one.to_owned())
        }
        _ => return None,
    };
    Some(Claim::new(Mention::person(is_name(name).then(|| bare(name))?), SAME_AS, person(&one)?))
}

/// Returns the person, or the thing of a person, of a noun phrase.
pub(crate) fn person(phrase: &str) -> Option<Mention> {
    let mut parts = phrase.split('の');
    let first = parts.next()?;
    let mut mention = match first {
        "私" | "僕" | "俺" | "わたし" | "ぼく" | "うち" | "私たち" => Mention::Speaker,
        "彼" | "彼女" => Mention::Last,
        _ => match whole(first) {
            // A bare word for a relative means the speaker's own.
            Some(relation) => Mention::related(Mention::Speaker, relation, None),
            None => Mention::person(is_name(first).then(|| bare(first))?),
        },
    };
    for part in parts {
        mention = match (whole(part), mention) {
            (Some(relation), mention) => Mention::related(mention, relation, None),
            (None, mention @ Mention::Related { name: None, .. }) if is_name(part) => {
                mention.with_name(bare(part).to_owned())
            }
            (None, mention) if (1..=6).contains(&part.chars().count()) => {
                Mention::Owned { of: Box::new(mention), kind: part.to_owned(), name: None }
            }
            _ => return None,
        };
    }
    Some(mention)
}

/// Returns the relation that a whole word names.
fn whole(word: &str) -> Option<&'static Relation> {
    Relation::of_japanese(word).filter(|(_, bytes)| *bytes == word.len()).map(|(relation, _)| relation)
}

/// Returns `true` if a word may be a name.
fn is_name(word: &str) -> bool {
    const NO_NAMES: [&str; 26] = [
        "今年",
        "今月",
        "今週",
        "去年",
        "来年",
        "来月",
        "来週",
        "最近",
        "週末",
        "毎日",
        "朝",
        "夜",
        "今日",
        "明日",
        "昨日",
        "これ",
        "それ",
        "あれ",
        "ここ",
        "そこ",
        "みんな",
        "誰か",
        "天気",
        "今",
        "この",
        "その",
    ];
    let name = bare(word);
    let is_plain = name.chars().all(|c| c.is_alphabetic() || c == 'ー' || c == '・');
    (1..=10).contains(&name.chars().count())
        && is_plain
        && !NO_NAMES.contains(&name)
        && !name.contains(['を', 'が', 'に', 'で'])
}

/// Returns a name without what politeness adds.
fn bare(name: &str) -> &str {
    HONORIFICS.iter().find_map(|end| name.strip_suffix(end)).filter(|name| !name.is_empty()).unwrap_or(name)
}

fn without_copula(said: &str) -> &str {
    const ENDS: [&str; 11] = [
        "という名前です",
        "という名前",
        "といいます",
        "と言います",
        "という",
        "でした",
        "である",
        "です",
        "だった",
        "だ",
        "、",
    ];
    ENDS.iter().find_map(|end| said.strip_suffix(end)).unwrap_or(said)
}

/// Returns the one condition that the predicate of a question makes.
pub(crate) fn condition(said: &str) -> Option<Claim> {
    let mut claims = said_of(&Mention::Speaker, said);
    (claims.len() == 1).then(|| claims.pop())?
}

/// Returns the claims of what follows a subject.
fn said_of(subject: &Mention, said: &str) -> Vec<Claim> {
    let claim = |predicate: &'static str, object: Mention| Claim::new(subject.clone(), predicate, object);
    let before = |words: &[&str]| {
        words.iter().find_map(|word| said.find(word).map(|at| &said[..at])).filter(|before| !before.is_empty())
    };
    let themes = |predicate: &'static str, text: &str| -> Vec<Claim> {
        // "麻衣ちゃんもそば" speaks of another person, and "あ" of nothing.
        let is_theme = |theme: &String| {
            let is_sound = theme.chars().count() == 1 && theme.chars().all(|c| matches!(c, '\u{3040}'..='\u{309f}'));
            !is_sound && !HONORIFICS.iter().any(|of| of.chars().count() > 1 && theme.contains(of))
        };
        let all = list(text);
        let are_themes = all.iter().all(is_theme);
        all.into_iter().filter(|_| are_themes).map(|theme| claim(predicate, Mention::theme(theme))).collect()
    };
    let place = |predicate: &'static str, text: &str, kind: Kind| -> Vec<Claim> {
        let name = text.rsplit(['、', 'は']).next().unwrap_or(text);
        let name = name.rsplit("から").next().unwrap_or(name);
        let is_place = (1..=14).contains(&name.chars().count()) && !name.contains(['を', 'が', 'で']);
        is_place.then(|| claim(predicate, Mention::Named(kind, name.to_owned()))).into_iter().collect()
    };
    let is_negated = ["ません", "ない", "なかった"].iter().any(|word| said.contains(word));
    if let Some(before) = before(&["アレルギー"]) {
        return if is_negated {
            Vec::new()
        } else {
            themes("must_avoid", before.trim_end_matches(['に', 'の', 'が']))
        };
    }
    if let Some(before) = before(&["が嫌い", "が苦手", "がきらい"]) {
        return if is_negated { Vec::new() } else { themes("dislikes", before) };
    }
    if let Some(before) = before(&["が大好き", "が好き", "がすき"]) {
        return themes(if is_negated { "dislikes" } else { "likes" }, before);
    }
    if let Some(before) = before(&["を食べられ", "が食べられ", "を食べては"]).filter(|_| is_negated) {
        return themes("must_avoid", before);
    }
    if is_negated {
        return Vec::new();
    }
    if let Some(before) = before(&["に住んで", "に住む", "で暮らして", "に引っ越し", "へ引っ越し"])
    {
        return place("lives_in", before, Kind::Place);
    }
    if let Some(before) = before(&["の出身", "出身", "から来ました"]) {
        return place("comes_from", before, Kind::Place);
    }
    if let Some(before) = before(&["で働いて", "に勤めて", "で勤めて", "に勤務して"]) {
        return place("works_for", before, Kind::Organization);
    }
    if let Some(before) = before(&["を話し", "を話す", "を話せ", "が話せ"]).filter(|before| before.ends_with('語'))
    {
        return themes("speaks", before);
    }
    if let Some(before) = before(&["を飼って", "を持って", "を一匹飼って", "を二匹飼って"]) {
        return having(subject, before);
    }
    if let Some(before) = before(&["を勉強して", "を学んで", "を習って"]) {
        return themes("studies", before);
    }
    if let Some(before) = before(&["と結婚して", "と結婚し"]).filter(|before| is_name(before)) {
        let partner = Relation::named("partner")
            .map(|relation| Mention::related(subject.clone(), relation, Some(bare(before).to_owned())));
        return partner.map(|partner| claim("partner_of", partner)).into_iter().collect();
    }
    if let Some(before) =
        before(&["をしています", "をしている", "をやって", "に乗っています", "に乗る", "をします", "をする", "を弾"])
    {
        let doing = ["毎週末", "毎週", "毎日", "週末に", "よく", "趣味で"]
            .iter()
            .fold(before, |text, word| text.trim_start_matches(word));
        return themes("does", doing.trim_start_matches('、'));
    }
    being(subject, without_copula(said))
}

/// Returns the claims of です.
fn being(subject: &Mention, noun: &str) -> Vec<Claim> {
    // "田中さんは由美の隣人です"
    if let (Mention::Named(Kind::Person, name), Some(mention @ Mention::Related { name: None, .. })) =
        (subject, person(noun))
    {
        return mention.with_name(name.clone()).implied().pop().into_iter().collect();
    }
    let is_work = (2..=10).contains(&noun.chars().count())
        && OCCUPATIONS.iter().any(|end| noun.ends_with(end))
        && !noun.contains(['の', 'を', 'が']);
    (is_work && subject.is_person())
        .then(|| Claim::new(subject.clone(), "works_as", Mention::theme(noun)))
        .into_iter()
        .collect()
}

/// Returns the claims of what a person keeps or has: "味噌という猫".
fn having(subject: &Mention, text: &str) -> Vec<Claim> {
    let own = |kind: &str, name: Option<&str>| {
        let is_thing = (1..=8).contains(&kind.chars().count());
        let thing =
            Mention::Owned { of: Box::new(subject.clone()), kind: kind.to_owned(), name: name.map(str::to_owned) };
        is_thing.then(|| Claim::new(subject.clone(), "owns", thing))
    };
    match text.split_once("という名前の").or_else(|| text.split_once("という")) {
        Some((name, kind)) => own(kind, Some(bare(name))).into_iter().collect(),
        None => text.split('と').filter_map(|kind| own(kind, None)).collect(),
    }
}

/// Returns the themes of a list.
fn list(text: &str) -> Vec<String> {
    const THEME_CHARS: std::ops::RangeInclusive<usize> = 1..=12;
    let is_theme = |part: &&str| THEME_CHARS.contains(&part.chars().count()) && !part.contains(['が', 'を', 'は']);
    text.split(['と', 'や', '、']).map(str::trim).filter(is_theme).map(str::to_owned).collect()
}
