//! A loss of power under the real database in a real process: unsynced writes are taken back, all of
//! it or some, and the store opens with everything that was acknowledged. More of it: `FAULT_ROUNDS=50 FAULT_SEED=1
//! cargo test --release -p tests --test it power::`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::faults::{Disk, Talk, number};

/// A change of a file that no sync made durable, as the preloaded library recorded it.
#[derive(Clone, Debug)]
struct Change {
    kind: u64,
    /// The device and the number of the file.
    file: (u64, u64),
    /// The range that was written, or the new size of a truncated file and 0.
    at: u64,
    count: u64,
    /// The size of the file before.
    size: u64,
    /// The bytes of the range from before, as far as there were any.
    before: Vec<u8>,
}

const WROTE: u64 = 1;
const SYNCED: u64 = 3;

/// Returns the changes that no sync made durable, oldest first.
fn pending(record: &Path) -> Vec<Change> {
    let bytes = std::fs::read(record).unwrap();
    let (mut changes, mut at) = (Vec::<(u64, Change)>::new(), 0);
    // The last record may be cut short by the kill.
    while let Some(head) = bytes.get(at..at + 56) {
        let field = |n: usize| u64::from_ne_bytes(head[n * 8..][..8].try_into().unwrap());
        let before = usize::try_from(field(6)).unwrap();
        let Some(before) = bytes.get(at + 56..at + 56 + before) else { break };
        let (kind, file) = (field(0), (field(1), field(2)));
        match kind {
            SYNCED => changes.retain(|(position, change)| change.file != file || *position >= field(3)),
            _ => {
                let change =
                    Change { kind, file, at: field(3), count: field(4), size: field(5), before: before.to_vec() };
                changes.push((at as u64, change));
            }
        }
        at += 56 + before.len();
    }
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Returns the files below a folder, by device and number.
fn files(folder: &Path, found: &mut HashMap<(u64, u64), PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            files(&entry.path(), found);
        } else {
            found.insert((about.dev(), about.ino()), entry.path());
        }
    }
}

/// Takes back changes that were not durable: each with the given probability, the latest first. Returns how many.
fn lose(changes: Vec<Change>, folder: &Path, probability: f64, chance: &mut StdRng) -> usize {
    let mut found = HashMap::new();
    files(folder, &mut found);
    let mut lost = 0;
    // The end of what later changes kept.
    let mut kept: HashMap<(u64, u64), u64> = HashMap::new();
    for change in changes.into_iter().rev() {
        let Some(path) = found.get(&change.file) else { continue };
        let end = kept.entry(change.file).or_default();
        if !chance.random_bool(probability) {
            *end = (*end).max(change.at + change.count);
            continue;
        }
        let file = File::options().write(true).open(path).unwrap();
        if change.kind == WROTE {
            // Where nothing was before, nothing is now, or zeros before what was kept.
            let zeros = usize::try_from(change.count).unwrap() - change.before.len();
            file.write_all_at(&change.before, change.at).unwrap();
            file.write_all_at(&vec![0; zeros], change.at + change.before.len() as u64).unwrap();
            file.set_len(change.size.max(*end)).unwrap();
        } else {
            file.set_len(change.size.max(*end)).unwrap();
            file.write_all_at(&change.before, change.at).unwrap();
        }
        lost += 1;
    }
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_outlives_a_loss_of_power() {
    let (rounds, seed) = (number("FAULT_ROUNDS", 4), number("FAULT_SEED", 7));
    let mut chance = StdRng::seed_from_u64(seed);
    let mut folder = tempfile::tempdir().unwrap();
    folder.disable_cleanup(std::env::var("FAULT_KEEP").is_ok());
    let (data, record) = (folder.path().join("data"), folder.path().join("undo"));
    let disk = Disk::new(folder.path()).recording(&record);
    let mut victim = disk.start(&data).expect("it starts");
    let mut talk = Talk::begin(&victim).await;
    let (mut taken_back, mut unsynced) = (0, 0);
    for round in 0..rounds {
        // A canvas is read whole when it is opened: a new one keeps a round from taking ever longer.
        if round % 5 == 4 {
            talk = Talk::begin(&victim).await;
        }
        let wanted = chance.random_range(1..1_500);
        talk.say(&victim, (wanted, 1)).await;
        // The power goes while requests are under way.
        let group = victim.id();
        let upto = talk.acknowledged() + chance.random_range(1..64);
        talk.say_until(&victim, upto, || crate::crash::killed::kill(group)).await;
        victim.kill();
        // A row that was written and not synced before a kill is read back by the next start, and may be lost after it.
        if chance.random_bool(0.4) {
            victim = disk.start(&data).unwrap_or_else(|| panic!("round {round}: the store opens"));
            talk.check(&victim, &format!("round {round}, killed")).await;
            let more = chance.random_range(1..16);
            talk.say(&victim, (more, 1)).await;
            victim.kill();
        }
        let pending = pending(&record);
        unsynced += pending.len();
        let probability = if chance.random_bool(0.5) { 1.0 } else { 0.5 };
        let lost = lose(pending, &data, probability, &mut chance);
        taken_back += lost;
        println!("round {round}: {} acknowledged, {lost} changes lost", talk.acknowledged());
        std::fs::write(&record, []).unwrap();
        victim = disk.start(&data).unwrap_or_else(|| panic!("round {round}: the store opens"));
        talk.check(&victim, &format!("round {round}")).await;
    }
    println!("{rounds} rounds, {taken_back} of {unsynced} changes lost, {} acknowledged", talk.acknowledged());
    assert!(taken_back > 0, "something was lost");
    victim.kill();
}
