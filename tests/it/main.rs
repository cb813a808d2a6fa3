//! The claims of this repository, tested through its public doors: one folder a subject, one file a behaviour.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails there and says so")]

mod canvas {
    pub(crate) mod co_author;
    pub(crate) mod gates;
    pub(crate) mod mind_maps;
    pub(crate) mod protocol;
    pub(crate) mod subscribers;
}
mod crash {
    pub(crate) mod crashes;
    pub(crate) mod effects;
    pub(crate) mod faults;
    mod forming;
    pub(crate) mod goals;
    pub(crate) mod killed;
    pub(crate) mod power;
    mod restored;
}
mod fascicles {
    pub(crate) mod actors;
    mod assembled;
    pub(crate) mod jobs;
    pub(crate) mod patience;
    pub(crate) mod storms;
}
mod http {
    pub(crate) mod collector;
    pub(crate) mod doors;
    pub(crate) mod edge;
    mod events;
    pub(crate) mod fair;
    pub(crate) mod matrix;
    mod memory;
    pub(crate) mod paging;
    pub(crate) mod rights;
}
mod kip {
    pub(crate) mod commands;
    pub(crate) mod conformance;
}
mod knowledge {
    pub(crate) mod contracts;
    pub(crate) mod exchange;
    pub(crate) mod knowing;
    pub(crate) mod records;
    pub(crate) mod resources;
    pub(crate) mod searches;
    pub(crate) mod units;
}
mod lifeform {
    mod acting;
    mod acting_week;
    pub(crate) mod adversarial;
    mod approving_plans;
    pub(crate) mod archive;
    pub(crate) mod audience;
    mod choosing_tools;
    pub(crate) mod compaction;
    mod describing;
    pub(crate) mod dialogue;
    mod egress;
    mod excerpts;
    mod filing;
    mod findings;
    mod given_tools;
    pub(crate) mod goals;
    pub(crate) mod guard;
    pub(crate) mod homeostasis;
    pub(crate) mod identity;
    pub(crate) mod knowing;
    mod lasting;
    pub(crate) mod lifecycle;
    mod maps;
    mod materials;
    mod meetings;
    pub(crate) mod memory;
    mod merging;
    pub(crate) mod metabolism;
    pub(crate) mod mind;
    mod month;
    pub(crate) mod nights;
    mod people;
    mod perceiving;
    pub(crate) mod privacy;
    pub(crate) mod provenance;
    mod questions;
    pub(crate) mod reminders;
    mod server_forms;
    pub(crate) mod situation;
    mod supplements;
    pub(crate) mod trip;
    pub(crate) mod trust;
    mod unread;
    pub(crate) mod voices;
    pub(crate) mod week;
    mod weighing;
}
mod mcp {
    pub(crate) mod server;
}
mod neurons {
    pub(crate) mod budget;
    pub(crate) mod computing;
    pub(crate) mod definitions;
    pub(crate) mod embedded;
    pub(crate) mod holds;
    pub(crate) mod invocations;
    pub(crate) mod kinds;
    pub(crate) mod local_servers;
    mod mcp_servers;
    mod named_tools;
    mod pins;
    pub(crate) mod providers;
    pub(crate) mod tool_rules;
    pub(crate) mod tools;
    pub(crate) mod weights;
}
mod nexus {
    pub(crate) mod commons;
    pub(crate) mod meaning;
    pub(crate) mod minds;
    pub(crate) mod provenance;
    pub(crate) mod scopes;
    pub(crate) mod shelves;
}
mod openai {
    pub(crate) mod completions;
}
mod perf {
    pub(crate) mod soak;
}
mod store {
    pub(crate) mod checkpoints;
    pub(crate) mod damage;
    pub(crate) mod earlier;
    pub(crate) mod growth;
    pub(crate) mod suite;
}
mod tidy;
