//! The claims of Chinese sentences, by rules.

use super::mention::{Claim, Kind, Mention};
use super::vocabulary::{Relation, SAME_AS};

/// The words with which a sentence claims nothing: it supposes, wishes, tells of the past or quotes.
const SUPPOSES: [&str; 21] = [
    "也许",
    "可能",
    "如果",
    "要是",
    "希望",
    "打算",
    "大概",
    "好像",
    "想",
    "假如",
    "梦见",
    "以前",
    "曾经",
    "会不会",
    "是不是",
    "“",
    "”",
    "「",
    "」",
    "说：",
    "将要",
];
/// The beginnings of predicates, before which a name ends. The longer one of two comes first.
const VERBS: [&str; 35] = [
    "的名字",
    "名叫",
    "的",
    "是",
    "叫",
    "住在",
    "搬到",
    "搬去",
    "来自",
    "出生在",
    "在",
    "不喜欢",
    "喜欢",
    "最爱",
    "讨厌",
    "很爱",
    "爱",
    "对",
    "会说",
    "会",
    "说",
    "养了",
    "养着",
    "有",
    "常常",
    "经常",
    "常",
    "每",
    "学",
    "不能吃",
    "不吃",
    "和",
    "跟",
    "嫁给",
    "也",
];
/// The measure words of things and animals.
const MEASURES: [&str; 14] = ["只", "条", "匹", "艘", "辆", "个", "头", "架", "台", "把", "栋", "套", "间", "座"];
const NUMBERS: [&str; 11] = ["一", "两", "二", "三", "四", "五", "六", "1", "2", "3", "几"];
/// Words for times, which begin no name.
const TIMES: [&str; 16] = [
    "周末", "周一", "周日", "早上", "晚上", "去年", "今年", "明年", "上个", "下个", "以后", "后来", "最近", "平时",
    "每天", "小时",
];
/// The ends of occupations.
const OCCUPATIONS: [&str; 24] = [
    "师",
    "员",
    "医生",
    "护士",
    "家",
    "工程师",
    "司机",
    "厨师",
    "警察",
    "律师",
    "教练",
    "记者",
    "演员",
    "作家",
    "画家",
    "农民",
    "渔民",
    "木匠",
    "裁缝",
    "老板",
    "学生",
    "教授",
    "编辑",
    "翻译",
];

/// Returns `true` if a sentence claims nothing.
pub(super) fn supposes(sentence: &str) -> bool {
    SUPPOSES.iter().any(|word| sentence.contains(word))
}

/// Returns the claims of a sentence.
pub(super) fn read(sentence: &str) -> Vec<Claim> {
    let (mut claims, mut subject) = (Vec::new(), None);
    for clause in sentence.split(['，', '。', '；', '！', ',', '.', '!', ';']) {
        let clause = clause.trim();
        if let Some(claim) = other_name(clause) {
            claims.push(claim);
            continue;
        }
        let (of, rest) = match person(clause) {
            Some((mention, rest)) => (mention, rest),
            // "我姐姐叫小梅，住在杭州。"
            None => match &subject {
                Some(known) => (Mention::clone(known), clause),
                None => continue,
            },
        };
        let found = said_of(&of, rest);
        if let Some(named) =
            found.iter().map(|claim| &claim.object).find(|object| object.is_person() && is_of(object, &of))
        {
            subject = Some(named.clone());
        } else if !found.is_empty() || subject.is_none() {
            subject = Some(of);
        }
        claims.extend(found);
    }
    claims
}

/// Returns the claim that a name is another one of a person: "小梅的外号叫阿梅", "阿梅是小梅的外号", "阿梅和小梅是同一个人".
fn other_name(clause: &str) -> Option<Claim> {
    const NICKNAMES: [&str; 6] = ["的小名", "的外号", "的昵称", "的绰号", "的乳名", "的别名"];
    let whole = |text: &str| person(&format!("{text}是")).filter(|(_, rest)| *rest == "是").map(|(mention, _)| mention);
    let is_name = |name: &str| {
        (2..=8).contains(&name.chars().count())
            && !name.contains(['不', '没', '是', '的', '这', '那', '谁', '我', '你', '他', '她', '它'])
    };
    let called = NICKNAMES.iter().find_map(|word| {
        let (one, rest) = clause.split_once(word)?;
        ["叫做", "叫", "就是", "是"].iter().find_map(|verb| Some((rest.strip_prefix(verb)?, one)))
    });
    let being = || {
        let (name, rest) = clause.split_once('是')?;
        Some((name, NICKNAMES.iter().find_map(|word| rest.strip_suffix(word))?))
    };
    let same = || {
        let both = clause.strip_suffix("是同一个人").or_else(|| clause.strip_suffix("就是同一个人"))?;
        both.split_once('和').or_else(|| both.split_once('跟'))
    };
    let (name, one) = called.or_else(being).or_else(same)?;
    Some(Claim::new(Mention::person(Some(name.trim()).filter(|name| is_name(name))?), SAME_AS, whole(one.trim())?))
}

/// Returns `true` if a mention is another one with a name.
fn is_of(named: &Mention, mention: &Mention) -> bool {
    match (named, mention) {
        (Mention::Related { of, relation, .. }, Mention::Related { of: of_other, relation: other, .. }) => {
            of == of_other && relation == other
        }
        _ => false,
    }
}

/// Returns the person, or the thing of a person, with which a clause begins, and the rest of the clause.
pub(crate) fn person(clause: &str) -> Option<(Mention, &str)> {
    let clause = ["其实", "现在", "而且", "另外", "还有"]
        .iter()
        .fold(clause, |text, word| text.strip_prefix(word).unwrap_or(text));
    let pronoun = ["我们", "我", "咱们"].iter().find_map(|word| Some((Mention::Speaker, clause.strip_prefix(word)?)));
    let pronoun =
        pronoun.or_else(|| ["他", "她"].iter().find_map(|word| Some((Mention::Last, clause.strip_prefix(word)?))));
    let (mut mention, mut rest) = match pronoun {
        Some(found) => found,
        None => {
            let (name, rest) = name(clause)?;
            (Mention::person(name), rest)
        }
    };
    loop {
        let after = rest.strip_prefix('的').unwrap_or(rest);
        if let Some((relation, bytes)) = Relation::of_chinese(after) {
            // "我爸妈" are two.
            if Relation::of_chinese(&after[bytes..]).is_some() {
                return None;
            }
            rest = &after[bytes..];
            let named = name(rest).filter(|(name, _)| Relation::of_chinese(name).is_none());
            (mention, rest) = match named {
                Some((name, rest)) => (Mention::related(mention, relation, Some(name)), rest),
                None => (Mention::related(mention, relation, None), rest),
            };
            continue;
        }
        // "我的猫叫味噌"
        if let Some(after) = rest.strip_prefix('的').filter(|after| !after.starts_with("名字"))
            && let Some(end) = ["名叫", "叫", "的名字"].iter().filter_map(|word| after.find(word)).min()
            && (1..=5).contains(&after[..end].chars().count())
        {
            return Some((
                Mention::Owned { of: Box::new(mention), kind: after[..end].to_owned(), name: None },
                &after[end..],
            ));
        }
        return Some((mention, rest));
    }
}

/// Returns the name with which a text begins, and the rest.
fn name(text: &str) -> Option<(String, &str)> {
    const NAME_CHARS: std::ops::RangeInclusive<usize> = 2..=4;
    const NO_NAMES: [&str; 17] = [
        "另一边",
        "旁边",
        "这边",
        "那边",
        "对面",
        "今天",
        "明天",
        "昨天",
        "这个",
        "那个",
        "这里",
        "那里",
        "大家",
        "有人",
        "天气",
        "他们",
        "她们",
    ];
    let latin = text.find(|c: char| !c.is_ascii_alphabetic() && c != ' ').unwrap_or(text.len());
    if latin > 1 {
        return Some((text[..latin].trim().to_owned(), &text[latin..]));
    }
    let end = VERBS.iter().filter_map(|verb| text.find(verb)).min()?;
    let name = &text[..end];
    let is_asking = name.starts_with(['里', '中', '谁', '哪', '几', '什', '多', '当']);
    let is_odd = name.ends_with(['不', '没', '我', '你', '都', '很', '就', '才'])
        || TIMES.iter().any(|time| name.starts_with(time));
    let is_name = !is_asking
        && !is_odd
        && NAME_CHARS.contains(&name.chars().count())
        && name.chars().all(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
    (is_name && !NO_NAMES.contains(&name)).then(|| (name.to_owned(), &text[end..]))
}

/// Returns the one condition that the predicate of a question makes.
pub(crate) fn condition(said: &str) -> Option<Claim> {
    let mut claims = said_of(&Mention::Speaker, said);
    (claims.len() == 1).then(|| claims.pop())?
}

/// Returns the claims of what follows a subject.
fn said_of(subject: &Mention, rest: &str) -> Vec<Claim> {
    let rest = ["也", "现在", "一直", "最近", "已经", "还", "都"]
        .iter()
        .fold(rest.trim(), |text, word| text.strip_prefix(word).unwrap_or(text));
    let plain = rest.trim_end_matches(['了', '呢', '啊', '吧']);
    let claim = |predicate: &'static str, object: Mention| Claim::new(subject.clone(), predicate, object);
    let themes = |predicate: &'static str, text: &str| -> Vec<Claim> {
        list(text).into_iter().map(|theme| claim(predicate, Mention::theme(theme))).collect()
    };
    let place = |predicate: &'static str, text: &str| -> Vec<Claim> {
        let name = text.trim_start_matches('了').trim_end_matches('了');
        let is_place = (1..=12).contains(&name.chars().count());
        is_place.then(|| claim(predicate, Mention::Named(Kind::Place, name.to_owned()))).into_iter().collect()
    };
    let after = |words: &[&str]| words.iter().find_map(|word| plain.strip_prefix(word));
    if let Some(called) = after(&["的名字叫做", "的名字叫", "的名字是", "名叫", "叫做", "叫"]) {
        let is_name = (1..=8).contains(&called.chars().count())
            && !matches!(subject, Mention::Speaker | Mention::Last | Mention::Named(..));
        return is_name
            .then(|| subject.clone().with_name(called.to_owned()).implied().pop())
            .flatten()
            .into_iter()
            .collect();
    }
    if let Some(rest) = plain.strip_prefix('是') {
        return being(subject, rest);
    }
    if !subject.is_person() {
        return Vec::new();
    }
    if let Some(rest) = after(&["住在", "搬到", "搬去", "定居在"]) {
        return place("lives_in", rest);
    }
    if let Some(rest) = after(&["来自", "出生在"]) {
        return place("comes_from", rest);
    }
    if let Some(rest) = plain.strip_prefix('在') {
        let work = ["工作", "上班", "任职", "做"].iter().find_map(|word| rest.find(word).filter(|at| *at > 0));
        return work
            .map(|at| claim("works_for", Mention::Named(Kind::Organization, rest[..at].to_owned())))
            .into_iter()
            .collect();
    }
    if let Some(rest) = plain.strip_prefix('对').and_then(|rest| rest.strip_suffix("过敏")) {
        return themes("must_avoid", rest);
    }
    if let Some(rest) = after(&["不能吃", "不吃"]) {
        return themes("must_avoid", rest);
    }
    if let Some(rest) = after(&["不喜欢", "讨厌", "不爱"]) {
        return themes("dislikes", rest);
    }
    if let Some(rest) = after(&["很喜欢", "最喜欢", "喜欢", "最爱", "很爱"]) {
        return themes("likes", rest);
    }
    if let Some(rest) = after(&["会说", "说"]).filter(|rest| rest.ends_with(['语', '文', '话'])) {
        return themes("speaks", rest);
    }
    if let Some(rest) = after(&["养了", "养着", "有", "买了"]) {
        return having(subject, rest);
    }
    if let Some(rest) = after(&["在学", "学习", "学"]) {
        return themes("studies", rest);
    }
    if let Some(rest) = after(&["嫁给了", "嫁给", "娶了"]) {
        let partner = Relation::named("partner")
            .map(|relation| Mention::related(subject.clone(), relation, Some(rest.to_owned())));
        return partner.map(|partner| claim("partner_of", partner)).into_iter().collect();
    }
    if let Some(rest) =
        after(&["常常去", "常常", "经常去", "经常", "常去", "常", "每个周末去", "每周末去", "每天", "每周", "会"])
    {
        let is_doing = rest.chars().count() <= 4
            && !rest.contains(['到', '来', '去', '的', '再', '给', '帮', '让', '是', '有', '不', '把', '被']);
        return if is_doing { themes("does", rest) } else { Vec::new() };
    }
    Vec::new()
}

/// Returns the claims of 是.
fn being(subject: &Mention, rest: &str) -> Vec<Claim> {
    // "老王是小梅的邻居"
    if let (Mention::Named(Kind::Person, name), Some((mention @ Mention::Related { name: None, .. }, ""))) =
        (subject, person(rest))
    {
        return mention.with_name(name.clone()).implied().pop().into_iter().collect();
    }
    let noun =
        ["一名", "一位", "一个", "个", "名", "位"].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
    let is_short = (2..=8).contains(&noun.chars().count());
    let is_work = is_short
        && OCCUPATIONS.iter().any(|end| noun.ends_with(end))
        && !noun.contains('的')
        && noun != "大家"
        && noun != "一家";
    (is_work && subject.is_person())
        .then(|| Claim::new(subject.clone(), "works_as", Mention::theme(noun)))
        .into_iter()
        .collect()
}

/// Returns the claims of 有 and 养.
fn having(subject: &Mention, rest: &str) -> Vec<Claim> {
    let after = NUMBERS.iter().find_map(|number| rest.strip_prefix(number)).unwrap_or(rest);
    let Some(measured) = MEASURES.iter().find_map(|measure| after.strip_prefix(measure)) else { return Vec::new() };
    let (kind, name) = match ["，名叫", "名叫", "叫做", "叫"].iter().find_map(|word| measured.split_once(word))
    {
        Some((kind, name)) => (kind, Some(name.to_owned())),
        None => (measured, None),
    };
    if let Some((relation, bytes)) = Relation::of_chinese(kind) {
        let named =
            name.filter(|_| bytes == kind.len()).map(|name| Mention::related(subject.clone(), relation, Some(name)));
        return named.map(|mention| Claim::new(subject.clone(), relation.predicate, mention)).into_iter().collect();
    }
    // 个 counts ideas and questions, too.
    let is_thing = (1..=5).contains(&kind.chars().count()) && (name.is_some() || !after.starts_with('个'));
    let thing = Mention::Owned { of: Box::new(subject.clone()), kind: kind.to_owned(), name };
    is_thing.then(|| Claim::new(subject.clone(), "owns", thing)).into_iter().collect()
}

/// Returns the themes of a list.
fn list(text: &str) -> Vec<String> {
    const THEME_CHARS: std::ops::RangeInclusive<usize> = 1..=10;
    const NO_THEMES: [&str; 8] = ["你", "它", "这", "那", "我", "他", "她", "什么"];
    let parts = text.split(['、', '和', '跟']).map(|part| part.trim().trim_end_matches(['了', '的']));
    let is_theme = |part: &&str| {
        THEME_CHARS.contains(&part.chars().count()) && !NO_THEMES.iter().any(|word| part.starts_with(word))
    };
    parts.filter(is_theme).map(str::to_owned).collect()
}
