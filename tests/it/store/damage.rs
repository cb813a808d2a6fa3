//! Damaged files of a store: each is reported by name or mended, and no row is hidden.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use store::surreal::Surreal;
use store::{Backend, Key, Kind, ManualClock, Projected, Projection, Store, StoreError, Versioned};

use super::suite::copied;

/// Flips one bit in each place of the database's tables where `of` stands.
fn rot(store: &Path, of: &[u8]) -> usize {
    let mut flipped = 0;
    for file in std::fs::read_dir(store.join("sstables")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let places: Vec<usize> =
            bytes.windows(of.len()).enumerate().filter(|(_, some)| *some == of).map(|(at, _)| at).collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        flipped += places.len();
        std::fs::write(&path, bytes).unwrap();
    }
    flipped
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_on_the_disk_by_itself_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let key = |name: &str| Key::new(Kind::Meta, name);
    let body = |amount: &str| -> bytes::Bytes { json!({"pay": amount, "note": "z".repeat(9_000)}).to_string().into() };
    let made = |name: &str, amount: &str| {
        let document = Some(Versioned { version: 1, value: body(amount) });
        Projected { key: key(name), document, stored: false }
    };
    {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
        disk.append(1, vec![7; 64].into()).await.unwrap();
        // Many, so that what rots lies in a block of its own.
        let others = (0..200).map(|n| made(&format!("other {n:03}"), "something"));
        let documents = [made("other 100 rots", "exactly-1000"), made("stays", "exactly-2000")];
        let documents = documents.into_iter().chain(others).collect();
        let payload: bytes::Bytes = format!("payload {}", "p".repeat(9_000)).into();
        let payloads = vec![(store::Hash::of(&payload), payload)];
        disk.project(Projection { upto: 1, documents, payloads, ..Projection::default() }).await.unwrap();
        let read = disk.verify().await.unwrap();
        assert_eq!((read.whole, read.unchecked, read.damaged), (203, 0, 0), "{read:?}");
        disk.close().await.unwrap();
    }
    assert_eq!(rot(&store, b"exactly-1000"), 1);
    let disk = Surreal::embedded(&store).unwrap();
    disk.open(store::Timestamp::UNIX_EPOCH).await.unwrap();
    match disk.document(&key("other 100 rots")).await {
        Err(StoreError::Corrupt(why)) => {
            assert!(why.contains("meta:other 100 rots") && why.contains("damaged"), "{why}")
        }
        other => panic!("served as if it were whole: {other:?}"),
    }
    assert_eq!(disk.document(&key("stays")).await.unwrap().unwrap().value, body("exactly-2000"));
    assert!(disk.each(&[key("stays"), key("other 100 rots")]).await.is_err());
    // The table with the block is named, and everything else is read.
    let read = disk.verify().await.unwrap();
    assert_eq!((read.whole, read.damaged), (1, 1), "{read:?}");
    assert!(read.named[0].starts_with("doc: ") && read.named[0].contains("damaged"), "{read:?}");
    disk.close().await.unwrap();
    // The daily check of the files finds the table before a compaction does, and health says so.
    let disk = Arc::new(Surreal::embedded(&store).unwrap());
    let opened = Store::open(disk, Arc::new(ManualClock::default())).await.unwrap();
    assert_eq!(opened.health().damaged, Vec::<String>::new());
    opened.check_files().await.unwrap();
    let damaged = opened.health().damaged;
    assert!(damaged.len() == 1 && damaged[0].ends_with(".sst"), "{damaged:?}");
    assert_eq!(rot(&store, b"dxactly-1000"), 1, "the table is put back");
    opened.check_files().await.unwrap();
    assert_eq!(opened.health().damaged, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_opens_a_log_without_its_end_only_on_accepted_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let now = store::Timestamp::UNIX_EPOCH;
    {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(now).await.unwrap();
        for n in 1..=3 {
            disk.append(n, vec![n as u8; 64].into()).await.unwrap();
        }
        disk.close().await.unwrap();
    }
    let newest = std::fs::read_dir(store.join("log")).unwrap().map(|file| file.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap();
    std::fs::remove_file(&newest).unwrap();
    match Surreal::embedded(&store).unwrap().open(now).await {
        Err(StoreError::Lost(why)) => assert!(why.contains(&*newest.file_name().unwrap().to_string_lossy()), "{why}"),
        other => panic!("opened without a word: {other:?}"),
    }
    // Refused is not changed: it is refused again.
    assert!(matches!(Surreal::embedded(&store).unwrap().open(now).await, Err(StoreError::Lost(_))));
    let accepting = Surreal::embedded(&store).unwrap().accepting_loss(true);
    assert_eq!(accepting.open(now).await.unwrap().log.len(), 0);
    accepting.append(1, vec![9; 8].into()).await.unwrap();
    accepting.close().await.unwrap();
    assert_eq!(Surreal::embedded(&store).unwrap().open(now).await.unwrap().log.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_another_store_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let now = store::Timestamp::UNIX_EPOCH;
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    for (store, rows) in [(&own, 1..=2), (&other, 1..=5)] {
        let disk = Surreal::embedded(store).unwrap();
        disk.open(now).await.unwrap();
        for n in rows {
            disk.append(n, vec![7; 64].into()).await.unwrap();
        }
        disk.close().await.unwrap();
    }
    std::fs::rename(own.join("log"), own.join("aside")).unwrap();
    copied(&other.join("log"), &own.join("log"));
    match Surreal::embedded(&own).unwrap().open(now).await {
        Err(StoreError::Lost(why)) => assert!(why.contains("another store"), "{why}"),
        opened => panic!("{opened:?}"),
    }
    std::fs::remove_dir_all(own.join("log")).unwrap();
    std::fs::rename(own.join("aside"), own.join("log")).unwrap();
    assert_eq!(Surreal::embedded(&own).unwrap().open(now).await.unwrap().log.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_a_manifest_are_refused_and_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (store, aside) = (folder.path().join("store"), folder.path().join("manifest"));
    let now = store::Timestamp::UNIX_EPOCH;
    let key = Key::new(Kind::Meta, "kept");
    {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(now).await.unwrap();
        disk.append(1, vec![7; 64].into()).await.unwrap();
        let document = Some(Versioned { version: 1, value: "1".into() });
        let documents = vec![Projected { key: key.clone(), document, stored: false }];
        disk.project(Projection { upto: 1, documents, ..Projection::default() }).await.unwrap();
        disk.close().await.unwrap();
    }
    let manifest = std::fs::read_dir(store.join("manifest")).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(&manifest, &aside).unwrap();
    for accepts in [false, true, false] {
        let disk = Surreal::embedded(&store).unwrap().accepting_loss(accepts);
        match disk.open(now).await {
            Err(StoreError::Corrupt(why)) => assert!(why.contains("manifest is missing"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    std::fs::rename(&aside, &manifest).unwrap();
    let disk = Surreal::embedded(&store).unwrap();
    assert_eq!(disk.open(now).await.unwrap().checkpoint, 1);
    assert!(disk.document(&key).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_filter_of_a_table_hides_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let now = store::Timestamp::UNIX_EPOCH;
    let keys: Vec<Key> = (0..200).map(|n| Key::new(Kind::Meta, format!("row {n}"))).collect();
    {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(now).await.unwrap();
        disk.append(1, vec![7; 64].into()).await.unwrap();
        let made = |key: &Key| {
            let document = Some(Versioned { version: 1, value: "1".into() });
            Projected { key: key.clone(), document, stored: false }
        };
        let documents = keys.iter().map(made).collect();
        disk.project(Projection { upto: 1, documents, ..Projection::default() }).await.unwrap();
        disk.close().await.unwrap();
    }
    let tables = std::fs::read_dir(store.join("sstables")).unwrap().map(|file| file.unwrap().path());
    let table: PathBuf = tables.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let whole = std::fs::read(&table).unwrap();
    let (filter, length) = filter_of(&whole);
    let damage = |place: usize| {
        let copy = folder.path().join(format!("copy {place}"));
        copied(&store, &copy);
        let table = copy.join("sstables").join(table.file_name().unwrap());
        let mut damaged = whole.clone();
        damaged[place] = if damaged[place] == 0 { 0x55 } else { 0 };
        std::fs::write(&table, &damaged).unwrap();
        (copy, table, damaged)
    };
    for place in (filter..filter + length + 5).step_by(length / 5) {
        let (copy, table, damaged) = damage(place);
        let disk = Surreal::embedded(&copy).unwrap();
        disk.open(now).await.unwrap();
        assert!(std::fs::read(&table).is_ok_and(|mended| mended != damaged), "byte {place} is mended");
        for key in &keys {
            assert!(disk.document(key).await.unwrap().is_some(), "{key} is hidden by byte {place}");
        }
        disk.close().await.unwrap();
    }
    // Behind the filter is the index. With a damaged one the database stands still.
    let (copy, table, damaged) = damage(filter + length + 25);
    let refused = Surreal::embedded(&copy).unwrap().open(now).await.unwrap_err().to_string();
    assert!(refused.contains(&*table.file_name().unwrap().to_string_lossy()), "{refused}");
    assert!(std::fs::read(&table).unwrap() == damaged, "a refused start changes nothing");
}

/// Returns the place and the length of the filter of a table of SurrealKV, as its index of meta data names them.
fn filter_of(table: &[u8]) -> (usize, usize) {
    let name = table.windows(7).rposition(|name| name == b"filter.").unwrap();
    let (key, mut value) = (usize::from(table[name - 2]), name);
    value += key;
    let mut number = || {
        let mut found = 0;
        for shift in (0..).step_by(7) {
            let byte = usize::from(table[value]);
            value += 1;
            found |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        found
    };
    (number(), number())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_before_the_first_checkpoint_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let now = store::Timestamp::UNIX_EPOCH;
    {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(now).await.unwrap();
        disk.append(1, vec![7; 64].into()).await.unwrap();
        disk.close().await.unwrap();
    }
    std::fs::remove_dir_all(store.join("log")).unwrap();
    let opened = Surreal::embedded(&store).unwrap().open(now).await;
    assert!(matches!(opened, Err(StoreError::Lost(_))), "{opened:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_opens_with_a_database_log_without_a_whole_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let now = store::Timestamp::UNIX_EPOCH;
    let logs = || std::fs::read_dir(store.join("wal")).unwrap().map(|file| file.unwrap().path());
    let disk = Surreal::embedded(&store).unwrap();
    disk.open(now).await.unwrap();
    disk.append(1, vec![7; 64].into()).await.unwrap();
    let mut newest = logs().max().expect("the database has begun a log");
    disk.close().await.unwrap();
    // A process that is killed within the first record of a log leaves the beginning of the record; a loss of power
    // leaves zeros.
    for left in [vec![0; 64 << 10], [&[1, 2, 3, 4, 0, 128, 2][..], &vec![5; 40_000]].concat()] {
        std::fs::write(&newest, left).unwrap();
        let disk = Surreal::embedded(&store).unwrap();
        let opened = disk.open(now).await.unwrap();
        assert_eq!(opened.log.len(), 1, "the row is there");
        newest = logs().max().expect("it has begun another log");
        disk.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_opens_after_a_kill_during_its_very_first_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let now = store::Timestamp::UNIX_EPOCH;
    std::fs::create_dir_all(store.join("wal")).unwrap();
    std::fs::write(store.join("wal/00000000000000000000.wal"), vec![0; 32 << 10]).unwrap();
    for n in 1..=2 {
        let disk = Surreal::embedded(&store).unwrap();
        disk.open(now).await.unwrap();
        disk.append(n, vec![7; 64].into()).await.unwrap();
        disk.close().await.unwrap();
    }
}
