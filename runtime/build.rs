//! Embeds the built web page (`ui/dist`) into the daemon, each file as it is and, where that is shorter, compressed. Without a built page
//! the daemon is built all the same, and says under `/ui/` how to build it.

#![expect(clippy::unwrap_used, reason = "a build that fails says where")]

use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    let dist = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("ui/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &mut files);
    files.sort();
    let mut table = String::from("pub(super) const ASSETS: &[Asset] = &[\n");
    for (number, file) in files.iter().enumerate() {
        let whole = std::fs::read(file).unwrap();
        // The compiler reads a copy, so that a build of the page at the same time removes no file from it.
        let kept = out.join(format!("{number}.file"));
        std::fs::write(&kept, &whole).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&whole).unwrap();
        let shorter = Some(encoder.finish().unwrap()).filter(|compressed| compressed.len() < whole.len());
        let gzip = match shorter {
            Some(compressed) => {
                let path = out.join(format!("{number}.gz"));
                std::fs::write(&path, compressed).unwrap();
                format!("Some(include_bytes!({path:?}))")
            }
            None => "None".to_owned(),
        };
        let name = file.strip_prefix(&dist).unwrap().to_str().unwrap().replace('\\', "/");
        writeln!(table, "    Asset {{ path: {name:?}, whole: include_bytes!({kept:?}), gzip: {gzip} }},").unwrap();
    }
    table.push_str("];\n");
    std::fs::write(out.join("assets.rs"), table).unwrap();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}
