//! `lifeformd archive` and `import`: a lifeform as a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::client::Client;
use super::lifeforms::{Form, Which, text};
use super::say;
use crate::config::Config;

/// Writes a lifeform to a new file. A file that is cut short by a failure is removed.
pub(super) async fn export(config: Config, which: Which, to: PathBuf) -> anyhow::Result<ExitCode> {
    if to.as_os_str() == "-" {
        bail!("an archive goes to a file: give its path");
    }
    let client = Client::new(&config)?;
    let id = client.lifeform_id(which.lifeform.as_deref()).await?;
    // A mind is its owner's.
    let file = tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to).await;
    let mut file = file.with_context(|| format!("{} cannot be written", to.display()))?;
    let written = async {
        let response = client.get(&format!("/v1/lifeforms/{id}/archive")).await?;
        let mut bytes = response.bytes_stream();
        let mut size = 0;
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.context("the archive broke off")?;
            size += chunk.len();
            file.write_all(&chunk).await?;
        }
        file.sync_all().await?;
        anyhow::Ok(size)
    };
    match written.await {
        Ok(size) => say(&format!("{}: {size} bytes", to.display())),
        Err(error) => {
            let _ = tokio::fs::remove_file(&to).await;
            return Err(error);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports a lifeform from a file. It is stopped until it is started.
pub(super) async fn import(config: Config, from: &Path, form: Form) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let is_file = tokio::fs::metadata(from).await.is_ok_and(|found| found.is_file());
    let opened = tokio::fs::File::open(from).await.ok().filter(|_| is_file);
    let Some(file) = opened else { bail!("{} is no file that can be read", from.display()) };
    let answer = client.send_stream("/v1/lifeforms/import", ReaderStream::new(file)).await?;
    Ok(form.show(&answer, |answer| vec![format!("{} is here: lifeformd start {0}", text(answer, "id"))]))
}
