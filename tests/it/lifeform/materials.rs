//! Code, credentials and cookies in a talk and in the result of a goal become resources of their person, with a record that links
//! them; no model and no graph gets the secrets (MISSION H4, and the four scenarios of its seed).

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, honest};

use super::knowing::World;

const CODE: &str = "import undetected_chromedriver as uc\n\ndriver = uc.Chrome()\ndriver.get(url)\nlogin(driver)";

async fn resources(who: &Client) -> Vec<Value> {
    let listed = who.get("/api/resource").await.expect(StatusCode::OK);
    listed["results"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

async fn revealed(who: &Client, resource: &Value) -> String {
    let path = format!("/api/resource/{}?reveal=1&why=the+test", resource["id"].as_str().unwrap());
    who.get(&path).await.expect(StatusCode::OK)["secure_body"].as_str().unwrap().to_owned()
}

/// The record that links resources, as its owner reads it.
async fn record_with(who: &Client, ids: &[&Value]) -> Value {
    let listed = who.get("/api/knowledge?limit=50").await.expect(StatusCode::OK);
    let records = listed["results"].as_array().or(listed["knowledge"].as_array()).unwrap_or_else(|| panic!("{listed}"));
    let links = |record: &&Value| {
        let linked = record["resource_ids"].as_array().cloned().unwrap_or_default();
        linked.len() == ids.len() && ids.iter().all(|id| linked.contains(id))
    };
    records.iter().find(links).unwrap_or_else(|| panic!("{listed}")).clone()
}

/// Returns all that models were given and that the mind keeps.
async fn seen(world: &World) -> String {
    let asked: Vec<String> = world.daemon.model.asked().iter().map(|asked| json!(asked.messages).to_string()).collect();
    let facts = world.kip(r#"FIND(?f) WHERE { ?f {type: "Fact"} }"#).await;
    format!("{asked:?}\n{facts}")
}

#[tokio::test]
async fn the_four_scenarios_of_the_seed_in_a_talk() {
    let mut world = World::with(honest, &["code", "login", "cookie", "both"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;

    let code = format!("用这段代码登录网站可以绕过检测，注意随机延迟。\n```python\n{CODE}\n```");
    world.say(&ada, "code", &code).await;
    let [code] = &resources(&ada).await[..] else { panic!("one piece of code") };
    assert_eq!((&code["content_type"], &code["body"]), (&json!("code"), &json!(CODE)));
    assert_eq!((&code["metadata"]["language"], &code["scopes"]), (&json!("python"), &json!(["user:ada"])));
    let record = record_with(&ada, &[&code["id"]]).await;
    assert!(record["content"].as_str().unwrap().contains("绕过检测"), "{record}");

    let login = "The test account of https://shop.example.com is good for 100 calls a day.\nuser: ada-test password: SecurePass123";
    world.say(&ada, "login", login).await;
    let all = resources(&ada).await;
    let credential = all.iter().find(|one| one["content_type"] == "credential").unwrap();
    assert_eq!(revealed(&ada, credential).await, "SecurePass123");
    assert_eq!(
        (&credential["metadata"]["hosts"], &credential["metadata"]["account"]),
        (&json!(["shop.example.com"]), &json!("ada-test"))
    );
    let record = record_with(&ada, &[&credential["id"]]).await;
    assert!(record["content"].as_str().unwrap().contains("100 calls a day"), "{record}");

    let cookie = "The shop at https://shop.example.com knows me by this for a day. Cookie: session_id=abc123def; auth_token=xyz789abc; Max-Age=86400";
    world.say(&ada, "cookie", cookie).await;
    let all = resources(&ada).await;
    let cookie = all.iter().find(|one| one["content_type"] == "cookie").unwrap();
    assert_eq!(revealed(&ada, cookie).await, "session_id=abc123def; auth_token=xyz789abc; Max-Age=86400");
    let (acquired, expires) = (&cookie["metadata"]["acquired_at"], &cookie["metadata"]["expires_at"]);
    assert!(acquired.as_str() < expires.as_str(), "{cookie}");

    let both = format!(
        "Log into https://mail.example.com with this code and this password.\n```python\n{CODE}\nlogout()\n```\npassword: Another-Pass99"
    );
    world.say(&ada, "both", &both).await;
    let all = resources(&ada).await;
    let of_both: Vec<&Value> =
        all.iter().filter(|one| one["title"].as_str().unwrap().contains("mail.example.com")).collect();
    assert_eq!(of_both.len(), 2, "{all:?}");
    record_with(&ada, &of_both.iter().map(|one| &one["id"]).collect::<Vec<_>>()).await;

    let (seen, records) =
        (seen(&world).await, ada.get("/api/knowledge?limit=50").await.expect(StatusCode::OK).to_string());
    for secret in ["SecurePass123", "abc123def", "xyz789abc", "Another-Pass99"] {
        assert!(!seen.contains(secret) && !records.contains(secret), "{secret}\n{seen}\n{records}");
    }
    assert!(seen.contains("{{secret:credentials/"), "a model may name it in a call: {seen}");
    assert!(resources(&ben).await.is_empty(), "it is its person's alone");
}

#[tokio::test]
async fn material_goes_with_its_message() {
    let mut world = World::with(honest, &["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let path = format!("{}/canvases/canvas_chat_main/topics/t/messages", world.life);
    let said = json!({"id": "m1", "content": "The account of https://shop.example.com is ready for use. password: SecurePass123"});
    ada.post(&path, said).await.expect(StatusCode::CREATED);
    while resources(&ada).await.len() != 1 {
        tests::again().await;
    }
    let first = resources(&ada).await[0].clone();
    let changed =
        json!({"content": "The account of https://shop.example.com is ready for use. password: Changed-Pass77"});
    ada.patch(&format!("{path}/m1"), changed).await.expect(StatusCode::OK);
    while revealed(&ada, &first).await != "Changed-Pass77" {
        tests::again().await;
    }
    ada.delete(&format!("{path}/m1")).await.expect(StatusCode::OK);
    while !resources(&ada).await.is_empty() {
        tests::again().await;
    }
    let records = ada.get("/api/knowledge?limit=50").await.expect(StatusCode::OK).to_string();
    assert!(!records.contains("shop.example.com"), "{records}");
    assert!(!world.say(&ada, "t", "What do you know of the shop?").await.contains("password"));
}
