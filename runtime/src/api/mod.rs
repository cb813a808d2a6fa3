//! HTTP and WebSocket: all routes on one page. A handler extracts, makes one call, and converts the result.

mod access;
mod actors;
mod answers;
mod approvals;
mod archive;
mod bodies;
mod canvases;
mod chat;
mod document;
mod error;
mod events;
mod exchange;
mod extract;
mod fascicles;
mod given_tools;
mod goals;
mod health;
mod identity;
mod invocations;
mod jobs;
mod knowledge;
mod lifeforms;
mod mcp;
mod me;
mod members;
mod memory;
mod neurons;
mod nexus;
mod openai;
mod pace;
mod paging;
mod reputation;
mod resources;
mod skills;
mod system;
mod tokens;
mod tools;
mod trace;
mod units;
mod used_fascicles;
mod ws;

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::fascicles::{Fascicles, Toolbox};
use ::knowledge::Knowledge;
use ::lifeform::Lifeforms;
use ::neurons::Neurons;
use ::nexus::Nexus;
use ::store::{Principal, Shares, Store, Turns, Wants};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on, post};
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::tokens::Tokens;
use crate::ui;
pub(crate) use error::ApiError;

/// The largest request body.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The state that handlers share. A clone is a pointer, because each request makes some.
#[derive(Clone)]
pub struct App(Arc<Shared>);

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The shared parts of [`App`].
pub struct Shared {
    pub(crate) store: Store,
    pub(crate) nexus: Nexus,
    pub(crate) knowledge: Knowledge,
    pub(crate) neurons: Neurons,
    pub(crate) fascicles: Fascicles,
    pub(crate) lifeforms: Lifeforms,
    pub(crate) tokens: Tokens,
    /// The tools of jobs that people start.
    house: Arc<dyn Toolbox>,
    address: SocketAddr,
    /// The data folder.
    data: PathBuf,
    stopping: watch::Receiver<bool>,
    sockets: Shares,
    /// The permits for sockets without a token, five seconds each.
    greetings: Arc<tokio::sync::Semaphore>,
    /// The lock for the request that tests whether a failed store writes again.
    health: tokio::sync::Mutex<()>,
    /// The permits for the bytes of large responses that clients have not received yet.
    answers: Shares,
    /// The permits for the bytes of large request bodies in transit.
    bodies: Shares,
    /// The host names of this daemon, besides `localhost` and IP addresses.
    hosts: Vec<String>,
    /// The permits for callers that wait for a job (long polling).
    patience: Shares,
    /// The rate limit of each participant for definitions of neurons and fascicles.
    pace: pace::Pace,
    /// The fair queue of expensive read requests: participants take turns.
    reads: Turns<()>,
    /// The last events of lifeforms and jobs.
    events: events::Hub,
}

/// The maximum number of concurrent expensive read requests. They mostly use the processor, so more of them do not
/// finish sooner, and other requests would wait behind them.
const READS_AT_ONCE: usize = 4;

/// Returns `true` for an expensive request: one that reads or searches many elements.
fn reads_much(method: &Method, path: &str) -> bool {
    let lists = [
        "/messages",
        "/topics",
        "/ops",
        "/calls",
        "/versions",
        "/invocations",
        "/jobs",
        "/neurons",
        "/fascicles",
        "/diff",
    ];
    let ends = ["/kip", "/dry-run", "/export", "/state", "/archive", "/journal", "/capsules", "/trace", "/steps"];
    let begins = ["/api/knowledge", "/api/resource", "/v1/knowledge", "/v1/skills", "/v1/reputation"];
    // A call of an MCP tool may be a query, a search or a read of a canvas.
    let is_tool = *method == Method::POST && path == "/mcp";
    let is_history = path.starts_with("/v1/lifeforms/") && path.ends_with("/events");
    is_tool
        || is_history
        || (*method == Method::GET && lists.iter().any(|end| path.ends_with(end)))
        || ends.iter().any(|end| path.ends_with(end))
        || begins.iter().any(|begin| path.starts_with(begin))
}

/// The maximum number of open WebSockets.
const SOCKETS_MAX: usize = 4096;
/// The maximum number of open WebSockets of one principal, which is at most a quarter of the open connections.
/// Operators have no limit of their own.
const SOCKETS_EACH_MAX: usize = 1024;
/// The maximum number of WebSockets that have not sent a token yet.
const GREETINGS_MAX: usize = 256;
/// The maximum number of callers that wait for jobs, of which one participant may be a quarter. Further requests are
/// answered without waiting.
const WAITING_MAX: usize = 1024;

impl App {
    /// Refuses a principal that has written its share of the day: `disk_share`, with the time to wait.
    pub(super) fn check_disk_share(&self, principal: &Principal) -> Result<(), ApiError> {
        self.store.disk_wait(principal).map_or(Ok(()), |wait| Err(ApiError::disk_share(wait)))
    }

    #[expect(clippy::too_many_arguments, reason = "the daemon hands over each of its parts once")]
    pub(crate) fn new(
        store: Store,
        nexus: Nexus,
        neurons: Neurons,
        fascicles: Fascicles,
        lifeforms: Lifeforms,
        knowledge: Knowledge,
        tokens: Tokens,
        house: Arc<dyn Toolbox>,
        address: SocketAddr,
        data: PathBuf,
        hosts: Vec<String>,
        stopping: watch::Receiver<bool>,
        connections_max: usize,
    ) -> Self {
        let events = events::Hub::start(&store);
        Self(Arc::new(Shared {
            events,
            store,
            nexus,
            knowledge,
            neurons,
            fascicles,
            lifeforms,
            tokens,
            house,
            address,
            data,
            stopping,
            sockets: Shares::new(SOCKETS_MAX, SOCKETS_EACH_MAX.min(connections_max / 4)),
            greetings: Arc::new(tokio::sync::Semaphore::new(GREETINGS_MAX)),
            health: tokio::sync::Mutex::default(),
            answers: answers::places(),
            bodies: bodies::places(),
            hosts,
            patience: Shares::new(WAITING_MAX, WAITING_MAX / 4),
            pace: pace::Pace::default(),
            reads: Turns::new(READS_AT_ONCE),
        }))
    }

    /// Returns the handle on the lifeforms.
    pub fn lifeforms(&self) -> &Lifeforms {
        &self.lifeforms
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// The methods of a WebSocket request: GET over HTTP/1.1, CONNECT over HTTP/2 (RFC 8441).
const SOCKET: MethodFilter = MethodFilter::GET.or(MethodFilter::CONNECT);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "lifeformd",
        description = "AiLifeforms over HTTP and WebSocket. Every route but /health needs Authorization: Bearer <token>."
    ),
    // The WebSocket routes are added by hand, since HTTP/2 uses another method. The resource routes are too, because
    // their ids contain slashes.
    paths(ws::subscribe, jobs::events::subscribe, events::subscribe, resources::read, resources::change, resources::delete),
    components(schemas(error::Problem))
)]
struct Described;

/// Returns the router with all routes.
pub fn router(app: App) -> Router {
    let (routes, mut described) = OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(health::health))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::read, approvals::decide))
        .routes(routes!(tools::list))
        .routes(routes!(tools::accept))
        .routes(routes!(tools::read, tools::define, tools::remove))
        .routes(routes!(neurons::create, neurons::list))
        .routes(routes!(neurons::read, neurons::update, neurons::delete))
        .routes(routes!(neurons::versions))
        .routes(routes!(neurons::version))
        .routes(routes!(neurons::memory, neurons::remember))
        .routes(routes!(neurons::memory_diff))
        .routes(routes!(invocations::invoke))
        .routes(routes!(invocations::resume))
        .routes(routes!(invocations::list))
        .routes(routes!(invocations::read))
        .routes(routes!(invocations::cancel))
        .routes(routes!(openai::chat))
        .routes(routes!(openai::embeddings))
        .routes(routes!(openai::models))
        .routes(routes!(openai::model))
        .routes(routes!(fascicles::create, fascicles::list))
        .routes(routes!(fascicles::schema))
        .routes(routes!(fascicles::check))
        .routes(routes!(fascicles::read, fascicles::update, fascicles::delete))
        .routes(routes!(fascicles::versions))
        .routes(routes!(fascicles::execute))
        .routes(routes!(fascicles::dry_run))
        .routes(routes!(fascicles::drawing))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::read))
        .routes(routes!(jobs::cancel_many))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::resume))
        .routes(routes!(jobs::events::events))
        .routes(routes!(jobs::steps::steps))
        .routes(routes!(lifeforms::create, lifeforms::list))
        .routes(routes!(lifeforms::read, lifeforms::terminate))
        .routes(routes!(identity::read, identity::prove))
        .routes(routes!(archive::export))
        .routes(routes!(archive::import).layer(archive::no_limit()))
        .routes(routes!(lifeforms::act))
        .routes(routes!(lifeforms::nutrients::transact))
        .routes(routes!(lifeforms::nutrients::resources))
        .routes(routes!(lifeforms::nutrients::report))
        .routes(routes!(lifeforms::nutrients::set_release))
        .routes(routes!(lifeforms::nutrients::set_share))
        .routes(routes!(lifeforms::nutrients::house_report))
        .routes(routes!(lifeforms::set_policy, lifeforms::policy))
        .routes(routes!(lifeforms::calm))
        .routes(routes!(actors::tree))
        .routes(routes!(system::maintain))
        .routes(routes!(system::intervene))
        .routes(routes!(lifeforms::nutrients::house))
        .routes(routes!(lifeforms::house_calls))
        .routes(routes!(lifeforms::calls))
        .routes(routes!(goals::create, goals::list))
        .routes(routes!(goals::read, goals::change, goals::remove))
        .routes(routes!(goals::schedule, goals::schedules))
        .routes(routes!(goals::unschedule))
        .routes(routes!(trace::trace))
        .routes(routes!(events::list))
        .routes(routes!(memory::list))
        .routes(routes!(memory::forget))
        .routes(routes!(trace::evidence))
        .routes(routes!(used_fascicles::list_fascicles))
        .routes(routes!(given_tools::list, given_tools::give))
        .routes(routes!(given_tools::effects))
        .routes(routes!(nexus::of_lifeform))
        .routes(routes!(nexus::execute))
        .routes(routes!(nexus::undo))
        .routes(routes!(nexus::journal))
        .routes(routes!(nexus::import))
        .routes(routes!(nexus::export))
        .routes(routes!(nexus::grammar))
        .routes(routes!(canvases::list, canvases::create))
        .routes(routes!(canvases::read, canvases::patch))
        .routes(routes!(canvases::state))
        .routes(routes!(members::list))
        .routes(routes!(members::join, members::leave))
        .routes(routes!(canvases::ops, canvases::write))
        .routes(routes!(canvases::present, canvases::be_present))
        .routes(routes!(canvases::attach).layer(canvases::upload_limit()))
        .routes(routes!(canvases::attachment))
        .routes(routes!(chat::create_topic, chat::topics))
        .routes(routes!(chat::topic, chat::edit_topic))
        .routes(routes!(chat::mark_read))
        .routes(routes!(chat::messages::append, chat::messages::messages))
        .routes(routes!(chat::messages::message, chat::messages::amend, chat::messages::retract))
        .routes(routes!(chat::messages::revisions))
        .routes(routes!(chat::messages::interrupt))
        .routes(routes!(chat::messages::restore))
        .routes(routes!(knowledge::search))
        .routes(routes!(exchange::export))
        .routes(routes!(exchange::import).layer(exchange::limit()))
        .routes(routes!(knowledge::create, knowledge::list))
        .routes(routes!(knowledge::judge))
        .routes(routes!(knowledge::slim))
        .routes(routes!(knowledge::read, knowledge::update, knowledge::delete))
        .routes(routes!(knowledge::history))
        .routes(routes!(knowledge::rollback))
        .routes(routes!(units::contribute, units::list))
        .routes(routes!(units::migrate))
        .routes(routes!(units::read, units::delete))
        .routes(routes!(units::validate))
        .routes(routes!(skills::contribute, skills::list))
        .routes(routes!(skills::read, skills::delete))
        .routes(routes!(reputation::of_agent))
        .routes(routes!(reputation::providers))
        .routes(routes!(resources::list, resources::create))
        .routes(routes!(resources::rotate))
        .routes(routes!(me::me))
        .routes(routes!(tokens::add, tokens::list))
        .routes(routes!(tokens::change, tokens::revoke))
        .split_for_parts();
    described.info.version = env!("CARGO_PKG_VERSION").into();
    let mut described = document::complete(serde_json::json!(described));
    access::describe(&mut described);
    let unread = bodies::unread(&described);
    let text = axum::body::Bytes::from(described.to_string());
    let openapi = move || {
        let text = text.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], text) }
    };
    let mcp = Router::new().route_service("/mcp", mcp::service(app.clone()));
    let mcp = mcp.layer(middleware::from_fn(mcp::refuse_malformed));
    Router::new()
        .merge(routes)
        .route("/v1/lifeforms/{id}/canvases/{canvas}/subscribe", on(SOCKET, ws::subscribe))
        .route("/v1/jobs/{id}/subscribe", on(SOCKET, jobs::events::subscribe))
        .route(events::PATH, on(SOCKET, events::subscribe))
        .route("/api/resource/{*id}", get(resources::read).patch(resources::change).delete(resources::delete))
        .merge(mcp)
        .route("/v1/lifeforms/{id}/nexus/undo", post(nexus::undo))
        .route("/openapi.json", get(openapi))
        .merge(ui::router())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(unread, bodies::refuse_unread))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), units::in_own_shape))
        .layer(middleware::from_fn(openai::refuse_in_own_shape))
        .layer(CatchPanicLayer::new())
        .with_state(app)
}

async fn unknown() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_route", "there is no such route").hint("GET /openapi.json lists them")
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this route does not take that method")
        .hint("GET /openapi.json lists them")
}

/// Middleware: guards all routes, and sets the caching and security headers of all responses, refusals included.
async fn guard(axum::extract::State(app): axum::extract::State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_page = path == "/" || path == "/ui" || path.starts_with("/ui/");
    let mut response = guarded(&app, is_page, request, next).await.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !is_page {
        // Responses to authenticated requests are not cached (RFC 9111 §5.2.2.5).
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

/// Admits requests without a token only to the open routes, refuses other web sites, and limits the time and the number
/// of waiting requests.
async fn guarded(app: &App, is_page: bool, request: Request, next: Next) -> Result<Response, ApiError> {
    const REQUEST_MAX: Duration = Duration::from_secs(600);
    let host = check_host(app, &request)?;
    for origin in request.headers().get_all(header::ORIGIN) {
        // Browsers send ASCII. Other text does not come from a page.
        let origin = origin.to_str().map_err(|_| ApiError::forbidden("the Origin header is no ASCII text"))?;
        check_origin(app, origin, host.as_deref().unwrap_or_default())?;
    }
    let path = request.uri().path();
    let open = is_page || path == "/health";
    // A browser cannot set headers for a WebSocket, so the socket requests the token itself.
    let is_socket = path.ends_with("/subscribe") || path == events::PATH;
    let has_token = request.headers().contains_key(header::AUTHORIZATION);
    // Public units can be read without a token if the configuration allows it. Their handlers determine the caller.
    let is_for_anybody = app.tokens.anybody().is_some() && *request.method() == Method::GET && units::is_own(path);
    if !open && !is_socket && !is_for_anybody && !has_token {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "no_token", "this route wants a token")
            .hint("send Authorization: Bearer <token>; the operator's is in <data>/operator.token"));
    }
    let mut admitted = None;
    if has_token {
        admitted = extract::bearer(request.headers()).and_then(|token| app.tokens.admit(token));
        if !open && admitted.is_none() {
            return Err(unknown_token());
        }
    }
    let sender = admitted.as_ref().map_or_else(Principal::anybody, |admitted| admitted.principal().clone());
    let _body = bodies::place(&app.bodies, &sender, &request)?;
    let mut request = bodies::patient(request);
    let path_of_tokens = request.uri().path().starts_with("/v1/tokens");
    let takes_turns = sender.is_bound() && reads_much(request.method(), request.uri().path());
    if takes_turns {
        // A client that sends its body slowly holds no turn.
        request = bodies::received(request).await?;
    }
    let _turn = match takes_turns {
        true => Some(app.reads.take(Wants { class: (), who: sender.id.0.clone(), is_bound: true }).await),
        false => None,
    };
    // An operator that revokes its own token still receives the response.
    let admitted_by = if path_of_tokens { None } else { admitted.as_mut() };
    let answered = tokio::select! {
        answered = tokio::time::timeout(REQUEST_MAX, next.run(request)) => answered,
        () = answers::revoked(admitted_by) => return Err(unknown_token()),
    };
    let response =
        answered.map_err(|_| ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "the request took too long"))?;
    answers::bounded(&app.answers, admitted, response).await
}

fn unknown_token() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "bad_token", "this token is unknown, or it was revoked")
}

/// Returns the host that a request names, if it belongs to this daemon: an IP address, `localhost`, or a configured
/// name. This prevents DNS rebinding: a page of another site sends its own host name.
fn check_host(app: &App, request: &Request) -> Result<Option<String>, ApiError> {
    let refused = |host: &str| {
        ApiError::new(StatusCode::MISDIRECTED_REQUEST, "host", format!("this daemon is not reached by the name {host}"))
            .hint("name it under hosts in the configuration, or use its address")
    };
    let mut named = request.headers().get_all(header::HOST).iter();
    let (host, another) = (named.next(), named.next());
    if another.is_some() {
        // RFC 9112 §3.2.
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "host", "a request has one Host header"));
    }
    let named = match (request.uri().authority(), host) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host.to_str().map_err(|_| refused("that it sent"))?,
        // RFC 9112 §3.2: HTTP/1.1 names the host.
        (None, None) if request.version() == axum::http::Version::HTTP_11 => {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "host", "a request has one Host header"));
        }
        (None, None) => return Ok(None),
    };
    if named.contains('@') {
        return Err(refused(named));
    }
    let authority: axum::http::uri::Authority = named.parse().map_err(|_| refused(named))?;
    let host = authority.host();
    // The parser also accepts other text behind the host.
    let port = authority.as_str().strip_prefix(host).unwrap_or(named);
    if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return Err(refused(named));
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_ours = host.parse::<std::net::IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || app.hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
    if is_ours { Ok(Some(named.to_owned())) } else { Err(refused(host)) }
}

/// Checks that a browser request comes from a page of this daemon.
fn check_origin(app: &App, origin: &str, host: &str) -> Result<(), ApiError> {
    let port = app.address.port();
    let ours = [
        format!("http://{}", app.address),
        format!("http://localhost:{port}"),
        format!("http://127.0.0.1:{port}"),
        format!("http://[::1]:{port}"),
    ];
    // On loopback, another name that resolves to this machine may be a page of another site. On other addresses, the
    // operator has configured the names of the daemon.
    let named = !app.address.ip().is_loopback() && origin.split_once("://").is_some_and(|(_, name)| name == host);
    if named || ours.iter().any(|known| known == origin) {
        Ok(())
    } else {
        Err(ApiError::forbidden(format!("pages of {origin} may not call this daemon")))
    }
}
