//! The talk around recalled facts, which a question that several facts answer brings to mind (MISSION K12, L7).

use tests::honest;

use super::knowing::World;

#[tokio::test]
async fn a_question_brings_the_talk_around_to_those_who_heard_it() {
    let mut world = World::with(honest, &["t", "hers", "his", "third", "both"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    let cleo = world.daemon.person("user:cleo", "participant").await;
    world.say(&ben, "t", "Who was the lady with the trumpet?").await;
    world.tell(&ada, "t", "My aunt Morag lives in Perth.", 3).await;
    world.say(&ben, "t", "Isn't she married to Tilda?").await;
    world.say(&ada, "t", "Her brother builds wooden boats.").await;
    let said = world.say(&ada, "hers", "Which of my aunts lives in Perth?").await;
    let talk = "- From a talk on 1 January 2026, in order:\n  The user: \"My aunt Morag lives in Perth.\"\n  ben: \"Isn't she married to \
                Tilda?\"\n  The user: \"Her brother builds wooden boats.\"";
    assert!(said.contains(talk), "{said}");
    // She had not spoken yet when Ben asked this. The best note stands first, and what else stands in the talk is not said twice.
    assert!(!said.contains("trumpet") && said.matches("wooden boats").count() == 1, "{said}");
    let said = world.say(&ben, "his", "Which of Ada's aunts lives in Perth?").await;
    assert!(said.contains("The user: \"Who was the lady with the trumpet?\"") && said.contains("Tilda"), "{said}");
    for topic in ["third", "both"] {
        let said = world.say(&cleo, topic, "Which of Ada's aunts lives in Perth?").await;
        assert_eq!(said, "I do not know.");
    }
    let said = world.say(&ada, "both", "Which of my aunts lives in Perth?").await;
    assert!(!said.contains("Tilda") && !said.contains("boats"), "{said}");
    // A question that one fact answers brings that fact alone.
    let said = world.say(&ada, "hers", "Where does Morag live?").await;
    assert!(said.contains("Perth") && !said.contains("From a talk"), "{said}");
}

#[tokio::test]
async fn what_was_taken_back_stands_in_no_excerpt() {
    let mut world = World::with(honest, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My aunt Morag lives in Perth.", 3).await;
    world.say(&ada, "t", "The old trumpet hangs in the kitchen. Do you like trumpets?").await;
    world.say(&ada, "t", "Is the trumpet in the kitchen too old to play?").await;
    // Questions of messages that speak of secrets and of passwords, right before a statement that is recalled.
    world.say(&ada, "t", "Can you keep a secret? Is the doctor any good?").await;
    world.say(&ada, "t", "Is doctor99 a good password?").await;
    world.tell(&ada, "t", "My aunt Tilda lives in Perth.", 6).await;
    let question = "Which of my aunts live in Perth?";
    let said = world.say(&ada, "u", question).await;
    assert!(said.contains("Do you like trumpets?") && said.contains("kitchen") && said.contains("too old"), "{said}");
    assert!(said.contains("Tilda") && !said.contains("doctor"), "{said}");
    world.say(&ada, "t", "Forget that the old trumpet hangs in the kitchen.").await;
    // Neither the sentence, nor the question beside it, nor one in another message that names it.
    let said = world.say(&ada, "u", question).await;
    assert!(said.contains("Tilda") && !said.contains("kitchen") && !said.contains("trumpet"), "{said}");
}
