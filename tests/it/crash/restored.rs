//! A daemon that was restored to an earlier moment: what was done outside since then is looked up or asked about, and not done again.

use neurons::llm::scripted::Scripted;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::effects::{Harbour, settle, world_with};
use super::goals::{STRONG, TASKS, model};
use crate::crash::crashes::copied;
use crate::crash::killed::Victim;

/// Copies the data before a goal books, lets it book, puts the copy back, and lets the goal go on. Returns the number of questions, and
/// the bookings.
async fn restored(more: &Value, says_so: bool) -> (usize, usize) {
    let (model, harbour): (Scripted, Harbour) = (model(TASKS[0], STRONG), Harbour::default());
    let url = world_with(&model, &harbour).await;
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::dying(folder.path(), &url, None);
    let book = format!("{}/book", url.trim_end_matches("/v1"));
    let mut tool = if more["settle"] == true { settle(&url) } else { json!({}) };
    let own = json!({"approval": "on_write", "run": {"http": {"method": "POST", "url": book}}});
    tool.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    victim.client.put("/v1/tools/book", tool).await.expect(StatusCode::CREATED);
    let pursue = json!({"standard": "pursue_with_tools", "with_tools": "pursue_with_tools"});
    let definition = json!({"name": "Iris", "tools": [{"use": "book"}], "pursue": pursue});
    let made = victim.client.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    victim.client.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    victim.client.post(&format!("{life}/goals"), json!({"title": "Book"})).await.expect(StatusCode::CREATED);
    // The call waits for a yes when the copy is made.
    let asked = approval(&victim, false).await;
    victim.stop();
    let copy = copied(folder.path());
    let victim = Victim::dying(folder.path(), &url, None);
    victim.client.post(&format!("/v1/approvals/{asked}"), json!({"decision": "approve"})).await.expect(StatusCode::OK);
    done(&victim, &life).await;
    victim.stop();
    assert_eq!(harbour.bookings(), 1);

    let victim = Victim::restored(copy.path(), &url, says_so);
    // The question of before is there again.
    let asked = approval(&victim, false).await;
    victim.client.post(&format!("/v1/approvals/{asked}"), json!({"decision": "approve"})).await.expect(StatusCode::OK);
    let mut questions = 0;
    if says_so && more["settle"] != true {
        let unsure = approval(&victim, true).await;
        let said = json!({"decision": "done", "comment": "{\"booking\": \"B1\"}"});
        victim.client.post(&format!("/v1/approvals/{unsure}"), said).await.expect(StatusCode::OK);
        questions += 1;
    }
    done(&victim, &life).await;
    victim.stop();
    (questions, harbour.bookings())
}

async fn approval(victim: &Victim, is_unsure: bool) -> String {
    loop {
        let waiting = victim.client.get("/v1/approvals").await.expect(StatusCode::OK);
        let found = waiting["approvals"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| (one["calls"][0]["unsure"] == true) == is_unsure);
        if let Some(one) = found {
            let why = one["calls"][0]["why"].as_str().unwrap_or_default();
            assert!(!is_unsure || why.contains("restored to an earlier moment"), "{one}");
            return one["id"].as_str().unwrap().to_owned();
        }
        tests::again().await;
    }
}

async fn done(victim: &Victim, life: &str) {
    loop {
        let path = format!("{life}/goals/g1");
        let goal = victim.client.send(Method::GET, &path, &[], None).await.expect(StatusCode::OK);
        if goal["status"] == "done" {
            return;
        }
        assert_ne!(goal["status"], "blocked", "{goal}");
        tests::again().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_after_the_copy_is_looked_up_or_asked_about() {
    assert_eq!(restored(&json!({"settle": true}), true).await, (0, 1));
    assert_eq!(restored(&json!({}), true).await, (1, 1));
    // A daemon that is not told so cannot know.
    assert_eq!(restored(&json!({}), false).await, (0, 2));
}
