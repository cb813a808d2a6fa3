//! The chat page: three static files that use only the public API.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

use crate::api::App;

/// The content security policy: only this daemon's own files and API.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the routes of the page.
pub(crate) fn router() -> Router<App> {
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move {
            (
                [
                    (header::CONTENT_TYPE, kind),
                    (header::CONTENT_SECURITY_POLICY, POLICY),
                    (header::CACHE_CONTROL, "no-cache"),
                ],
                text,
            )
                .into_response()
        })
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("../ui/index.html")))
        .route("/ui/chat.js", file("text/javascript; charset=utf-8", include_str!("../ui/chat.js")))
        .route("/ui/style.css", file("text/css; charset=utf-8", include_str!("../ui/style.css")))
}
