//! The access rule of each route, as the OpenAPI document shows it (`x-access`). The handlers enforce the rules. A test
//! sends each request in each role, and fails for a route that is not in this table.

use serde_json::Value;

/// The callers that a route admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// All clients, even without a token.
    Anybody,
    /// Each principal with a token, limited to the content that it can see.
    Reader,
    /// Participants, lifeforms and operators.
    Participant,
    /// The owner of the changed object, and operators.
    Owner,
    /// The principal that started the object, and operators. For others, the object does not exist.
    Own,
    /// The lifeform that owns the mind, and operators. Others can read the content that they can see.
    Mind,
    /// Operators.
    Operator,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::Anybody => "anybody",
            Self::Reader => "reader",
            Self::Participant => "participant",
            Self::Owner => "owner",
            Self::Own => "own",
            Self::Mind => "mind",
            Self::Operator => "operator",
        }
    }
}

use Access::{Anybody, Mind, Operator, Own, Owner, Participant, Reader};

/// A path with its methods and their access rules.
type Route = (&'static str, &'static [(&'static str, Access)]);

const CANVAS: &str = "/v1/lifeforms/{id}/canvases/{canvas}";

/// Routes below a canvas.
const OF_CANVAS: &[Route] = &[
    ("", &[("get", Reader), ("patch", Participant)]),
    ("/state", &[("get", Reader)]),
    ("/ops", &[("get", Reader), ("post", Participant)]),
    ("/presence", &[("get", Reader), ("post", Participant)]),
    ("/attachments", &[("post", Participant)]),
    ("/attachments/{hash}", &[("get", Reader)]),
    ("/subscribe", &[("get", Reader)]),
    ("/members", &[("get", Reader)]),
    ("/members/{member}", &[("put", Operator), ("delete", Operator)]),
    ("/topics", &[("get", Reader), ("post", Participant)]),
    ("/topics/{topic}", &[("get", Reader), ("patch", Owner)]),
    ("/topics/{topic}/read", &[("post", Participant)]),
    ("/topics/{topic}/messages", &[("get", Reader), ("post", Participant)]),
    ("/topics/{topic}/messages/{message}", &[("get", Reader), ("patch", Owner), ("delete", Owner)]),
    ("/topics/{topic}/messages/{message}/revisions", &[("get", Reader)]),
    ("/topics/{topic}/messages/{message}/interrupt", &[("post", Participant)]),
    ("/topics/{topic}/messages/{message}/restore", &[("post", Owner)]),
    ("/topics/{topic}/messages/{message}/evidence", &[("get", Reader)]),
];

/// All other routes.
const ROUTES: &[Route] = &[
    ("/health", &[("get", Anybody)]),
    ("/api/knowledge", &[("get", Reader), ("post", Participant)]),
    ("/api/knowledge/search", &[("get", Reader)]),
    ("/api/knowledge/export", &[("get", Reader)]),
    ("/api/knowledge/import", &[("post", Participant)]),
    ("/api/knowledge/batch_update", &[("post", Participant)]),
    ("/api/knowledge/slim", &[("post", Participant)]),
    // Each reader of a record can judge it by this route. Only the owner can change its texts.
    ("/api/knowledge/{id}", &[("get", Reader), ("put", Owner), ("delete", Owner)]),
    ("/api/knowledge/{id}/history", &[("get", Reader)]),
    ("/api/knowledge/{id}/rollback", &[("post", Owner)]),
    ("/api/resource", &[("get", Reader), ("post", Participant)]),
    ("/api/resource/{id}", &[("get", Reader), ("patch", Owner), ("delete", Owner)]),
    ("/v1/keys/rotate", &[("post", Operator)]),
    ("/v1/knowledge", &[("get", Reader), ("post", Participant)]),
    ("/v1/knowledge/migrate", &[("post", Reader)]),
    ("/v1/knowledge/{id}", &[("get", Reader), ("delete", Owner)]),
    ("/v1/knowledge/{id}/validate", &[("post", Participant)]),
    ("/v1/skills", &[("get", Reader), ("post", Participant)]),
    ("/v1/skills/{id}", &[("get", Reader), ("delete", Owner)]),
    ("/v1/reputation/{agent_id}", &[("get", Reader)]),
    ("/v1/providers", &[("get", Reader)]),
    ("/v1/fascicles", &[("get", Reader), ("post", Participant)]),
    ("/v1/fascicles/schema", &[("get", Reader)]),
    ("/v1/fascicles/check", &[("post", Participant)]),
    ("/v1/fascicles/{id}", &[("get", Reader), ("put", Owner), ("delete", Owner)]),
    ("/v1/fascicles/{id}/versions", &[("get", Reader)]),
    ("/v1/fascicles/{id}/drawing", &[("get", Reader)]),
    ("/v1/fascicles/{id}/dry-run", &[("post", Participant)]),
    ("/v1/fascicles/{id}/execute", &[("post", Participant)]),
    ("/v1/jobs", &[("get", Reader)]),
    ("/v1/jobs/cancel", &[("post", Participant)]),
    ("/v1/jobs/{id}", &[("get", Own)]),
    ("/v1/jobs/{id}/cancel", &[("post", Own)]),
    ("/v1/jobs/{id}/retry", &[("post", Own)]),
    ("/v1/jobs/{id}/continue", &[("post", Own)]),
    ("/v1/jobs/{id}/events", &[("get", Own)]),
    ("/v1/jobs/{id}/steps", &[("get", Own)]),
    ("/v1/jobs/{id}/subscribe", &[("get", Own)]),
    ("/v1/neurons", &[("get", Reader), ("post", Participant)]),
    ("/v1/neurons/{id}", &[("get", Reader), ("put", Owner), ("delete", Owner)]),
    ("/v1/neurons/{id}/versions", &[("get", Reader)]),
    ("/v1/neurons/{id}/versions/{version}", &[("get", Reader)]),
    ("/v1/neurons/{id}/memory", &[("get", Reader), ("put", Owner)]),
    ("/v1/neurons/{id}/memory/diff", &[("get", Reader)]),
    ("/v1/neurons/{id}/invoke", &[("post", Participant)]),
    ("/v1/neurons/{id}/continue", &[("post", Own)]),
    ("/v1/invocations", &[("get", Reader)]),
    ("/v1/invocations/{id}", &[("get", Own)]),
    ("/v1/invocations/{id}/cancel", &[("post", Own)]),
    ("/v1/chat/completions", &[("post", Participant)]),
    ("/v1/embeddings", &[("post", Participant)]),
    ("/v1/events", &[("get", Reader)]),
    ("/v1/me", &[("get", Reader)]),
    ("/v1/models", &[("get", Reader)]),
    ("/v1/models/{id}", &[("get", Reader)]),
    ("/v1/approvals", &[("get", Participant)]),
    ("/v1/approvals/{id}", &[("get", Owner), ("post", Owner)]),
    ("/v1/tools", &[("get", Participant)]),
    ("/v1/tools/pins", &[("post", Operator)]),
    ("/v1/tools/{id}", &[("get", Participant), ("put", Operator), ("delete", Operator)]),
    ("/v1/kip/grammar", &[("get", Reader)]),
    ("/v1/lifeforms", &[("get", Reader), ("post", Operator)]),
    ("/v1/lifeforms/import", &[("post", Operator)]),
    ("/v1/lifeforms/{id}", &[("get", Reader), ("delete", Operator)]),
    ("/v1/lifeforms/{id}/{action}", &[("post", Operator)]),
    ("/v1/lifeforms/{id}/identity", &[("get", Operator), ("post", Operator)]),
    ("/v1/lifeforms/{id}/archive", &[("get", Operator)]),
    ("/v1/lifeforms/{id}/calls", &[("get", Operator)]),
    ("/v1/lifeforms/{id}/canvases", &[("get", Reader), ("post", Participant)]),
    ("/v1/lifeforms/{id}/effects", &[("get", Operator)]),
    ("/v1/lifeforms/{id}/events", &[("get", Reader)]),
    ("/v1/lifeforms/{id}/fascicles", &[("get", Reader)]),
    ("/v1/lifeforms/{id}/goals", &[("get", Reader), ("post", Participant)]),
    ("/v1/lifeforms/{id}/goals/{goal}", &[("get", Reader), ("patch", Owner), ("delete", Owner)]),
    ("/v1/lifeforms/{id}/schedules", &[("get", Reader), ("post", Participant)]),
    ("/v1/lifeforms/{id}/schedules/{schedule}", &[("delete", Owner)]),
    ("/v1/lifeforms/{id}/guard", &[("delete", Operator)]),
    ("/v1/lifeforms/{id}/kip", &[("post", Mind)]),
    ("/v1/lifeforms/{id}/memory", &[("get", Reader)]),
    ("/v1/lifeforms/{id}/memory/forget", &[("post", Participant)]),
    ("/v1/lifeforms/{id}/metabolism/policy", &[("get", Reader), ("put", Operator)]),
    ("/v1/lifeforms/{id}/resources", &[("get", Reader)]),
    ("/v1/lifeforms/{id}/resources/report", &[("get", Reader)]),
    ("/v1/lifeforms/{id}/resources/release", &[("put", Operator)]),
    ("/v1/lifeforms/{id}/resources/share", &[("put", Operator)]),
    ("/v1/lifeforms/{id}/resources/transactions", &[("post", Operator)]),
    ("/v1/lifeforms/{id}/system/messages", &[("post", Operator)]),
    ("/v1/lifeforms/{id}/system/run-maintenance", &[("post", Operator)]),
    ("/v1/lifeforms/{id}/tools", &[("get", Participant), ("put", Operator)]),
    ("/v1/lifeforms/{id}/trace", &[("get", Reader)]),
    ("/v1/house/calls", &[("get", Operator)]),
    ("/v1/house/resources", &[("get", Operator)]),
    ("/v1/house/resources/report", &[("get", Operator)]),
    ("/v1/nexus/{id}/kip", &[("post", Mind)]),
    ("/v1/nexus/{id}/undo", &[("post", Mind)]),
    ("/v1/lifeforms/{id}/nexus/undo", &[("post", Mind)]),
    ("/v1/nexus/{id}/journal", &[("get", Mind)]),
    ("/v1/nexus/{id}/capsules", &[("post", Mind)]),
    ("/v1/nexus/{id}/export", &[("post", Reader)]),
    ("/v1/system/actors", &[("get", Operator)]),
    ("/v1/tokens", &[("get", Operator), ("post", Operator)]),
    ("/v1/tokens/{principal}", &[("patch", Operator), ("delete", Operator)]),
];

/// Writes the access rule of each route into the document.
pub(super) fn describe(document: &mut Value) {
    let below_a_canvas = OF_CANVAS.iter().map(|(path, methods)| (format!("{CANVAS}{path}"), *methods));
    let all = ROUTES.iter().map(|(path, methods)| ((*path).to_owned(), *methods)).chain(below_a_canvas);
    for (path, methods) in all {
        for (method, access) in methods {
            if let Some(operation) = document["paths"].get_mut(&path).and_then(|item| item.get_mut(*method)) {
                operation["x-access"] = access.name().into();
            }
        }
    }
}
