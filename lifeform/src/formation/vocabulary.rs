//! The words for relations between people, and the predicates of claims, in English, Chinese and Japanese. The predicates are
//! defined in `config/capsules/world.kip`.

/// A relation of one person to another, as people name it.
#[derive(Debug, PartialEq)]
pub(crate) struct Relation {
    /// The name: the value of the attribute `relation` of a claim.
    pub(crate) name: &'static str,
    /// The predicate.
    pub(crate) predicate: &'static str,
    /// The relation in the other direction; empty if it is not known.
    pub(crate) inverse: &'static str,
    /// The names that a question for this relation accepts.
    pub(crate) includes: &'static [&'static str],
    /// The words in English, in the singular.
    english: &'static [&'static str],
    /// The words in Chinese and Japanese; the longest one that fits counts.
    chinese: &'static [&'static str],
    japanese: &'static [&'static str],
}

const fn relation(
    name: &'static str,
    predicate: &'static str,
    inverse: &'static str,
    includes: &'static [&'static str],
    english: &'static [&'static str],
    chinese: &'static [&'static str],
    japanese: &'static [&'static str],
) -> Relation {
    Relation { name, predicate, inverse, includes, english, chinese, japanese }
}

/// The relations, by predicate. Only relatives, partners and acquaintances have names of their own.
pub(crate) static RELATIONS: [Relation; 44] = [
    relation(
        "sister",
        "relative_of",
        "sibling",
        &["sister"],
        &["sister", "sis"],
        &["姐姐", "妹妹", "姐妹", "姐", "妹"],
        &["お姉さん", "妹さん", "姉さん", "姉妹", "姉", "妹"],
    ),
    relation(
        "brother",
        "relative_of",
        "sibling",
        &["brother"],
        &["brother"],
        &["哥哥", "弟弟", "兄弟", "哥", "弟"],
        &["お兄さん", "弟さん", "兄さん", "兄", "弟"],
    ),
    relation(
        "sibling",
        "relative_of",
        "sibling",
        &["sister", "brother", "sibling"],
        &["sibling"],
        &["兄弟姐妹"],
        &["きょうだい", "兄弟姉妹", "兄弟"],
    ),
    relation(
        "mother",
        "relative_of",
        "child",
        &["mother"],
        &["mother", "mom", "mum", "mama"],
        &["妈妈", "母亲", "妈"],
        &["お母さん", "母親", "母"],
    ),
    relation(
        "father",
        "relative_of",
        "child",
        &["father"],
        &["father", "dad", "daddy", "papa"],
        &["爸爸", "父亲", "爸"],
        &["お父さん", "父親", "父"],
    ),
    relation(
        "parent",
        "relative_of",
        "child",
        &["mother", "father", "parent"],
        &["parent"],
        &["父母"],
        &["両親", "親"],
    ),
    relation("son", "relative_of", "parent", &["son"], &["son"], &["儿子"], &["息子さん", "息子"]),
    relation("daughter", "relative_of", "parent", &["daughter"], &["daughter"], &["女儿"], &["娘さん", "娘"]),
    relation(
        "child",
        "relative_of",
        "parent",
        &["son", "daughter", "child"],
        &["child", "kid"],
        &["孩子"],
        &["子供", "子ども"],
    ),
    relation(
        "aunt",
        "relative_of",
        "niece or nephew",
        &["aunt"],
        &["aunt", "auntie"],
        &["阿姨", "姑姑", "姨妈"],
        &["叔母", "伯母", "おばさん"],
    ),
    relation(
        "uncle",
        "relative_of",
        "niece or nephew",
        &["uncle"],
        &["uncle"],
        &["叔叔", "舅舅", "伯伯"],
        &["叔父", "伯父", "おじさん"],
    ),
    relation(
        "cousin",
        "relative_of",
        "cousin",
        &["cousin"],
        &["cousin"],
        &["表哥", "表弟", "表姐", "表妹", "堂哥", "堂弟", "堂姐", "堂妹"],
        &["いとこ", "従兄弟", "従姉妹"],
    ),
    relation(
        "grandmother",
        "relative_of",
        "grandchild",
        &["grandmother"],
        &["grandmother", "grandma", "granny", "nan"],
        &["奶奶", "外婆", "姥姥", "祖母"],
        &["おばあちゃん", "おばあさん", "祖母"],
    ),
    relation(
        "grandfather",
        "relative_of",
        "grandchild",
        &["grandfather"],
        &["grandfather", "grandpa", "granddad"],
        &["爷爷", "外公", "姥爷", "祖父"],
        &["おじいちゃん", "おじいさん", "祖父"],
    ),
    relation(
        "grandchild",
        "relative_of",
        "grandparent",
        &["grandchild"],
        &["grandchild", "grandson", "granddaughter"],
        &["孙子", "孙女", "外孙"],
        &["孫"],
    ),
    relation("niece", "relative_of", "aunt or uncle", &["niece"], &["niece"], &["侄女", "外甥女"], &["姪"]),
    relation("nephew", "relative_of", "aunt or uncle", &["nephew"], &["nephew"], &["侄子", "外甥"], &["甥"]),
    relation(
        "mother-in-law",
        "relative_of",
        "child-in-law",
        &["mother-in-law"],
        &["mother-in-law"],
        &["婆婆", "岳母", "丈母娘"],
        &["お義母さん", "義母", "姑"],
    ),
    relation(
        "father-in-law",
        "relative_of",
        "child-in-law",
        &["father-in-law"],
        &["father-in-law"],
        &["公公", "岳父", "老丈人"],
        &["お義父さん", "義父", "舅"],
    ),
    relation(
        "son-in-law",
        "relative_of",
        "parent-in-law",
        &["son-in-law"],
        &["son-in-law"],
        &["女婿"],
        &["娘婿", "婿"],
    ),
    relation(
        "daughter-in-law",
        "relative_of",
        "parent-in-law",
        &["daughter-in-law"],
        &["daughter-in-law"],
        &["儿媳妇", "儿媳"],
        &["息子の嫁"],
    ),
    relation(
        "sister-in-law",
        "relative_of",
        "sibling-in-law",
        &["sister-in-law"],
        &["sister-in-law"],
        &["嫂子", "弟媳", "小姨子"],
        &["義姉", "義妹", "お義姉さん"],
    ),
    relation(
        "brother-in-law",
        "relative_of",
        "sibling-in-law",
        &["brother-in-law"],
        &["brother-in-law"],
        &["姐夫", "妹夫", "小舅子"],
        &["義兄", "義弟", "お義兄さん"],
    ),
    relation(
        "in-law",
        "relative_of",
        "in-law",
        &[
            "in-law",
            "mother-in-law",
            "father-in-law",
            "son-in-law",
            "daughter-in-law",
            "sister-in-law",
            "brother-in-law",
            "child-in-law",
            "parent-in-law",
            "sibling-in-law",
        ],
        &["in-law"],
        &["姻亲"],
        &["義理の家族", "義理の親戚"],
    ),
    relation("wife", "partner_of", "", &[], &["wife"], &["妻子", "老婆", "太太"], &["奥さん", "妻"]),
    relation("husband", "partner_of", "", &[], &["husband"], &["丈夫", "老公"], &["旦那さん", "旦那", "夫"]),
    relation(
        "girlfriend",
        "partner_of",
        "",
        &[],
        &["girlfriend", "fiancée"],
        &["女朋友", "未婚妻"],
        &["婚約者", "恋人"],
    ),
    relation("boyfriend", "partner_of", "", &[], &["boyfriend", "fiancé"], &["男朋友", "未婚夫"], &["彼氏"]),
    relation("partner", "partner_of", "", &[], &["partner", "spouse"], &["伴侣", "爱人"], &["パートナー"]),
    relation(
        "friend",
        "friend_of",
        "",
        &[],
        &["friend", "buddy", "pal", "mate"],
        &["好朋友", "朋友", "好友", "闺蜜", "发小", "哥们"],
        &["友達", "友だち", "友人", "親友", "幼なじみ", "幼馴染"],
    ),
    relation(
        "neighbour",
        "neighbour_of",
        "",
        &[],
        &["neighbour", "neighbor"],
        &["邻居"],
        &["隣人", "お隣さん", "隣の人", "近所の人"],
    ),
    relation(
        "colleague",
        "colleague_of",
        "",
        &[],
        &["colleague", "coworker", "co-worker", "workmate"],
        &["同事"],
        &["同僚"],
    ),
    relation(
        "boss",
        "knows",
        "",
        &["boss"],
        &["boss", "manager", "supervisor"],
        &["老板", "上司", "领导", "组长"],
        &["上司", "部長", "課長"],
    ),
    relation("teacher", "knows", "", &["teacher"], &["teacher"], &["老师", "班主任"], &["先生", "教師", "担任"]),
    relation("coach", "knows", "", &["coach"], &["coach", "trainer"], &["教练"], &["コーチ"]),
    relation(
        "doctor",
        "knows",
        "",
        &["doctor"],
        &["doctor", "dentist"],
        &["医生", "牙医"],
        &["主治医", "かかりつけ医"],
    ),
    relation("landlord", "knows", "", &["landlord"], &["landlord", "landlady"], &["房东"], &["大家さん"]),
    relation("student", "knows", "", &["student"], &["student", "pupil"], &["学生"], &["生徒", "教え子"]),
    relation(
        "roommate",
        "knows",
        "",
        &["roommate"],
        &["roommate", "flatmate", "housemate"],
        &["室友"],
        &["ルームメイト", "同居人"],
    ),
    relation("classmate", "knows", "", &["classmate"], &["classmate"], &["同学", "同桌"], &["同級生", "クラスメイト"]),
    relation(
        "lodger",
        "knows",
        "landlord",
        &["lodger"],
        &["lodger", "tenant"],
        &["房客", "租客"],
        &["下宿人", "間借り人"],
    ),
    relation(
        "business partner",
        "knows",
        "business partner",
        &["business partner"],
        &["business partner"],
        &["合伙人"],
        &["共同経営者"],
    ),
    relation(
        "team-mate",
        "knows",
        "team-mate",
        &["team-mate"],
        &["team-mate", "teammate"],
        &["队友"],
        &["チームメイト", "仲間"],
    ),
    relation(
        "assistant",
        "knows",
        "",
        &["assistant"],
        &["assistant", "apprentice"],
        &["助理", "徒弟"],
        &["助手", "弟子"],
    ),
];

/// The predicates of which a subject has one object at a time.
const FUNCTIONAL: [&str; 3] = ["partner_of", "lives_in", "comes_from"];
/// The predicates that hold in both directions.
const SYMMETRIC: [&str; 4] = ["partner_of", "friend_of", "neighbour_of", "colleague_of"];

/// The predicate that links another name of a person or a thing to that person or thing.
pub(crate) const SAME_AS: &str = "same_as";

/// Returns the predicates of claims.
pub(crate) fn claimed_predicates() -> impl Iterator<Item = &'static str> {
    const OTHERS: [&str; 19] = [
        "is_a",
        "part_of",
        SAME_AS,
        "member_of",
        "lives_in",
        "comes_from",
        "works_for",
        "works_as",
        "studies",
        "does",
        "speaks",
        "owns",
        "likes",
        "dislikes",
        "must_avoid",
        "intends",
        "takes_part_in",
        "located_in",
        "made_by",
    ];
    let people = ["relative_of", "partner_of", "friend_of", "neighbour_of", "colleague_of", "knows"];
    people.into_iter().chain(OTHERS)
}

/// Returns `true` if a subject has one object of a predicate at a time.
pub(crate) fn is_functional(predicate: &str) -> bool {
    FUNCTIONAL.contains(&predicate)
}

/// The predicates of which a subject mostly has one object at a time: a word of change ends what was claimed before, and two objects
/// without one are no conflict.
const REPLACED: [&str; 2] = ["works_for", "works_as"];
/// The predicates whose claims do not fade, and those that fade within years.
const LASTING: [&str; 8] =
    ["relative_of", "comes_from", "must_avoid", "is_a", "part_of", SAME_AS, "located_in", "made_by"];
const PREFERENCES: [&str; 2] = ["likes", "dislikes"];
/// The half-lives of preferences, and of all others that fade, in days.
const PREFERENCE_DAYS: f64 = 365.0;
const STATE_DAYS: f64 = 3.0 * 365.0;

/// Returns the time in days after which a claim is half as sure; `None` if it does not fade.
pub(crate) fn half_life_days(predicate: &str) -> Option<f64> {
    match predicate {
        lasting if LASTING.contains(&lasting) => None,
        preference if PREFERENCES.contains(&preference) => Some(PREFERENCE_DAYS),
        _ => Some(STATE_DAYS),
    }
}

/// Returns `true` if a statement of change ends what the same person claimed with this predicate before.
pub(crate) fn is_replaced(predicate: &str) -> bool {
    is_functional(predicate) || REPLACED.contains(&predicate)
}

/// Returns `true` if a claim with this predicate holds in the other direction, too.
pub(crate) fn is_symmetric(predicate: &str) -> bool {
    SYMMETRIC.contains(&predicate)
}

impl Relation {
    /// Returns the relation that an English word names, and `true` if the word is in the plural.
    pub(crate) fn of_english(word: &str) -> Option<(&'static Self, bool)> {
        let named = |word: &str| RELATIONS.iter().find(|relation| relation.english.contains(&word));
        let plural = || {
            let one = match word {
                "children" => "child",
                "grandchildren" => "grandchild",
                "wives" => "wife",
                "bosses" => "boss",
                "coaches" => "coach",
                _ => word.strip_suffix('s')?,
            };
            Some((named(one)?, true))
        };
        named(word).map(|relation| (relation, false)).or_else(plural)
    }

    /// Returns the relation with the longest Chinese word at the beginning of a text, and the bytes of the word.
    pub(crate) fn of_chinese(text: &str) -> Option<(&'static Self, usize)> {
        Self::longest(text, |relation| relation.chinese)
    }

    /// Returns the relation with the longest Japanese word at the beginning of a text, and the bytes of the word.
    pub(crate) fn of_japanese(text: &str) -> Option<(&'static Self, usize)> {
        Self::longest(text, |relation| relation.japanese)
    }

    fn longest(text: &str, words: impl Fn(&Self) -> &'static [&'static str]) -> Option<(&'static Self, usize)> {
        let fits = |relation: &'static Self| {
            let fitting = words(relation).iter().filter(|word| text.starts_with(**word)).map(|word| word.len());
            Some((relation, fitting.max()?))
        };
        RELATIONS.iter().filter_map(fits).max_by_key(|(_, length)| *length)
    }

    /// Returns `true` if a text has a word for the relation right before a name, as in "my brother Tom", 我姐姐小梅 and 姉の由美: then it
    /// says so, whatever else it says of that person. Both are in plain form.
    pub(crate) fn stands_before(&self, name: &str, text: &str) -> bool {
        let english = self.english.iter().flat_map(|word| [format!("{word} {name}"), format!("{word}, {name}")]);
        let chinese = self.chinese.iter().map(|word| format!("{word}{name}"));
        let japanese = self.japanese.iter().flat_map(|word| [format!("{word}の{name}"), format!("{word}{name}")]);
        !name.is_empty() && english.chain(chinese).chain(japanese).any(|words| text.contains(&words))
    }

    /// Returns `true` if a Chinese or Japanese text names a relation.
    pub(crate) fn is_in(text: &str) -> bool {
        RELATIONS
            .iter()
            .flat_map(|relation| relation.chinese.iter().chain(relation.japanese))
            .any(|word| text.contains(word))
    }

    /// Returns the relation that a whole Chinese or Japanese word names.
    pub(crate) fn of_own_word(word: &str) -> Option<&'static Self> {
        let is_it = |relation: &&Self| [relation.chinese, relation.japanese].iter().any(|all| all.contains(&word));
        RELATIONS.iter().find(is_it)
    }

    /// Returns the relation that words of a model name, in any language: "sister", "piano teacher", "老板".
    pub(crate) fn of_words(words: &str) -> Option<&'static Self> {
        let words = words.trim().to_lowercase();
        // "piano teacher" is a teacher.
        let english = |words: &str| Self::of_english(words).map(|(relation, _)| relation);
        english(&words).or_else(|| Self::of_own_word(&words)).or_else(|| english(words.rsplit([' ', '_']).next()?))
    }

    /// Returns the relation with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        RELATIONS.iter().find(|relation| relation.name == name)
    }

    /// Returns `true` if "my sister" without a name most likely means the one that was mentioned before: a close relative, a partner, a boss.
    pub(crate) fn is_single(&self) -> bool {
        const SINGLE: [&str; 17] = [
            "sister",
            "brother",
            "mother",
            "father",
            "son",
            "daughter",
            "grandmother",
            "grandfather",
            "aunt",
            "uncle",
            "mother-in-law",
            "father-in-law",
            "son-in-law",
            "daughter-in-law",
            "boss",
            "landlord",
            "roommate",
        ];
        self.predicate == "partner_of" || SINGLE.contains(&self.name)
    }

    /// Returns `true` if the claim stores the name of the relation.
    pub(crate) fn is_stored(&self) -> bool {
        !self.includes.is_empty()
    }
}

/// The kinds of animals that are pets.
pub(crate) const PETS: [&str; 42] = [
    "dog",
    "puppy",
    "cat",
    "kitten",
    "rabbit",
    "hamster",
    "parrot",
    "horse",
    "pony",
    "turtle",
    "tortoise",
    "goldfish",
    "fish",
    "bird",
    "budgie",
    "canary",
    "ferret",
    "snake",
    "lizard",
    "gecko",
    "pig",
    "goat",
    "hen",
    "chicken",
    "donkey",
    "guinea pig",
    "狗",
    "猫",
    "兔子",
    "仓鼠",
    "鹦鹉",
    "马",
    "乌龟",
    "金鱼",
    "犬",
    "うさぎ",
    "ハムスター",
    "インコ",
    "馬",
    "亀",
    "金魚",
    "鳥",
];

/// Activities: English verbs for what a person does again and again, in the base form. The activity is named by the gerund.
pub(crate) const ACTIVITIES: [&str; 66] = [
    "sail",
    "swim",
    "ski",
    "climb",
    "hike",
    "run",
    "jog",
    "paint",
    "draw",
    "sing",
    "dance",
    "cook",
    "bake",
    "knit",
    "garden",
    "fish",
    "row",
    "surf",
    "dive",
    "cycle",
    "ride",
    "skate",
    "write",
    "blog",
    "photograph",
    "travel",
    "camp",
    "box",
    "fence",
    "juggle",
    "meditate",
    "hunt",
    "kayak",
    "paddle",
    "snorkel",
    "sew",
    "weave",
    "carve",
    "brew",
    "code",
    "act",
    "teach",
    "volunteer",
    "farm",
    "crochet",
    "glide",
    "fly",
    "bowl",
    "golf",
    "snowboard",
    "windsurf",
    "kitesurf",
    "bike",
    "walk",
    "compose",
    "read",
    "embroider",
    "whittle",
    "forage",
    "canoe",
    "skydive",
    "busk",
    "babysit",
    "boulder",
    "spin",
    "wrestle",
];

/// Returns the gerund of an English verb in its base form.
pub(crate) fn gerund(verb: &str) -> String {
    const DOUBLED: [&str; 12] =
        ["swim", "run", "jog", "knit", "sit", "babysit", "spin", "skim", "hit", "cut", "put", "chat"];
    match verb {
        _ if DOUBLED.contains(&verb) => format!("{verb}{}ing", verb.chars().last().unwrap_or('n')),
        _ if verb.ends_with("ee") || verb.ends_with("oe") => format!("{verb}ing"),
        _ => format!("{}ing", verb.strip_suffix('e').unwrap_or(verb)),
    }
}

/// Returns the activity that an English verb form names: "sails", "sail" and "sailing" are "sailing".
pub(crate) fn activity(word: &str) -> Option<String> {
    let base = |form: &str| ACTIVITIES.iter().find(|verb| **verb == form).copied();
    let third = || {
        let cut = word
            .strip_suffix("ies")
            .map(|stem| format!("{stem}y"))
            .or_else(|| word.strip_suffix("es").map(str::to_owned));
        base(word.strip_suffix('s')?).or_else(|| base(&cut?))
    };
    let going = || ACTIVITIES.iter().find(|verb| gerund(verb) == word).copied();
    base(word).or_else(third).or_else(going).map(gerund)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_named_in_three_languages() {
        let english = |word: &str| Relation::of_english(word).map(|(relation, many)| (relation.name, many));
        assert_eq!(english("sister"), Some(("sister", false)));
        assert_eq!(english("children"), Some(("child", true)));
        assert_eq!(english("neighbors"), Some(("neighbour", true)));
        assert_eq!(english("boat"), None);
        assert_eq!(Relation::of_chinese("表妹住在柏林").unwrap().0.name, "cousin");
        assert_eq!(Relation::of_japanese("お母さんは").unwrap().0.name, "mother");
    }

    #[test]
    fn an_activity_is_named_by_its_gerund() {
        for (word, is) in [
            ("sails", "sailing"),
            ("swim", "swimming"),
            ("cycling", "cycling"),
            ("flies", "flying"),
            ("fishes", "fishing"),
        ] {
            assert_eq!(activity(word).as_deref(), Some(is), "{word}");
        }
        assert_eq!(activity("thinks"), None);
    }

    /// The table and the definitions in the capsule are two views of one vocabulary.
    #[test]
    fn the_capsule_defines_every_predicate_of_the_vocabulary() {
        let capsule = super::super::WORLD;
        let defined = |name: &str| {
            capsule.split(&format!("name: \"{name}\"")).nth(1).map(|rest| rest.split("CONCEPT").next().unwrap())
        };
        for relation in &RELATIONS {
            assert!(defined(relation.predicate).is_some(), "{}", relation.predicate);
        }
        for (all, member) in [(&FUNCTIONAL[..], "is_functional: true"), (&SYMMETRIC[..], "is_symmetric: true")] {
            assert_eq!(capsule.matches(member).count(), all.len(), "{member}");
            assert!(all.iter().all(|name| defined(name).unwrap().contains(member)), "{member}");
        }
    }
}
