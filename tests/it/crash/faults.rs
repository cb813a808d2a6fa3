//! A disk that fails now and then, under the real database in a real process, with kills among it: nothing acknowledged
//! is lost, and the store opens. More of it: `FAULT_ROUNDS=50 FAULT_SEED=1 cargo test --release -p tests --test it
//! faults::`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::crash::killed::Victim;

/// What fails in a round.
#[derive(Clone, Copy, Debug)]
struct Fault {
    permille: i32,
    errno: i32,
    calls: i32,
}

/// EIO, ENOSPC, EROFS.
const ERRORS: [i32; 3] = [5, 28, 30];
/// Sets of calls: writes, syncs, files, and several of them.
const CALLS: [i32; 6] = [1, 2, 4 | 8, 1 | 2, 1 | 2 | 4 | 8, 15];
const PERMILLE: [i32; 5] = [3, 20, 100, 300, 1000];

/// Rounds that write to one canvas.
const ROUNDS_A_TALK: u64 = 5;

/// The file by which a preloaded library learns what is to fail.
pub(super) struct Disk {
    control: File,
    library: PathBuf,
    file: PathBuf,
    record: Option<PathBuf>,
}

impl Disk {
    pub(super) fn new(folder: &Path) -> Self {
        let (library, file) = (folder.join("fault.so"), folder.join("control"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults/fault.c");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(built.unwrap().success(), "the failing disk compiles");
        std::fs::write(&file, [0; 16]).unwrap();
        let control = OpenOptions::new().read(true).write(true).open(&file).unwrap();
        Self { control, library, file, record: None }
    }

    /// Records in a file how each change is undone that no sync made durable.
    pub(super) fn recording(self, record: &Path) -> Self {
        Self { record: Some(record.to_owned()), ..self }
    }

    fn fails(&self, Fault { permille, errno, calls }: Fault) {
        let numbers = [permille, errno, calls].map(i32::to_ne_bytes).concat();
        self.control.write_all_at(&numbers, 0).unwrap();
    }

    fn is_well(&self) {
        self.fails(Fault { permille: 0, errno: 0, calls: 0 });
    }

    fn failed(&self) -> i32 {
        let mut number = [0; 4];
        self.control.read_exact_at(&mut number, 12).unwrap();
        i32::from_ne_bytes(number)
    }

    pub(super) fn start(&self, data: &Path) -> Option<Victim> {
        let mut envs = vec![
            ("LD_PRELOAD", self.library.as_os_str()),
            ("FAULT_CONTROL", self.file.as_os_str()),
            ("FAULT_FOLDER", data.as_os_str()),
            ("LIFEFORMD_CANVAS__OPS_PER_S", "1000000".as_ref()),
            ("LIFEFORMD_CANVAS__BYTES_PER_S", "1e12".as_ref()),
        ];
        envs.extend(self.record.iter().map(|record| ("FAULT_UNDO", record.as_os_str())));
        Victim::with(&envs, data)
    }
}

/// A conversation on one lifeform, with what was acknowledged of it.
pub(super) struct Talk {
    messages: String,
    next: usize,
    acknowledged: Vec<usize>,
}

impl Talk {
    pub(super) async fn begin(victim: &Victim) -> Self {
        let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await;
        let made = made.expect(StatusCode::CREATED);
        let chat = format!("/v1/lifeforms/{}/canvases/canvas_chat_main", made["id"].as_str().unwrap());
        victim.client.topic(&chat, "t1").await;
        Self { messages: format!("{chat}/topics/t1/messages"), next: 0, acknowledged: Vec::new() }
    }

    /// Says things of 30 KB until so many were acknowledged, or so many refused in a row; they are numbered.
    pub(super) async fn say(&mut self, victim: &Victim, (wanted, refused_max): (usize, usize)) -> Option<String> {
        let mut refusal = None;
        let (mut said, mut refused) = (0, 0);
        let padding = "y".repeat(30_000);
        while said < wanted && refused < refused_max {
            let batch: Vec<usize> = (0..16).map(|n| self.next + n).collect();
            self.next += 16;
            let messages = &self.messages;
            let asked = batch.into_iter().map(|n| {
                let body = json!({"id": format!("m{n}"), "content": format!("{n} {padding}")});
                async move { (n, victim.client.try_send(Method::POST, messages, &[], Some(body)).await) }
            });
            for (n, answer) in futures::future::join_all(asked).await {
                if answer.as_ref().is_some_and(|answer| answer.status == StatusCode::CREATED) {
                    self.acknowledged.push(n);
                    (said, refused) = (said + 1, 0);
                } else {
                    refused += 1;
                    refusal = answer.map(|answer| answer.body.to_string());
                }
            }
        }
        refusal
    }

    /// Says things until so many are acknowledged in all, then does something while others are under way.
    pub(super) async fn say_until(&mut self, victim: &Victim, acknowledged: usize, then: impl FnOnce()) {
        let (messages, padding) = (self.messages.clone(), "y".repeat(30_000));
        let (mut under_way, mut then) = (FuturesUnordered::new(), Some(then));
        loop {
            while then.is_some() && under_way.len() < 16 {
                let (n, body) = (
                    self.next,
                    json!({"id": format!("m{}", self.next), "content": format!("{} {padding}", self.next)}),
                );
                self.next += 1;
                let sent = victim.client.try_send(Method::POST, &messages, &[], Some(body));
                under_way.push(async move { (n, sent.await) });
            }
            let Some((n, answer)) = under_way.next().await else { return };
            if answer.as_ref().is_some_and(|answer| answer.status == StatusCode::CREATED) {
                self.acknowledged.push(n);
            }
            if self.acknowledged.len() >= acknowledged || answer.is_none() {
                then.take().into_iter().for_each(|then| then());
            }
        }
    }

    /// Returns how many were acknowledged.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Looks whether what was acknowledged is there: the latest, and some of all.
    pub(super) async fn check(&self, victim: &Victim, after: &str) {
        let known = &self.acknowledged;
        let sample: Vec<usize> = known.iter().rev().take(600).chain(known.iter().step_by(17)).copied().collect();
        for some in sample.chunks(16) {
            let asked = some.iter().map(async |n| (*n, victim.client.get(&format!("{}/m{n}", self.messages)).await));
            for (n, kept) in futures::future::join_all(asked).await {
                let content = kept.body["content"].as_str().unwrap_or_default();
                assert!(content.starts_with(&format!("{n} ")), "{after}: m{n} is lost: {} {}", kept.status, kept.body);
            }
        }
    }
}

/// Returns the number in an environment variable.
pub(super) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_loses_no_acknowledged_write_on_a_failing_disk() {
    let (rounds, seed) = (number("FAULT_ROUNDS", 4), number("FAULT_SEED", 7));
    let mut chance = StdRng::seed_from_u64(seed);
    let mut folder = tempfile::tempdir().unwrap();
    // A store that does not open can be looked at.
    folder.disable_cleanup(std::env::var("FAULT_KEEP").is_ok());
    let (disk, data) = (Disk::new(folder.path()), folder.path().join("data"));
    let mut victim = disk.start(&data).expect("it starts on a disk that is well");
    let mut talks = vec![Talk::begin(&victim).await];
    for round in 0..rounds {
        // The first rounds are those that lost stores: writes of a checkpoint that fail, and a kill after one that does
        // not.
        let fault = Fault {
            permille: PERMILLE[(round as usize + 3) % PERMILLE.len()],
            errno: ERRORS[chance.random_range(0..ERRORS.len())],
            calls: CALLS[chance.random_range(0..CALLS.len())],
        };
        println!("round {round}: {fault:?}, {} talks", talks.len());
        // A canvas is read whole when it is opened: a new one keeps a round from taking ever longer.
        if round % ROUNDS_A_TALK == ROUNDS_A_TALK - 1 {
            talks.push(Talk::begin(&victim).await);
        }
        let talk = talks.last_mut().unwrap();
        talk.say(&victim, (350, 60)).await;
        disk.fails(fault);
        talk.say(&victim, (700, 60)).await;
        disk.is_well();
        // A database that could not be opened again while the disk failed ends its process.
        if victim.has_ended() {
            victim = disk.start(&data).unwrap_or_else(|| panic!("round {round}: it starts again after {fault:?}"));
        }
        let before = talk.acknowledged.len();
        let refusal = talk.say(&victim, (900, 5_000)).await;
        let has_ended = victim.has_ended();
        assert!(
            has_ended || talk.acknowledged.len() > before,
            "round {round}: it writes again when the disk is well: {fault:?}, {refusal:?}"
        );
        if chance.random_bool(0.75) {
            victim.kill()
        } else {
            victim.stop()
        }
        if chance.random_bool(0.4) {
            // A start on a disk that fails ends, or comes up; it does not hang.
            disk.fails(fault);
            disk.start(&data).into_iter().for_each(Victim::kill);
            disk.is_well();
        }
        victim = disk.start(&data).unwrap_or_else(|| panic!("round {round}: the store opens after {fault:?}"));
        talks.last().unwrap().check(&victim, &format!("round {round}, {fault:?}")).await;
    }
    for talk in &talks {
        talk.check(&victim, "at the end").await;
    }
    let acknowledged: usize = talks.iter().map(|talk| talk.acknowledged.len()).sum();
    println!("{rounds} rounds, {} faults, {acknowledged} acknowledged", disk.failed());
    assert!(disk.failed() > 0, "something failed");
    victim.kill();
}
