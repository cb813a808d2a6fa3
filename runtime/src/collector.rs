//! Sends the spans of a lifeform's jobs to an OpenTelemetry collector when each job ends: OTLP over HTTP in its JSON
//! encoding, to `/v1/traces`.
//!
//! No work waits for the collector. Spans are dropped if the collector does not accept them within a minute, or if too
//! many wait. The journal keeps everything, and `GET /v1/lifeforms/{id}/trace?format=otlp` returns it as long as the
//! journal does.

use std::time::Duration;

use anyhow::{Context, bail};
use fascicles::Ended;
use http::header::RETRY_AFTER;
use lifeform::{LifeformError, LifeformId, Lifeforms};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::config::Telemetry;
use crate::otlp;

/// The maximum number of jobs in one request.
const JOBS_AT_ONCE: usize = 64;
/// The timeout of one request.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The time limit for all attempts of a request, and the pause before the second attempt, which then doubles.
const TRIED_FOR: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The exporter of spans.
pub(crate) struct Collector {
    client: Client,
    url: Url,
}

/// The path for spans at a collector.
const TRACES: &str = "/v1/traces";

impl Collector {
    /// Returns the configured collector; `None` if there is none.
    ///
    /// # Errors
    /// If its secret is missing from the configured place.
    pub(crate) fn new(config: &Telemetry) -> anyhow::Result<Option<Self>> {
        if config.collector.is_empty() {
            return Ok(None);
        }
        let headers = config.secret().context("telemetry")?.into_iter().collect();
        // Spans and the secret must go only to the configured address, so redirects and proxies are off.
        let client = Client::builder().redirect(Policy::none()).no_proxy().timeout(ANSWER_MAX).default_headers(headers);
        let client = client.build()?;
        let named = || format!("telemetry.collector \"{}\"", config.collector);
        let mut url: Url = config.collector.parse().with_context(|| format!("{} is no URL", named()))?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.has_host() && url.port() != Some(0);
        if !is_web || url.query().is_some() || url.fragment().is_some() {
            bail!("{} is not as http://127.0.0.1:4318: http or https, a host, and no ? or #", named());
        }
        let path = url.path().trim_end_matches('/').trim_end_matches(TRACES).to_owned();
        url.set_path(&format!("{path}{TRACES}"));
        Ok(Some(Self { client, url }))
    }

    /// Sends the spans of each ended job, until the channel closes.
    pub(crate) async fn run(self, lifeforms: Lifeforms, mut ended: Receiver<Ended>) {
        loop {
            let first = match ended.recv().await {
                Ok(job) => job,
                Err(RecvError::Lagged(jobs)) => {
                    warn!(jobs, "more ended than the collector takes: it is not told of these");
                    continue;
                }
                Err(RecvError::Closed) => return,
            };
            let more = std::iter::from_fn(|| ended.try_recv().ok()).take(JOBS_AT_ONCE - 1);
            let mut spans = Vec::new();
            for job in std::iter::once(first).chain(more) {
                match of_job(&lifeforms, &job).await {
                    Ok(of_job) => spans.extend(of_job),
                    Err(error) => warn!(job = %job.job, %error, "the collector is not told of a job"),
                }
            }
            if !spans.is_empty()
                && let Err(why) = self.send(&json!({"resourceSpans": spans})).await
            {
                warn!(%why, jobs = spans.len(), "the collector is not told of these");
            }
        }
    }

    /// Sends a request until it is accepted, refused, or too old.
    async fn send(&self, request: &Value) -> Result<(), String> {
        let (until, mut wait) = (Instant::now() + TRIED_FOR, FIRST_WAIT);
        loop {
            let (why, retry_after) = match self.client.post(self.url.clone()).json(request).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) if !may_be_tried_again(answer.status().as_u16()) => return Err(answer.status().to_string()),
                Ok(answer) => (answer.status().to_string(), told_to_wait(&answer)),
                Err(error) => (error.without_url().to_string(), None),
            };
            let pause = retry_after.map_or(wait, |retry_after| retry_after.clamp(wait, TRIED_FOR));
            if Instant::now() + pause > until {
                return Err(why);
            }
            sleep(pause).await;
            wait *= 2;
        }
    }
}

/// Returns the spans of a job; none if no lifeform owns it.
async fn of_job(lifeforms: &Lifeforms, Ended { job, owner }: &Ended) -> Result<Vec<Value>, LifeformError> {
    let Some(lifeform) = owner.strip_prefix("lifeform:").map(LifeformId::from) else { return Ok(Vec::new()) };
    let walk = match lifeforms.effects(&lifeform, &format!("job:{job}")).await {
        Ok(walk) => walk,
        Err(LifeformError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    if walk.as_ref().is_some_and(|walk| walk.more) {
        warn!(%job, "the collector is not told all of a job, which is long");
    }
    let spans = walk.map(|walk| otlp::export(&lifeform, &walk, false)["resourceSpans"].take());
    Ok(spans.as_ref().and_then(Value::as_array).cloned().unwrap_or_default())
}

/// Returns `true` for a status that OTLP defines as retryable.
fn may_be_tried_again(status: u16) -> bool {
    matches!(status, 429 | 502 | 503 | 504)
}

fn told_to_wait(answer: &Response) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_of(collector: &str) -> Result<String, String> {
        let config = Telemetry { collector: collector.into(), key_env: None, key_file: None, header: None };
        let made = Collector::new(&config).map_err(|error| format!("{error:#}"))?;
        Ok(made.map_or_else(String::new, |made| made.url.to_string()))
    }

    #[test]
    fn a_collector_url_may_include_or_omit_the_traces_path() {
        for (named, at) in [
            ("", ""),
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://c.example.com/otlp/", "https://c.example.com/otlp/v1/traces"),
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
        ] {
            assert_eq!(url_of(named).as_deref(), Ok(at), "{named}");
        }
        let wrong = [
            "ftp://a/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http://",
            "http://a:0",
            "http://a/?x=1",
            "http://a/#f",
            "a",
        ];
        for wrong in wrong {
            assert!(url_of(wrong).is_err_and(|why| why.contains(wrong)), "{wrong}");
        }
    }
}
