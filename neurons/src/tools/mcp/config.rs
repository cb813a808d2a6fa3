//! The configuration of MCP servers.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderName, HeaderValue};

use super::pins::Accept;
use crate::tools::effect::EffectClass;
use crate::tools::spec::Approval;

/// An MCP server in the configuration.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// The address.
    pub at: At,
    /// The maximum number of concurrent calls.
    pub concurrency: usize,
    /// The calls that need an approval, even if the definition of a neuron requires none.
    pub approval: Approval,
    /// `true` if the daemon trusts the server's hints about which tools are read-only.
    pub trusts_hints: bool,
    /// The tools that may be called; `None` allows all.
    pub tools: Option<BTreeSet<String>>,
    /// The definitions of tools that are accepted without an operator.
    pub accept: Accept,
    /// The effect classes of its tools, which take precedence over its hints.
    pub effects: BTreeMap<String, EffectClass>,
}

/// The address of a server.
#[derive(Clone, Debug)]
pub enum At {
    /// A child process with the standard input and output transport.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The complete environment of the process.
        environment: BTreeMap<String, String>,
    },
    /// A URL of the Streamable HTTP transport.
    Url {
        /// The address.
        url: String,
        /// A secret header that is sent with every request.
        secret: Option<(HeaderName, HeaderValue)>,
    },
}
