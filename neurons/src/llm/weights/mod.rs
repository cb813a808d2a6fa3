//! Model weights: their sources, their verification and their place on disk.
//!
//! The manifest pins the SHA-256 of each final file, so any source is acceptable. The hub is tried first. If it cannot
//! be reached, the machine's own `pip` downloads packages that contain the file. Nothing is installed: the needed
//! members are unzipped and the rest is deleted. An interrupted download is resumed.

mod manifest;
mod sources;

use std::io::{ErrorKind, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use manifest::{KNOWN, MINILM, QWEN, SENTENCE_ENCODER, SMOLLM2};

/// A model that can be pulled.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The name.
    pub name: &'static str,
    /// The author and the licence.
    pub licence: &'static str,
    /// The task.
    pub task: Task,
    /// `true` for a language model that cannot plan or choose tools well; prompts for it are short, and code decides more.
    pub small: bool,
    /// The letters that an embedding model knows; empty for a language model.
    pub letters: &'static [RangeInclusive<char>],
    /// `false` if the hash comes from published lists, and nobody has tried the download with this version of the daemon.
    pub tried: bool,
    /// The files.
    pub files: &'static [File],
}

/// The task of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Chat.
    Chat,
    /// Embeddings of texts.
    Embeddings,
}

/// One file of a model.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The name in the cache.
    pub name: &'static str,
    /// The SHA-256 of the file, in hexadecimal.
    pub sha256: &'static str,
    /// The length in bytes.
    pub bytes: u64,
    /// The location on the hub: repository, revision and path; empty if no hub has the file.
    pub hub: &'static str,
    /// The packages that contain the file, each with its version and member. Several members are concatenated.
    pub packages: &'static [(&'static str, &'static str)],
}

/// The locations where weights are searched.
#[derive(Clone, Debug)]
pub struct Places {
    /// The cache folder.
    pub cache: PathBuf,
    /// `true` if the network must not be used.
    pub offline: bool,
    /// The base address of the hub; if empty, no hub is used.
    pub hub: String,
}

/// The progress of a pull, for display.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A request to a source was sent.
    Asking(String),
    /// The number of bytes downloaded, and the total number of bytes.
    Bytes(u64, u64),
    /// The file is being verified or converted.
    Working(&'static str),
}

/// The callback that receives the progress of a pull.
pub type Watch<'w> = &'w (dyn Fn(Progress) + Send + Sync);

/// The reason why the weights are not available.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The weights are not in the cache, and the daemon is offline.
    #[error(
        "the weights of {0} are not in {1} and this daemon is offline: run `lifeformd models pull {0}` where there is a network, or copy the file there"
    )]
    Offline(&'static str, PathBuf),
    /// The file exists but has a wrong hash.
    #[error("{path} is damaged (SHA-256 {found}, expected {expected}): remove it and run `lifeformd models pull`")]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The hash of the file.
        found: String,
        /// The expected hash.
        expected: String,
    },
    /// All sources failed.
    #[error("no source has {name}:\n{tried}")]
    NoSource {
        /// The file.
        name: &'static str,
        /// The failures, one line per source.
        tried: String,
    },
    /// Another process is pulling the weights.
    #[error("the weights of {0} are being pulled by somebody else right now")]
    InUse(&'static str),
    /// An I/O operation failed.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file could not be converted.
    #[error("the weights cannot be converted: {0}")]
    Convert(String),
}

/// The lock file in a model's folder.
const LOCK: &str = "lock";

/// The state of a model in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// At least one file is missing.
    Absent,
    /// All files are present.
    Pulled,
}

impl Weights {
    /// Returns the model with that name.
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.into_iter().find(|weights| weights.name == name)
    }

    /// Returns `true` if an embedding model knows most of the letters of a text.
    pub fn reads(&self, text: &str) -> bool {
        let letters = text.chars().filter(|c| c.is_alphabetic());
        let knows = |c: char| self.letters.iter().any(|range| range.contains(&c));
        let (known, all) = letters.fold((0, 0), |(known, all), c| (known + usize::from(knows(c)), all + 1));
        2 * known >= all
    }

    /// Returns the number of bytes to pull.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the state in the cache, without reading the files.
    pub fn kept(&self, places: &Places) -> Kept {
        let here = self.files.iter().all(|file| file.path(places).exists() || file.is_runnable(places));
        if here { Kept::Pulled } else { Kept::Absent }
    }

    /// Ensures that all files are present and have the pinned hashes. Returns their paths.
    ///
    /// # Errors
    /// Returns a [`WeightsError`] that lists the failed sources and the remedy.
    pub async fn pull(&self, places: &Places, watch: Watch<'_>) -> Result<Vec<PathBuf>, WeightsError> {
        let mut paths = Vec::new();
        for file in self.files {
            paths.push(file.pull(self.name, places, watch).await?);
        }
        let _ = sources::drop_packages(self, places);
        Ok(paths)
    }

    /// Ensures that the files that the engine loads are present: the pulled files, and for a GGUF file its conversion
    /// to Q8_0.
    ///
    /// # Errors
    /// Returns the errors of [`Weights::pull`], or an error of the conversion.
    #[cfg(feature = "embedded")]
    pub async fn prepare(&self, places: &Places, watch: Watch<'_>) -> Result<Vec<PathBuf>, WeightsError> {
        let mut paths = Vec::new();
        for file in self.files {
            paths.push(match file.name.ends_with(".gguf") {
                true => file.prepare(self.name, places, watch).await?,
                false => file.pull(self.name, places, watch).await?,
            });
        }
        let _ = sources::drop_packages(self, places);
        Ok(paths)
    }

    /// Reads all cached files of the model and checks their hashes.
    ///
    /// # Errors
    /// Returns [`WeightsError::Damaged`] for the first file with a wrong hash, and [`WeightsError::Io`] for a missing
    /// file.
    pub fn verify(&self, places: &Places) -> Result<(), WeightsError> {
        self.files.iter().try_for_each(|file| {
            let (pulled, runnable) = (file.path(places), file.runnable(places));
            if file.is_runnable(places) {
                file.verify_runnable(&runnable)?;
            }
            if pulled.exists() || !file.is_runnable(places) { file.verify(&pulled) } else { Ok(()) }
        })
    }

    /// Removes all cached files of the model, including partial downloads. Returns the number of bytes freed.
    ///
    /// # Errors
    /// Returns [`WeightsError::Io`].
    pub fn remove(&self, places: &Places) -> Result<u64, WeightsError> {
        let mut freed = 0;
        for file in self.files {
            let folder = file.folder(places);
            let lock = std::fs::File::open(folder.join(LOCK)).ok();
            if lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
                return Err(WeightsError::InUse(self.name));
            }
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(WeightsError::Io(folder, error)),
            };
            freed += entries.filter_map(Result::ok).filter_map(|entry| Some(entry.metadata().ok()?.len())).sum::<u64>();
            std::fs::remove_dir_all(&folder).map_err(|error| WeightsError::Io(folder.clone(), error))?;
        }
        Ok(freed + sources::drop_packages(self, places))
    }
}

impl File {
    fn folder(&self, places: &Places) -> PathBuf {
        places.cache.join(self.sha256)
    }

    /// Returns the path of the pulled file.
    pub fn path(&self, places: &Places) -> PathBuf {
        self.folder(places).join(self.name)
    }

    /// Returns the path of the converted file that the engine loads, if this file needs a conversion.
    fn runnable(&self, places: &Places) -> PathBuf {
        self.path(places).with_extension("q8_0.gguf")
    }

    async fn pull(&self, model: &'static str, places: &Places, watch: Watch<'_>) -> Result<PathBuf, WeightsError> {
        let _lock = self.lock(model, places).await?;
        self.pull_locked(model, places, watch).await
    }

    async fn pull_locked(
        &self,
        model: &'static str,
        places: &Places,
        watch: Watch<'_>,
    ) -> Result<PathBuf, WeightsError> {
        let path = self.path(places);
        if path.exists() {
            watch(Progress::Working("checking"));
            return self.verify(&path).map(|()| path);
        }
        if places.offline {
            return Err(WeightsError::Offline(model, path));
        }
        self.fetch(&path, places, watch).await.map(|()| path)
    }

    #[cfg(feature = "embedded")]
    async fn prepare(&self, model: &'static str, places: &Places, watch: Watch<'_>) -> Result<PathBuf, WeightsError> {
        let _lock = self.lock(model, places).await?;
        let runnable = self.runnable(places);
        if self.is_runnable(places) && self.verify_runnable(&runnable).is_ok() {
            return Ok(runnable);
        }
        // The file was not converted yet, or the converted file is damaged.
        let pulled = self.pull_locked(model, places, watch).await?;
        watch(Progress::Working("converting to Q8_0"));
        let target = runnable.clone();
        let converted = tokio::task::spawn_blocking(move || super::embedded::requantize(&pulled, &target)).await;
        converted
            .map_err(|panic| WeightsError::Convert(panic.to_string()))?
            .map_err(|error| WeightsError::Convert(error.to_string()))?;
        let (seal, part) = (runnable.with_extension("sha256"), runnable.with_extension("sha256.part"));
        let written = std::fs::write(&part, hash_of(&runnable)?).and_then(|()| std::fs::rename(&part, &seal));
        written.map_err(|error| WeightsError::Io(seal, error))?;
        Ok(runnable)
    }

    /// Returns `true` if the converted file exists together with its hash file, which marks it as complete.
    fn is_runnable(&self, places: &Places) -> bool {
        let runnable = self.runnable(places);
        runnable.exists() && runnable.with_extension("sha256").exists()
    }

    /// Acquires the lock of a model's folder. If two daemons start at once, the second finds the files of the first.
    async fn lock(&self, model: &'static str, places: &Places) -> Result<Option<std::fs::File>, WeightsError> {
        let folder = self.folder(places);
        if places.offline && !folder.exists() {
            return Err(WeightsError::Offline(model, self.path(places)));
        }
        let io = |error| WeightsError::Io(folder.clone(), error);
        std::fs::create_dir_all(&folder).map_err(io)?;
        let lock = match std::fs::File::create(folder.join(LOCK)) {
            Ok(lock) => lock,
            // A read-only cache needs no lock, because no process changes it.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                return Ok(None);
            }
            Err(error) => return Err(io(error)),
        };
        let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
        locked.map_err(|panic| WeightsError::Convert(panic.to_string()))?.map_err(io).map(Some)
    }

    /// Checks the file at `path` against the pinned hash.
    fn verify(&self, path: &Path) -> Result<(), WeightsError> {
        Self::expect(path, self.sha256)
    }

    /// Checks a converted file against the hash that the conversion stored; only pulled files have a pinned hash.
    fn verify_runnable(&self, path: &Path) -> Result<(), WeightsError> {
        let seal = path.with_extension("sha256");
        let expected = std::fs::read_to_string(&seal).map_err(|error| WeightsError::Io(seal, error))?;
        Self::expect(path, expected.trim())
    }

    fn expect(path: &Path, expected: &str) -> Result<(), WeightsError> {
        let found = hash_of(path)?;
        if found == expected {
            return Ok(());
        }
        Err(WeightsError::Damaged { path: path.to_path_buf(), found, expected: expected.to_owned() })
    }
}

fn hash_of(path: &Path) -> Result<String, WeightsError> {
    let mut hash = Sha256::new();
    take_up(path, &mut hash).map_err(|error| WeightsError::Io(path.to_path_buf(), error))?;
    Ok(hex(&hash.finalize()))
}

/// Adds a file to a hash and returns the length of the file.
fn take_up(path: &Path, hash: &mut Sha256) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    let (mut buffer, mut length) = (vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(length),
            n => {
                hash.update(&buffer[..n]);
                length += n as u64;
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
