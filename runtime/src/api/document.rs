//! The parts of the OpenAPI document that follow from rules: the access, the possible refusals of each kind of request,
//! and the form of a refusal.

use serde_json::{Map, Value, json};

use super::units;

/// The OpenAI-compatible routes, with refusals in the OpenAI format.
const DOOR: [&str; 4] = ["/v1/chat/completions", "/v1/embeddings", "/v1/models", "/v1/models/{id}"];
/// The other routes that call a model.
const ASKS: [&str; 2] = ["/v1/neurons/{id}/invoke", "/v1/neurons/{id}/continue"];
/// The WebSocket route that first opens and then reports a missing canvas by its close code.
const OPENS_FIRST: &str = "/v1/lifeforms/{id}/canvases/{canvas}/subscribe";
/// The route that needs no token.
const OPEN: &str = "/health";

/// Returns the complete document.
pub(super) fn complete(mut document: Value) -> Value {
    let shapes = &mut document["components"]["schemas"];
    shapes["OpenAiError"] = json!({"type": "object", "required": ["error"], "properties": {"error": {
        "type": "object", "required": ["message", "type", "code"],
        "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "string"}}}}});
    shapes["UnitError"] = json!({"type": "object", "required": ["error", "code"], "properties": {
        "error": {"type": "string"}, "code": {"type": "string"}, "issues": {"type": "array", "items": {"type": "object"}}}});
    // The input and output may match several kinds at once.
    for name in ["InvokeInput", "InvokeOutput"] {
        if let Some(kinds) = shapes[name].as_object_mut().and_then(|shape| shape.remove("oneOf")) {
            shapes[name]["anyOf"] = kinds;
        }
    }
    merge_closed(shapes);
    // KIP names this route for the undo of a lifeform's own mind.
    document["paths"]["/v1/lifeforms/{id}/nexus/undo"] = document["paths"]["/v1/nexus/{id}/undo"].clone();
    document["components"]["securitySchemes"] = json!({"bearer": {"type": "http", "scheme": "bearer"}});
    document["security"] = json!([{"bearer": []}]);
    // The paths are those of the daemon that serves the document.
    document["servers"] = json!([{"url": "/"}]);
    document["tags"] =
        TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            operation["tags"] = json!([tag_of(path)]);
            operation["operationId"] = operation_id(path, operation["operationId"].as_str().unwrap_or(method)).into();
            if path == OPEN {
                operation["security"] = json!([]);
            } else {
                refusals(path, method, operation);
            }
        }
    }
    numbers(&mut document);
    document
}

/// The groups of operations.
const TAGS: [(&str, &str); 9] = [
    ("canvases", "Live documents: chats, mind maps, their members and attachments."),
    ("agenda", "The goals and schedules of a lifeform."),
    ("nutrients", "Accounts: balances, statements, reports, rules of income and shares."),
    ("lifeforms", "Creation, life cycle, policy, introspection, archives."),
    ("neurons", "Definitions, memories, invocations, models and tools."),
    ("fascicles", "Definitions, jobs and their events."),
    ("nexus", "KIP, journals and capsules."),
    ("knowledge", "Records, resources, and the routes of KnowledgePulse."),
    ("operations", "Health, tokens and keys."),
];

/// Returns the group of a path.
fn tag_of(path: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
    match path {
        _ if has(&["/canvases"]) => "canvases",
        _ if has(&["/goals", "/schedules"]) => "agenda",
        _ if has(&["/resources", "/v1/house"]) => "nutrients",
        _ if has(&["/kip", "/v1/nexus"]) => "nexus",
        _ if has(&["/v1/lifeforms"]) => "lifeforms",
        _ if has(&["/v1/fascicles", "/v1/jobs"]) => "fascicles",
        _ if has(&["/v1/neurons", "/v1/invocations", "/v1/models", "/v1/chat", "/v1/embeddings", "/v1/tools"]) => {
            "neurons"
        }
        _ if has(&["/health", "/v1/tokens", "/v1/keys"]) => "operations",
        _ => "knowledge",
    }
}

/// Returns the unique operation id for code generators, from the path and the action.
fn operation_id(path: &str, done: &str) -> String {
    let named = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{') && *part != "v1");
    let mut parts: Vec<&str> = named.filter(|part| *part != done).collect();
    parts.push(done);
    parts.join("_").replace(['.', '-'], "_")
}

/// Adds the possible refusals of an operation.
fn refusals(path: &str, method: &str, operation: &mut Value) {
    let takes = |place: &str| operation["parameters"].as_array().into_iter().flatten().any(|it| it["in"] == place);
    let mut statuses = vec![("401", "the token is missing or not known here"), ("403", "this token may not")];
    if takes("path") && path != OPENS_FIRST {
        statuses.push(("404", "there is none"));
    }
    if takes("path") || takes("query") || takes("header") {
        statuses.push(("400", "a part of the path, the query or a header is malformed"));
    }
    if takes("query") {
        statuses.push(("422", "the parameters do not fit together"));
    }
    if operation.get("requestBody").is_some() {
        let body = [
            ("400", "the body is malformed"),
            ("413", "the body is too large"),
            ("415", "the body is not JSON"),
            ("422", "the body does not fit"),
        ];
        statuses.extend(body);
    }
    if method != "get" {
        let writes = [
            ("409", "it conflicts with how things stand"),
            ("429", "too much is under way"),
            ("503", "it cannot be kept now"),
        ];
        statuses.extend(writes);
    }
    if DOOR.contains(&path) || ASKS.contains(&path) {
        let model = [
            ("402", "the account cannot pay"),
            ("502", "the model, or a server of tools, does not answer as it should"),
            ("503", "no model answers"),
            ("504", "the deadline passed"),
        ];
        statuses.extend(model);
    }
    let kind = if DOOR.contains(&path) {
        ("application/json", "OpenAiError")
    } else if units::is_own(path) {
        ("application/json", "UnitError")
    } else {
        ("application/problem+json", "Problem")
    };
    let shape = json!({kind.0: {"schema": {"$ref": format!("#/components/schemas/{}", kind.1)}}});
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, description) in statuses {
        responses.entry(status).or_insert_with(|| json!({"description": description}));
    }
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.starts_with(['4', '5'])) {
        response["content"] = shape.clone();
        // The middleware refuses in the common form.
        response["content"]["application/problem+json"] = json!({"schema": {"$ref": "#/components/schemas/Problem"}});
    }
}

/// Inlines schemas that extend a closed schema. `allOf` would not allow the additional members.
fn merge_closed(shapes: &mut Value) {
    let known = shapes.clone();
    for shape in shapes.as_object_mut().into_iter().flatten().map(|(_, shape)| shape) {
        let Some(parts) = shape["allOf"].as_array() else { continue };
        let whole = |part: &Value| match part["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
            Some(name) => known[name].clone(),
            None => part.clone(),
        };
        let parts: Vec<Value> = parts.iter().map(whole).collect();
        if parts.iter().all(|part| part["additionalProperties"] != false) {
            continue;
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in &parts {
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        let description = shape["description"].clone();
        *shape =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        if description.is_string() {
            shape["description"] = description;
        }
    }
}

/// Marks unsigned integers as 64 bits wide. By default they are described as signed.
fn numbers(part: &mut Value) {
    match part {
        Value::Object(members) => {
            let unsigned = members.get("minimum").is_some_and(|minimum| minimum == 0)
                && members.get("format").is_none_or(|format| format == "int64")
                && !members.contains_key("maximum")
                && members.get("type").is_some_and(|kind| kind.to_string().contains("integer"));
            if unsigned {
                members.insert("format".into(), "uint64".into());
                members.insert("maximum".into(), u64::MAX.into());
            }
            members.iter_mut().for_each(|(_, member)| numbers(member));
        }
        Value::Array(items) => items.iter_mut().for_each(numbers),
        _ => {}
    }
}
