//! Budget truth (MISSION L3): whatever is reserved, settled, credited and taken at once, and whenever the process dies,
//! no balance falls below zero, the ledger sums up to the balance, and nothing is charged that was not reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use store::ledger::{AccountOp, Amount};
use store::{Backend, Batch, Entry, ManualClock, Memory, Origin, Store};

const ACCOUNT: &str = "lf";

fn tokens(value: &Value) -> i64 {
    value["tokens"].as_i64().unwrap_or(0)
}

/// Folds the ledger as anybody may who reads it: what came, what was charged, and what was reserved for each charge.
async fn fold(store: &Store) -> (i64, BTreeMap<String, i64>) {
    let (mut balance, mut held, mut after) = (0, BTreeMap::<String, i64>::new(), 0);
    loop {
        let page: Vec<Entry> = store.entries(&format!("ledger:{ACCOUNT}").into(), after, usize::MAX).await.unwrap();
        let Some(last) = page.last() else { return (balance, held) };
        after = last.seq;
        for line in page.iter().map(|entry| entry.to_json()["data"].clone()) {
            let op = &line["op"];
            if let Some(opened) = op.get("open") {
                balance += if line["balance"].is_null() { 0 } else { tokens(opened) };
            } else if let Some(credited) = op.get("credit") {
                balance += tokens(credited);
            } else if let Some(taken) = op.get("debit") {
                balance -= tokens(taken);
            } else if let Some(hold) = op.get("hold") {
                let before = held.insert(hold["id"].as_str().unwrap().to_owned(), tokens(&hold["amount"]));
                assert_eq!(before, None, "one hold of a name at a time");
            } else if let Some(settled) = op.get("settle") {
                let reserved = held.remove(settled["id"].as_str().unwrap());
                let reserved = reserved.unwrap_or_else(|| panic!("charged without a reservation: {line}"));
                let used = if settled["used"].is_null() { reserved } else { tokens(&settled["used"]) };
                balance -= used;
            }
            assert_eq!(tokens(&line["balance"]), balance, "each line says what the account came to: {line}");
            assert!(balance >= 0, "{line}");
            let set_aside: i64 = held.values().sum();
            assert!(set_aside <= balance, "more is set aside than there is: {line}");
        }
    }
}

/// Several at once do what chance has them do; answers what was acknowledged of each.
async fn storm(store: &Store, seed: u64, life: u64) {
    let workers = (0..4_u64).map(|worker| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut chance = StdRng::seed_from_u64(seed * 1_000 + life * 10 + worker);
            let mut open: Vec<Arc<str>> = Vec::new();
            for n in 0..40 {
                let batch = Batch::new(&Origin::system("test"));
                let amount = Amount::tokens(chance.random_range(1..400));
                let op = match chance.random_range(0..10) {
                    0 => AccountOp::Credit(amount),
                    1 => AccountOp::Debit(amount),
                    2..=5 => {
                        let id: Arc<str> = format!("h{life}.{worker}.{n}").into();
                        AccountOp::Hold { id, parent: None, amount, of: None }
                    }
                    _ if open.is_empty() => continue,
                    _ => {
                        let id = open.swap_remove(chance.random_range(0..open.len()));
                        // What is used may be unknown, and is never more than was set aside.
                        let used = chance.random_bool(0.7).then(|| Amount::tokens(chance.random_range(0..2)));
                        AccountOp::Settle { id, used }
                    }
                };
                let hold = match &op {
                    AccountOp::Hold { id, .. } => Some(id.clone()),
                    _ => None,
                };
                if store.commit(batch.account(ACCOUNT, op, "storm")).await.is_ok() {
                    open.extend(hold);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        // A worker of a life that is killed may be cut off.
        let _ = worker.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_stays_correct_under_a_storm_of_holds_and_kills() {
    let seeds = std::env::var("BUDGET_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12_u64);
    for seed in 0..seeds {
        let mut disk = Arc::new(Memory::default());
        for life in 0..4 {
            let clock = Arc::new(ManualClock::default());
            let store = Store::open(disk.clone() as Arc<dyn Backend>, clock.clone()).await.unwrap();
            let open =
                Batch::new(&Origin::system("test")).account(ACCOUNT, AccountOp::Open(Amount::tokens(1_000)), "birth");
            if life == 0 {
                store.commit(open).await.unwrap();
            }
            // Whatever was under way when the last life ended is charged in full, and nothing else is.
            neurons::llm::paid::settle_unknown(&store, ACCOUNT).await.unwrap();
            let (balance, held) = fold(&store).await;
            let account = store.account(ACCOUNT).await.unwrap().unwrap();
            assert_eq!(
                (account.balance.tokens, account.held().tokens, held.len()),
                (balance, 0, 0),
                "seed {seed}, life {life}"
            );
            match life % 2 {
                0 => storm(&store, seed, life).await,
                // Killed in the middle: what was not acknowledged may be there or not, and the books are right either
                // way.
                _ => {
                    let storming = storm(&store, seed, life);
                    let chance = StdRng::seed_from_u64(seed).random_range(0..6);
                    tokio::select! {
                        () = storming => {}
                        () = async { for _ in 0..chance { tokio::task::yield_now().await; } } => {}
                    }
                }
            }
            disk = disk.kill();
        }
        let store = Store::open(disk as Arc<dyn Backend>, Arc::new(ManualClock::default())).await.unwrap();
        let (balance, held) = fold(&store).await;
        let account = store.account(ACCOUNT).await.unwrap().unwrap();
        assert_eq!((account.balance.tokens, account.held().tokens), (balance, held.values().sum()), "seed {seed}");
    }
}
