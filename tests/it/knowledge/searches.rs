//! What a search of records finds, what picks it and what gives way (MISSION H1).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use crate::knowledge::records::{RECORDS, found, record, save};

#[tokio::test]
async fn what_helped_comes_first_and_what_harmed_goes() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut ids = Vec::new();
    for score in [1, 3, 3, 5] {
        let mut body = record("mooring a boat", "Use two lines.");
        body["score"] = json!(score);
        ids.push(save(&ada, body).await);
        daemon.clock.advance_ms(1_000);
    }
    let judge = async |id: &str, helpful: bool, message: &str| {
        let case = json!({"task": "moored", "outcome": "fine", "message_id": message});
        let name = if helpful { "add_helpful_case" } else { "add_harmful_case" };
        ada.put(&format!("{RECORDS}/{id}"), json!({ (name): case })).await.expect(StatusCode::OK)["knowledge"]["eval"]
            .clone()
    };
    // 5 + 0, then of equals the newest, as they answer equally well; what scored less than asked for is left out.
    assert_eq!(found(&ada, "q=mooring").await, [&ids[3], &ids[2], &ids[1]].map(String::clone));
    assert_eq!(found(&ada, "q=mooring&min_score=1").await.len(), 4);
    assert_eq!(found(&ada, "q=mooring&min_score=4").await, [ids[3].clone()]);
    // 3 + 3 = 6 is before 5, and the same message counts once.
    for message in ["m1", "m2", "m3", "m3", "m1"] {
        judge(&ids[1], true, message).await;
    }
    let eval = judge(&ids[1], true, "m2").await;
    assert_eq!((&eval["helpful"], eval["helpful_history"].as_array().unwrap().len()), (&json!(3), 3));
    assert_eq!(eval["helpful_history"][0]["by"], "user:ada");
    assert!((eval["confidence"].as_f64().unwrap() - 0.6355).abs() < 1e-9, "{eval}");
    assert_eq!(found(&ada, "q=mooring").await[0], ids[1]);
    // One participant's word against a record counts once, however often it is said.
    for message in ["m1", "m2", "m3"] {
        judge(&ids[3], false, message).await;
    }
    assert_eq!(found(&ada, "q=mooring").await.len(), 3);
    // 5 − 2·3 is less than nothing.
    for message in ["m4", "m5"] {
        let case = json!({"add_harmful_case": {"task": "moored", "message_id": message}});
        daemon.operator.put(&format!("{RECORDS}/{}", ids[3]), case).await.expect(StatusCode::OK);
    }
    assert_eq!(found(&ada, "q=mooring").await, [&ids[1], &ids[2]].map(String::clone));
    // A message may have helped and, looked at again, not: that is two cases.
    let eval = judge(&ids[1], false, "m1").await;
    assert_eq!((&eval["helpful"], &eval["harmful"]), (&json!(3), &json!(1)));
    let shown = ada.get(&format!("{RECORDS}/search?q=mooring&explain=1&router=lexical")).await.expect(StatusCode::OK);
    assert_eq!((&shown["router"], &shown["results"][0]["quality_score"]), (&json!("lexical"), &json!(4.0)));
    assert_eq!(shown["results"][0]["explain"]["scope"], 0);
    // Many at once: what is wrong with one is told, and the others are counted.
    let list = json!([
        {"knowledge_id": ids[0], "is_helpful": true, "case": {"task": "moored"}},
        {"knowledge_id": ids[0], "is_helpful": true, "case": {"task": "moored"}},
        {"knowledge_id": ids[0]},
        {"knowledge_id": ids[0], "is_helpful": "yes"},
        {"knowledge_id": "knowledge-none", "is_helpful": true},
        {"is_helpful": true}, 7,
    ]);
    let judged =
        ada.post(&format!("{RECORDS}/batch_update"), json!({"feedback_list": list})).await.expect(StatusCode::OK);
    assert_eq!((&judged["updated"], judged["errors"].as_array().unwrap().len()), (&json!(2), 5), "{judged}");
    assert_eq!(ada.get(&format!("{RECORDS}/{}", ids[0])).await.body["eval"]["helpful"], 2);
    let none = ada.post(&format!("{RECORDS}/batch_update"), json!({"feedback_list": []})).await.expect(StatusCode::OK);
    assert_eq!(none, json!({"updated": 0, "errors": []}));
    // Cases outlive the daemon.
    let (path, token, base) = (format!("{RECORDS}/{}", ids[1]), ada.token.clone(), daemon.operator.base.clone());
    let before = Client::new(base, token.clone()).get(&path).await.expect(StatusCode::OK);
    let daemon = daemon.kill_and_restart().await;
    let ada = Client::new(daemon.operator.base.clone(), token);
    assert_eq!(ada.get(&path).await.expect(StatusCode::OK), before);
    ada.put(&path, json!({"add_helpful_case": {"message_id": "m2"}})).await.expect(StatusCode::OK);
    assert_eq!(ada.get(&path).await.body["eval"], before["eval"]);
}

#[tokio::test]
async fn a_search_finds_cjk_text_of_any_length_and_character_width() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let texts = [
        "上海港的潮汐时间表",
        "東京湾の潮汐について",
        "서울의 한강 조수",
        "ｆｕｌｌ　ｗｉｄｔｈ １２３",
        "Selenium 绕过检测 login",
    ];
    let mut ids = Vec::new();
    for text in texts {
        ids.push(save(&ada, record(text, text)).await);
    }
    for (question, wanted) in [
        ("港", vec![0]),
        ("潮汐", vec![0, 1]),
        ("潮汐时间", vec![0]),
        ("東京湾", vec![1]),
        ("한강", vec![2]),
        ("width 123", vec![3]),
        ("ｗｉｄｔｈ", vec![3]),
        ("selenium检测", vec![4]),
        ("怎样绕过检测", vec![4]),
    ] {
        let hits = found(&ada, &format!("q={question}")).await;
        for at in &wanted {
            assert!(hits.contains(&ids[*at]), "{question}: {hits:?}");
        }
        assert!(wanted.iter().any(|at| ids[*at] == hits[0]), "{question}: {hits:?}");
    }
    assert_eq!(found(&ada, "q=葡萄牙").await, [""; 0]);
}

#[tokio::test]
async fn a_record_is_found_by_its_labels() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let body = json!({
        "task": "entering",
        "content": "Wait for the flood.",
        "types": ["strategy"],
        "tags": {"domain": "sailing", "places": ["Faro", "Olhão"]},
    });
    let id = save(op, body).await;
    for query in ["q=sailing", "q=Olhao", "q=olhão"] {
        assert_eq!(found(op, query).await, [id.as_str()], "{query}");
    }
}

#[tokio::test]
async fn a_hybrid_search_finds_by_meaning_and_names_its_router() {
    let daemon = TestDaemon::builder().alike(&[("boat", "vessel")]).start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let id = save(&ada, record("boat", "boat")).await;
    let answer = ada.get(&format!("{RECORDS}/search?q=vessel&explain=1")).await.expect(StatusCode::OK);
    assert_eq!((&answer["router"], &answer["results"][0]["id"]), (&json!("hybrid"), &json!(id)), "{answer}");
    assert_eq!(answer["results"][0]["explain"]["lexical"], 0.0);
    let words = ada.get(&format!("{RECORDS}/search?q=vessel&router=lexical")).await.expect(StatusCode::OK);
    assert_eq!((&words["router"], &words["count"]), (&json!("lexical"), &json!(0)));
    // Without an embedder it says so, and finds by words.
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    save(&ada, record("boat", "boat")).await;
    let words = ada.get(&format!("{RECORDS}/search?q=boat&router=hybrid")).await.expect(StatusCode::OK);
    assert_eq!((&words["router"], &words["degraded"]), (&json!("lexical"), &json!("no embedder is configured")));
    assert_eq!(words["count"], 1);
}

pub(crate) fn said(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_llm_search_ranks_visible_records_or_falls_back_to_words() {
    // It chooses from the last to the first of those with a boat in them, and one that it was never shown.
    let script = |request: &ChatRequest, asked: usize| {
        let said = said(request);
        if said.contains("break down") {
            return Reply::Status(500, "out of order".into());
        }
        assert!(!said.contains("hidden"), "{asked}: {said}");
        let lines = said.lines().filter(|line| line.starts_with("knowledge-") && line.contains("boat"));
        let mut ids: Vec<&str> = lines.map(|line| line.split(' ').next().unwrap()).collect();
        ids.push("knowledge-20260101-invented");
        Reply::Text(json!({"ids": ids}).to_string())
    };
    let daemon = TestDaemon::start(script).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut hidden = record("a hidden boat", "hidden");
    hidden["scopes"] = json!(["user:bob"]);
    save(&daemon.operator, hidden).await;
    let mut ids = Vec::new();
    for task in ["mooring a boat", "a boat in fog", "baking bread"] {
        ids.push(save(&ada, record(task, "Take care.")).await);
    }
    let ask = async |query: &str| ada.get(&format!("{RECORDS}/search?router=llm&{query}")).await.expect(StatusCode::OK);
    let answer = ask("q=vessels").await;
    let hits: Vec<&Value> = answer["results"].as_array().unwrap().iter().map(|hit| &hit["id"]).collect();
    assert_eq!((&answer["router"], hits), (&json!("llm"), vec![&json!(ids[1]), &json!(ids[0])]), "{answer}");
    // What it does not choose and words find comes after.
    let answer = ask("q=bread").await;
    let hits: Vec<&Value> = answer["results"].as_array().unwrap().iter().map(|hit| &hit["id"]).collect();
    assert_eq!(hits, [&json!(ids[1]), &json!(ids[0]), &json!(ids[2])]);
    let answer = ask("q=break+down+on+bread").await;
    assert_eq!((&answer["router"], &answer["degraded"]), (&json!("lexical"), &json!("llm_error")), "{answer}");
    assert_eq!(answer["results"][0]["id"], json!(ids[2]));
    // It is paid from the house, and without a model good enough it is not asked.
    let spent = daemon.operator.get("/v1/house/resources").await.expect(StatusCode::OK);
    assert!(spent["spent"]["tokens"].as_i64().unwrap() > 0, "{spent}");
    let asked = daemon.model.asked().len();
    ada.get(&format!("{RECORDS}/search?q=boat")).await.expect(StatusCode::OK);
    assert_eq!(daemon.model.asked().len(), asked, "nobody is paid unasked");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_answer_in_time_gives_way() {
    let store = store::Store::open(
        std::sync::Arc::new(store::Memory::default()),
        std::sync::Arc::new(store::ManualClock::default()),
    );
    let store = store.await.unwrap();
    let minds = nexus::Nexus::new(store.clone());
    let never = std::sync::Arc::new(tokio::sync::Notify::new());
    let model = neurons::llm::scripted::Scripted::new(move |_, _| Reply::Held("[".into(), never.clone(), "]".into()));
    let models = tests::models_of(&model.provider("silent").unwrap());
    let thinking = neurons::Neurons::open(store.clone(), tests::tools_of(minds.clone()), models).await.unwrap();
    let funds = store::ledger::AccountOp::Open(store::ledger::Amount::tokens(100_000));
    let system = store::Origin::system("test");
    store.commit(store::Batch::new(&system).account(neurons::HOUSE, funds, "house")).await.unwrap();
    let records = knowledge::Knowledge::new(store, minds).with_neurons(thinking);
    let Value::Object(body) = record("the harbour", "hail on channel 9") else { panic!() };
    let draft = knowledge::Draft::read(body, &system.principal).unwrap();
    records.save(draft, None, &system).await.unwrap();
    let query =
        knowledge::Query { router: Some(knowledge::Router::Llm), ..knowledge::Query::new("harbour channel", 3) };
    let begun = tokio::time::Instant::now();
    let found = records.search(&query, &system).await.unwrap();
    assert_eq!((found.router, found.degraded.as_deref()), (knowledge::Router::Lexical, Some("llm_timeout")));
    assert_eq!((found.hits.len(), begun.elapsed().as_secs()), (1, 3));
}

#[tokio::test]
async fn a_search_also_finds_what_answers_in_one_word() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let all =
        save(&ada, record("winter storage of wooden boats", "Wooden boats in winter storage need fresh air.")).await;
    let one = save(&ada, record("varnish", "Boats are varnished in May.")).await;
    let found = found(&ada, "q=winter%20storage%20wooden%20boats&top_k=10").await;
    assert_eq!(found, [all, one]);
}

#[tokio::test]
async fn lists_in_a_query_are_read_as_clients_of_the_seed_write_them() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.member("user:ada", &[]).await;
    let mut ids = Vec::new();
    for kind in ["tool", "plan", "strategy"] {
        let mut body = record("mooring a boat", &format!("Two lines, as a {kind}."));
        body["types"] = json!([kind]);
        ids.push(save(&ada, body).await);
    }
    assert_eq!(found(&ada, "q=mooring&types=None&scopes=None").await.len(), 3);
    let mut both = found(&ada, "q=mooring&types=tool&types=plan").await;
    both.sort();
    let mut wanted = ids[..2].to_vec();
    wanted.sort();
    assert_eq!(both, wanted);
}
