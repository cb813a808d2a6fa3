//! The command line as a person has it: the built binary, its daemon, and commands against it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there and says so")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

fn lifeformd(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lifeformd"));
    command
        .env_clear()
        .env("HOME", data)
        .env("LIFEFORMD_DATA", data)
        .env("LIFEFORMD_MODELS__EMBEDDED", "none")
        .env("LIFEFORMD_LOG", "warn")
        .stdin(Stdio::null());
    command
}

/// A daemon on a port of its own, gone with the test.
struct Running {
    daemon: Child,
    listen: String,
    folder: tempfile::TempDir,
}

impl Running {
    fn up() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = lifeformd(folder.path())
            .args(["up", "--offline", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let greeting = BufReader::new(daemon.stdout.take().unwrap()).lines().map_while(Result::ok);
        let listen = greeting.filter_map(|line| Some(line.split_once("--listen ")?.1.to_owned())).next().unwrap();
        Self { daemon, listen, folder }
    }

    fn run(&self, args: &[&str], input: &str) -> Output {
        let mut child = lifeformd(self.folder.path())
            .args(args)
            .args(["--listen", &self.listen])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn say(&self, args: &[&str], input: &str) -> String {
        let output = self.run(args, input);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

const FLEET: &str = r#"UPSERT {
    CONCEPT { {type: "$ConceptType", name: "Boat"} }
    CONCEPT { {type: "Boat", name: "Petrel"} SET ATTRIBUTES { crew: 3 } }
    CONCEPT { {type: "Boat", name: "Osprey"} SET ATTRIBUTES { crew: 5 } }
}"#;
const CREWS: &str = r#"FIND(?b.name, ?b.attributes.crew) WHERE { ?b {type: "Boat"} } ORDER BY ?b.name"#;

#[test]
fn kip_runs_as_a_command_a_file_a_pipe_and_a_table() {
    let running = Running::up();
    let file = running.file("fleet.kip", FLEET);
    let tried: Value = serde_json::from_str(&running.say(&["kip", "--dry-run", &file], "")).unwrap();
    assert!(tried.get("result").is_some(), "{tried}");
    running.say(&["kip", &file], "");
    for (args, input) in [(vec!["kip", CREWS], ""), (vec!["kip"], CREWS), (vec!["kip", "-"], CREWS)] {
        let told: Value = serde_json::from_str(&running.say(&args, input)).unwrap();
        assert_eq!(told["result"], json!([["Osprey", 5], ["Petrel", 3]]), "{args:?}");
    }
    let table = running.say(&["kip", "--table", CREWS], "");
    let cells = |line: &str| {
        line.split(['│', '|']).map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(table.lines().any(|line| cells(line).join(" ").split_whitespace().eq(["Osprey", "5"])), "{table}");

    let bound = r#"FIND(?b.attributes.crew) WHERE { ?b {type: "Boat", name: $name} }"#;
    let told: Value =
        serde_json::from_str(&running.say(&["kip", "--parameters", r#"{"name": "Petrel"}"#, bound], "")).unwrap();
    assert_eq!(told["result"], json!([3]));
    let refused = running.run(&["kip", "FIND(?b) WHERE { ?b {type: } }"], "");
    assert!(!refused.status.success());
    let told: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(told["error"]["kind"], "syntax", "{told}");
    let refused = running.run(&["kip", "--readonly", FLEET], "");
    assert!(!refused.status.success(), "{refused:?}");
    let missing = running.run(&["kip", "nowhere.kip"], "");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no file nowhere.kip"), "{missing:?}");
}

#[test]
fn a_capsule_goes_out_of_one_mind_and_into_another() {
    let running = Running::up();
    running.say(&["kip", FLEET], "");
    let out = running.folder.path().join("boats.kip").display().to_string();
    let pattern = r#"WHERE { ?b {type: "Boat"} }"#;
    running.say(&["capsule", "export", "--name", "boats", "-o", &out, "?b", pattern], "");
    let tried = running.say(&["capsule", "import", "--lifeform", "commons", "--dry-run", &out], "");
    assert!(tried.contains("Osprey"), "{tried}");
    let empty: Value = serde_json::from_str(&running.say(&["kip", "--commons", CREWS], "")).unwrap();
    assert_eq!(empty["result"], json!([]), "a dry run writes nothing");
    running.say(&["capsule", "import", "--lifeform", "commons", &out], "");
    let told: Value = serde_json::from_str(&running.say(&["kip", "--commons", CREWS], "")).unwrap();
    assert_eq!(told["result"], json!([["Osprey", 5], ["Petrel", 3]]));
    let broken = running.file("broken.kip", "UPSERT { CONCEPT");
    assert!(!running.run(&["capsule", "import", &broken], "").status.success());
}

#[test]
fn check_knows_its_own_running_daemon() {
    let running = Running::up();
    let told = running.say(&["check"], "");
    assert!(told.contains("ok    daemon") && !told.contains("BAD"), "{told}");
    let elsewhere = tempfile::tempdir().unwrap();
    let output = lifeformd(elsewhere.path()).args(["check", "--listen", &running.listen]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && told.contains("BAD   port"), "another folder has another daemon: {told}");
}

#[test]
fn json_lines_are_answered_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        lifeformd(folder.path()).args(["kip", "--jsonl"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let requests =
        [json!({"command": FLEET}), json!({"command": CREWS}), json!({"reset": true}), json!({"command": CREWS})];
    let text: String = requests.iter().map(|request| format!("{request}\n")).collect::<String>() + "no json\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(told[1]["result"], json!([["Osprey", 5], ["Petrel", 3]]));
    assert_eq!(told[2], json!({}));
    assert_eq!(told[3]["result"], json!([]), "nothing is left after a reset");
    assert!(told[4]["error"].is_object(), "{}", told[4]);
}

#[test]
fn up_prints_no_token_into_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = lifeformd(folder.path())
        .args(["up", "--offline", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines().map_while(Result::ok);
    let greeting: Vec<String> = lines.by_ref().take_while(|line| !line.contains("--listen ")).collect();
    let token = std::fs::read_to_string(folder.path().join("operator.token")).unwrap();
    daemon.kill().unwrap();
    let rest: Vec<String> = lines.collect();
    daemon.wait().unwrap();
    assert!(!greeting.is_empty() && token.trim().len() > 16);
    assert!(greeting.iter().chain(&rest).all(|line| !line.contains(token.trim())), "{greeting:?} {rest:?}");
}

#[test]
fn chat_says_that_a_lifeform_was_never_started() {
    let running = Running::up();
    let token = std::fs::read_to_string(running.folder.path().join("operator.token")).unwrap();
    let made = Command::new("curl")
        .args(["-s", "-H", &format!("authorization: Bearer {}", token.trim())])
        .args(["-H", "content-type: application/json", "-d", r#"{"definition": {"name": "Otto"}}"#])
        .args([&format!("http://{}/v1/lifeforms", running.listen)])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let said = running.run(&["chat", "--lifeform", "Otto"], "hello\n");
    let error = String::from_utf8(said.stderr.clone()).unwrap();
    assert!(said.status.success() && error.contains("has not been started"), "{said:?}");
}

#[test]
fn mcp_says_that_no_daemon_answers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("operator.token"), "a-token-of-an-earlier-start").unwrap();
    let mut child = lifeformd(folder.path())
        .args(["mcp", "--listen", "127.0.0.1:1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    writeln!(child.stdin.take().unwrap(), "{asked}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("no lifeformd answers"));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["id"] == 1 && answer["error"].is_object(), "{answer}");
}

#[test]
fn a_lifeform_is_led_from_the_terminal() {
    let running = Running::up();
    let json = |args: &[&str]| -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&running.say(&args, "")).unwrap()
    };
    let status = json(&["status"]);
    assert_eq!(
        (&status["me"]["principal"], status["lifeforms"].as_array().unwrap().len()),
        (&json!("user:operator"), 1)
    );
    let name = status["lifeforms"][0]["name"].as_str().unwrap().to_owned();
    let id = status["lifeforms"][0]["id"].as_str().unwrap().to_owned();
    assert!(running.say(&["lifeforms"], "").contains(&format!("{id}  {name}  running")));
    assert_eq!(json(&["stop", &name])["status"], "stopped");
    assert_eq!(json(&["start"])["status"], "running");
    let tokens = || json(&["lifeforms"])["lifeforms"][0]["nutrients"]["balance"]["tokens"].as_i64().unwrap();
    let before = tokens();
    running.say(&["top-up", "5000", "--memo", "for May", "--lifeform", &name], "");
    running.say(&["top-up", "-1000"], "");
    assert_eq!(tokens() - before, 4_000);

    let goal = json(&["goal", "add", "Write a report", "--at", "2099-01-01T00:00:00Z"]);
    let goal = goal["id"].as_str().unwrap();
    assert!(running.say(&["goal"], "").contains("Write a report"));
    assert_eq!(json(&["goal", "done", goal])["status"], "done");
    running.say(&["goal", "remove", goal], "");
    assert_eq!(running.say(&["goal", "list"], ""), "there are no goals\n");

    running.say(&["remind", "Feed the cat", "--at", "2099-01-01T09:00:00Z"], "");
    running.say(&["remind", "Water the plants", "--cron", "0 9 * * 1", "--zone", "Europe/Berlin"], "");
    let listed = running.say(&["remind"], "");
    assert!(listed.contains("Feed the cat") && listed.contains("Water the plants"), "{listed}");
    assert!(!running.run(&["remind", "Feed the cat"], "").status.success(), "a reminder has a time");

    let fact = r#"UPSERT { CONCEPT { {type: "Fact", name: "boat"} SET ATTRIBUTES { statement: "My boat is called Petrel." } } } WITH METADATA { author: "user:ada", status: "active" }"#;
    running.say(&["kip", fact], "");
    assert!(running.say(&["memory"], "").contains("user:ada  My boat is called Petrel."));
    assert!(running.say(&["memory", "--of", "user:ada"], "").contains("Petrel"));
    assert!(running.say(&["memory", "petrel"], "").contains("Petrel"));
    assert!(running.say(&["memory", "--of", "user:ben"], "").contains("nothing of it is remembered"));
    assert!(running.say(&["memory", "boat", "--of", "user:ada"], "").contains("Petrel"));
    assert!(running.say(&["memory", "boat", "--of", "user:ben"], "").contains("nothing of it is remembered"));
    let fact = json(&["memory"])["statements"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(running.say(&["forget", &fact], ""), "forgotten: My boat is called Petrel.\n");
    assert!(running.say(&["memory"], "").contains("nothing of it is remembered"));
    assert_eq!(running.say(&["forget", &fact], ""), "it was forgotten before\n");
    assert!(!running.run(&["forget", "C:none"], "").status.success());

    assert!(running.say(&["jobs", "list", "--limit", "3"], "").lines().count() <= 4);
    let missing = running.run(&["jobs", "show", "job_none"], "");
    assert!(!missing.status.success() && !missing.stderr.is_empty(), "{missing:?}");
    let listed: Value =
        serde_json::from_str(&running.say(&["jobs", "list", "--status", "failed", "--json"], "")).unwrap();
    assert!(listed["jobs"].is_array());
    assert!(!running.run(&["forget", " "], "").status.success());
    // A lifeform that is stopped answers nothing, and the message is kept.
    running.say(&["stop"], "");
    running.say(&["chat"], "hello\n");
    let walk = json(&["why", &format!("canvas:{id}/canvas_chat_main@1")]);
    assert_eq!(walk["from"]["ref"], format!("canvas:{id}/canvas_chat_main@1"), "{walk}");
    let unknown = running.run(&["start", "Nobody"], "");
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("there is no lifeform \"Nobody\""));
}

#[test]
fn an_archive_goes_from_one_daemon_to_another() {
    let (here, there) = (Running::up(), Running::up());
    here.say(&["kip", FLEET], "");
    let file = here.folder.path().join("life.jsonl").display().to_string();
    here.say(&["archive", &file], "");
    let again = here.run(&["archive", &file], "");
    assert!(!again.status.success(), "a file that is there is not written over");
    let imported: Value = serde_json::from_str(&there.say(&["import", &file, "--json"], "")).unwrap();
    let id = imported["id"].as_str().unwrap();
    there.say(&["start", id], "");
    let told: Value = serde_json::from_str(&there.say(&["kip", "--lifeform", id, CREWS], "")).unwrap();
    assert_eq!(told["result"], json!([["Osprey", 5], ["Petrel", 3]]));
    let broken = there.file("cut.jsonl", "{\"a\":");
    assert!(!there.run(&["import", &broken], "").status.success());
}

#[test]
fn settings_a_link_and_completions_are_printed() {
    let running = Running::up();
    let token = std::fs::read_to_string(running.folder.path().join("operator.token")).unwrap();
    let link = running.say(&["open", "--print"], "");
    assert_eq!(link.trim(), format!("http://{}/ui/#token={}", running.listen, token.trim()));
    let mut with_token = lifeformd(running.folder.path());
    let settings = running.file(
        "own.toml",
        "[tools.servers.files]\ncommand = [\"true\"]\nenvironment = { API_KEY = \"a-key-that-nobody-sees\" }\n",
    );
    let with_token = with_token.env("LIFEFORMD_TOKEN", "a-token-that-nobody-sees");
    let shown = with_token.args(["config", "--config", &settings]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(!shown.contains("that-nobody-sees") && shown.contains("API_KEY"), "{shown}");
    let shown: toml::Table = shown.parse().unwrap();
    assert_eq!(shown["data"].as_str(), running.folder.path().to_str());
    assert_eq!(shown["models"]["embedded"].as_str(), Some("none"));
    for shell in ["bash", "zsh", "fish"] {
        let script = lifeformd(running.folder.path()).args(["generate", "completions", shell]).output().unwrap();
        assert!(String::from_utf8(script.stdout).unwrap().contains("top-up"), "{shell}");
    }
    let manual = lifeformd(running.folder.path()).args(["generate", "man"]).output().unwrap();
    assert!(String::from_utf8(manual.stdout).unwrap().starts_with(".ie"));
}
