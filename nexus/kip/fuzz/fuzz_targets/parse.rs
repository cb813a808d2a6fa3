//! Any text parses or is refused, and what parses prints to a text that reads back as the same tree.
#![no_main]

use kip::lang::{parse, print};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(tree) = parse(text) {
        let printed = print(&tree);
        assert_eq!(parse(&printed).as_ref(), Ok(&tree), "{printed}");
    }
});
