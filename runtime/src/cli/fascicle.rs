//! `lifeformd fascicle`: checks and draws definitions in files, without a daemon.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use fascicles::{FascicleId, FascicleSpec, Faults, Graph, Plan};

use super::say;
use crate::daemon::shipped_fascicles;
use crate::default_toolbox;

/// The commands on definitions in files.
#[derive(Subcommand)]
pub(super) enum Fascicle {
    /// Checks definitions (TOML or JSON). Reports each fault with its place and a fix.
    Check {
        /// The files. They may reference each other and shipped definitions.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Draws a definition as text.
    Draw {
        /// A file, or the id of a shipped fascicle. For a stored one, use GET /v1/fascicles/{id}/drawing.
        fascicle: String,
        /// The format: for Mermaid, or for Graphviz.
        #[arg(long, value_enum, default_value = "mermaid")]
        format: Format,
    },
    /// Prints the JSON Schema of a definition.
    Schema,
}

/// The format of a drawing.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read, or a definition has faults.
pub(super) fn run(command: Fascicle) -> anyhow::Result<()> {
    match command {
        Fascicle::Check { files } => check(&files),
        Fascicle::Draw { fascicle, format } => {
            let shipped = shipped_fascicles()?.into_iter().find(|spec| *spec.id == *fascicle);
            let spec = match shipped.filter(|_| !Path::new(&fascicle).exists()) {
                Some(spec) => spec,
                None => read(Path::new(&fascicle))?,
            };
            let drawing = match format {
                Format::Mermaid => fascicles::mermaid(&spec),
                Format::Dot => fascicles::dot(&spec),
            };
            say(drawing.trim_end());
            Ok(())
        }
        Fascicle::Schema => {
            say(&serde_json::to_string_pretty(&fascicles::schema())?);
            Ok(())
        }
    }
}

fn read(path: &Path) -> anyhow::Result<FascicleSpec> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    fascicles::read(&text).map_err(|fault| anyhow::anyhow!("{}: {fault}", path.display()))
}

fn check(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut known: BTreeMap<FascicleId, FascicleSpec> =
        shipped_fascicles()?.into_iter().map(|spec| (spec.id.clone(), spec)).collect();
    let mut bad = 0;
    let mut read_well = Vec::new();
    for path in files {
        match read(path) {
            Ok(spec) => {
                known.insert(spec.id.clone(), spec.clone());
                read_well.push((path, spec));
            }
            Err(error) => {
                say(&format!("{error:#}"));
                bad += 1;
            }
        }
    }
    for (path, root) in read_well {
        let plan = Plan { root, fascicles: known.clone(), ..Plan::default() };
        match Graph::build(&plan, Some(&default_toolbox::tools())) {
            Ok(_) => say(&format!("{}: good", path.display())),
            // Only the daemon knows stored neurons.
            Err(Faults(faults)) if faults.iter().all(|fault| fault.reason.starts_with("there is no neuron")) => {
                say(&format!(
                    "{}: good, as far as can be told without the daemon that has its neurons",
                    path.display()
                ));
                faults.iter().for_each(|fault| say(&format!("  {}: {}", fault.path, fault.reason)));
            }
            Err(Faults(faults)) => {
                bad += 1;
                say(&format!("{}: {} fault(s)", path.display(), faults.len()));
                for fault in faults {
                    say(&format!("  {}\n    {}\n    → {}", fault.path, fault.reason, fault.cure));
                }
            }
        }
    }
    if bad > 0 { bail!("{bad} of {} definitions cannot run", files.len()) } else { Ok(()) }
}
