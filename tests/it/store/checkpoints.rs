//! What is written between checkpoints is there after them, whichever of them fail, are cut short, or run beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::faulty::{Fault, Faulty};
use store::surreal::Surreal;
use store::{Batch, Entry, Expect, Key, Kind, ManualClock, Op, Origin, Store, Stream};

/// What must be there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kept {
    documents: BTreeMap<String, u64>,
    streams: BTreeMap<String, Vec<u64>>,
    elements: BTreeMap<u64, u64>,
}

fn id(name: usize) -> String {
    format!("d{name}")
}

fn stream(name: usize) -> Stream {
    format!("s{name}").into()
}

/// A few changes at random, and what they come to.
fn change(rng: &mut StdRng, value: u64, kept: &mut Kept) -> Batch {
    let mut batch = Batch::new(&Origin::system("test"));
    for _ in 0..rng.random_range(1..6) {
        let name = rng.random_range(0..12);
        match rng.random_range(0..8) {
            0..3 => {
                batch = batch.put(Key::new(Kind::Meta, id(name)), &value);
                kept.documents.insert(id(name), value);
            }
            3 => {
                batch = batch.delete(Key::new(Kind::Meta, id(name)), Expect::Any);
                kept.documents.remove(&id(name));
            }
            4..6 => {
                batch = batch.append(stream(name), "k", &value);
                kept.streams.entry(stream(name).to_string()).or_default().push(value);
            }
            6 => {
                batch = batch.forget(stream(name));
                kept.streams.remove(&*stream(name));
            }
            _ => {
                // Two pages, of which one comes and goes. Large elements have rows of their own.
                let no = rng.random_range(0..3) + if rng.random_bool(0.5) { 0 } else { 640 };
                let padding = vec![0; if value.is_multiple_of(3) { 10_000 } else { 0 }];
                let body = rng.random_bool(0.5).then(|| [value.to_be_bytes().to_vec(), padding].concat().into());
                match body {
                    Some(_) => kept.elements.insert(no, value),
                    None => kept.elements.remove(&no),
                };
                batch.push(Op::Elements { nexus: "n".into(), rows: vec![(no, body)] });
            }
        }
    }
    batch
}

async fn found(store: &Store) -> Kept {
    let mut kept = Kept::default();
    for (id, found) in store.documents::<u64>(Kind::Meta, "", 100).await.unwrap() {
        let alone = store.document::<u64>(&Key::new(Kind::Meta, id.clone())).await.unwrap().unwrap();
        assert_eq!((alone.value, alone.version), (found.value, found.version), "{id}");
        kept.documents.insert(id.to_string(), found.value);
    }
    for name in 0..12 {
        let entries = store.entries(&stream(name), 0, 256).await.unwrap();
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.seq).collect();
        assert_eq!(numbers, (1..=entries.len() as u64).collect::<Vec<_>>(), "no gap and nothing twice");
        assert_eq!(store.head(&stream(name)).await.unwrap(), entries.len() as u64);
        if !entries.is_empty() {
            let values = entries.iter().map(|entry: &Entry| entry.decode().unwrap());
            kept.streams.insert(stream(name).to_string(), values.collect());
        }
    }
    let (elements, _) = store.elements("n", 0, 100).await.unwrap();
    kept.elements =
        elements.into_iter().map(|(no, body)| (no, u64::from_be_bytes(body[..8].try_into().unwrap()))).collect();
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_checkpoints_fail_everything_written_is_there() {
    for seed in 0..6 {
        let mut rng = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let (mut kept, mut value) = (Kept::default(), 0);
        for life in 0..4 {
            let faults: Vec<Fault> = (0..40)
                .map(|_| match rng.random_range(0..4) {
                    0 => Fault::Before,
                    1 => Fault::After,
                    _ => Fault::None,
                })
                .collect();
            let disk = Arc::new(Surreal::embedded(folder.path().join("store")).unwrap());
            let disk = Arc::new(Faulty::new(disk, []).with_checkpoints(faults));
            let store = Store::open(disk, Arc::new(ManualClock::default())).await.unwrap();
            assert_eq!(found(&store).await, kept, "seed {seed}, life {life}: what the life before it left");
            for _ in 0..12 {
                // A checkpoint goes on beside what is written next.
                let checkpoint = {
                    let store = store.clone();
                    tokio::spawn(async move { store.checkpoint().await })
                };
                for _ in 0..rng.random_range(0..6) {
                    value += 1;
                    store.commit(change(&mut rng, value, &mut kept)).await.unwrap();
                }
                let _ = checkpoint.await.unwrap();
                assert_eq!(found(&store).await, kept, "seed {seed}, life {life}");
            }
            // The last checkpoint may fail too: the log has what it lacks.
            let _ = store.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_writes_documents_changed_during_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let go_on = Arc::new(tokio::sync::Notify::new());
    let disk = Arc::new(Surreal::embedded(folder.path().join("store")).unwrap());
    let disk = Arc::new(Faulty::new(disk, []).with_checkpoints([Fault::Held(go_on.clone())]));
    let store = Store::open(disk.clone(), Arc::new(ManualClock::default())).await.unwrap();
    let put = |id: &str, value: u64| Batch::new(&Origin::system("test")).put(Key::new(Kind::Meta, id), &value);
    let delete = |id: &str| Batch::new(&Origin::system("test")).delete(Key::new(Kind::Meta, id), Expect::Any);
    for id in ["changed", "deleted", "made again"] {
        store.commit(put(id, 1)).await.unwrap();
    }
    // So much is not left to the log: a checkpoint begins, and is held.
    for id in ["large one", "large two", "large three"] {
        let large = Batch::new(&Origin::system("test")).put(Key::new(Kind::Cursor, id), &"x".repeat(3 << 20));
        store.commit(large).await.unwrap();
    }
    store.commit(put("changed", 2)).await.unwrap();
    store.commit(delete("deleted")).await.unwrap();
    store.commit(delete("made again")).await.unwrap();
    store.commit(put("new meanwhile", 4)).await.unwrap();
    go_on.notify_one();
    store.checkpoint().await.unwrap();
    store.commit(put("made again", 3)).await.unwrap();
    store.commit(put("come and gone", 1)).await.unwrap();
    store.commit(delete("come and gone")).await.unwrap();
    store.close().await.unwrap();
    let store = Store::open(disk, Arc::new(ManualClock::default())).await.unwrap();
    let kept: Vec<(Arc<str>, u64)> = store
        .documents::<u64>(Kind::Meta, "", 9)
        .await
        .unwrap()
        .into_iter()
        .map(|(id, found)| (id, found.value))
        .collect();
    assert_eq!(kept, [("changed".into(), 2), ("made again".into(), 3), ("new meanwhile".into(), 4)]);
}
