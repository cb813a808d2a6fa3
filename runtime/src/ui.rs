//! The web page under `/ui/`, which uses only the public API. Its files are built from `ui/` and embedded by `build.rs`.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rand::RngExt;

use crate::api::{ApiError, App};

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file of the page.
pub(super) struct Asset {
    /// The path below `/ui/`.
    path: &'static str,
    /// The content.
    whole: &'static [u8],
    /// The content compressed with gzip, where that is shorter.
    gzip: Option<&'static [u8]>,
}

/// The page that stands for all addresses below `/ui/` that are no file.
const INDEX: &str = "index.html";
/// The text in the index that a new nonce replaces.
const NONCE: &str = "NONCE_OF_THIS_RESPONSE";
/// The folder of the files whose names change with their content.
const ASSETS_FOLDER: &str = "assets/";
/// The response without a built page.
const NOT_BUILT: &str = "This daemon was built without its web page. In runtime/ui, run \"npm ci --ignore-scripts\" and \"npm run build\", \
                         and build the daemon again. The API is at /openapi.json.";

/// Returns the content security policy of the page: its own files and API, no inline script, no style without the nonce, and no HTML from
/// text ([Trusted Types](https://www.w3.org/TR/trusted-types/)).
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; img-src 'self' data: blob:; \
         font-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    )
}

/// Returns the routes of the page.
pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui/", get(|| async { index() }))
        .route("/ui/{*path}", get(file))
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path && path != INDEX) {
        return Ok(content(asset, &headers));
    }
    // A page of an older daemon asks for files that no longer exist. It gets 404, because the index is no script.
    if path.starts_with(ASSETS_FOLDER) {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("the page has no file \"{path}\"")));
    }
    Ok(index())
}

fn index() -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == INDEX) else {
        return (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], NOT_BUILT)
            .into_response();
    };
    let bytes: [u8; 16] = rand::rng().random();
    let nonce = BASE64_STANDARD.encode(bytes);
    let text = String::from_utf8_lossy(asset.whole).replace(NONCE, &nonce);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy(&nonce)),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    let own = [("cross-origin-opener-policy", "same-origin"), ("cross-origin-resource-policy", "same-origin")];
    (headers, own, text).into_response()
}

fn content(asset: &Asset, headers: &HeaderMap) -> Response {
    let kind = match asset.path.rsplit_once('.').map(|(_, end)| end) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    let caching =
        if asset.path.starts_with(ASSETS_FOLDER) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let takes_gzip = accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().to_ascii_lowercase();
        let is_refused =
            weight.strip_prefix("q=").and_then(|weight| weight.parse().ok()).is_some_and(|weight: f32| weight <= 0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    });
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, caching),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ];
    match asset.gzip.filter(|_| takes_gzip) {
        Some(gzip) => {
            let mut response = (headers, gzip).into_response();
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        None => (headers, asset.whole).into_response(),
    }
}
