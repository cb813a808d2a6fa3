//! Any text is answered, and a refused one changes nothing.
#![no_main]

use kip::{Engine, Request};

thread_local! {
    static BORN: Engine = Engine::born(|| 0);
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut engine = BORN.with(Clone::clone);
    let before = engine.graph.len();
    let answer = engine.execute(&Request::new(text));
    assert!(answer.get("result").is_some() != answer.get("error").is_some(), "{answer}");
    assert!(answer.get("error").is_none() || engine.graph.len() == before);
});
