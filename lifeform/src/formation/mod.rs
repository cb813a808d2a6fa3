//! The formation of a mind's graph: what people state becomes claims, which are links between people, places, things and
//! themes. The statements stay, and are the evidence of the claims. Rules read the claims, in English, Chinese and Japanese;
//! no model is needed. `docs/src/internals/knowing.md` explains it.

mod batches;
mod checking;
pub(crate) mod chinese;
pub(crate) mod confidence;
mod conflicts;
mod describing;
mod draft;
mod english;
mod filing;
pub(crate) mod japanese;
mod maps;
mod mention;
mod merging;
mod people;
mod predicates;
pub(crate) mod reading;
mod resolving;
pub(crate) mod vocabulary;
mod weighing;
mod withdrawing;
mod writing;

pub(crate) use batches::{Batch, Unread};
pub(crate) use conflicts::{Conflict, Decision};
pub(crate) use draft::FORMATION;
pub(crate) use english::Words;
pub(crate) use maps::{OnMap, statement_of as statement_of_node};
pub(crate) use mention::{Claim, Kind, Mention};
pub(crate) use merging::{MENTIONS_NO_MORE, MOVED_MAX, STATES_NO_MORE};
pub(crate) use people::PersonDescription;
pub(crate) use predicates::Predicates;
pub(crate) use resolving::{is_said_in, key_of, plain};
pub(crate) use writing::ends_former;

/// The types and predicates of the claims, as a capsule. A mind gets it with its first claim.
pub(crate) const WORLD: &str = include_str!("../../../config/capsules/world.kip");

/// Returns `true` if a sentence supposes, wishes, quotes or tells of the past, and so claims nothing.
pub(crate) fn supposes(statement: &str) -> bool {
    let is_in = |from: char, to: char| statement.chars().any(|c| (from..=to).contains(&c));
    match () {
        () if is_in('\u{3040}', '\u{30ff}') => japanese::supposes(statement),
        () if is_in('\u{4e00}', '\u{9fff}') => chinese::supposes(statement),
        () => english::supposes(statement),
    }
}

/// Returns the claims that a statement makes, by rules. A sentence that supposes or wishes claims nothing.
pub(crate) fn claims(statement: &str) -> Vec<Claim> {
    let is_in = |from: char, to: char| statement.chars().any(|c| (from..=to).contains(&c));
    let claims = match () {
        () if is_in('\u{3040}', '\u{30ff}') && japanese::supposes(statement) => Vec::new(),
        () if is_in('\u{3040}', '\u{30ff}') => japanese::read(statement),
        () if is_in('\u{4e00}', '\u{9fff}') && chinese::supposes(statement) => Vec::new(),
        () if is_in('\u{4e00}', '\u{9fff}') => chinese::read(statement),
        () => english::read(statement),
    };
    let mut all: Vec<Claim> = Vec::new();
    for claim in claims {
        // "My sister's neighbour sails" claims that the sister has this neighbour, too.
        let implied = claim.subject.implied().into_iter().chain(claim.object.implied());
        for claim in implied.chain(std::iter::once(claim)) {
            if !all.contains(&claim) && claim.subject != claim.object {
                all.push(claim);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(statement: &str) -> Vec<String> {
        claims(statement).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn english_statements_become_claims() {
        for (statement, is) in [
            (
                "My sister Henrike moved to Gdańsk last spring.",
                vec!["I relative_of sister(Henrike)", "I.sister(Henrike) lives_in Gdańsk"],
            ),
            ("Tom is a neighbour of my sister.", vec!["I relative_of sister", "I.sister neighbour_of neighbour(Tom)"]),
            (
                "Henrike's neighbour Tom sails.",
                vec!["Henrike neighbour_of neighbour(Tom)", "Henrike.neighbour(Tom) does sailing"],
            ),
            ("Tom is Henrike's neighbour.", vec!["Henrike neighbour_of neighbour(Tom)"]),
            ("My brother's wife is called Ines.", vec!["I relative_of brother", "I.brother partner_of wife(Ines)"]),
            (
                "My sisters Ida and Eva live in Oslo.",
                vec![
                    "I relative_of sister(Ida)",
                    "I relative_of sister(Eva)",
                    "I.sister(Ida) lives_in Oslo",
                    "I.sister(Eva) lives_in Oslo",
                ],
            ),
            ("I'm allergic to peanuts.", vec!["I must_avoid peanuts"]),
            ("I like sailing, chess and green tea.", vec!["I likes sailing", "I likes chess", "I likes green tea"]),
            ("I don't like coffee.", vec!["I dislikes coffee"]),
            ("We adopted a dog called Rex.", vec!["I owns dog(Rex)"]),
            ("I have a dog called Rex and a cat named Miso.", vec!["I owns dog(Rex)", "I owns cat(Miso)"]),
            ("My boat is called Petrel.", vec!["I owns boat(Petrel)"]),
            ("Tom works for Acme as an engineer.", vec!["Tom works_for Acme", "Tom works_as engineer"]),
            ("My friend Ben is a plumber.", vec!["I friend_of friend(Ben)", "I.friend(Ben) works_as plumber"]),
            ("Ben speaks Polish and German.", vec!["Ben speaks polish", "Ben speaks german"]),
            ("Ida comes from Lisbon.", vec!["Ida comes_from Lisbon"]),
            ("Ida plays the violin.", vec!["Ida does violin"]),
            ("She goes climbing every Friday.", vec!["she does climbing"]),
            ("Tom and Eva are neighbours.", vec!["Tom neighbour_of neighbour(Eva)"]),
            ("Ben is married to Ines.", vec!["Ben partner_of partner(Ines)"]),
            (
                "Six is practically noon for my brother Tom, he's a baker.",
                vec!["I relative_of brother(Tom)", "I.brother(Tom) works_as baker"],
            ),
            ("If it rains, my sister Ida would stay.", vec!["I relative_of sister(Ida)"]),
            (
                "Did I say that my friends Nina and Raj both live in Lisbon?",
                vec![
                    "I friend_of friend(Nina)",
                    "I friend_of friend(Raj)",
                    "I.friend(Nina) lives_in Lisbon",
                    "I.friend(Raj) lives_in Lisbon",
                ],
            ),
            ("Rike is short for Henrike.", vec!["Rike same_as Henrike"]),
            ("My sister's nickname is Rike.", vec!["I relative_of sister", "Rike same_as I.sister"]),
            ("Henrike's nickname is Rike.", vec!["Rike same_as Henrike"]),
            ("Tom and Thomas are the same person.", vec!["Tom same_as Thomas"]),
            ("Rike is the same person as my sister.", vec!["I relative_of sister", "Rike same_as I.sister"]),
            ("Everybody calls me Rike.", vec!["Rike same_as I"]),
            ("They call me Dad.", vec![]),
            ("My boss never calls me Rike.", vec![]),
            ("I hate that people call me Rike.", vec![]),
            ("Tom and Thomas are not the same person.", vec![]),
            (
                "My sister Henrike rang; her nickname is Rike.",
                vec!["I relative_of sister(Henrike)", "Rike same_as I.sister(Henrike)"],
            ),
            ("Call me ASAP!", vec![]),
            ("Besides writing, I like tea.", vec!["I likes tea"]),
            ("Rock climbing was awesome.", vec![]),
            ("I have been sailing.", vec!["I does sailing"]),
            ("My ex-wife Mia lives in Rome.", vec!["Mia lives_in Rome"]),
            ("Yesterday Tom moved to Oslo.", vec!["Tom lives_in Oslo"]),
            ("Ada and Yaw moved to Shrewsbury at Easter.", vec!["Ada lives_in Shrewsbury", "Yaw lives_in Shrewsbury"]),
            ("Ida plays the bagpipes as well.", vec!["Ida does bagpipes"]),
            ("Niall's moved to Cork.", vec!["Niall lives_in Cork"]),
            ("Mum lives in Leeds.", vec!["I relative_of mother", "I.mother lives_in Leeds"]),
            ("Theo's allergic to dogs.", vec!["Theo must_avoid dogs"]),
            ("There's Otto, who sails.", vec!["Otto does sailing"]),
            ("She's in Lisbon like the others, with her dog.", vec![]),
            ("Looks like a blast!", vec![]),
            ("Sounds like a plan, John!", vec![]),
            ("Little acts of kindness can have a big effect.", vec![]),
            ("We learn a lot from our own struggles.", vec![]),
            ("Tom and Eva play a crucial role in the choir.", vec![]),
            ("Tom plays the flute.", vec!["Tom does flute"]),
            ("I love helping the club and making it a better place.", vec!["I likes helping the club"]),
            ("I love the freedom and connection it brings.", vec!["I likes freedom", "I likes connection"]),
            ("Bianca is six and already learning Welsh.", vec!["Bianca studies welsh"]),
            ("I have two brothers, Max and Leo.", vec!["I relative_of brother(Max)", "I relative_of brother(Leo)"]),
        ] {
            assert_eq!(read(statement), is, "{statement}");
        }
    }

    #[test]
    fn what_is_supposed_or_wished_claims_nothing() {
        for statement in [
            "Maybe my sister lives in Oslo.",
            "I would like a dog.",
            "I might move to Oslo.",
            "If I lived in Oslo, I would sail.",
            "I dreamt that Tom lives in Oslo.",
            "It rains in Oslo.",
            "I have a meeting with Tom.",
            "I have an idea.",
            "The door code of the shed is 4111.",
            "I used to live in Oslo.",
            "Ada said \"my boat is called Petrel\".",
            "I'd like a dog.",
            "I'll move to Oslo.",
            "None of my friends live in Oslo.",
            "I don't think Tom lives in Oslo.",
            "I'm moving to Rome next year.",
            "I didn't eat lunch today.",
            "My sister is a bit taller.",
            "My flight to Paris is late.",
            "我爸妈住在武汉。",
            "老王不在上海工作。",
            "我会准时到的。",
            "今年は神戸に住んでいます。",
            "子供の頃は大阪に住んでいました。",
            "也许我姐姐住在奥斯陆。",
            "姉はオスロに住んでいるかもしれません。",
            "我想住在奥斯陆。",
            "あ、麻衣ちゃんもそばアレルギーだったわ。",
        ] {
            assert_eq!(read(statement), [""; 0], "{statement}");
        }
    }

    #[test]
    fn chinese_statements_become_claims() {
        for (statement, is) in [
            ("我姐姐叫小梅。", vec!["I relative_of sister(小梅)"]),
            ("我的姐姐小梅住在杭州。", vec!["I relative_of sister(小梅)", "I.sister(小梅) lives_in 杭州"]),
            ("小梅的邻居老王会帆船。", vec!["小梅 neighbour_of neighbour(老王)", "小梅.neighbour(老王) does 帆船"]),
            ("老王是小梅的邻居。", vec!["小梅 neighbour_of neighbour(老王)"]),
            ("我对花生过敏。", vec!["I must_avoid 花生"]),
            ("小梅的外号叫阿梅。", vec!["阿梅 same_as 小梅"]),
            ("我姐姐的小名是梅梅。", vec!["I relative_of sister", "梅梅 same_as I.sister"]),
            ("阿梅是小梅的外号。", vec!["阿梅 same_as 小梅"]),
            ("阿梅不是小梅的外号。", vec![]),
            ("这是小梅的外号。", vec![]),
            ("阿梅和小梅是同一个人。", vec!["阿梅 same_as 小梅"]),
            ("我喜欢爬山和喝茶。", vec!["I likes 爬山", "I likes 喝茶"]),
            ("我不喜欢咖啡。", vec!["I dislikes 咖啡"]),
            ("我养了一只猫叫味噌。", vec!["I owns 猫(味噌)"]),
            ("我的猫叫味噌。", vec!["I owns 猫(味噌)"]),
            ("我弟弟在华为工作。", vec!["I relative_of brother", "I.brother works_for 华为"]),
            ("小梅是医生。", vec!["小梅 works_as 医生"]),
            ("我妈妈会说法语。", vec!["I relative_of mother", "I.mother speaks 法语"]),
            ("我搬到了上海。", vec!["I lives_in 上海"]),
            ("我来自成都。", vec!["I comes_from 成都"]),
        ] {
            assert_eq!(read(statement), is, "{statement}");
        }
    }

    #[test]
    fn japanese_statements_become_claims() {
        for (statement, is) in [
            ("姉の名前は由美です。", vec!["I relative_of sister(由美)"]),
            ("麻衣のあだ名はマイマイです。", vec!["マイマイ same_as 麻衣"]),
            ("マイマイは姉のあだ名です。", vec!["I relative_of sister", "マイマイ same_as I.sister"]),
            ("マイマイと麻衣さんは同一人物です。", vec!["マイマイ same_as 麻衣"]),
            ("姉の由美は神戸に住んでいます。", vec!["I relative_of sister(由美)", "I.sister(由美) lives_in 神戸"]),
            ("私の弟はトヨタで働いています。", vec!["I relative_of brother", "I.brother works_for トヨタ"]),
            (
                "由美の隣人の田中さんはヨットをしています。",
                vec!["由美 neighbour_of neighbour(田中)", "由美.neighbour(田中) does ヨット"],
            ),
            ("田中さんは由美の隣人です。", vec!["由美 neighbour_of neighbour(田中)"]),
            ("私はピーナッツアレルギーです。", vec!["I must_avoid ピーナッツ"]),
            ("私は登山とお茶が好きです。", vec!["I likes 登山", "I likes お茶"]),
            ("コーヒーが嫌いです。", vec!["I dislikes コーヒー"]),
            ("味噌という猫を飼っています。", vec!["I owns 猫(味噌)"]),
            ("私の猫の名前は味噌です。", vec!["I owns 猫(味噌)"]),
            ("母は看護師です。", vec!["I relative_of mother", "I.mother works_as 看護師"]),
            (
                "友達の健太はフランス語を話します。",
                vec!["I friend_of friend(健太)", "I.friend(健太) speaks フランス語"],
            ),
            ("大阪に引っ越しました。", vec!["I lives_in 大阪"]),
            ("先週ついに神戸から大阪に引っ越しました。", vec!["I lives_in 大阪"]),
            ("京都出身です。", vec!["I comes_from 京都"]),
        ] {
            assert_eq!(read(statement), is, "{statement}");
        }
    }
}
