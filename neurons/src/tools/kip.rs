//! `execute_kip` on one nexus (K7).

use std::sync::Arc;

use nexus::{Nexus, Origin, Request};

/// Runs the request that the parameters hold and answers the envelope as text.
pub(super) async fn run(nexus: &Nexus, id: &Arc<str>, params: &str, origin: &Origin) -> Result<String, String> {
    let request: Request = serde_json::from_str(params)
        .map_err(|error| format!("the parameters must be {{\"command\": \"…\", \"parameters\": {{…}}}}: {error}"))?;
    if !nexus.exists(id).await.map_err(|error| error.to_string())? {
        return Err(format!("nobody was born with the nexus {id}"));
    }
    let answer = nexus.execute(id, request, origin).await.map_err(|error| error.to_string())?;
    Ok(answer.to_string())
}
