//! `lifeformd kip --jsonl`: a KIP engine in memory, for conformance tests and for other programs.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use nexus::kip::{Engine, Request};
use serde_json::{Value, json};
use store::{Clock, SystemClock};

fn now() -> i64 {
    SystemClock.now().as_microsecond()
}

/// Answers requests until standard input ends.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    let fresh = Engine::born(now);
    let mut engine = fresh.clone();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |error: serde_json::Error| {
            json!({
                "error": {"code": "KIP_1003", "kind": "parameter", "message": error.to_string(), "hint": "a line is {\"command\": \"…\", \"parameters\": {…}} or {\"reset\": true}"},
            })
        };
        let answer = match serde_json::from_str::<Value>(&line) {
            Ok(request) if request["reset"] == true => {
                engine = fresh.clone();
                json!({})
            }
            Ok(request) => {
                serde_json::from_value::<Request>(request).map_or_else(wrong, |request| engine.execute(&request))
            }
            Err(error) => wrong(error),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
