//! `[tools]`: the hosts that HTTP tools may reach, the MCP servers, and the named tools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use neurons::spec::{Approval, check_id};
use neurons::tools::{Accept, At, EffectClass, Host as AllowedHost, McpServer, NamedTool, Reach, ToolId};
use serde::Deserialize;

use super::secret;

/// The environment variables that every server receives.
const ENVIRONMENT: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "USER"];

/// The reach of tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// The hosts that HTTP tools may reach, such as `api.example.com` or `127.0.0.1:8080`.
    #[serde(default)]
    pub hosts: BTreeMap<String, Host>,
    /// The MCP servers by name.
    #[serde(default)]
    pub servers: BTreeMap<Arc<str>, Server>,
    /// The named tools by id.
    #[serde(default)]
    pub named: BTreeMap<ToolId, NamedTool>,
}

/// A host that HTTP tools may reach.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The environment variable with the secret for this host.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The file with the secret for this host.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The header for the secret (default: `authorization: Bearer …`).
    #[serde(default)]
    pub header: Option<String>,
    /// `true` if connections without TLS are allowed.
    #[serde(default)]
    pub plain: bool,
    /// `true` if private addresses are allowed.
    #[serde(default)]
    pub private: bool,
    /// The maximum number of concurrent requests.
    #[serde(default = "sixteen")]
    pub concurrency: usize,
}

fn sixteen() -> usize {
    16
}

/// An MCP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The program to start, with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// The environment variables for the program, by value.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The environment variables of the daemon that the program receives.
    #[serde(default)]
    pub pass: Vec<String>,
    /// The URL of the server, instead of a program.
    #[serde(default)]
    pub url: Option<String>,
    /// The environment variable with the secret for this server.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The file with the secret for this server.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The header for the secret (default: `authorization: Bearer …`).
    #[serde(default)]
    pub header: Option<String>,
    /// The maximum number of concurrent calls.
    #[serde(default = "sixteen")]
    pub concurrency: usize,
    /// The calls that need an approval, independently of the neuron's definition.
    #[serde(default = "on_write")]
    pub approval: Approval,
    /// `true` if the server's hints about read-only tools are trusted.
    #[serde(default)]
    pub trusts_hints: bool,
    /// The allowed tools; all if absent.
    #[serde(default)]
    pub tools: Option<BTreeSet<String>>,
    /// The definitions of tools that are accepted without an operator: the `first` of each tool (the default), or none (`ask`).
    #[serde(default)]
    pub accept: Accept,
    /// The effect classes of its tools, which take precedence over its hints.
    #[serde(default)]
    pub effects: BTreeMap<String, EffectClass>,
}

fn on_write() -> Approval {
    Approval::OnWrite
}

impl Tools {
    pub(super) fn reach(&self) -> anyhow::Result<Reach> {
        let mut reach = Reach::default();
        for (name, host) in &self.hosts {
            if name.contains('/') || name.is_empty() {
                bail!("tools.hosts.\"{name}\": a host is a name or an address, with a port or without, and no path");
            }
            let secret = secret(&host.key_env, &host.key_file, &host.header)
                .with_context(|| format!("tools.hosts.\"{name}\""))?;
            let Host { plain, private, concurrency, .. } = *host;
            at_once(concurrency).with_context(|| format!("tools.hosts.\"{name}\""))?;
            reach.hosts.insert(name.clone(), AllowedHost { secret, plain, private, concurrency });
        }
        for (name, server) in &self.servers {
            let place = || format!("tools.servers.{name}");
            check_id(name).map_err(anyhow::Error::msg).with_context(place)?;
            at_once(server.concurrency).with_context(place)?;
            let at = server.at().with_context(place)?;
            let Server { concurrency, approval, trusts_hints, tools, accept, effects, .. } = server.clone();
            let server = McpServer { at, concurrency, approval, trusts_hints, tools, accept, effects };
            reach.servers.insert(name.clone(), server);
        }
        for (id, tool) in &self.named {
            let checked = tool.clone().named(id).map_err(anyhow::Error::msg);
            reach.named.insert(id.clone(), checked.with_context(|| format!("tools.named.{id}"))?);
        }
        for (id, tool) in super::TOOLS {
            let tool: NamedTool = toml::from_str(tool).with_context(|| format!("the shipped tool {id}"))?;
            let checked = tool.named(id).map_err(anyhow::Error::msg);
            reach.shipped.insert(id.into(), checked.with_context(|| format!("the shipped tool {id}"))?);
        }
        Ok(reach)
    }
}

fn at_once(concurrency: usize) -> anyhow::Result<()> {
    if (1..=1_024).contains(&concurrency) { Ok(()) } else { bail!("concurrency is 1 to 1024") }
}

impl Server {
    fn at(&self) -> anyhow::Result<At> {
        match (&self.url, self.command.is_empty()) {
            (Some(url), true) => {
                if !self.environment.is_empty() || !self.pass.is_empty() {
                    bail!("environment and pass are of a command");
                }
                let secret = secret(&self.key_env, &self.key_file, &self.header)?;
                Ok(At::Url { url: url.clone(), secret })
            }
            (None, false) => {
                if self.key_env.is_some() || self.key_file.is_some() || self.header.is_some() {
                    bail!("key_env, key_file and header are of a url; a command is given secrets by pass");
                }
                let kept = ENVIRONMENT.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
                let mut environment: BTreeMap<String, String> = kept.collect();
                environment.extend(self.environment.clone());
                for name in &self.pass {
                    let value = std::env::var(name).with_context(|| format!("the environment has no {name}"))?;
                    environment.insert(name.clone(), value);
                }
                Ok(At::Command { command: self.command.clone(), environment })
            }
            _ => bail!("a server has either a command or a url"),
        }
    }
}
