//! `[telemetry]`: the collector of lifeforms' spans.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::secret;

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The base URL, without `/v1/traces`; empty means none.
    pub collector: String,
    /// The environment variable with the secret for the collector.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The file with the secret for the collector.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The header for the secret (default: `authorization: Bearer …`).
    #[serde(default)]
    pub header: Option<String>,
}

impl Telemetry {
    pub(crate) fn secret(&self) -> anyhow::Result<Option<(HeaderName, HeaderValue)>> {
        secret(&self.key_env, &self.key_file, &self.header)
    }
}
