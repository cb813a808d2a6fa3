//! canvas-load: fan-out load generator. See ../README.md
#![recursion_limit = "512"]
use futures_util::{SinkExt, StreamExt};
use std::{
    collections::HashMap,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::*},
        Arc,
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, Notify},
};
use tokio_tungstenite::{
    client_async_with_config,
    tungstenite::{client::IntoClientRequest, protocol::WebSocketConfig, Message},
    WebSocketStream,
};

type Ws = WebSocketStream<TcpStream>;
/// A reader clears as much memory for each read: the default of 128 KiB costs more than what is read.
const READ_BYTES: usize = 16 << 10;
fn vu(b: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        b.push(0x80 | (n as u8 & 0x7f));
        n >>= 7
    }
    b.push(n as u8)
}
fn vs(b: &mut Vec<u8>, s: &str) {
    vu(b, s.len() as u64);
    b.extend_from_slice(s.as_bytes())
}
fn rvu(b: &[u8], p: &mut usize) -> Option<u64> {
    let mut r = 0u64;
    let mut s = 0;
    loop {
        let c = *b.get(*p)?;
        *p += 1;
        r |= ((c & 0x7f) as u64) << s;
        if c < 0x80 {
            return Some(r);
        }
        s += 7
    }
}

#[derive(Clone)]
struct Cfg {
    proto: String,
    addr: String,
    docs: usize,
    subs: usize,
    rate: f64,
    window: u64,
    secs: f64,
    warm: f64,
    payload: usize,
    ws_path: String,
    post_path: String,
    hello: String,
    body: String,
    headers: Vec<(String, String)>,
    ids: Vec<String>,
    write: String,
    http_conns: usize,
    ready: String,
}

async fn connect(c: &Cfg, doc: &str) -> Ws {
    let mut req = format!("ws://{}{}", c.addr, c.ws_path.replace("{doc}", doc)).into_client_request().unwrap();
    for (k, v) in &c.headers {
        req.headers_mut().insert(
            tokio_tungstenite::tungstenite::http::HeaderName::from_bytes(k.as_bytes()).unwrap(),
            v.parse().unwrap(),
        );
    }
    for i in 0..50 {
        if let Ok(s) = TcpStream::connect(&c.addr).await {
            let _ = s.set_nodelay(true);
            if let Ok((w, _)) = client_async_with_config(req.clone(), s, Some(WebSocketConfig::default().read_buffer_size(READ_BYTES))).await {
                return w;
            }
        }
        tokio::time::sleep(Duration::from_millis(20 * (i + 1))).await;
    }
    panic!("cannot connect {doc}")
}
/// Hocuspocus: auth + SyncStep1; true when SyncStep2 arrived.
async fn handshake(c: &Cfg, w: &mut Ws, doc: &str) {
    match c.proto.as_str() {
        "hocus" => {
            let mut m = vec![];
            vs(&mut m, doc);
            vu(&mut m, 2);
            vu(&mut m, 0);
            vs(&mut m, "tok");
            vs(&mut m, "4.8.0");
            w.send(Message::Binary(m.into())).await.unwrap();
            let mut m = vec![];
            vs(&mut m, doc);
            vu(&mut m, 0);
            vu(&mut m, 0);
            vu(&mut m, 1);
            m.push(0);
            w.send(Message::Binary(m.into())).await.unwrap();
            while let Some(Ok(m)) = w.next().await {
                if let Message::Binary(b) = m {
                    let mut p = 0;
                    let l = rvu(&b, &mut p).unwrap() as usize;
                    p += l;
                    if rvu(&b, &mut p) == Some(0) && rvu(&b, &mut p) == Some(1) {
                        return;
                    }
                }
            }
            panic!("hocus handshake failed");
        }
        _ => {
            if !c.hello.is_empty() {
                w.send(Message::Text(c.hello.clone().into())).await.unwrap();
            }
            // ready = first frame whose text contains cfg.ready ("" = any frame); "none" = no frame expected
            if c.ready == "none" {
                return;
            }
            while let Some(Ok(m)) = w.next().await {
                if let Message::Text(t) = m {
                    if c.ready.is_empty() || t.contains(&c.ready) {
                        return;
                    }
                }
            }
            panic!("no ready frame");
        }
    }
}
fn yupdate(client: u64, clock: u64, s: &str) -> Vec<u8> {
    let mut b = Vec::with_capacity(s.len() + 40);
    vu(&mut b, 1);
    vu(&mut b, 1);
    vu(&mut b, client);
    vu(&mut b, clock);
    if clock == 0 {
        b.push(8);
        vu(&mut b, 1);
        vs(&mut b, "messages");
    } else {
        b.push(0x88);
        vu(&mut b, client);
        vu(&mut b, clock - 1);
    }
    vu(&mut b, 1);
    b.push(119);
    vs(&mut b, s);
    vu(&mut b, 0);
    b
}
fn scan(mut b: &[u8], run: u64, mut f: impl FnMut(u64, u64)) {
    // marker: ~r<run>q<seq>t<ns>~
    while let Some(i) = memchr::memmem::find(b, b"~r") {
        let mut p = i + 2;
        let n = |p: &mut usize| {
            let mut v = 0u64;
            while let Some(c) = b.get(*p) {
                if c.is_ascii_digit() {
                    v = v * 10 + (c - 48) as u64;
                    *p += 1
                } else {
                    break;
                }
            }
            v
        };
        let r = n(&mut p);
        if b.get(p) == Some(&b'q') {
            p += 1;
            let q = n(&mut p);
            if b.get(p) == Some(&b't') {
                p += 1;
                let t = n(&mut p);
                if r == run {
                    f(q, t)
                }
            }
        }
        b = &b[p..];
    }
}
fn proc_stat(pid: u32) -> (u64, u64, f64) {
    let s = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let g = |k: &str| {
        s.lines()
            .find(|l| l.starts_with(k))
            .and_then(|l| l.split_whitespace().nth(1))
            .and_then(|v| v.parse().ok())
            .unwrap_or(0)
    };
    let st = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let f: Vec<&str> = st.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let t: f64 = f.get(11).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.)
        + f.get(12).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.);
    (g("VmRSS:"), g("VmHWM:"), t / 100.)
}
#[tokio::main]
async fn main() {
    let mut a: HashMap<String, String> = HashMap::new();
    let mut hdr = vec![];
    let v: Vec<String> = std::env::args().skip(1).collect();
    for p in v.chunks(2) {
        if p[0] == "--header" {
            let (k, v) = p[1].split_once(": ").unwrap();
            hdr.push((k.to_string(), v.to_string()))
        } else {
            a.insert(p[0].trim_start_matches("--").into(), p[1].clone());
        }
    }
    let g = |k: &str, d: &str| a.get(k).cloned().unwrap_or_else(|| d.to_string());
    let docs: usize = g("docs", "1").parse().unwrap();
    let run = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let ids: Vec<String> = match a.get("ids-file") {
        Some(f) => std::fs::read_to_string(f).unwrap().lines().map(|s| s.trim().to_string()).take(docs).collect(),
        None => (0..docs).map(|i| format!("bench-{run}-{i}")).collect(),
    };
    let c = Arc::new(Cfg {
        proto: g("proto", "raw"),
        addr: g("addr", "127.0.0.1:9400"),
        docs,
        subs: g("subs", "1").parse().unwrap(),
        rate: g("rate", "0").parse().unwrap(),
        window: g("window", "64").parse().unwrap(),
        secs: g("secs", "8").parse().unwrap(),
        warm: g("warm", "1").parse().unwrap(),
        payload: g("payload", "200").parse().unwrap(),
        ws_path: g("ws-path", "/doc/{doc}"),
        post_path: g("post-path", "/doc/{doc}"),
        hello: g("hello", ""),
        body: g("body", "{\"id\":\"{q}\",\"sender\":\"bench\",\"content\":\"{m}\"}"),
        headers: hdr,
        ids,
        write: g("write", "ws"),
        http_conns: g("http-conns", "4").parse().unwrap(),
        ready: g("ready", ""),
    });
    assert_eq!(c.ids.len(), c.docs);
    let t0 = Instant::now();
    let delivered = Arc::new(AtomicU64::new(0));
    let note = Arc::new(Notify::new());
    let stop = Arc::new(AtomicBool::new(false));
    let warm_ns = Arc::new(AtomicU64::new(u64::MAX));
    let dropped = Arc::new(AtomicU64::new(0));
    let (rtx, mut rrx) = mpsc::unbounded_channel::<()>();
    let mut tasks = vec![];
    let sem = Arc::new(tokio::sync::Semaphore::new(64));
    for d in 0..c.docs {
        for _ in 0..c.subs {
            let (c, delivered, note, stop, warm_ns, rtx, sem, dropped) = (
                c.clone(),
                delivered.clone(),
                note.clone(),
                stop.clone(),
                warm_ns.clone(),
                rtx.clone(),
                sem.clone(),
                dropped.clone(),
            );
            tasks.push(tokio::spawn(async move {
            let doc = c.ids[d].clone();
            let p = sem.acquire().await.unwrap();
            let mut w = connect(&c, &doc).await; handshake(&c, &mut w, &doc).await; drop(p);
            let _ = rtx.send(());
            let (mut lat, mut last, mut gaps, mut dups, mut n) = (Vec::<u32>::new(), 0u64, 0u64, 0u64, 0u64);
            loop {
                let m = tokio::select! { m = w.next() => m, _ = tokio::time::sleep(Duration::from_millis(400)) => { if stop.load(Relaxed) { break } continue } };
                let Some(Ok(m)) = m else { if !stop.load(Relaxed) { dropped.fetch_add(1, Relaxed); } break };
                let b = match m { Message::Text(t) => bytes::Bytes::from(t), Message::Binary(b) => b, Message::Close(_) => { dropped.fetch_add(1, Relaxed); break } _ => continue };
                let now = t0.elapsed().as_nanos() as u64;
                scan(&b, run, |q, t| {
                    if q == last + 1 { last = q } else if q <= last { dups += 1; return } else { gaps += q - last - 1; last = q }
                    n += 1; if t >= warm_ns.load(Relaxed) { lat.push(((now - t) / 1000) as u32) }
                    delivered.fetch_add(1, Relaxed); note.notify_one();
                });
            }
            (lat, gaps, dups, n)
        }));
        }
    }
    for _ in 0..c.docs * c.subs {
        rrx.recv().await.unwrap();
    }
    eprintln!("{} subs ready after {:?}", c.docs * c.subs, t0.elapsed());
    // writers
    let ackl = Arc::new(std::sync::Mutex::new(Vec::<u32>::new()));
    let nack = Arc::new(AtomicU64::new(0));
    let errs = Arc::new(AtomicU64::new(0));
    enum W {
        Ws(mpsc::UnboundedSender<Message>),
        Http(mpsc::UnboundedSender<String>),
    }
    let mut ws: Vec<W> = vec![];
    if c.write == "ws" {
        for d in 0..c.docs {
            let mut w = connect(&c, &c.ids[d]).await;
            handshake(&c, &mut w, &c.ids[d]).await;
            let (tx, mut rx) = mpsc::unbounded_channel();
            ws.push(W::Ws(tx));
            let (mut o, mut i) = w.split();
            tokio::spawn(async move {
                while let Some(m) = rx.recv().await {
                    if o.send(m).await.is_err() {
                        break;
                    }
                }
            });
            tokio::spawn(async move { while let Some(Ok(_)) = i.next().await {} });
        }
    } else {
        for _ in 0..c.http_conns {
            let (tx, mut rx) = mpsc::unbounded_channel::<String>();
            ws.push(W::Http(tx));
            let c = c.clone();
            let (ackl, nack, errs, warm_ns) = (ackl.clone(), nack.clone(), errs.clone(), warm_ns.clone());
            tokio::spawn(async move {
                let mut s = TcpStream::connect(&c.addr).await.unwrap();
                let _ = s.set_nodelay(true);
                let mut buf = vec![0u8; 65536];
                while let Some(m) = rx.recv().await {
                    let st = Instant::now();
                    let stn = t0.elapsed().as_nanos() as u64;
                    s.write_all(m.as_bytes()).await.unwrap();
                    let mut n = 0;
                    loop {
                        let k = s.read(&mut buf[n..]).await.unwrap();
                        if k == 0 {
                            panic!("http closed")
                        }
                        n += k;
                        if let Some(h) = buf[..n].windows(4).position(|w| w == b"\r\n\r\n") {
                            let head = String::from_utf8_lossy(&buf[..h]).to_lowercase();
                            let cl: usize = head
                                .lines()
                                .find_map(|l| l.strip_prefix("content-length:"))
                                .map(|v| v.trim().parse().unwrap())
                                .unwrap_or(0);
                            if n >= h + 4 + cl {
                                if !head.starts_with("http/1.1 2") {
                                    if errs.fetch_add(1, Relaxed) == 0 {
                                        eprintln!("first error: {}", String::from_utf8_lossy(&buf[..n]))
                                    }
                                }
                                break;
                            }
                        }
                    }
                    nack.fetch_add(1, Relaxed);
                    if stn >= warm_ns.load(Relaxed) {
                        ackl.lock().unwrap().push(st.elapsed().as_micros() as u32);
                    }
                }
            });
        }
    }
    let pid: u32 = g("pid", "0").parse().unwrap();
    let fan = c.subs as u64;
    let start = Instant::now();
    let (_, _, cpu0) = proc_stat(pid);
    let base = proc_stat(pid).0;
    warm_ns.store(t0.elapsed().as_nanos() as u64 + (c.warm * 1e9) as u64, Relaxed);
    let mut seq = vec![0u64; c.docs];
    let mut sent = 0u64;
    let pad = "x".repeat(c.payload);
    let client = 1 + run % 1_000_000_000;
    let mut del_w = 0;
    let mut sent_w = 0;
    let mut wstart = None;
    while start.elapsed().as_secs_f64() < c.secs + c.warm {
        if wstart.is_none() && start.elapsed().as_secs_f64() >= c.warm {
            wstart = Some(Instant::now());
            del_w = delivered.load(Relaxed);
            sent_w = sent;
        }
        if c.rate > 0. {
            let due = sent as f64 / c.rate;
            let el = start.elapsed().as_secs_f64();
            if el < due {
                tokio::time::sleep(Duration::from_secs_f64(due - el)).await;
                continue;
            }
        } else {
            let fl = (sent * fan).saturating_sub(delivered.load(Relaxed));
            if fl >= c.window * fan {
                tokio::select! { _ = note.notified() => {}, _ = tokio::time::sleep(Duration::from_millis(100)) => {} }
                continue;
            }
        }
        let d = (sent % c.docs as u64) as usize;
        seq[d] += 1;
        let mut m = format!("~r{run}q{}t{}~", seq[d], t0.elapsed().as_nanos());
        if m.len() < c.payload {
            m.push_str(&pad[..c.payload - m.len()])
        }
        let body = c.body.replace("{q}", &format!("{d}-{}", seq[d])).replace("{m}", &m);
        match &ws[if c.write == "ws" { d } else { d % c.http_conns }] {
            W::Ws(tx) => {
                let msg = if c.proto == "hocus" {
                    let u = yupdate(client, seq[d] - 1, &body);
                    let mut b = vec![];
                    vs(&mut b, &c.ids[d]);
                    vu(&mut b, 0);
                    vu(&mut b, 2);
                    vu(&mut b, u.len() as u64);
                    b.extend(u);
                    Message::Binary(b.into())
                } else {
                    Message::Text(body.into())
                };
                tx.send(msg).unwrap()
            }
            W::Http(tx) => {
                let mut h = format!(
                    "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
                    c.post_path.replace("{doc}", &c.ids[d]),
                    c.addr,
                    body.len()
                );
                for (k, v) in &c.headers {
                    h.push_str(&format!("{k}: {v}\r\n"))
                }
                h.push_str("\r\n");
                h.push_str(&body);
                tx.send(h).unwrap()
            }
        }
        sent += 1;
    }
    let win = wstart.unwrap().elapsed().as_secs_f64();
    let dw = delivered.load(Relaxed) - del_w;
    let sw = sent - sent_w;
    let drain = Instant::now();
    while delivered.load(Relaxed) < sent * fan && drain.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(5)).await
    }
    let drain_ms = drain.elapsed().as_millis();
    let (rss, hwm, cpu1) = proc_stat(pid);
    let total = delivered.load(Relaxed);
    stop.store(true, Relaxed);
    let (mut lat, mut gaps, mut dups, mut n) = (vec![], 0, 0, 0);
    for t in tasks {
        let (l, g, d, k) = t.await.unwrap();
        lat.extend(l);
        gaps += g;
        dups += d;
        n += k
    }
    lat.sort_unstable();
    let q =
        |v: &Vec<u32>, p: f64| if v.is_empty() { -1. } else { v[((v.len() - 1) as f64 * p) as usize] as f64 / 1000. };
    let mut al = ackl.lock().unwrap().clone();
    al.sort_unstable();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{}",
        serde_json::json!({"label": g("label", ""), "proto": c.proto, "write": c.write, "docs": c.docs, "subs_per_doc": c.subs, "rate": c.rate, "window": if c.rate > 0. { 0 } else { c.window }, "payload": c.payload,
        "sent": sent, "delivered": n, "expected": sent * fan, "msgs_per_s": (sw as f64 / win).round(), "deliveries_per_s": (dw as f64 / win).round(), "p50_ms": q(&lat, 0.5), "p99_ms": q(&lat, 0.99), "p999_ms": q(&lat, 0.999), "max_ms": q(&lat, 1.0),
        "ack_p50_ms": q(&al, 0.5), "ack_p99_ms": q(&al, 0.99), "http_errs": errs.load(Relaxed), "gaps": gaps, "dups": dups, "dropped_conns": dropped.load(Relaxed), "drain_ms": drain_ms as u64,
        "rss_before_mib": base / 1024, "rss_mib": rss / 1024, "hwm_mib": hwm / 1024, "srv_cpu_us_per_delivery": if total > 0 { ((cpu1 - cpu0) * 1e6 / total as f64 * 10.).round() / 10. } else { -1. }, "load1": load.split(' ').next().unwrap_or("")})
    );
    std::process::exit(0);
}
