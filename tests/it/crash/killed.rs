//! A real process, a real database, and SIGKILL at any moment: nothing acknowledged is lost or doubled.
//! The process is this test binary itself, run again as a daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neurons::llm::scripted::Scripted;
use neurons::llm::{Endpoint, LlmProvider, OpenAi, Transport};
use rand::RngExt;
use reqwest::StatusCode;
use runtime::{Config, Daemon, Parts};
use serde_json::json;
use tests::disk::Watched;
use tests::{Client, honest, models_of};

use crate::crash::crashes::{Deadly, KILL};

/// Tells the process where it is to live.
const FOLDER: &str = "KILLED_DAEMON_FOLDER";
/// Tells the process where its models are.
const PROVIDER: &str = "KILLED_DAEMON_PROVIDER";
/// Tells the process that its data is a copy of an earlier moment.
const RESTORED: &str = "KILLED_DAEMON_RESTORED";
/// Tells the process where to log everything there is.
const LOG: &str = "KILLED_DAEMON_LOG";
const ARGUMENTS: [&str; 5] =
    ["--ignored", "--exact", "crash::killed::the_daemon_that_is_killed", "--nocapture", "--test-threads=1"];
const TOKEN: &str = "lfd_the_token_of_the_killed";

/// The daemon that the tests below kill, in a process of its own.
#[test]
#[ignore = "no test: the daemon that other tests start and kill"]
#[expect(clippy::print_stderr, reason = "its standard output is read for its address")]
fn the_daemon_that_is_killed() {
    let folder = std::env::var(FOLDER).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let models = match std::env::var(PROVIDER) {
            Ok(url) => {
                let transport = Transport::Http(reqwest::Client::new());
                let endpoint = Endpoint::new("outside", transport, 64, Duration::from_secs(30));
                let outside: Arc<dyn LlmProvider> = Arc::new(OpenAi::new("outside", &url, "-", endpoint).unwrap());
                models_of(&outside)
            }
            Err(_) => models_of(&Scripted::new(honest).provider("scripted").unwrap()),
        };
        if let Ok(log) = std::env::var(LOG) {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
            let all = tracing_subscriber::EnvFilter::new(runtime::telemetry::bounded("trace"));
            tracing_subscriber::fmt().with_env_filter(all).with_writer(Mutex::new(file)).init();
        }
        let flags = [("data", folder), ("listen", "127.0.0.1:0".into()), ("token", TOKEN.into())];
        let mut config = Config::load(None, &flags).unwrap();
        config.restored = std::env::var(RESTORED).is_ok();
        // What its tools write to is where its model is.
        if let Ok(url) = std::env::var(PROVIDER) {
            let host = url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
            let outside = json!({"plain": true, "private": true});
            config.tools.hosts.insert(host, serde_json::from_value(outside).unwrap());
        }
        let mut parts = Parts::real(&config, models).unwrap();
        if let Ok(when) = std::env::var(KILL) {
            let inner = Arc::new(store::surreal::Surreal::embedded(config.store()).unwrap());
            parts.backend = Arc::new(Watched::new(inner, Deadly::new(&when)));
        }
        // Under a failing disk this is no defect: the log keeps to one line of it.
        let daemon = Daemon::start(&config, parts).await.unwrap_or_else(|error| {
            eprintln!("the daemon that is killed does not start: {error:#}");
            std::process::exit(1)
        });
        println!("\nserving {}", daemon.address);
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap().recv().await;
        daemon.stop().await.unwrap();
    });
}

/// Tells the process that it is the one in which a vital task panics.
const DIES: &str = "A_VITAL_TASK_DIES";

#[test]
fn a_panic_in_a_vital_task_ends_the_process() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    if std::env::var(DIES).is_ok() {
        runtime.block_on(store::vital("test", async { panic!("on purpose") }))
    }
    assert_eq!(runtime.block_on(store::vital("test", async { 7 })), 7);
    let itself = "crash::killed::a_panic_in_a_vital_task_ends_the_process";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let ended = command.args(["--exact", itself]).env(DIES, "1").output().unwrap();
    assert_eq!(ended.status.code(), Some(store::vital::EXIT_STATUS));
}

pub(crate) struct Victim {
    process: Child,
    pub(crate) client: Client,
}

impl Victim {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::under(&[], folder, None)
    }

    /// A process under a tracer, or one whose minds may take up so much memory.
    fn under(tracer: &[&str], folder: &Path, memory_mb: Option<usize>) -> Self {
        let command = match tracer {
            [] => Self::command(),
            [tracer, rest @ ..] => {
                let mut command = Command::new(tracer);
                command.args(rest).arg(std::env::current_exe().unwrap()).args(ARGUMENTS);
                command
            }
        };
        Self::run(command, folder, memory_mb)
    }

    fn command() -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(ARGUMENTS);
        command
    }

    fn run(mut command: Command, folder: &Path, memory_mb: Option<usize>) -> Self {
        command.envs(memory_mb.map(|memory| ("LIFEFORMD_NEXUS__MEMORY_MB", memory.to_string())));
        Self::try_run(command, folder).expect("the daemon starts")
    }

    /// A process with these variables; `None` when it ends before it serves.
    pub(crate) fn with(envs: &[(&str, &std::ffi::OsStr)], folder: &Path) -> Option<Self> {
        let mut command = Self::command();
        command.envs(envs.iter().copied());
        Self::try_run(command, folder)
    }

    /// A process on a copy of an earlier moment. With `says_so`, it was started as one.
    pub(crate) fn restored(folder: &Path, provider: &str, says_so: bool) -> Self {
        let mut command = Self::command();
        command.env(PROVIDER, provider).envs(says_so.then_some((RESTORED, "1")));
        Self::run(command, folder, None)
    }

    fn try_run(mut command: Command, folder: &Path) -> Option<Self> {
        command.env(FOLDER, folder).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let serving = lines.find_map(|line| line.ok()?.strip_prefix("serving ").map(str::to_owned));
        let Some(address) = serving else {
            process.wait().unwrap();
            return None;
        };
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { process, client: Client::new(format!("http://{address}"), TOKEN.into()) })
    }

    /// A process that logs everything there is to a file.
    pub(crate) fn logging(folder: &Path, log: &Path) -> Self {
        let mut command = Self::command();
        command.env(LOG, log);
        Self::run(command, folder, None)
    }

    /// A process that asks an outside provider and may kill itself.
    pub(crate) fn dying(folder: &Path, provider: &str, when: Option<&str>) -> Self {
        let mut command = Self::command();
        command.env(PROVIDER, provider).envs(when.map(|when| (KILL, when)));
        Self::run(command, folder, None)
    }

    /// The number of the process, and of its group.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Lets it end by itself.
    pub(crate) fn stop(mut self) {
        Command::new("kill").args(["-15", &self.process.id().to_string()]).status().unwrap();
        self.process.wait().unwrap();
    }

    /// Kills the process, and the tracer it runs under.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Victim {
    /// No process outlives its test, whether the test passes or fails.
    fn drop(&mut self) {
        kill(self.id());
        self.process.wait().unwrap();
    }
}

/// Kills a group of processes, if it is still there.
pub(crate) fn kill(group: u32) {
    let group = format!("-{group}");
    let _gone_already = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
}

/// What was asked for under a key, and whether it was acknowledged.
type Ledger = Arc<Mutex<BTreeMap<String, bool>>>;

#[derive(Clone)]
struct Work {
    id: String,
    base: String,
}

impl Work {
    /// Asks for everything a key stands for: a message, a top-up, a fact.
    async fn ask(&self, client: &Client, key: &str) -> Option<()> {
        let said = client.post_once(&format!("{}/topics/t1/messages", self.base), key, json!({"content": key})).await?;
        let credit = json!({"amount": 1, "currency": "tokens", "memo": key});
        let paid = client.post_once(&format!("/v1/lifeforms/{}/resources/transactions", self.id), key, credit).await?;
        let kip = "UPSERT { CONCEPT ?f { {type: \"Fact\", name: $key} SET ATTRIBUTES { statement: $key } } }";
        let upsert = json!({"command": kip, "parameters": {"key": key}});
        let learned = client.post_once(&format!("/v1/lifeforms/{}/kip", self.id), key, upsert).await?;
        (said == StatusCode::CREATED && paid == StatusCode::CREATED && learned == StatusCode::OK).then_some(())
    }
}

async fn load(work: Work, client: Client, round: usize, writer: usize, ledger: Ledger) {
    for n in 0.. {
        let key = format!("r{round}w{writer}n{n}");
        ledger.lock().unwrap().insert(key.clone(), false);
        if work.ask(&client, &key).await.is_none() {
            return;
        }
        ledger.lock().unwrap().insert(key, true);
    }
}

async fn everything(client: &Client, work: &Work) -> (Vec<String>, i64, Vec<String>) {
    let messages = client.get(&format!("{}/topics/t1/messages", work.base)).await.expect(StatusCode::OK);
    let said = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    let account = client.get(&format!("/v1/lifeforms/{}/resources?limit=1", work.id)).await.expect(StatusCode::OK);
    let kip = json!({"command": "FIND(?f.name) WHERE { ?f {type: \"Fact\"} }"});
    let facts = client.post(&format!("/v1/lifeforms/{}/kip", work.id), kip).await.expect(StatusCode::OK);
    let facts = facts["result"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    (said, account["balance"]["tokens"].as_i64().unwrap(), facts)
}

/// Starts, has writers write, and kills at a random moment; over and over.
pub(crate) async fn kill_again_and_again<F: Future<Output = ()> + Send + 'static>(
    kills: usize,
    within_ms: u64,
    start: impl Fn(usize) -> Victim,
    writers: usize,
    write: impl Fn(Client, usize, usize) -> F,
) {
    for round in 0..kills {
        let victim = start(round);
        let writers: Vec<_> =
            (0..writers).map(|writer| tokio::spawn(write(victim.client.clone(), round, writer))).collect();
        let after = Duration::from_millis(rand::rng().random_range(20..within_ms));
        tokio::time::sleep(after).await;
        victim.kill();
        for writer in writers {
            writer.await.unwrap();
        }
    }
}

pub(crate) fn kills() -> usize {
    std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8)
}

/// `KILLS` says how often; a few by default, so that every run can afford it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_or_doubled_by_kill_9() {
    let kills = kills();
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::start(folder.path());
    let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let id = made["id"].as_str().unwrap().to_owned();
    let work = Work { base: format!("/v1/lifeforms/{id}/canvases/canvas_chat_main"), id };
    victim.client.topic(&work.base, "t1").await;
    victim.kill();
    let ledger = Ledger::default();
    let start = |_| Victim::start(folder.path());
    kill_again_and_again(kills, 400, start, 6, |client, round, writer| {
        load(work.clone(), client, round, writer, ledger.clone())
    })
    .await;
    let victim = Victim::start(folder.path());
    let keys = ledger.lock().unwrap().clone();
    let (said, balance, facts) = everything(&victim.client, &work).await;
    let acknowledged: Vec<&String> = keys.iter().filter(|(_, acked)| **acked).map(|(key, _)| key).collect();
    for key in &acknowledged {
        assert!(said.contains(key) && facts.contains(key), "{key} was acknowledged and is lost");
    }
    assert!(balance >= 200_000 + acknowledged.len() as i64);
    // Whoever was not answered asks again with the same key: everything is there once, and only once.
    for key in keys.keys() {
        work.ask(&victim.client, key).await.expect("asking again succeeds");
    }
    let (mut said, balance, mut facts) = everything(&victim.client, &work).await;
    said.sort();
    facts.sort();
    let all: Vec<String> = keys.keys().cloned().collect();
    assert_eq!(said, all);
    assert_eq!(facts, all);
    assert_eq!(balance, 200_000 + all.len() as i64);
    println!("{kills} kills, {} of {} requests acknowledged, none lost, none doubled", acknowledged.len(), all.len());
    victim.kill();
}

/// The page cache survives SIGKILL, so that test says nothing about power. This one does: between each
/// request and its acknowledgement, a sync of the database's log has returned.
#[tokio::test(flavor = "multi_thread")]
async fn a_sync_returns_between_each_request_and_its_acknowledgement() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let traced = [
        "strace",
        "-f",
        "-s",
        "48",
        "-e",
        "trace=fsync,fdatasync,recvfrom,sendto,read,write,writev",
        "-o",
        trace.to_str().unwrap(),
    ];
    let victim = Victim::under(&traced, &folder.path().join("data"), None);
    let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let base = format!("/v1/lifeforms/{}/canvases/canvas_chat_main", made["id"].as_str().unwrap());
    victim.client.topic(&base, "t1").await;
    for n in 0..10 {
        victim.client.say(&base, "t1", &format!("m{n}")).await;
    }
    victim.kill();
    let text = std::fs::read_to_string(&trace).unwrap();
    let (mut pending, mut synced, mut pairs) = (false, 0, 0);
    for line in text.lines() {
        if line.contains("\"POST /v1/lifeforms") {
            (pending, synced) = (true, 0);
        } else if (line.contains("fsync") || line.contains("fdatasync")) && line.trim_end().ends_with("= 0") {
            synced += 1;
        } else if pending && line.contains("\"HTTP/1.1 201") {
            assert!(synced > 0, "acknowledged without a sync: {line}");
            (pending, pairs) = (false, pairs + 1);
        }
    }
    assert_eq!(pairs, 12, "the lifeform, the topic and ten messages");
}

/// How many facts a writer puts into one capsule: the first so many that the database's memory table fills up over
/// and over.
fn facts_of(writer: usize) -> u64 {
    if writer == 0 { 1_500 } else { 20 }
}

/// A capsule of one load: facts, each linked to the one before, and one record for the commons.
fn capsule(key: &str, facts: u64) -> String {
    let facts: String = (0..facts)
        .map(|n| format!("CONCEPT ?f{n} {{ {{type: \"Fact\", name: \"{key} {n}\"}} SET ATTRIBUTES {{ load: \"{key}\" }} SET PROPOSITIONS {{ (\"stated_by\", {}) }} }}\n", if n == 0 { "{type: \"Person\", name: \"$self\"}".into() } else { format!("?f{}", n - 1) }))
        .collect();
    let record = format!(
        "CONCEPT {{ {{type: \"Knowledge\", name: \"{key}\"}} SET ATTRIBUTES {{ task: \"t\", content: \"c\" }} }}"
    );
    format!("UPSERT {{\n{facts}{record}\n}}")
}

async fn load_capsules(client: Client, door: String, round: usize, writer: usize, ledger: Ledger) {
    for n in 0.. {
        let key = format!("k{round}w{writer}n{n}");
        ledger.lock().unwrap().insert(key.clone(), false);
        if client.post_once(&door, &key, json!({"command": capsule(&key, facts_of(writer))})).await
            != Some(StatusCode::OK)
        {
            return;
        }
        ledger.lock().unwrap().insert(key, true);
    }
}

/// Bulk loads cut at random moments, with minds in memory and on shelves in turn: every acknowledged capsule is
/// there whole, and none is half there, neither at home nor in the commons.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_load_cut_by_kill_9_leaves_whole_capsules_only() {
    let kills = kills().div_ceil(2);
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::start(folder.path());
    let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let door = format!("/v1/lifeforms/{}/kip", made["id"].as_str().unwrap());
    victim.kill();
    let ledger = Ledger::default();
    let start = |round: usize| Victim::under(&[], folder.path(), round.is_multiple_of(2).then_some(0));
    kill_again_and_again(kills, 1_500, start, 3, |client, round, writer| {
        load_capsules(client, door.clone(), round, writer, ledger.clone())
    })
    .await;
    let victim = Victim::start(folder.path());
    let count = json!({
        "command": "FIND(?f.attributes.load, COUNT(?f), COUNT(?l)) WHERE { ?f {type: \"Fact\"} OPTIONAL { ?l (?f, \"stated_by\", ?to) } }",
    });
    let counted = victim.client.post(&door, count).await.expect(StatusCode::OK);
    let there: BTreeMap<String, (u64, u64)> = counted["result"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row[0].as_str().unwrap().to_owned(), (row[1].as_u64().unwrap(), row[2].as_u64().unwrap())))
        .collect();
    let shared = json!({"command": "FIND(?k.name) WHERE { ?k {type: \"Knowledge\"} }"});
    let shared = victim.client.post("/v1/nexus/commons/kip", shared).await.expect(StatusCode::OK);
    let shared: BTreeSet<&str> =
        shared["result"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(shared, there.keys().map(String::as_str).collect(), "at home and in the commons");
    let ledger = ledger.lock().unwrap().clone();
    assert!(ledger.values().filter(|acked| **acked).count() > kills, "hardly anything was loaded");
    for (key, counts) in &there {
        let facts = facts_of(usize::from(!key.contains("w0n")));
        assert_eq!(*counts, (facts, facts), "{key} is half there");
    }
    for (key, _) in ledger.iter().filter(|(_, acked)| **acked) {
        assert!(there.contains_key(key), "{key} was acknowledged and is lost");
    }
    println!(
        "{kills} kills, {} capsules acknowledged, {} there",
        ledger.values().filter(|acked| **acked).count(),
        there.len()
    );
    victim.kill();
}
