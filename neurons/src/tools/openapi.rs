//! Tools from an OpenAPI document: each operation becomes an HTTP tool with a schema of its parameters.

use serde_json::{Map, Value, json};

use super::http;
use super::spec::{Body, HttpTool, Method, OpenapiTool, Runner, ToolSpec, name_within};
use crate::spec::{TOOLS_MAX, check_schema};

/// The maximum size of a document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 512 << 10;
/// The maximum nesting depth of references.
const DEPTH_MAX: usize = 32;
/// The maximum size of one operation's schema after its references are resolved, in bytes.
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// The name of the parameter that holds the body of a request.
const BODY: &str = "body";

const METHODS: [(&str, Method); 6] = [
    ("get", Method::Get),
    ("head", Method::Head),
    ("post", Method::Post),
    ("put", Method::Put),
    ("patch", Method::Patch),
    ("delete", Method::Delete),
];

/// Returns the tools that `spec` stands for: one for each operation, with the rules of `spec`.
///
/// # Errors
/// Returns a sentence that names the part of the document and its fault.
pub(crate) fn tools(spec: &ToolSpec, tool: &OpenapiTool) -> Result<Vec<ToolSpec>, String> {
    let document = Document(&tool.document);
    if tool.document.to_string().len() > DOCUMENT_BYTES_MAX {
        return Err(format!("document is over {DOCUMENT_BYTES_MAX} bytes"));
    }
    let server = document.server()?;
    let paths = tool.document["paths"].as_object().ok_or("document has no paths")?;
    let mut tools = Vec::new();
    for (path, item) in paths {
        let item = document.pointed(item, 0).map_err(|error| format!("document.paths.{path}: {error}"))?;
        for (verb, method) in METHODS {
            let Some(operation) = item.get(verb) else { continue };
            let fallback = || format!("{verb}{path}");
            let id = operation["operationId"].as_str().map_or_else(fallback, str::to_owned);
            if tool.operation.as_ref().is_some_and(|wanted| *wanted != id) {
                continue;
            }
            let at = |error: String| format!("document.paths.{path}.{verb}: {error}");
            let name = if tool.operation.is_some() { spec.name.clone() } else { name_within(&spec.name, &id) };
            if !path.starts_with('/') {
                return Err(at("a path begins with /".into()));
            }
            if tools.len() >= TOOLS_MAX {
                return Err(format!("document has more than {TOOLS_MAX} operations"));
            }
            tools.push(document.tool(spec, name, (&server, path, method), item, operation).map_err(at)?);
        }
    }
    match (&tool.operation, tools.len()) {
        (Some(wanted), 0) => Err(format!("operation \"{wanted}\" is not in the document")),
        (None, 0) => Err("document has no operation".into()),
        _ => Ok(tools),
    }
}

struct Document<'d>(&'d Value);

impl Document<'_> {
    fn server(&self) -> Result<String, String> {
        let server = &self.0["servers"][0];
        let url = server["url"].as_str().ok_or("document has no servers with a url")?;
        let url = url.trim_end_matches('/');
        if !url.starts_with("http") {
            return Err(format!("document.servers: \"{url}\" is not a whole address"));
        }
        // The variables of a server URL are replaced by their defaults in one pass (OpenAPI 3.1 §4.8.6).
        let mut filled = String::new();
        for (place, part) in url.split('{').enumerate() {
            match part.split_once('}') {
                Some((name, rest)) if place > 0 => {
                    filled.push_str(server["variables"][name]["default"].as_str().unwrap_or_default());
                    filled.push_str(rest);
                }
                _ => filled.push_str(part),
            }
        }
        Ok(filled)
    }

    fn tool(
        &self,
        spec: &ToolSpec,
        name: String,
        (server, path, method): (&str, &str, Method),
        item: &Value,
        operation: &Value,
    ) -> Result<ToolSpec, String> {
        let mut request =
            HttpTool { method, url: format!("{server}{path}"), body: Some(Body::None), ..HttpTool::default() };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        // Parameters of an operation override those of its path.
        let declared = item["parameters"].as_array().into_iter().flatten();
        for parameter in declared.chain(operation["parameters"].as_array().into_iter().flatten()) {
            let parameter = self.whole(parameter, 0)?;
            let name = parameter["name"].as_str().ok_or("a parameter has no name")?;
            let mut schema = parameter.get("schema").cloned().unwrap_or_else(|| json!({}));
            if let (Some(said), Some(schema)) = (parameter.get("description"), schema.as_object_mut()) {
                schema.entry("description").or_insert_with(|| said.clone());
            }
            properties.insert(name.into(), schema);
            required.retain(|known| known != name);
            request.query.retain(|known| known != name);
            if parameter["required"] == true {
                required.push(name.to_owned());
            }
            match parameter["in"].as_str() {
                Some("path") => {}
                Some("query") => request.query.push(name.into()),
                Some("header") if parameter["required"] == true && http::may_set(name) => {
                    request.headers.insert(name.into(), format!("{{{name}}}"));
                }
                // Optional headers and cookies are left out, and so are those that the host's configuration sets.
                Some("header" | "cookie") => {
                    properties.remove(name);
                    required.retain(|known| known != name);
                }
                other => return Err(format!("the parameter {name} is in {other:?}")),
            }
        }
        if let Some(body) = operation.get("requestBody") {
            let body = self.whole(body, 0)?;
            let schema = body["content"].as_object().into_iter().flatten();
            let schema =
                schema.filter(|(kind, _)| kind.contains("json")).find_map(|(_, content)| content.get("schema"));
            let name = if properties.contains_key(BODY) { "request_body" } else { BODY };
            properties.insert(name.into(), schema.ok_or("its body is not JSON")?.clone());
            request.body = Some(Body::Parameter(name.into()));
            if body["required"] == true {
                required.push(name.into());
            }
        }
        if let Some(name) = http::places(&request.url).into_iter().find(|name| !properties.contains_key(*name)) {
            return Err(format!("its address names {{{name}}}, which is no parameter of it"));
        }
        let said = ["description", "summary"].into_iter().find_map(|member| operation[member].as_str());
        let description = said.unwrap_or_default();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        check_schema(&parameters)?;
        http::check(&request)?;
        let described = super::cut_to(description.to_owned(), super::DESCRIPTION_BYTES_MAX);
        Ok(ToolSpec { name, description: described, parameters, run: Runner::Http(request), ..spec.clone() })
    }

    /// Returns a part of the document, or the target if the part is a reference.
    fn pointed<'p>(&'p self, part: &'p Value, depth: usize) -> Result<&'p Value, String> {
        let Some(to) = part.get("$ref").and_then(Value::as_str) else { return Ok(part) };
        if depth > DEPTH_MAX {
            return Err(format!("{to} leads to itself"));
        }
        let target = to.strip_prefix('#').and_then(|pointer| self.0.pointer(pointer));
        self.pointed(target.ok_or_else(|| format!("{to} points to nothing in the document"))?, depth + 1)
    }

    /// Returns a part of the document with all references resolved.
    fn whole(&self, part: &Value, depth: usize) -> Result<Value, String> {
        let mut left = SCHEMA_BYTES_MAX;
        self.filled(part, depth, &mut left)
    }

    fn filled(&self, part: &Value, depth: usize, left: &mut usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("its references lead too deep; one that leads back to itself cannot be filled in".into());
        }
        *left = left.checked_sub(8).ok_or_else(|| format!("its references grow over {SCHEMA_BYTES_MAX} bytes"))?;
        match part {
            Value::Object(members) => match members.get("$ref").and_then(Value::as_str) {
                Some(to) => {
                    let target = to.strip_prefix('#').and_then(|pointer| self.0.pointer(pointer));
                    self.filled(
                        target.ok_or_else(|| format!("{to} points to nothing in the document"))?,
                        depth + 1,
                        left,
                    )
                }
                None => members
                    .iter()
                    .map(|(name, member)| {
                        *left = left.saturating_sub(name.len());
                        Ok((name.clone(), self.filled(member, depth + 1, left)?))
                    })
                    .collect(),
            },
            Value::Array(items) => items.iter().map(|item| self.filled(item, depth + 1, left)).collect(),
            Value::String(text) => {
                *left = left.saturating_sub(text.len());
                Ok(part.clone())
            }
            plain => Ok(plain.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(document: Value, operation: Option<&str>) -> Result<Vec<ToolSpec>, String> {
        let tool = OpenapiTool { document, operation: operation.map(str::to_owned) };
        tools(&ToolSpec { name: "shop".into(), ..ToolSpec::default() }, &tool)
    }

    fn document() -> Value {
        json!({
            "servers": [{"url": "https://{region}.example.com/v1/", "variables": {"region": {"default": "eu"}}}],
            "paths": {"/things/{id}": {
                "parameters": [{"$ref": "#/components/parameters/id"}, {"name": "page", "in": "query", "schema": {"type": "integer"}}],
                "get": {"operationId": "getThing", "summary": "One thing.", "responses": {}},
                "put": {"operationId": "putThing", "parameters": [{"name": "page", "in": "header", "required": true}],
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}},
            }},
            "components": {
                "parameters": {"id": {"name": "id", "in": "path", "required": true, "description": "which", "schema": {"type": "string"}}},
                "schemas": {"Thing": {"type": "object", "properties": {"name": {"type": "string"}}}},
            },
        })
    }

    #[test]
    fn each_operation_is_a_tool_with_its_parameters() {
        let tools = of(document(), None).unwrap();
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["shop_getThing", "shop_putThing"]);
        assert_eq!(tools[0].description, "One thing.");
        assert_eq!(
            tools[0].parameters,
            json!({"type": "object", "required": ["id"], "properties": {
                "id": {"type": "string", "description": "which"}, "page": {"type": "integer"}}})
        );
        let Runner::Http(get) = &tools[0].run else { panic!("{:?}", tools[0].run) };
        assert_eq!((get.url.as_str(), &get.query), ("https://eu.example.com/v1/things/{id}", &vec!["page".to_owned()]));
        let Runner::Http(put) = &tools[1].run else { panic!("{:?}", tools[1].run) };
        assert_eq!((put.headers["page"].as_str(), put.query.len()), ("{page}", 0));
        assert_eq!(put.body, Some(Body::Parameter("body".into())));
        assert_eq!(tools[1].parameters["properties"]["body"]["properties"]["name"]["type"], "string");
        assert_eq!(tools[1].parameters["required"], json!(["id", "page", "body"]));
        assert_eq!(of(document(), Some("getThing")).unwrap()[0].name, "shop");
    }

    #[test]
    fn a_document_that_cannot_be_used_is_refused_with_the_place() {
        let mut endless = document();
        endless["components"]["schemas"]["Thing"] =
            json!({"properties": {"next": {"$ref": "#/components/schemas/Thing"}}});
        let mut missing = document();
        missing["components"] = json!({});
        let mut relative = document();
        relative["servers"] = json!([{"url": "/v1"}]);
        let mut growing = document();
        let variables = (0..9).map(|n| (format!("v{n}"), json!({"default": format!("{{v{}}}", n + 1).repeat(10)})));
        growing["servers"] = json!([{"url": "https://a.example/{v0}", "variables": variables.collect::<Map<_, _>>()}]);
        let mut many = document();
        let paths = (0..2_000).map(|n| (format!("/p{n}"), json!({"get": {"operationId": format!("o{n}")}})));
        many["paths"] = Value::Object(paths.collect());
        for (document, operation, part) in [
            (growing, None, "no parameter"),
            (many, None, "more than"),
            (endless, None, "too deep"),
            (missing, None, "points to nothing"),
            (relative, None, "not a whole address"),
            (document(), Some("nothing"), "operation \"nothing\""),
            (json!({"servers": [{"url": "https://a.example"}]}), None, "no paths"),
        ] {
            let error = of(document, operation).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
