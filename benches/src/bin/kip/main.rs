//! The nexus beside its floors: loading, querying, waking, and many at once, over the graph that the other
//! engines are measured with.
//!
//! `kip memory N` measures the engine in process, `kip store N` the nexus over its database, `kip crowd N`
//! readers beside a writer. Each prints one JSON object a row, then the same as a table.

#![allow(clippy::print_stdout, reason = "a benchmark's table is its output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has nothing to save")]

mod crowd;
mod generator;
mod memory;
mod store;

use serde_json::{Value, json};

/// The daemon's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory", n] => memory::run(n.parse()?),
        ["store", n] => runtime()?.block_on(store::run(n.parse()?))?,
        ["load", folder, n] => return runtime()?.block_on(store::load_forever(folder, n.parse()?)),
        ["crowd", n] => runtime()?.block_on(crowd::run(n.parse()?))?,
        _ => anyhow::bail!("usage: kip memory|store|crowd <number of items>"),
    };
    rows.iter().for_each(|row| println!("{row}"));
    println!("\n| row | measured | per | floor or goal |\n|---|---|---|---|");
    for row in &rows {
        let text = |key: &str| match &row[key] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        println!("| {} | {} | {} | {} |", text("row"), text("value"), text("unit"), text("beside"));
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn row(name: impl Into<String>, value: impl Into<Value>, unit: &str, beside: impl Into<String>) -> Value {
    json!({"row": name.into(), "value": value.into(), "unit": unit, "beside": beside.into()})
}

/// The value at a share of the sorted list: index round((n − 1)·p).
fn percentile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * p).round() as usize]
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
