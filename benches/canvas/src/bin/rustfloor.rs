//! Floor for Rust: axum + tokio broadcast. One revision counter per doc, one frame built per op, shared (Arc'd) between
//! subscribers. WS /doc/{id} = subscribe + write; POST /doc/{id} = write. DURABLE=<path>: every op goes through one log
//! thread which appends a batch, fdatasyncs ONCE per batch (group commit), and only then broadcasts and acks.
//! READBUF=<bytes>: WebSocket read buffer (axum/tungstenite default 128 KiB).
use axum::{
    extract::{
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket},
        Path, State, WebSocketUpgrade,
    },
    response::IntoResponse,
    routing::get,
    Router,
};
use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use std::{
    collections::HashMap,
    io::Write,
    sync::{mpsc, Arc, Mutex},
};
use tokio::sync::{broadcast, oneshot};

struct Doc {
    id: String,
    rev: Mutex<u64>,
    tx: broadcast::Sender<Utf8Bytes>,
}
type LogMsg = (Arc<Doc>, String, oneshot::Sender<u64>);
#[derive(Clone)]
struct App {
    docs: Arc<Mutex<HashMap<String, Arc<Doc>>>>,
    log: Option<mpsc::Sender<LogMsg>>,
}

impl App {
    fn doc(&self, id: &str) -> Arc<Doc> {
        let mut m = self.docs.lock().unwrap();
        m.entry(id.into())
            .or_insert_with(|| Arc::new(Doc { id: id.into(), rev: Mutex::new(0), tx: broadcast::channel(1024).0 }))
            .clone()
    }
    async fn write(&self, d: &Arc<Doc>, body: &str) -> Result<u64, ()> {
        let _: &RawValue = serde_json::from_str(body).map_err(|_| ())?; // syntactic validation
        if let Some(l) = &self.log {
            let (tx, rx) = oneshot::channel();
            l.send((d.clone(), body.to_owned(), tx)).map_err(|_| ())?;
            return rx.await.map_err(|_| ());
        }
        Ok(commit(d, body))
    }
}
fn commit(d: &Doc, body: &str) -> u64 {
    let mut r = d.rev.lock().unwrap();
    *r += 1;
    let _ = d.tx.send(format!("{{\"t\":\"delta\",\"rev\":{},\"op\":{}}}", *r, body).into());
    *r
}
async fn ws(State(a): State<App>, Path(id): Path<String>, u: WebSocketUpgrade) -> impl IntoResponse {
    let u = match std::env::var("READBUF") {
        Ok(v) => u.read_buffer_size(v.parse().unwrap()),
        _ => u,
    };
    u.on_upgrade(move |s| conn(a, id, s))
}
async fn conn(a: App, id: String, s: WebSocket) {
    let d = a.doc(&id);
    let mut rx = d.tx.subscribe();
    let (mut w, mut r) = s.split();
    let hello = format!("{{\"t\":\"hello\",\"rev\":{}}}", *d.rev.lock().unwrap());
    if w.send(Message::Text(hello.into())).await.is_err() {
        return;
    }
    let out = tokio::spawn(async move {
        loop {
            match rx.recv().await {
                Ok(f) => {
                    if w.feed(Message::Text(f)).await.is_err() {
                        return;
                    }
                    loop {
                        match rx.try_recv() {
                            Ok(f) => {
                                if w.feed(Message::Text(f)).await.is_err() {
                                    return;
                                }
                            }
                            Err(broadcast::error::TryRecvError::Lagged(_)) => {
                                let _ = w
                                    .send(Message::Close(Some(CloseFrame { code: 4008, reason: "slow".into() })))
                                    .await;
                                return;
                            }
                            Err(_) => break,
                        }
                    }
                    if w.flush().await.is_err() {
                        return;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    let _ = w.send(Message::Close(Some(CloseFrame { code: 4008, reason: "slow".into() }))).await;
                    return;
                }
                Err(_) => return,
            }
        }
    });
    while let Some(Ok(m)) = r.next().await {
        if let Message::Text(t) = m {
            let _ = a.write(&d, t.as_str()).await;
        } else if let Message::Close(_) = m {
            break;
        }
    }
    out.abort();
}
async fn post(State(a): State<App>, Path(id): Path<String>, body: String) -> impl IntoResponse {
    let d = a.doc(&id);
    match a.write(&d, &body).await {
        Ok(r) => (axum::http::StatusCode::CREATED, format!("{{\"rev\":{r}}}")),
        Err(_) => (axum::http::StatusCode::BAD_REQUEST, "{}".into()),
    }
}
#[tokio::main]
async fn main() {
    let port: u16 = std::env::args().nth(1).unwrap().parse().unwrap();
    let log = std::env::var("DURABLE").ok().map(|p| {
        let (tx, rx) = mpsc::channel::<LogMsg>();
        std::thread::spawn(move || {
            let mut f = std::fs::OpenOptions::new().create(true).append(true).open(p).unwrap();
            let mut buf = Vec::new();
            while let Ok(m) = rx.recv() {
                let mut batch = vec![m];
                while batch.len() < 512 {
                    match rx.try_recv() {
                        Ok(m) => batch.push(m),
                        Err(_) => break,
                    }
                }
                buf.clear();
                for (d, b, _) in &batch {
                    buf.extend_from_slice(d.id.as_bytes());
                    buf.push(b'\t');
                    buf.extend_from_slice(b.as_bytes());
                    buf.push(b'\n');
                }
                f.write_all(&buf).unwrap();
                f.sync_data().unwrap();
                for (d, b, tx) in batch {
                    let _ = tx.send(commit(&d, &b));
                }
            }
        });
        tx
    });
    let app = Router::new().route("/doc/{id}", get(ws).post(post)).with_state(App { docs: Default::default(), log });
    let l = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    println!("listening {port}");
    axum::serve(
        axum::serve::ListenerExt::tap_io(l, |s| {
            let _ = s.set_nodelay(true);
        }),
        app,
    )
    .await
    .unwrap();
}
