//! One JSON request a line, one JSON answer a line, over an engine in memory: the library without a daemon.

use std::io::{BufRead, Write};

use kip::{Engine, Request};
use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    // Time stands still here: answers are the same in every run.
    let fresh = Engine::born(|| 0);
    let mut engine = fresh.clone();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str::<Value>(&line?) {
            Ok(value) if value.get("reset") == Some(&Value::Bool(true)) => {
                engine = fresh.clone();
                json!({})
            }
            Ok(value) => match serde_json::from_value::<Request>(value) {
                Ok(request) => engine.execute(&request),
                Err(error) => json!({"error": {"kind": "parameter", "code": "KIP_1003", "message": error.to_string()}}),
            },
            Err(error) => json!({"error": {"kind": "parameter", "code": "KIP_1003", "message": error.to_string()}}),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
