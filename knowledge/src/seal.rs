//! Encryption of secrets at rest (MISSION H4) with XChaCha20-Poly1305. Each secret uses a key of its owner, derived
//! from the key ring, and is bound to its row, its owner and a random seal name. A secret that is moved to another
//! place, or restored from an earlier state, therefore does not open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use rand::RngExt;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use store::{Hash, Kind, Store, StoreError};

/// The constant part of the binding of every sealed body.
const BINDING: &str = "lifeformd/secure_body/v1";

/// The reason why a body cannot be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key that sealed the body is not in the key ring.
    #[error("the key {0} is not in the key ring")]
    NoKey(String),
    /// The body was modified or moved.
    #[error("the sealed body does not open: it was changed, or put where it does not belong")]
    Broken,
    /// The key ring cannot be read or written.
    #[error("the key ring {0}")]
    Ring(String),
}

/// The place that a sealed body is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    pub(crate) row: &'p str,
    pub(crate) owner: &'p str,
    /// The random name of the seal, new for each sealing.
    pub(crate) seal: &'p str,
}

impl Place<'_> {
    fn binding(self, kid: &str) -> Vec<u8> {
        // Each part is encoded with its length, so no two places have the same encoding.
        let parts = [BINDING, self.row, self.owner, self.seal, kid];
        parts.iter().flat_map(|part| format!("{}:{part}|", part.len()).into_bytes()).collect()
    }
}

/// A sealed body as stored. It names its key and reveals nothing of its content.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sealed {
    alg: String,
    pub(crate) kid: String,
    nonce: String,
    ct: String,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[sealed]")
    }
}

pub(crate) type Master = Zeroizing<[u8; 32]>;

#[derive(Default)]
struct Keys {
    /// The name of the key that seals. The other keys only open.
    current: String,
    by_name: BTreeMap<String, Master>,
}

/// The key ring. The newest key seals, and all keys open.
#[derive(Clone, Default)]
pub struct KeyRing {
    keys: Arc<RwLock<Keys>>,
    file: Option<PathBuf>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[keys]")
    }
}

impl KeyRing {
    /// Opens a key ring file. Each line has a name, a key of 32 bytes in base64, and a check of both, the newest last. If
    /// the file does not exist, it is created with one key, unless `something_is_sealed`. A file that others may read is refused.
    ///
    /// # Errors
    /// Returns [`SealError::Ring`].
    pub fn open(file: &Path, something_is_sealed: bool) -> Result<Self, SealError> {
        if let Some(ring) = Self::read(file)? {
            return Ok(ring);
        }
        let wrong = |what: String| SealError::Ring(format!("{} {what}", file.display()));
        if something_is_sealed {
            return Err(wrong("is missing, and something is sealed with a key of it".to_owned()));
        }
        if let Some(folder) = file.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .and_then(|()| folder.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all()))
                .map_err(|error| wrong(format!("cannot be made: {error}")))?;
        }
        let ring = Self { keys: Arc::default(), file: Some(file.to_owned()) };
        ring.add_key()?;
        Ok(ring)
    }

    /// Reads a key ring file, if it exists.
    ///
    /// # Errors
    /// Returns [`SealError::Ring`].
    pub fn read(file: &Path) -> Result<Option<Self>, SealError> {
        let wrong = |what: String| SealError::Ring(format!("{} {what}", file.display()));
        if !file.exists() {
            return Ok(None);
        }
        let mode =
            std::fs::metadata(file).map_err(|error| wrong(format!("cannot be read: {error}")))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(wrong(format!("may be read by others (mode {:o}): chmod 600 it", mode & 0o777)));
        }
        let text =
            Zeroizing::new(std::fs::read_to_string(file).map_err(|error| wrong(format!("cannot be read: {error}")))?);
        let mut keys = Keys::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let parsed = words.next().zip(words.next()).and_then(|(name, key)| {
                let bytes = Zeroizing::new(BASE64_STANDARD_NO_PAD.decode(key).ok()?);
                Some((name.to_owned(), Master::new(bytes.as_slice().try_into().ok()?)))
            });
            let (name, key) = parsed.ok_or_else(|| wrong(format!("has no `name key` in line {}", at + 1)))?;
            // Lines of version 0.1.0 have no check.
            if words.next().is_some_and(|check| check != check_of(&name, &key)) {
                return Err(wrong(format!(
                    "is damaged: the key {name} in line {} is not the one that was written",
                    at + 1
                )));
            }
            keys.current.clone_from(&name);
            if keys.by_name.insert(name, key).is_some() {
                return Err(wrong(format!("names a key twice, in line {}", at + 1)));
            }
        }
        if keys.by_name.is_empty() {
            return Err(wrong("has no key in it".into()));
        }
        Ok(Some(Self { keys: Arc::new(RwLock::new(keys)), file: Some(file.to_owned()) }))
    }

    /// Adds a key that seals from now on, and returns its name. Bodies sealed with other keys still open.
    ///
    /// # Errors
    /// Returns [`SealError::Ring`] if the file cannot be written; the ring is then unchanged.
    pub fn add_key(&self) -> Result<String, SealError> {
        let key: Master = Zeroizing::new(rand::rng().random());
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // A key that exists only in memory would be lost, together with the secrets that it sealed.
        let file = self.file.as_ref().ok_or_else(|| SealError::Ring("is not there to be written".to_owned()))?;
        // The name of a new key must be unique, even among other key rings.
        let numbers =
            keys.by_name.keys().filter_map(|name| name.strip_prefix('k')?.split('-').next()?.parse::<u64>().ok());
        let name = format!("k{}-{}", numbers.max().unwrap_or(0) + 1, crate::write::random());
        let check = check_of(&name, &key);
        let line = Zeroizing::new(format!("{name} {} {check}\n", BASE64_STANDARD_NO_PAD.encode(key.as_slice())));
        append(file, &line)
            .map_err(|error| SealError::Ring(format!("{} cannot be written: {error}", file.display())))?;
        keys.current.clone_from(&name);
        keys.by_name.insert(name.clone(), key);
        Ok(name)
    }

    /// Returns the name of the key that seals.
    pub fn current(&self) -> String {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).current.clone()
    }

    /// Returns `true` if the ring has a key of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).by_name.contains_key(name)
    }

    /// Returns the cipher of an owner under a key of the ring.
    fn cipher(&self, kid: &str, owner: &str) -> Result<XChaCha20Poly1305, SealError> {
        let mut own = Master::default();
        self.derive(kid, owner.as_bytes(), &mut own)?;
        Ok(XChaCha20Poly1305::new(&Key::from(*own)))
    }

    /// Derives a key for one purpose from a key of the ring.
    pub(crate) fn derive(&self, kid: &str, purpose: &[u8], derived: &mut Master) -> Result<(), SealError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let master = keys.by_name.get(kid).ok_or_else(|| SealError::NoKey(kid.to_owned()))?;
        let derivation = Hkdf::<Sha256>::new(None, master.as_slice());
        derivation.expand(purpose, derived.as_mut_slice()).map_err(|_| SealError::Broken)
    }

    pub(crate) fn seal(&self, body: &SecretString, place: Place<'_>) -> Result<Sealed, SealError> {
        let kid = self.current();
        if kid.is_empty() {
            return Err(SealError::NoKey("to seal with".to_owned()));
        }
        let nonce: [u8; 24] = rand::rng().random();
        let payload = Payload { msg: body.expose_secret().as_bytes(), aad: &place.binding(&kid) };
        let sealed =
            self.cipher(&kid, place.owner)?.encrypt(&XNonce::from(nonce), payload).map_err(|_| SealError::Broken)?;
        let (nonce, ct) = (BASE64_STANDARD_NO_PAD.encode(nonce), BASE64_STANDARD_NO_PAD.encode(sealed));
        Ok(Sealed { alg: "XC20P".to_owned(), kid, nonce, ct })
    }

    pub(crate) fn open_body(&self, sealed: &Sealed, place: Place<'_>) -> Result<SecretString, SealError> {
        let read = |text: &str| BASE64_STANDARD_NO_PAD.decode(text).map_err(|_| SealError::Broken);
        let nonce: [u8; 24] = read(&sealed.nonce)?.try_into().map_err(|_| SealError::Broken)?;
        let payload = Payload { msg: &read(&sealed.ct)?, aad: &place.binding(&sealed.kid) };
        let opened = self
            .cipher(&sealed.kid, place.owner)?
            .decrypt(&XNonce::from(nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_| SealError::Broken)?;
        let text = std::str::from_utf8(&opened).map_err(|_| SealError::Broken)?;
        Ok(SecretString::from(text.to_owned()))
    }
}

/// Adds a line to a file that only its owner may read. After a crash the file is complete, in its old or its new state.
fn append(file: &Path, line: &str) -> std::io::Result<()> {
    // For a symbolic link, the target is replaced, not the link.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut text = match std::fs::read(&file) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Zeroizing::default(),
        Err(error) => return Err(error),
    };
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(line.as_bytes());
    let next = file.with_extension("next");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    out.write_all(&text)?;
    out.sync_all()?;
    std::fs::rename(&next, &file)?;
    file.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

/// Returns the check of a key in the key ring file: a part of its hash, which tells a damaged key from the one that was
/// written.
fn check_of(name: &str, key: &Master) -> String {
    let hash = Zeroizing::new([BINDING.as_bytes(), b" check ", name.as_bytes(), b" ", key.as_slice()].concat());
    Hash::of(&hash).hex()[..8].to_owned()
}

/// Returns the number of stored secrets whose key is in `keys`, and the names of missing keys. Missing keys mean that
/// the key ring belongs to another daemon or has lost keys.
///
/// # Errors
/// Returns the store's error.
pub async fn try_keys(store: &Store, keys: &KeyRing) -> Result<(usize, BTreeSet<String>), StoreError> {
    let (mut after, mut opening, mut missing) = (String::new(), 0, BTreeSet::new());
    loop {
        let page = store.documents::<Value>(Kind::Sealed, &after, 1_000).await?;
        let Some((last, _)) = page.last() else { return Ok((opening, missing)) };
        after = last.to_string();
        for (_, sealed) in &page {
            let key = sealed.value["kid"].as_str().unwrap_or_default();
            match keys.has(key) {
                true => opening += 1,
                false => drop(missing.insert(key.to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place { row: "credentials/a", owner: "user:ada", seal: "1" };

    fn opened(ring: &KeyRing, sealed: &Sealed, place: Place<'_>) -> Result<String, SealError> {
        ring.open_body(sealed, place).map(|body| body.expose_secret().to_owned())
    }

    #[test]
    fn a_damaged_key_is_refused_and_a_ring_without_checks_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys/master.key");
        let name = KeyRing::open(&file, false).unwrap().current();
        let line = std::fs::read_to_string(&file).unwrap();
        let [_, key, check] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let write = |line: &str| {
            std::fs::write(&file, line).unwrap();
            KeyRing::read(&file)
        };
        let other = if key.starts_with('A') { "B" } else { "A" };
        let refused = write(&format!("{name} {other}{} {check}\n", &key[1..])).unwrap_err().to_string();
        assert!(refused.contains("is damaged") && refused.contains(&name), "{refused}");
        assert_eq!(write(&format!("{name} {key}\n")).unwrap().unwrap().current(), name);
    }

    #[test]
    fn a_sealed_body_opens_where_it_was_sealed_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys/master.key");
        let ring = KeyRing::open(&file, false).unwrap();
        let sealed = ring.seal(&"SecurePass123".into(), HERE).unwrap();
        assert_eq!(opened(&ring, &sealed, HERE).as_deref(), Ok("SecurePass123"));
        for elsewhere in [
            Place { row: "credentials/b", ..HERE },
            Place { owner: "user:bob", ..HERE },
            Place { seal: "2", ..HERE },
            Place { row: "credentials/a|8:user:ada", owner: "", ..HERE },
        ] {
            assert_eq!(opened(&ring, &sealed, elsewhere), Err(SealError::Broken));
        }
        let kept = serde_json::to_string(&sealed).unwrap();
        assert!(!kept.contains("SecurePass123") && format!("{sealed:?}") == "[sealed]");
        let mut changed = sealed.clone();
        changed.ct = BASE64_STANDARD_NO_PAD.encode(b"something else that is long enough");
        assert_eq!(opened(&ring, &changed, HERE), Err(SealError::Broken));
        // A new key seals, the old one still opens, and both are there after a restart.
        let second = ring.add_key().unwrap();
        assert!(second.starts_with("k2-"), "{second}");
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        let again = KeyRing::open(&file, false).unwrap();
        assert_eq!((again.current(), opened(&again, &sealed, HERE)), (second.clone(), Ok("SecurePass123".to_owned())));
        assert_eq!(again.seal(&"x".into(), HERE).unwrap().kid, second);
        // Without the key, opening fails with `NoKey`.
        assert_eq!(opened(&KeyRing::default(), &sealed, HERE), Err(SealError::NoKey(sealed.kid.clone())));
        // A key ring that others may read, or an invalid one, is refused.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(KeyRing::open(&file, false), Err(SealError::Ring(_))));
        let torn = folder.path().join("torn");
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&torn)
            .unwrap()
            .write_all(b"k1 short\n")
            .unwrap();
        assert!(matches!(KeyRing::open(&torn, false), Err(SealError::Ring(_))));
    }
}
