//! The documents: each `sh` block of the book is run, in the order of the book, against a daemon with the embedded
//! model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there and says so")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The time that all blocks may take together.
const PATIENCE: Duration = Duration::from_secs(900);
/// Where the book says that the daemon is, and keeps its data.
const ADDRESS: &str = "127.0.0.1:7717";
const DATA: &str = "~/.local/share/lifeformd";
/// Where the book says that the example world is.
const EXAMPLE: &str = "127.0.0.1:7719";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The pages of the book in order.
fn pages() -> Vec<PathBuf> {
    let book = root().join("docs/src");
    let summary = std::fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.split_once(')'));
    links.map(|(page, _)| book.join(page)).collect()
}

/// The `sh` blocks of a page. One that is not run says why.
fn blocks(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut blocks, mut open): (Vec<String>, Option<bool>) = (Vec::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), open) {
            (Some(kind), None) if kind.split(',').next() == Some("sh") => {
                let is_run = kind == "sh";
                assert!(is_run || kind.starts_with("sh,ignore why="), "{}: {line} gives no reason", page.display());
                blocks.extend(is_run.then(String::new));
                open = Some(is_run);
            }
            (Some(_), None) => open = Some(false),
            (Some(_), Some(_)) => open = None,
            (None, Some(true)) => blocks.last_mut().unwrap().extend([line, "\n"]),
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "{}: a block has no end", page.display());
    blocks
}

/// Starts the daemon and returns it with its address.
async fn daemon(data: &Path) -> (tokio::process::Child, String) {
    let mut up = Command::new(env!("CARGO_BIN_EXE_lifeformd"));
    up.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(data).env_remove("LIFEFORMD_TOKEN");
    let mut up = up.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("the daemon starts");
        if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (up, format!("127.0.0.1:{port}"));
        }
    }
}

#[tokio::test]
async fn every_block_of_the_book_that_can_be_run_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::os::unix::fs::symlink(root().join("config"), folder.path().join("config")).unwrap();
    let (_daemon, address) = tokio::time::timeout(PATIENCE, daemon(&data)).await.expect("the daemon starts");
    let example = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // A refusal is a failure; the end of a stream that is cut after a time is none.
    let mut script =
        // What a block leaves in the background ends with the script, or its output would never end.
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\ncurl() { command curl --fail-with-body -S \"$@\" || [ $? = 28 ]; }\n".to_owned();
    let mut run = 0;
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        for block in blocks(&page) {
            let block = block.replace(ADDRESS, &address).replace(DATA, &data.display().to_string());
            let block = block.replace(EXAMPLE, &example);
            script.push_str(&format!("echo '== {name}'\n{block}"));
            run += 1;
        }
    }
    assert!(run > 20, "only {run} blocks were found");
    let binaries = Path::new(env!("CARGO_BIN_EXE_lifeformd")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.arg("-xc").arg(script).current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    bash.env("PATH", path).env("LIFEFORMD_DATA", &data).env("LIFEFORMD_LISTEN", &address).env_remove("LIFEFORMD_TOKEN");
    let ended = tokio::time::timeout(PATIENCE, bash.output()).await.expect("the blocks come to an end").unwrap();
    let (out, traced) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    let last = |text: &str, lines: usize| {
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    };
    assert!(ended.status.success(), "{}\n…\n{}", last(&out, 6), last(&traced, 6));
}
