//! Forgetting at a person's request: by rule, by a tool, and by the answer to a question (MISSION K11).

use serde_json::json;

use super::goals::live;
use super::mind::{active_facts, answered, answered_by_rule, calling, obedient, system, talking};

#[tokio::test]
async fn what_a_person_asks_to_forget_is_gone_without_a_model() {
    let (daemon, _, chat) = talking(obedient).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    ada.topic(&chat, "u").await;
    answered(&mut socket, &ada, &chat, "t", "My cat is called Miso. I am allergic to shellfish.").await;
    let calls = daemon.model.asked().len();
    let told = answered_by_rule(&mut socket, &ada, &chat, "t", "Forget that I am allergic to shellfish.").await;
    assert_eq!(told, "Forgotten: \"I am allergic to shellfish.\".");
    assert_eq!(daemon.model.asked().len(), calls, "no model was asked");
    let told = answered_by_rule(&mut socket, &ada, &chat, "t", "Forget the lighthouse keeper.").await;
    assert_eq!(told, "I have kept nothing about that.");
    answered(&mut socket, &ada, &chat, "u", "What is my cat called?").await;
    let prompt = daemon.model.asked().into_iter().next_back().unwrap();
    assert!(!system(&prompt).contains("allergic") && system(&prompt).contains("Miso"), "{}", system(&prompt));
    // Nothing in the history of that topic says it either: not the message, the request or the confirmation.
    answered(&mut socket, &ada, &chat, "t", "What is my cat called?").await;
    let prompt = daemon.model.asked().into_iter().next_back().unwrap();
    assert!(!json!(prompt.messages).to_string().contains("shellfish"), "{:?}", prompt.messages);
    // All that is known is asked for and told whole.
    answered(&mut socket, &ada, &chat, "u", "What do you know about me?").await;
    let prompt = daemon.model.asked().into_iter().next_back().unwrap();
    assert!(system(&prompt).contains("Miso") && !system(&prompt).contains("allergic"), "{}", system(&prompt));
}

#[tokio::test]
async fn which_of_several_facts_is_forgotten_is_asked_and_answered() {
    let (daemon, life, chat) = talking(obedient).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "Tom sails a blue dinghy. My uncle Tom is allergic to nuts.").await;
    let calls = daemon.model.asked().len();
    let asked = answered_by_rule(&mut socket, &ada, &chat, "t", "Forget Tom.").await;
    assert!(asked.starts_with("Nothing is forgotten yet.") && asked.contains("dinghy"), "{asked}");
    let told = answered_by_rule(&mut socket, &ada, &chat, "t", "The one about the nuts.").await;
    assert_eq!(
        (told.as_str(), daemon.model.asked().len()),
        ("Forgotten: \"My uncle Tom is allergic to nuts.\".", calls)
    );
    let facts = active_facts(&daemon, &life).await;
    assert!(facts.contains("dinghy") && !facts.contains("nuts"), "{facts}");
    // The same words without the question choose nothing.
    answered(&mut socket, &ada, &chat, "t", "Tom sails.").await;
    assert!(active_facts(&daemon, &life).await.contains("dinghy"));
}

#[tokio::test]
async fn what_a_model_left_unforgotten_is_forgotten_by_rule() {
    let (daemon, life, chat) = talking(calling(|_| Vec::new())).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "我的猫叫米米。").await;
    answered(&mut socket, &ada, &chat, "t", "我的生日是5月3日。").await;
    let facts = async || {
        let command =
            r#"FIND(?f.attributes.statement) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") }"#;
        let found = daemon.operator.post(&format!("{life}/kip"), json!({"command": command})).await;
        found.expect(StatusCode::OK)["result"].to_string()
    };
    assert!(facts().await.contains("米米"));
    let said = answered(&mut socket, &ada, &chat, "t", "请忘掉我的猫叫米米。").await;
    assert!(said.contains("已忘记") && !facts().await.contains("米米"), "{said} {}", facts().await);
    // "Everything of my cat" is not everything.
    answered(&mut socket, &ada, &chat, "t", "忘掉我的猫的一切。").await;
    assert!(facts().await.contains("生日"), "{}", facts().await);
}

#[tokio::test]
async fn forgetting_a_fact_of_one_keeps_that_of_another() {
    let (daemon, life, chat) = talking(calling(|_| Vec::new())).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "Ida is allergic to nuts. Ben is allergic to nuts.").await;
    answered_by_rule(&mut socket, &ada, &chat, "t", "Forget that Ben is allergic to nuts.").await;
    let left = active_facts(&daemon, &life).await;
    assert!(left.contains("Ida is allergic") && !left.contains("Ben is allergic"), "{left}");
}

#[tokio::test]
async fn what_is_forgotten_is_gone_in_every_wording() {
    let (daemon, life, chat) = talking(calling(|said| match said {
        said if said.contains("Olga died") => {
            vec![("remember", json!({"fact": "Olga, Ada's grandmother, died on 3 May."}))]
        }
        _ => Vec::new(),
    }))
    .await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "My name is Ada. My cat is called Miso.").await;
    answered(&mut socket, &ada, &chat, "t", "My grandmother Olga died on 3 May, and I miss her.").await;
    answered_by_rule(&mut socket, &ada, &chat, "t", "Forget that my grandmother Olga died.").await;
    let left = active_facts(&daemon, &life).await;
    assert!(!left.contains("Olga") && left.contains("Miso") && left.contains("Ada"), "{left}");
    answered(&mut socket, &ada, &chat, "t", "How are you?").await;
    let prompt = daemon.model.asked().into_iter().rev().find(|request| request.response_format.is_none()).unwrap();
    let talk = json!(prompt.messages).to_string();
    assert!(!talk.contains("Olga") && talk.contains("Miso"), "{talk}");
}
