//! The measured rows of `benches/README.md`, each beside its floor in one run.
//!
//! `cargo run --release -p benches -- LIFEFORMD` where LIFEFORMD is the built daemon; `… LIFEFORMD lives` hosts many
//! lifeforms, and `… LIFEFORMD watchers` measures beside sockets of events. The same program is also the mock model and the pass-through, each in a process of its own.

#![allow(clippy::print_stdout, reason = "a benchmark's table is its output")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has nothing to save")]

mod daemon;
mod floor;
mod lives;
mod load;
mod rows;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["mock"] => floor::mock().await,
            ["passthrough", model] => floor::passthrough(model).await,
            [binary] => rows::all(binary).await,
            [binary, "watchers"] => {
                rows::watchers(binary).await;
                Ok(())
            }
            [binary, "lives", ref counts @ ..] => {
                let count =
                    |place: usize, usual: usize| counts.get(place).map_or(Ok(usual), |count| count.parse::<usize>());
                lives::all(binary, count(0, 10_000)?, count(1, 100_000)?, count(2, 1_000)?).await;
                Ok(())
            }
            _ => anyhow::bail!(
                "usage: benches <path of the lifeformd binary> [watchers | lives [beating] [asleep] [talking]]"
            ),
        }
    })
}
