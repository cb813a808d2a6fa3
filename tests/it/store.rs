//! Both backends pass one suite, and the store keeps its promises when the backend fails.

use std::sync::Arc;

use nexus::store::surreal::Surreal;
use nexus::store::{Backend, Memory, suite};

#[tokio::test(flavor = "multi_thread")]
async fn memory_passes_the_suite() {
    suite::all(&|| {
        let disk = Arc::new(Memory::default());
        Box::new(move || disk.clone() as Arc<dyn Backend>)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn surreal_passes_the_suite() {
    suite::all(&|| {
        let folder = tempfile::tempdir().unwrap();
        Box::new(move || Arc::new(Surreal::embedded(folder.path().join("store")).unwrap()) as Arc<dyn Backend>)
    })
    .await;
}
