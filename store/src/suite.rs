//! The conformance suite of stores, for every backend. Each claim is one function; both backends run all of them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::ledger::{AccountOp, Amount};
use crate::principal::Origin;
use crate::{ManualClock, ledger};

/// A disk that outlives the stores opened on it: each call returns the backend for the next opening.
pub type Disk<'a> = &'a (dyn Fn() -> Arc<dyn Backend> + Sync);

async fn open(disk: Disk<'_>) -> Store {
    Store::open(disk(), Arc::new(ManualClock::default()))
        .await
        .unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

fn batch() -> Batch {
    Batch::new(&Origin::system("suite"))
}

fn key(id: &str) -> Key {
    Key::new(Kind::Meta, id)
}

async fn must(store: &Store, batch: Batch) -> Receipt {
    store.commit(batch).await.unwrap_or_else(|error| panic!("the commit is refused: {error}"))
}

async fn value(store: &Store, id: &str) -> Option<(u64, Value)> {
    let found = store.document::<Value>(&key(id)).await.unwrap_or_else(|error| panic!("{error}"));
    found.map(|found| (found.version, found.value))
}

/// Runs every claim, each on its own disk.
pub async fn all(disks: &dyn Fn() -> Box<dyn Fn() -> Arc<dyn Backend> + Sync>) {
    a_commit_is_all_or_nothing(&*disks()).await;
    versions_rise_and_are_checked(&*disks()).await;
    a_stream_is_numbered_without_gaps_and_followed_without_loss(&*disks()).await;
    what_was_acknowledged_is_there_after_the_store_is_dropped(&*disks()).await;
    a_checkpoint_changes_nothing_a_reader_sees(&*disks()).await;
    the_ledger_is_checked_in_the_same_commit(&*disks()).await;
    payloads_are_kept_once_under_their_hash(&*disks()).await;
    graph_rows_come_back_in_order(&*disks()).await;
    a_forgotten_stream_is_gone_and_may_begin_again(&*disks()).await;
    a_trimmed_stream_keeps_its_numbers_and_what_is_newer(&*disks()).await;
    what_follows_a_commit_is_done_when_its_caller_is_dropped(&*disks()).await;
    what_is_not_known_is_asked_for_together(&*disks()).await;
    a_name_that_is_new_without_a_document_is_not_new_with_it(&*disks()).await;
    many_writers_lose_nothing(&*disks()).await;
    an_oversize_commit_is_refused_alone(&*disks()).await;
    a_second_opener_is_told_that_the_store_is_in_use(&*disks()).await;
}

async fn what_follows_a_commit_is_done_when_its_caller_is_dropped(disk: Disk<'_>) {
    let store = open(disk).await;
    let (is_done, done) = tokio::sync::oneshot::channel();
    let mut committing = Box::pin(store.commit_then(batch().put(key("a"), &1), move || {
        let _ = is_done.send(());
    }));
    // The commit is in flight now, or already done.
    let _ = futures::poll!(&mut committing);
    drop(committing);
    assert!(done.await.is_ok());
    assert_eq!(value(&store, "a").await, Some((1, json!(1))));
    let (is_done, done) = tokio::sync::oneshot::channel();
    let refused = store
        .commit_then(batch().create(key("a"), &2), move || {
            let _ = is_done.send(());
        })
        .await;
    assert!(refused.is_err() && done.await.is_ok(), "a commit that is refused is followed, too");
}

async fn a_commit_is_all_or_nothing(disk: Disk<'_>) {
    let store = open(disk).await;
    let mixed = batch().put(key("a"), &1).append("s", "k", &json!({})).create(key("b"), &2).put_expecting(
        key("c"),
        Expect::Version(7),
        &3,
    );
    let refused = store.commit(mixed).await;
    assert!(matches!(refused, Err(StoreError::Conflict { expected: 7, found: 0, .. })), "{refused:?}");
    assert_eq!(value(&store, "a").await, None);
    assert_eq!(store.head(&"s".into()).await.unwrap_or(9), 0);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn versions_rise_and_are_checked(disk: Disk<'_>) {
    let store = open(disk).await;
    assert_eq!(must(&store, batch().create(key("a"), &1)).await.versions, [1]);
    assert!(store.commit(batch().create(key("a"), &2)).await.is_err());
    assert_eq!(must(&store, batch().put_expecting(key("a"), Expect::Version(1), &2)).await.versions, [2]);
    // Within a batch, each change sees the changes before it.
    assert_eq!(
        must(&store, batch().put(key("a"), &3).put_expecting(key("a"), Expect::Version(3), &4)).await.versions,
        [3, 4]
    );
    must(&store, batch().delete(key("a"), Expect::Version(4))).await;
    assert_eq!(value(&store, "a").await, None);
    assert_eq!(must(&store, batch().create(key("a"), &5)).await.versions, [1]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_stream_is_numbered_without_gaps_and_followed_without_loss(disk: Disk<'_>) {
    let store = open(disk).await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..400_u64 {
                must(&store, batch().append("s", "k", &n)).await;
                if n == 150 {
                    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
                }
            }
        })
    };
    let mut follow = store.follow("s".into(), 0);
    for n in 0..400_u64 {
        let entry = follow.next().await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((entry.seq, entry.decode::<u64>().ok()), (n + 1, Some(n)));
    }
    writer.await.unwrap_or_else(|error| panic!("{error}"));
    assert!(matches!(store.commit(batch().append_after("s", 399, "k", &0)).await, Err(StoreError::Conflict { .. })));
    must(&store, batch().append_after("s", 400, "k", &400)).await;
    let page = store.entries(&"s".into(), 140, 30).await.unwrap_or_default();
    assert_eq!(page.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (141..171).collect::<Vec<_>>());
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn what_was_acknowledged_is_there_after_the_store_is_dropped(disk: Disk<'_>) {
    let store = open(disk).await;
    must(&store, batch().put(key("old"), &1).put(key("gone"), &1).append("s", "k", &1)).await;
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    must(&store, batch().put(key("old"), &2).put(key("new"), &1).append("s", "k", &2).delete(key("gone"), Expect::Any))
        .await;
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    assert_eq!(value(&store, "old").await, Some((2, json!(2))));
    assert_eq!(value(&store, "new").await, Some((1, json!(1))));
    assert_eq!(value(&store, "gone").await, None);
    let entries = store.entries(&"s".into(), 0, 10).await.unwrap_or_default();
    assert_eq!(
        entries.iter().map(|entry| (entry.seq, entry.decode().ok())).collect::<Vec<_>>(),
        [(1, Some(1)), (2, Some(2))]
    );
    assert_eq!(must(&store, batch().append("s", "k", &3)).await.versions, [3]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_checkpoint_changes_nothing_a_reader_sees(disk: Disk<'_>) {
    let store = open(disk).await;
    for n in 0..20_u32 {
        must(&store, batch().put(key(&format!("k{n:02}")), &n).append(format!("s{}", n % 3), "k", &n)).await;
    }
    must(&store, batch().delete(key("k07"), Expect::Any)).await;
    let seen = |store: Store| async move {
        let documents: Vec<(Arc<str>, Value)> = store
            .documents::<Value>(Kind::Meta, "k03", 9)
            .await
            .unwrap_or_default()
            .into_iter()
            .map(|(id, found)| (id, found.value))
            .collect();
        let mut streams = Vec::new();
        for s in 0..3 {
            streams.extend(store.entries(&format!("s{s}").into(), 2, 3).await.unwrap_or_default());
        }
        (documents, streams)
    };
    let before = seen(store.clone()).await;
    assert_eq!(before.0.first().map(|(id, _)| &**id), Some("k04"));
    assert!(before.0.len() == 9 && before.0.iter().all(|(id, _)| &**id != "k07"));
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen(store.clone()).await, before);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn the_ledger_is_checked_in_the_same_commit(disk: Disk<'_>) {
    let store = open(disk).await;
    let hold =
        |id: &str, tokens| AccountOp::Hold { id: id.into(), parent: None, amount: Amount::tokens(tokens), of: None };
    let closed = store.commit(batch().account("a", hold("x", 1), "call")).await;
    assert!(matches!(closed, Err(StoreError::Ledger(ledger::LedgerError::NotOpen(_)))), "{closed:?}");
    must(&store, batch().account("a", AccountOp::Open(Amount::tokens(100)), "birth")).await;
    must(&store, batch().account("a", hold("x", 60), "call")).await;
    let refused = store.commit(batch().put(key("paid"), &1).account("a", hold("y", 41), "call")).await;
    assert!(matches!(refused, Err(StoreError::Ledger(ledger::LedgerError::Insufficient { .. }))), "{refused:?}");
    assert_eq!(value(&store, "paid").await, None);
    must(&store, batch().account("a", AccountOp::Settle { id: "x".into(), used: Some(Amount::tokens(25)) }, "call"))
        .await;
    must(&store, batch().account("b", AccountOp::Open(Amount::tokens(10)), "birth")).await;
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    // Accounts are read from the backend on demand.
    let refused = store.commit(batch().account("b", hold("x", 11), "call")).await;
    assert!(matches!(refused, Err(StoreError::Ledger(ledger::LedgerError::Insufficient { .. }))), "{refused:?}");
    let account = async |name| store.account(name).await.unwrap_or_else(|error| panic!("{error}"));
    must(&store, batch().account("b", hold("x", 10), "call")).await;
    assert_eq!(account("b").await.unwrap_or_default().available(), Amount::default());
    assert_eq!(account("nobody").await, None);
    must(&store, batch().account("nobody", AccountOp::Open(Amount::tokens(1)), "birth")).await;
    assert!(account("nobody").await.is_some());
    let account = account("a").await.unwrap_or_default();
    assert_eq!((account.balance, account.available()), (Amount::tokens(75), Amount::tokens(75)));
    assert_eq!(store.head(&"ledger:a".into()).await.unwrap_or(0), 3);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn payloads_are_kept_once_under_their_hash(disk: Disk<'_>) {
    let store = open(disk).await;
    let mut first = batch();
    let hash = first.payload(Bytes::from_static(b"a prompt"));
    must(&store, first).await;
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    let mut again = batch();
    assert_eq!(again.payload(Bytes::from_static(b"a prompt")), hash);
    must(&store, again).await;
    assert_eq!(store.payload(&hash).await.ok().flatten(), Some(Bytes::from_static(b"a prompt")));
    assert_eq!(Hash::parse(&hash.hex()), Some(hash));
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn what_is_not_known_is_asked_for_together(disk: Disk<'_>) {
    let store = open(disk).await;
    let long = (0..300).fold(batch(), |long, n| long.append("long", "k", &n));
    must(&store, long.append("short", "k", &0).append("short", "k", &1).put(key("a"), &1)).await;
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    let all = ["long", "none", "short"].iter().fold(batch(), |all, stream| all.append(*stream, "k", &0));
    assert_eq!(must(&store, all.put(key("a"), &2).put(key("b"), &1)).await.versions, [301, 1, 3, 2, 1]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_name_that_is_new_without_a_document_is_not_new_with_it(disk: Disk<'_>) {
    let store = open(disk).await;
    let name: Arc<str> = "n".into();
    let begin = || batch().made_with(&name, key("n")).append("s:n", "k", &0).create(key("n"), &0);
    assert_eq!(must(&store, begin()).await.versions, [1, 1]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    assert!(matches!(store.commit(begin()).await, Err(StoreError::Conflict { .. })));
    assert_eq!(must(&store, batch().append("s:n", "k", &1)).await.versions, [2]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn graph_rows_come_back_in_order(disk: Disk<'_>) {
    let store = open(disk).await;
    let put = |no: u64| Op::Elements { nexus: "n".into(), rows: vec![(no, Some(json(&no)))] };
    let mut rows = batch();
    (1..=12).rev().for_each(|no| rows.push(put(no)));
    rows.push(Op::Elements { nexus: "other".into(), rows: vec![(5, Some(json(&0)))] });
    rows.push(put(1000));
    must(&store, rows).await;
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    let mut change = batch();
    change.push(Op::Elements { nexus: "n".into(), rows: vec![(3, None)] });
    change.push(put(13));
    must(&store, change).await;
    // Before and after the change is checkpointed, in ranges of any length.
    for _ in 0..2 {
        for max in [1, 2, 100] {
            let (mut numbers, mut from) = (Vec::new(), Some(0));
            while let Some(page) = from {
                let (rows, next) = store.elements("n", page, max).await.unwrap_or_default();
                numbers.extend(rows.iter().map(|(no, _)| *no));
                from = next;
            }
            assert_eq!(numbers, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1000]);
        }
        store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    }
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_forgotten_stream_is_gone_and_may_begin_again(disk: Disk<'_>) {
    let store = open(disk).await;
    let (gone, kept): (Stream, Stream) = ("gone".into(), "kept".into());
    let heads = async |store: &Store| (store.head(&gone).await.unwrap_or(9), store.head(&kept).await.unwrap_or(9));
    let mut lines = batch();
    for n in 0..600 {
        lines = lines.append(gone.clone(), "k", &n);
    }
    must(&store, lines.append(kept.clone(), "k", &0)).await;
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    must(&store, batch().append(gone.clone(), "k", &600)).await;
    must(&store, batch().forget(gone.clone())).await;
    assert_eq!(heads(&store).await, (0, 1));
    assert!(store.entries(&gone, 0, 10).await.unwrap_or_default().is_empty());
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    assert_eq!(heads(&store).await, (0, 1));
    assert_eq!(must(&store, batch().append(gone.clone(), "k", &"again")).await.versions, [1]);
    store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(heads(&store).await, (1, 1));
    let entries = store.entries(&gone, 0, 10).await.unwrap_or_default();
    assert_eq!(entries.iter().map(|entry| entry.to_json()["data"].clone()).collect::<Vec<_>>(), [json!("again")]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_trimmed_stream_keeps_its_numbers_and_what_is_newer(disk: Disk<'_>) {
    let store = open(disk).await;
    let long: Stream = "long".into();
    for n in 0..3_u64 {
        let lines = (0..400_u64).fold(batch(), |lines, m| lines.append(long.clone(), "k", &(n * 400 + m + 1)));
        must(&store, lines).await;
        store.checkpoint().await.unwrap_or_else(|error| panic!("{error}"));
    }
    must(&store, batch().trim(long.clone(), 900).append(long.clone(), "k", &1201)).await;
    let newer = async |store: &Store| {
        let entries = store.entries(&long, 900, 1000).await.unwrap_or_default();
        (entries.first().map(|entry| entry.seq), store.head(&long).await.unwrap_or(0))
    };
    assert_eq!(newer(&store).await, (Some(901), 1201));
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    let store = open(disk).await;
    assert_eq!(newer(&store).await, (Some(901), 1201));
    let oldest = store.entries(&long, 0, 1).await.unwrap_or_default();
    assert!(oldest.first().is_none_or(|entry| entry.seq > 600), "the oldest are gone");
    assert_eq!(must(&store, batch().append(long.clone(), "k", &1202)).await.versions, [1202]);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn many_writers_lose_nothing(disk: Disk<'_>) {
    let store = open(disk).await;
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..5 {
                    must(&store, batch().append(format!("w{writer}"), "k", &n)).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap_or_else(|error| panic!("{error}"));
    }
    for writer in 0..64 {
        assert_eq!(store.head(&format!("w{writer}").into()).await.unwrap_or(0), 5);
    }
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn an_oversize_commit_is_refused_alone(disk: Disk<'_>) {
    let store = open(disk).await;
    let refused = store.commit(batch().put(key("big"), &"x".repeat(COMMIT_BYTES_MAX))).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    must(&store, batch().put(key("small"), &1)).await;
    assert_eq!(value(&store, "big").await, None);
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_second_opener_is_told_that_the_store_is_in_use(disk: Disk<'_>) {
    let store = open(disk).await;
    let second = Store::open(disk(), Arc::new(ManualClock::default())).await;
    assert!(matches!(second, Err(StoreError::Locked(_))), "{:?}", second.err());
    must(&store, batch().put(key("still"), &1)).await;
    store.close().await.unwrap_or_else(|error| panic!("{error}"));
    open(disk).await.close().await.unwrap_or_else(|error| panic!("{error}"));
}
