//! The answers of the routes that all kinds of canvas share.

use std::sync::Arc;

use lifeform::Canvas;
use lifeform::canvas::{Kind, Present, Snapshot};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::ws;

/// The head of a canvas and the links to it.
#[derive(Serialize, ToSchema)]
#[schema(as = Canvas)]
pub(in crate::api) struct Meta {
    /// The id.
    pub(super) id: String,
    /// The kind.
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    /// The title.
    pub(super) title: String,
    /// The present revision.
    pub(super) rev: u64,
    /// The epoch of the log. Revisions of different epochs cannot be compared.
    pub(super) epoch: String,
    /// The version of the schema.
    pub(super) schema_ver: u32,
    /// The names of the ops of this kind.
    pub(super) ops: Vec<String>,
    /// The log.
    pub(super) log: LogMeta,
    /// The links.
    pub(super) api: Links,
}

/// The log of a canvas.
#[derive(Serialize, ToSchema)]
#[schema(as = CanvasLog)]
pub(in crate::api) struct LogMeta {
    /// The revision after which the log holds all deltas.
    pub(super) from_rev: u64,
}

/// The links to a canvas.
#[derive(Serialize, ToSchema)]
#[schema(as = CanvasLinks)]
pub(in crate::api) struct Links {
    /// The path of the canvas.
    pub(super) rest_base_path: String,
    /// The WebSocket of the canvas.
    pub(super) realtime_protocol: RealtimeProtocol,
}

/// The WebSocket of a canvas.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct RealtimeProtocol {
    /// `websocket`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The path.
    pub(super) endpoint: String,
    /// The subprotocol.
    pub(super) subprotocol: &'static str,
}

/// The canvases of a lifeform.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct CanvasList {
    /// The canvases by id.
    pub(super) canvases: Vec<Meta>,
}

/// The state of a canvas.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct CanvasState {
    /// The epoch of the log.
    #[schema(value_type = String)]
    pub(super) epoch: Arc<str>,
    /// The revision.
    pub(super) rev: u64,
    /// The collections of the kind.
    #[schema(value_type = Object)]
    pub(super) state: Value,
}

/// The deltas after a revision.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Deltas {
    /// The deltas in order, as subscribers receive them.
    #[schema(value_type = Vec<Object>)]
    pub(super) ops: Vec<Value>,
    /// The present revision.
    pub(super) rev: u64,
}

/// The outcome of a write.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Written {
    /// The revision after the write.
    pub(super) rev: u64,
    /// The number of ops.
    pub(super) ops: u64,
    /// The epoch of the log.
    #[schema(value_type = String)]
    pub(super) epoch: Arc<str>,
    /// The id of the entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
}

/// The present principals of a canvas.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct PresentPrincipals {
    /// The principals with their states.
    pub(super) present: Vec<Present>,
}

/// Returns the head of a canvas of lifeform `id`.
pub(super) fn meta(id: &str, canvas: &Canvas) -> Meta {
    let Snapshot { epoch, rev, floor, .. } = canvas.snapshot();
    meta_of(id, &canvas.id, &canvas.kind, &canvas.title, &epoch, rev, floor)
}

/// Returns the head of a canvas that is not open.
pub(super) fn meta_of(id: &str, name: &str, kind: &Kind, title: &str, epoch: &str, rev: u64, floor: u64) -> Meta {
    let rest_base_path = format!("/v1/lifeforms/{id}/canvases/{name}");
    let endpoint = format!("{rest_base_path}/subscribe");
    let realtime_protocol = RealtimeProtocol { kind: "websocket", endpoint, subprotocol: ws::SUBPROTOCOL };
    Meta {
        id: name.to_owned(),
        kind: kind.clone(),
        title: title.to_owned(),
        rev,
        epoch: epoch.to_owned(),
        schema_ver: 1,
        ops: kind.ops(),
        log: LogMeta { from_rev: floor },
        api: Links { rest_base_path, realtime_protocol },
    }
}
