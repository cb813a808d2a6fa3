//! Records that get better by what people say of them (MISSION H2): a wish is kept with its record until somebody, or a
//! model, has written it anew.

use nexus::{Batch, Origin, Right};
use serde_json::json;

use crate::{Knowledge, KnowledgeError, feedback};

impl Knowledge {
    /// Keeps what is to be better about a record; answers why it is not better yet.
    pub(crate) async fn evolve(
        &self,
        id: &str,
        wish: String,
        origin: &Origin,
    ) -> Result<Option<String>, KnowledgeError> {
        let beside = Batch::new(origin).append(feedback::stream(id), "wish", &json!({"wish": wish}));
        let command = r#"UPDATE ?k SET METADATA { needs_evolution: ADD(COALESCE(?k.metadata.needs_evolution, 0), 1) } WHERE { ?k {type: "Knowledge", name: $id} }"#;
        self.kip(command, json!({"id": id}), Right::Judge, beside.ops, id, origin).await?;
        Ok(Some("no_llm".to_owned()))
    }
}
