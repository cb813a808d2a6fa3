//! What is set aside for a call is given back when the call is given up before it is sent.

use std::sync::Arc;
use std::time::Duration;

use neurons::llm::paid::calls_stream;
use neurons::llm::scripted::{Reply, Scripted};
use neurons::{CallOptions, HOUSE, NeuronSpec, Neurons};
use nexus::Nexus;
use serde_json::{Value, json};
use store::faulty::{Fault, Faulty};
use store::ledger::{AccountOp, Amount};
use store::{Batch, Memory, Origin, Store, SystemClock};
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_abandoned_during_its_reservation_is_charged_nothing() {
    let go_on = Arc::new(Notify::new());
    // The account is opened and the key is made; then the disk is slow.
    let faults = [Fault::None, Fault::None, Fault::Held(go_on.clone())];
    let disk = Faulty::new(Arc::new(Memory::default()), faults);
    let store = Store::open(Arc::new(disk), Arc::new(SystemClock)).await.unwrap();
    let origin = Origin::system("test");
    let house = Amount { tokens: 10_000, micro_usd: 0 };
    store.commit(Batch::new(&origin).account(HOUSE, AccountOp::Open(house), "house")).await.unwrap();
    let model = Scripted::new(|_, _| Reply::Text("too late".into()));
    let models = tests::models_of(&model.provider("scripted").unwrap());
    let tools = tests::tools_of(Nexus::new(store.clone()));
    let neurons = Neurons::open(store.clone(), tools, models).await.unwrap();
    let spec: NeuronSpec = serde_json::from_value(json!({"kind": "base"})).unwrap();
    let (input, name) = (json!("hello"), "inv_given_up".into());
    let account = HOUSE.into();
    let thinking = neurons.think(&origin, &account, &name, &spec, &input, CallOptions::default());
    assert!(tokio::time::timeout(Duration::from_secs(1), thinking).await.is_err(), "the disk is still writing");
    go_on.notify_one();
    let mut calls = store.follow(calls_stream(HOUSE), 0);
    assert_eq!(&*calls.next().await.unwrap().kind, "sent");
    let given_up = calls.next().await.unwrap();
    let told: Value = given_up.decode().unwrap();
    assert_eq!((&*given_up.kind, told["charged"]["tokens"].as_i64()), ("failed", Some(0)), "{told}");
    let account = store.account(HOUSE).await.unwrap().unwrap();
    assert_eq!((account.held(), account.balance), (Amount::default(), house));
    assert!(model.asked().is_empty());
    // Nor does it count as a call whose answer was lost.
    let thought = neurons.think(&origin, &HOUSE.into(), &name, &spec, &input, CallOptions::default()).await.unwrap();
    assert_eq!(thought.stop, neurons::Stop::Completed(neurons::neuron::Completed { output: "too late".into() }));
}
