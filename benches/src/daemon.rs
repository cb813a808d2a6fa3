//! Processes under measurement.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The operator's token of every daemon here.
pub(crate) const TOKEN: &str = "lfd_the_token_of_the_benches";

/// A process that serves.
pub(crate) struct Process {
    child: Child,
    /// `http://host:port`
    pub(crate) base: String,
    /// When it was started.
    pub(crate) started: Instant,
}

impl Process {
    /// This program in another role.
    pub(crate) fn floor(arguments: &[&str]) -> Self {
        let started = Instant::now();
        let mut child =
            Command::new(std::env::current_exe().unwrap()).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix("serving ").map(str::to_owned)).unwrap();
        Self { child, base: format!("http://{address}"), started }
    }

    /// The daemon on `data`, with settings in the environment.
    pub(crate) async fn daemon(binary: &str, data: &Path, port: u16, settings: &[(&str, &str)]) -> Self {
        let started = Instant::now();
        let mut command = Command::new(binary);
        command.arg("up").arg("--data").arg(data).arg("--listen").arg(format!("127.0.0.1:{port}"));
        let log = std::env::var("LIFEFORMD_LOG").unwrap_or_else(|_| "warn".into());
        command.env("LIFEFORMD_TOKEN", TOKEN).env("LIFEFORMD_LOG", log).envs(settings.iter().copied());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let process = Self { child, base: format!("http://127.0.0.1:{port}"), started };
        while reqwest::get(format!("{}/health", process.base)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        process
    }

    /// Ends it well, and waits until it has.
    pub(crate) fn stop(mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }

    /// Seconds of processor time it has used.
    pub(crate) fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    /// MiB of memory it holds.
    pub(crate) fn rss_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    /// POST with the operator's token.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let request = reqwest::Client::new().post(format!("{}{path}", self.base)).bearer_auth(TOKEN).json(&body);
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    /// GET with the operator's token.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let request = reqwest::Client::new().get(format!("{}{path}", self.base)).bearer_auth(TOKEN);
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub(crate) fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
