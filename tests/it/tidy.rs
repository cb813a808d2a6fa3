//! The house rules that a machine can check: which crate may import which, and who knows about what.

use std::path::{Path, PathBuf};

/// The crates from left to right, each with its folder: one imports only what stands to its left.
const CRATES: [(&str, &str); 9] = [
    ("kip", "nexus/kip"),
    ("store", "store"),
    ("nexus", "nexus"),
    ("neurons", "neurons"),
    ("knowledge", "knowledge"),
    ("fascicles", "fascicles"),
    ("lifeform", "lifeform"),
    ("runtime", "runtime"),
    ("tests", "tests"),
];
/// Crates that stand side by side: neither imports the other.
const SIBLINGS: [(&str, &str); 2] = [("store", "kip"), ("fascicles", "knowledge")];
/// Folders of code that knows no I/O, and how many files there are at least.
const PURE: [(&str, usize); 3] = [("nexus/kip/src/lang/", 5), ("nexus/kip/src/plan/", 3), ("nexus/kip/src/exec/", 10)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every source file of the crates, as a path from the root and its text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    // The folder of kip stands in that of nexus.
    let mut waiting: Vec<PathBuf> = CRATES[1..].iter().map(|(_, folder)| root().join(folder)).collect();
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 60, "only {} sources were found", found.len());
    found
}

/// Code without its comments and its strings' contents kept; enough to look for names.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn arrows_between_crates_point_one_way() {
    for (place, (name, folder)) in CRATES.iter().enumerate() {
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        for (right, _) in &CRATES[place + 1..] {
            let imports = manifest.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(right));
            assert!(!imports, "{name} imports {right}, which stands to its right");
        }
        for (_, sibling) in SIBLINGS.iter().filter(|(one, _)| one == name) {
            let imports = manifest.lines().any(|line| line.starts_with(&format!("{sibling}.")));
            assert!(!imports, "{name} imports {sibling}, which stands beside it");
        }
    }
}

#[test]
fn each_thing_is_known_only_where_it_belongs() {
    let only_here: [(&str, &[&str]); 12] = [
        ("lexer::", &["nexus/kip/src/lang/"]),
        ("redb::", &["nexus/src/disk_graph/", "nexus/src/embeddings/kept.rs", "tests/"]),
        ("surrealdb::", &["store/src/surreal/"]),
        ("surrealdb_", &["store/src/surreal/"]),
        ("async_openai::", &["neurons/src/llm/"]),
        ("candle_", &["neurons/src/llm/embedded/"]),
        (
            "axum::",
            &[
                "runtime/src/api/",
                "runtime/src/ui.rs",
                "runtime/src/example.rs",
                "runtime/src/example/",
                "runtime/src/daemon.rs",
                "neurons/src/llm/wire/",
                "neurons/src/llm/endpoint.rs",
                "tests/",
            ],
        ),
        (
            "StatusCode",
            &[
                "runtime/src/api/",
                "runtime/src/ui.rs",
                "runtime/src/example.rs",
                "runtime/src/example/",
                "neurons/src/llm/wire/",
                "tests/",
            ],
        ),
        (
            "ractor::",
            &[
                "neurons/src/actors.rs",
                "fascicles/src/job.rs",
                "fascicles/src/job/handle.rs",
                "lifeform/src/life.rs",
                "tests/it/fascicles/actors.rs",
            ],
        ),
        ("rmcp::", &["neurons/src/tools/mcp", "runtime/src/api/mcp.rs", "runtime/src/example/mcp.rs", "tests/"]),
        (
            "std::env",
            &["runtime/src/config", "runtime/src/cli/threads.rs", "runtime/build.rs", "runtime/tests/", "tests/"],
        ),
        ("Timestamp::now()", &["store/src/clock.rs", "neurons/src/llm/endpoint.rs"]),
    ];
    let sources = sources();
    for (folder, at_least) in PURE {
        let files = sources.iter().filter(|(file, _)| file.starts_with(folder)).count();
        assert!(files >= at_least, "{folder} has {files} files: it is looked for in the wrong place");
    }
    for (file, text) in sources {
        let code = code(&text);
        for (name, places) in only_here {
            let allowed = places.iter().any(|place| file.starts_with(place)) || file == "tests/it/tidy.rs";
            assert!(allowed || !code.contains(name), "{file} knows about {name}, which belongs in {places:?}");
        }
        if PURE.iter().any(|(folder, _)| file.starts_with(folder)) {
            assert!(!code.contains("async ") && !code.contains(".await"), "{file}: the language does no I/O");
        }
    }
}

/// Words with which the summary of a doc comment does not begin: it is a verb, or a noun phrase with the noun in it.
const BEGINNINGS: [&str; 13] =
    ["What", "Whether", "How", "Which", "Who", "Whose", "Where", "When", "Why", "It", "Its", "It's", "Those"];

#[test]
fn summaries_of_doc_comments_are_verbs_or_noun_phrases() {
    let mut read = 0;
    for (file, text) in sources().into_iter().filter(|(file, _)| file.contains("/src/") && !file.starts_with("tests/"))
    {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let mut before = "";
        for line in code.lines().map(str::trim) {
            let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
            if is_doc(line) && !is_doc(before) {
                let first = line[3..].split_whitespace().next().unwrap_or_default();
                assert!(!BEGINNINGS.contains(&first), "{file}: a summary begins with a word for a clause: {line}");
                read += 1;
            }
            before = line;
        }
    }
    assert!(read > 5_000, "only {read} doc comments were found");
}

/// Everything in `folder`, as paths from the root, but for what is made there.
fn paths(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name();
        let is_made = ["target", "node_modules"].iter().any(|made| name == *made);
        if path.is_symlink() || is_made || name.to_string_lossy().starts_with(".git") {
            continue;
        }
        found.push(format!("/{}", path.strip_prefix(root()).unwrap().to_string_lossy()));
        if path.is_dir() {
            paths(&path, found);
        }
    }
}

/// The anchor that a line of Markdown has if it is a heading.
fn anchor(line: &str) -> String {
    let title = line.trim_start_matches('#').trim();
    let is_heading = line.starts_with('#');
    let letters = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    letters.filter(|_| is_heading).map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn files_and_folders_that_the_documents_name_are_there() {
    let mut there = Vec::new();
    paths(&root(), &mut there);
    let is_path = |name: &str| {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
        let ends = ["/", ".rs", ".toml", ".md", ".py", ".json"].iter().any(|end| name.ends_with(end));
        is_plain && ends && name.contains(|c: char| c.is_ascii_alphabetic()) && !name.starts_with('/')
    };
    let mut looked_at = 0;
    let pages = there.iter().filter(|path| path.starts_with("/docs/src/") && path.ends_with(".md"));
    let pages = pages.map(|page| &page[1..]).chain(["README.md", "ARCHITECTURE.md", "nexus/kip/README.md"]);
    for document in pages {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let folder = root().join(document).parent().unwrap().to_path_buf();
        for line in text.lines() {
            for (_, link) in line.match_indices("](").map(|(at, _)| line.split_at(at + 2)) {
                let link = link.split(')').next().unwrap();
                let (link, heading) = link.split_once('#').unwrap_or((link, ""));
                let is_elsewhere = link.contains("://");
                let target = if link.is_empty() { root().join(document) } else { folder.join(link) };
                assert!(is_elsewhere || target.exists(), "{document} links to {link}, which is not there");
                if !is_elsewhere && !heading.is_empty() {
                    let has_it = std::fs::read_to_string(target).unwrap().lines().any(|line| anchor(line) == heading);
                    assert!(has_it, "{document} links to {link}#{heading}, which is not there");
                }
                looked_at += 1;
            }
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_path(name)) {
                let end = format!("/{}", name.trim_end_matches('/'));
                assert!(there.iter().any(|path| path.ends_with(&end)), "{document} names {name}, which is not there");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 50, "only {looked_at} paths were found in the documents");
}

#[test]
fn every_shipped_file_loads() {
    for (name, _) in runtime::config::LIFEFORMS {
        let definition = runtime::daemon::shipped_lifeform(name).unwrap_or_else(|| panic!("{name} does not load"));
        definition.check().unwrap();
    }
    let shipped = runtime::daemon::shipped_fascicles().unwrap();
    let known: std::collections::BTreeMap<_, _> = shipped.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    for root in shipped {
        let plan = fascicles::Plan { root, fascicles: known.clone(), ..fascicles::Plan::default() };
        fascicles::Graph::build(&plan, None).unwrap_or_else(|faults| panic!("{faults}"));
    }
    let shipped = |folder: &str| std::fs::read_dir(root().join("config").join(folder)).unwrap().count();
    assert_eq!(
        shipped("lifeforms"),
        runtime::config::LIFEFORMS.len(),
        "a definition in config/lifeforms is not built in"
    );
    assert_eq!(
        shipped("fascicles"),
        runtime::config::FASCICLES.len(),
        "a fascicle in config/fascicles is not built in"
    );
}

#[test]
fn a_definition_with_an_unknown_or_cyclic_dependency_is_refused() {
    let spec = |after: &str| {
        format!(
            "id = \"f\"\noutput = \"a\"\n[[nodes]]\nid = \"a\"\nafter = [\"{after}\"]\nrun = {{ tool = {{ name = \"t\" }} }}\n"
        )
    };
    for (after, says) in [("b", "there is no node \"b\""), ("a", "a -> a is a cycle")] {
        let spec: fascicles::FascicleSpec = toml::from_str(&spec(after)).unwrap();
        let plan = fascicles::Plan { root: spec, ..fascicles::Plan::default() };
        let error = fascicles::Graph::build(&plan, None).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_systemd_unit_allows_more_memory_than_the_minds_may_have() {
    let unit = std::fs::read_to_string(root().join("deploy/systemd/lifeformd.service")).unwrap();
    let limit = unit.lines().find_map(|line| line.strip_prefix("MemoryMax=")?.strip_suffix('G')?.parse::<u64>().ok());
    let config = std::fs::read_to_string(root().join("config/lifeformd.toml")).unwrap();
    let of =
        |line: &str| line.trim_start_matches(['#', ' ']).strip_prefix("memory_mb = ")?.split(' ').next()?.parse().ok();
    let minds: u64 = config.lines().find_map(of).unwrap();
    assert!(limit.unwrap() * 1024 >= minds + 1024, "{limit:?} GiB, and {minds} MiB");
}

#[test]
fn the_name_of_a_test_has_at_most_60_letters() {
    let test = regex::Regex::new(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)").unwrap();
    let mut looked_at = 0;
    for (file, text) in sources() {
        for found in test.captures_iter(&text) {
            assert!(found[1].len() <= 60, "{file}: {} has {} letters", &found[1], found[1].len());
            looked_at += 1;
        }
    }
    assert!(looked_at > 500, "only {looked_at} tests were found");
}
