//! The deterministic graph of the comparison (seed 42): `h(i, k)` depends on nothing but its arguments, so
//! every engine under test builds the same one.

const SEED: u64 = 42;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub(crate) fn h(i: u64, k: u64) -> u64 {
    mix(SEED.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(k.wrapping_mul(0xD1B5_4A32_D192_ED03)))
}

pub(crate) struct Item {
    pub(crate) rank: u64,
    pub(crate) score: f64,
    pub(crate) label: String,
    pub(crate) group: u64,
    pub(crate) links: Vec<u64>,
}

pub(crate) fn groups(n: u64) -> u64 {
    (n / 100).max(1)
}

pub(crate) fn item(i: u64, n: u64) -> Item {
    let mut links = vec![];
    if i > 0 {
        links.push(h(i, 5) % i);
    }
    if i > 1 {
        let second = h(i, 6) % i;
        links.push(if second == links[0] { (second + 1) % i } else { second });
    }
    Item {
        rank: h(i, 1) % 1000,
        score: (h(i, 2) % 10000) as f64 / 10000.0,
        label: format!("w{:04} w{:04} common", h(i, 3) % 5000, h(i, 4) % 5000),
        group: i % groups(n),
        links,
    }
}

pub(crate) const SCHEMA: &str = r#"UPSERT {
  CONCEPT ?t1 { {type: "$ConceptType", name: "Item"} SET ATTRIBUTES { description: "bench item" } }
  CONCEPT ?t2 { {type: "$ConceptType", name: "Group"} SET ATTRIBUTES { description: "bench group" } }
  CONCEPT ?p1 { {type: "$PropositionType", name: "links_to"} SET ATTRIBUTES { description: "item to item", subject_types: ["Item"], object_types: ["Item"] } }
  CONCEPT ?p2 { {type: "$PropositionType", name: "in_group"} SET ATTRIBUTES { description: "item to group", subject_types: ["Item"], object_types: ["Group"] } }
}"#;

/// One capsule for the items from `lo` to before `hi`.
pub(crate) fn capsule(lo: u64, hi: u64, n: u64) -> String {
    use std::fmt::Write;
    let mut s = String::from("UPSERT {\n");
    for i in lo..hi {
        let it = item(i, n);
        let _ = write!(
            s,
            "  CONCEPT ?c{i} {{\n    {{type: \"Item\", name: \"item_{i:06}\"}}\n    SET ATTRIBUTES {{ rank: {}, score: {:.4}, label: \"{}\", bucket: {} }}\n    SET PROPOSITIONS {{\n      (\"in_group\", {{type: \"Group\", name: \"group_{:05}\"}})\n",
            it.rank,
            it.score,
            it.label,
            i % 100,
            it.group
        );
        for t in &it.links {
            let _ = if *t >= lo {
                writeln!(s, "      (\"links_to\", ?c{t})")
            } else {
                writeln!(s, "      (\"links_to\", {{type: \"Item\", name: \"item_{t:06}\"}})")
            };
        }
        s += "    }\n  }\n";
    }
    s + "}\nWITH METADATA { source: \"bench\", author: \"gen\", confidence: 0.9 }\n"
}

pub(crate) fn group_capsule(lo: u64, hi: u64) -> String {
    let blocks: String = (lo..hi)
        .map(|g| {
            format!("  CONCEPT ?g{g} {{ {{type: \"Group\", name: \"group_{g:05}\"}} SET ATTRIBUTES {{ no: {g} }} }}\n")
        })
        .collect();
    format!("UPSERT {{\n{blocks}}}\nWITH METADATA {{ source: \"bench\" }}\n")
}

pub(crate) fn hub() -> String {
    let links: String =
        (0..10).map(|t| format!("      (\"links_to\", {{type: \"Item\", name: \"item_{t:06}\"}})\n")).collect();
    format!(
        "UPSERT {{\n  CONCEPT ?hub {{\n    {{type: \"Item\", name: \"hub_10\"}}\n    SET ATTRIBUTES {{ rank: 0, score: 0.5, label: \"hub\", bucket: 0 }}\n    SET PROPOSITIONS {{\n{links}    }}\n  }}\n}}\n"
    )
}

/// Every capsule in order, the schema first and the hub last.
pub(crate) fn all(n: u64) -> impl Iterator<Item = String> {
    let g = groups(n);
    let starts = |n: u64| (0..n).step_by(20).map(move |lo| (lo, (lo + 20).min(n)));
    std::iter::once(SCHEMA.to_owned())
        .chain(starts(g).map(|(lo, hi)| group_capsule(lo, hi)))
        .chain(starts(n).map(move |(lo, hi)| capsule(lo, hi, n)))
        .chain(std::iter::once(hub()))
}

pub(crate) struct Query {
    pub(crate) name: &'static str,
    pub(crate) runs: u64,
    pub(crate) text: Box<dyn Fn(u64) -> String>,
}

fn query(name: &'static str, runs: u64, text: impl Fn(u64) -> String + 'static) -> Query {
    Query { name, runs, text: Box::new(text) }
}

pub(crate) fn queries(n: u64) -> Vec<Query> {
    let pick = move |k: u64| n / 2 + h(k, 77) % (n - n / 2);
    vec![
        query("point {type,name}", 2000, move |k| {
            format!("FIND(?x.attributes.rank) WHERE {{ ?x {{type: \"Item\", name: \"item_{:06}\"}} }}", h(k, 78) % n)
        }),
        query("1-hop, degree 10", 1000, |_| {
            "FIND(?y.name) WHERE { ({type: \"Item\", name: \"hub_10\"}, \"links_to\", ?y) }".into()
        }),
        query("path {1,3}", 300, move |k| {
            format!(
                "FIND(?y.name) WHERE {{ ({{type: \"Item\", name: \"item_{:06}\"}}, \"links_to\"{{1,3}}, ?y) }}",
                pick(k)
            )
        }),
        query("type + link + FILTER", 200, move |k| {
            format!(
                "FIND(?x.name, ?x.attributes.rank) WHERE {{ ?x {{type: \"Item\"}} (?x, \"in_group\", {{type: \"Group\", name: \"group_{:05}\"}}) FILTER(?x.attributes.rank < 500) }}",
                h(k, 79) % groups(n)
            )
        }),
        query("2 patterns + FILTER", 200, move |k| {
            format!(
                "FIND(?x.name, ?y.name) WHERE {{ (?x, \"in_group\", {{type: \"Group\", name: \"group_{:05}\"}}) (?x, \"links_to\", ?y) FILTER(?y.attributes.rank < 500) }}",
                h(k, 79) % groups(n)
            )
        }),
        query("FILTER scan", 20, |_| {
            "FIND(?x.name) WHERE { ?x {type: \"Item\"} FILTER(?x.attributes.rank < 10) }".into()
        }),
        query("FILTER scan, no index", 10, |_| {
            "FIND(?x.name) WHERE { ?x {type: \"Item\"} FILTER(CONTAINS(?x.attributes.label, \"w0007\")) }".into()
        }),
        query("ORDER BY + LIMIT 20", 20, |_| {
            "FIND(?x.name, ?x.attributes.score) WHERE { ?x {type: \"Item\"} } ORDER BY ?x.attributes.score DESC LIMIT 20".into()
        }),
        query("COUNT(type)", 20, |_| "FIND(COUNT(?x)) WHERE { ?x {type: \"Item\"} }".into()),
        query("SEARCH rare word", 200, |k| format!("SEARCH CONCEPT \"w{:04}\" LIMIT 10", h(k, 80) % 5000)),
        query("SEARCH word in every node", 100, |_| "SEARCH CONCEPT \"common\" LIMIT 10".into()),
        query("DESCRIBE PRIMER", 100, |_| "DESCRIBE PRIMER".into()),
    ]
}
