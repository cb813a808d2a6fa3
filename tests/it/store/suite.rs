//! Both backends pass one suite, and the store keeps its promises when the backend fails.

use std::sync::Arc;

use store::surreal::Surreal;
use store::{Backend, Memory, suite};

#[tokio::test(flavor = "multi_thread")]
async fn memory_passes_the_suite() {
    suite::all(&|| {
        let disk = Arc::new(Memory::default());
        Box::new(move || disk.clone() as Arc<dyn Backend>)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn surreal_passes_the_suite() {
    suite::all(&|| {
        let folder = tempfile::tempdir().unwrap();
        Box::new(move || Arc::new(Surreal::embedded(folder.path().join("store")).unwrap()) as Arc<dyn Backend>)
    })
    .await;
}

mod failing {
    use super::*;
    use store::faulty::{Fault, Faulty};
    use store::{Batch, Key, Kind, ManualClock, Origin, Store, StoreError};

    fn batch(n: u64) -> Batch {
        Batch::new(&Origin::system("test")).put(Key::new(Kind::Meta, format!("k{n}")), &n).append("s", "k", &n)
    }

    async fn values(store: &Store) -> Vec<u64> {
        let mut values = Vec::new();
        for n in 0..20 {
            let found = store.document::<u64>(&Key::new(Kind::Meta, format!("k{n}"))).await.unwrap();
            values.extend(found.map(|found| found.value));
        }
        assert_eq!(store.head(&"s".into()).await.unwrap(), values.len() as u64, "documents and journal agree");
        values
    }

    #[tokio::test]
    async fn a_passing_fault_is_retried_and_never_doubles() {
        let disk = Arc::new(Memory::default());
        let faults = [
            Fault::None,
            Fault::Before,
            Fault::None,
            Fault::After,
            Fault::None,
            Fault::Torn(9),
            Fault::After,
            Fault::None,
        ];
        let store =
            Store::open(Arc::new(Faulty::new(disk.clone(), faults)), Arc::new(ManualClock::default())).await.unwrap();
        for n in 0..6 {
            store.commit(batch(n)).await.unwrap();
        }
        assert_eq!(values(&store).await, [0, 1, 2, 3, 4, 5]);
        let again = Store::open(disk.kill(), Arc::new(ManualClock::default())).await.unwrap();
        assert_eq!(values(&again).await, [0, 1, 2, 3, 4, 5]);
    }

    /// A life that was killed may still have a checkpoint or a commit to make.
    #[tokio::test]
    async fn what_a_killed_life_still_writes_is_refused() {
        let disk = Arc::new(Memory::default());
        let killed = Store::open(disk.clone(), Arc::new(ManualClock::default())).await.unwrap();
        killed.commit(batch(0)).await.unwrap();
        let again = Store::open(disk.kill(), Arc::new(ManualClock::default())).await.unwrap();
        again.checkpoint().await.unwrap();
        assert!(matches!(killed.checkpoint().await, Err(StoreError::LeaseLost(_))));
        assert!(matches!(killed.commit(batch(1)).await, Err(StoreError::LeaseLost(_))));
        drop(killed);
        again.commit(batch(1)).await.unwrap();
        assert_eq!(values(&again).await, [0, 1]);
        assert_eq!(again.entries(&"s".into(), 0, 9).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn what_waits_while_the_disk_is_slow_shares_the_next_flush() {
        let go_on = Arc::new(tokio::sync::Notify::new());
        let faults = [Fault::Held(go_on.clone())];
        let slow = Faulty::new(Arc::new(Memory::default()), faults);
        let store = Store::open(Arc::new(slow), Arc::new(ManualClock::default())).await.unwrap();
        let first = store.submit(batch(0)).await;
        let mut waiting = Vec::new();
        for n in 1..=64 {
            waiting.push(store.submit(batch(n)).await);
        }
        go_on.notify_one();
        let first = first.await.unwrap().log;
        for receipt in waiting {
            let row = receipt.await.unwrap().log;
            // Whatever was handed over before the first flush began may be in it; all else is in the next.
            assert!(row == first || row == first + 1, "row {row} after {first}");
        }
    }

    #[tokio::test]
    async fn a_full_disk_refuses_and_what_was_there_stays() {
        let disk = Arc::new(Memory::default());
        let store = Store::open(
            Arc::new(Faulty::new(disk.clone(), [Fault::None, Fault::Full])),
            Arc::new(ManualClock::default()),
        )
        .await
        .unwrap();
        store.commit(batch(0)).await.unwrap();
        for n in 1..3 {
            assert!(matches!(store.commit(batch(n)).await, Err(StoreError::Io(_))));
        }
        assert_eq!(values(&store).await, [0]);
        assert_eq!(values(&Store::open(disk.kill(), Arc::new(ManualClock::default())).await.unwrap()).await, [0]);
    }

    #[tokio::test]
    async fn a_last_row_torn_at_any_byte_leaves_whole_commits_only() {
        for cut in (0..600).step_by(7) {
            let disk = Arc::new(Memory::default());
            let faults =
                [Fault::None, Fault::None, Fault::Torn(cut), Fault::Torn(cut), Fault::Torn(cut), Fault::Torn(cut)];
            let store = Store::open(Arc::new(Faulty::new(disk.clone(), faults)), Arc::new(ManualClock::default()))
                .await
                .unwrap();
            store.commit(batch(0)).await.unwrap();
            store.commit(batch(1)).await.unwrap();
            let acknowledged = store.commit(batch(2)).await.is_ok();
            let again = values(&Store::open(disk.kill(), Arc::new(ManualClock::default())).await.unwrap()).await;
            assert!(
                again.starts_with(&[0, 1]) && again.len() <= 3 && (again.len() == 3 || !acknowledged),
                "cut at {cut}: {again:?}"
            );
        }
    }
}

mod on_disk {
    use super::*;
    use std::path::{Path, PathBuf};
    use store::{Batch, Key, Kind, ManualClock, Origin, Store};

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target)
            } else {
                let _bytes = std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    /// The database's own log: the file that grows with every commit.
    fn wal(folder: &Path) -> PathBuf {
        let mut files = Vec::new();
        let mut waiting = vec![folder.to_path_buf()];
        while let Some(folder) = waiting.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() { waiting.push(entry.path()) } else { files.push(entry.path()) }
            }
        }
        files
            .into_iter()
            .filter(|file| file.to_string_lossy().contains("wal"))
            .max_by_key(|file| file.metadata().unwrap().len())
            .expect("a write-ahead log")
    }

    /// A power cut leaves a prefix of what was written after the last sync, or garbage there. Whatever
    /// is cut or torn past the bytes that were synced before an acknowledgement, that commit is there.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_torn_log_reopens_with_every_acknowledged_commit() {
        let home = tempfile::tempdir().unwrap();
        let live = home.path().join("live");
        let store =
            Store::open(Arc::new(Surreal::embedded(&live).unwrap()), Arc::new(ManualClock::default())).await.unwrap();
        let mut synced = Vec::new();
        for n in 0..12_u64 {
            let batch =
                Batch::new(&Origin::system("test")).put(Key::new(Kind::Meta, format!("k{n}")), &n).append("s", "k", &n);
            store.commit(batch).await.unwrap();
            synced.push(wal(&live).metadata().unwrap().len());
        }
        let still = home.path().join("still");
        copy(&live, &still);
        let name = wal(&live).strip_prefix(&live).unwrap().to_path_buf();
        for (acknowledged, pair) in synced.windows(2).enumerate().map(|(n, pair)| (n + 1, pair)) {
            let span = pair[1] - pair[0];
            for (cut, torn) in [
                (pair[0], false),
                (pair[0] + 1, false),
                (pair[0] + span / 2, true),
                (pair[1] - 1, false),
                (pair[1] - 1, true),
            ] {
                let copy_of = home.path().join(format!("cut{acknowledged}-{cut}-{torn}"));
                copy(&still, &copy_of);
                let _ = std::fs::remove_file(copy_of.join("LOCK"));
                let file = copy_of.join(&name);
                let mut bytes = std::fs::read(&file).unwrap();
                if torn {
                    bytes.truncate(pair[1] as usize);
                    bytes[cut as usize..].fill(0x5a);
                } else {
                    bytes.truncate(cut as usize);
                }
                std::fs::write(&file, bytes).unwrap();
                let store =
                    Store::open(Arc::new(Surreal::embedded(&copy_of).unwrap()), Arc::new(ManualClock::default())).await;
                let store = store.unwrap_or_else(|error| {
                    panic!("{acknowledged} acknowledged, cut at {cut} (torn: {torn}): {error}")
                });
                let head = store.head(&"s".into()).await.unwrap();
                assert!(
                    head >= acknowledged as u64,
                    "{acknowledged} acknowledged, {head} found after a cut at {cut} (torn: {torn})"
                );
                for n in 0..12_u64 {
                    let found = store.document::<u64>(&Key::new(Kind::Meta, format!("k{n}"))).await.unwrap();
                    assert_eq!(found.is_some(), n < head, "nothing half there");
                }
                store.close().await.unwrap();
                std::fs::remove_dir_all(&copy_of).unwrap();
            }
        }
    }
}

/// The logs of the database in `store`.
fn logs(store: &std::path::Path) -> std::collections::BTreeSet<std::ffi::OsString> {
    std::fs::read_dir(store.join("wal")).unwrap().map(|file| file.unwrap().file_name()).collect()
}

/// Copies a folder as it stands.
pub(crate) fn copied(store: &std::path::Path, copy: &std::path::Path) {
    // A kill leaves all of it as it stood in one moment, and this takes a while: what names other files is copied
    // before them.
    let mut waiting: Vec<_> = ["sstables", "vlog", "", "manifest", "log", "wal"].map(|name| store.join(name)).into();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(from) = waiting.pop() {
        if !from.is_dir() || !seen.insert(from.components().collect::<std::path::PathBuf>()) {
            continue;
        }
        let to = copy.join(from.strip_prefix(store).unwrap());
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
            match entry.path().is_dir() {
                true => waiting.push(entry.path()),
                false => assert!(std::fs::copy(entry.path(), to.join(entry.file_name())).is_ok()),
            }
        }
    }
}

/// The same for a checkpoint: what it removed does not come back, neither documents nor streams nor rows of the log,
/// which would be replayed a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_fills_the_databases_memory_survives_a_kill() {
    use store::{Entry, Key, Kind, Projected, Projection, Versioned};
    let folder = tempfile::tempdir().unwrap();
    let (store, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let disk = Surreal::embedded(&store).unwrap();
    disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
    let logs = || logs(&store);
    let (key, stream) = (|n: u64| Key::new(Kind::Meta, format!("d{n}")), |n: u64| format!("s{n}").into());
    let entry = Entry {
        seq: 1,
        at: store::Timestamp::UNIX_EPOCH,
        by: store::PrincipalId::new("user:ada"),
        cause: store::Cause::of("test"),
        kind: "k".into(),
        data: "1".into(),
    };
    let large: bytes::Bytes = vec![b'7'; 300 << 10].into();
    let (first, mut n) = (logs(), 0);
    while logs().is_subset(&first) {
        n += 1;
        assert!(n < 1_000, "the database never began a new log");
        disk.append(n, vec![7; 64].into()).await.unwrap();
        // What came with the checkpoint before goes with this one.
        let made =
            Projected { key: key(n), document: Some(Versioned { version: 1, value: large.clone() }), stored: false };
        let gone = Projected { key: key(n - 1), document: None, stored: n > 1 };
        let projection = Projection {
            upto: n,
            documents: vec![made, gone],
            journals: vec![(stream(n), vec![Arc::new(entry.clone())])],
            forgotten: vec![stream(n - 1)],
            ..Projection::default()
        };
        disk.project(projection).await.unwrap();
    }
    while !logs().is_disjoint(&first) {
        tests::again().await;
    }
    copied(&store, &copy);
    let disk = Surreal::embedded(&copy).unwrap();
    let left = disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!((left.checkpoint, left.log.len()), (n, 0));
    for known in 1..=n {
        let there = disk.document(&key(known)).await.unwrap().is_some();
        let head = disk.head(&stream(known)).await.unwrap();
        assert_eq!((there, head), (known == n, u64::from(known == n)), "{known} of {n}");
    }
}

/// SurrealKV splits a log that its memory table cannot hold, and a second kill loses the other part: see
/// `Surreal::open`.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_back_after_a_kill_survives_the_next_one() {
    use store::{Key, Kind, Projected, Projection, Versioned};
    let folder = tempfile::tempdir().unwrap();
    let [store, once, twice] = ["store", "once", "twice"].map(|name| folder.path().join(name));
    let disk = Surreal::embedded(&store).unwrap();
    disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
    let key = |n: u64| Key::new(Kind::Meta, format!("d{n}"));
    let large: bytes::Bytes = vec![b'7'; 300 << 10].into();
    let (first, mut n) = (logs(&store), 0);
    while logs(&store).is_subset(&first) {
        n += 1;
        assert!(n < 1_000, "the database never began a new log");
        disk.append(n, vec![7; 64].into()).await.unwrap();
        let document = Some(Versioned { version: 1, value: large.clone() });
        let documents = vec![Projected { key: key(n), document, stored: false }];
        disk.project(Projection { upto: n, documents, ..Projection::default() }).await.unwrap();
    }
    copied(&store, &once);
    let disk = Surreal::embedded(&once).unwrap();
    disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
    copied(&once, &twice);
    let disk = Surreal::embedded(&twice).unwrap();
    assert_eq!(disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap().checkpoint, n);
    for known in 1..=n {
        assert!(disk.document(&key(known)).await.unwrap().is_some(), "{known} of {n}");
    }
}

mod much {
    use super::*;
    use serde_json::{Value, json};
    use store::{Batch, Key, Kind, ManualClock, Op, Origin, PAGE_ELEMENTS, Store};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_checkpoint_fits_the_database_at_any_write_rate() {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let disk: Arc<dyn Backend> = Arc::new(Surreal::embedded(folder.path().join("store")).unwrap());
            Store::open(disk, Arc::new(ManualClock::default())).await.unwrap()
        };
        let store = open().await;
        let origin = Origin::system("test");
        for round in 0..80 {
            let mut batch = Batch::new(&origin);
            for n in 0..1_000 {
                let name: Arc<str> = format!("d{round}-{n}").into();
                batch = batch
                    .made(&name)
                    .create(Key::new(Kind::Meta, name.clone()), &json!({"n": n, "text": "x".repeat(100)}));
            }
            store.commit(batch).await.unwrap();
            // Short entries of many streams, with as many references as there may be.
            let causes = (0..16).map(|n| Arc::from(format!("canvas:somebody/canvas_chat_main@{round}{n}"))).collect();
            let origin = Origin::new(origin.principal.clone(), store::Cause(causes));
            let entries = (0..1_000).fold(Batch::new(&origin), |batch, n| batch.append(format!("s{n}"), "k", &n));
            let several = (0..4).map(|_| store.commit(entries.clone()));
            futures::future::try_join_all(several).await.unwrap();
        }
        store.checkpoint().await.unwrap();
        store.close().await.unwrap();
        let store = open().await;
        let kept = store.document::<Value>(&Key::new(Kind::Meta, "d79-999")).await.unwrap();
        assert_eq!(kept.unwrap().value["n"], 999);
        store.close().await.unwrap();
    }

    /// A page of a graph is written whole for one element of it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_checkpoint_of_scattered_changes_fits_the_database() {
        const PAGES: u64 = 1_500;
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let disk: Arc<dyn Backend> = Arc::new(Surreal::embedded(folder.path().join("store")).unwrap());
            Store::open(disk, Arc::new(ManualClock::default())).await.unwrap()
        };
        let store = open().await;
        let write = async |store: &Store, numbers: Vec<u64>, body: u8| {
            let rows = numbers.into_iter().map(|no| (no, Some(vec![body; 400].into()))).collect();
            let mut batch = Batch::new(&Origin::system("test"));
            batch.push(Op::Elements { nexus: "mind".into(), rows });
            store.commit(batch).await.unwrap();
        };
        for page in (0..PAGES).step_by(50) {
            write(&store, (page * PAGE_ELEMENTS..(page + 50) * PAGE_ELEMENTS).collect(), 1).await;
        }
        store.checkpoint().await.unwrap();
        write(&store, (0..PAGES).map(|page| page * PAGE_ELEMENTS).collect(), 2).await;
        store.checkpoint().await.unwrap();
        store.close().await.unwrap();
        let store = open().await;
        let (mut from, mut changed, mut all) = (Some(0), 0, 0);
        while let Some(page) = from {
            let (elements, next) = store.elements("mind", page, 100).await.unwrap();
            all += elements.len() as u64;
            changed += elements.iter().filter(|(no, body)| no % PAGE_ELEMENTS == 0 && body[0] == 2).count() as u64;
            from = next;
        }
        assert_eq!((all, changed), (PAGES * PAGE_ELEMENTS, PAGES));
        store.close().await.unwrap();
    }
}
