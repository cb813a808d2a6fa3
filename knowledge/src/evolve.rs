//! Improvement of records by feedback (MISSION H2). A wish is stored with its record until the owner, or a model on the
//! owner's behalf, has rewritten the record. The earlier content remains a version.

use nexus::WriteAuthority;
use serde_json::json;
use store::secrets::redacted;
use store::{Batch, Origin, Role};

use crate::draft::{Body, CONTENT_CHARS_MAX, TASK_CHARS_MAX};
use crate::likeness::facts;
use crate::write::upsert;
use crate::{Knowledge, KnowledgeError, Record, commons, feedback, outcome};

impl Knowledge {
    /// Stores a wish for a record. If the caller owns the record and a model is available, the model rewrites the
    /// record. Returns the reason if the record is not rewritten yet.
    pub(crate) async fn evolve(
        &self,
        id: &str,
        wish: String,
        origin: &Origin,
    ) -> Result<Option<String>, KnowledgeError> {
        let wish = redacted(&wish).map_or(wish, |(wish, _)| wish);
        let beside = Batch::new(origin).append(feedback::stream(id), feedback::WISH, &json!({"wish": wish}));
        let command = r#"UPDATE ?k SET METADATA { needs_evolution: ADD(COALESCE(?k.metadata.needs_evolution, 0), 1) } WHERE { ?k {type: "Knowledge", name: $id} }"#;
        self.kip(command, json!({"id": id}), WriteAuthority::Judge, beside.ops, id, origin).await?;
        let record = self.seen(id, origin).await?;
        let owns = origin.principal.answers_for(&record.owner) || origin.principal.may(Role::Operator);
        if !owns {
            return Ok(Some("the_owner_decides".to_owned()));
        }
        let Some(thinker) = &self.thinker else { return Ok(Some("no_llm".to_owned())) };
        let written = match thinker.rewrite(&record.task, &record.content, &wish, origin).await {
            Ok(written) => written,
            Err(why) => return Ok(Some(why.to_owned())),
        };
        if let Some(lost) = lost(&record, &written.task, &written.content, &written.dropped) {
            return Ok(Some(format!("the model left out \"{lost}\" without saying so")));
        }
        let fits = |text: &str, most: usize| !text.trim().is_empty() && text.chars().count() <= most;
        if !fits(&written.task, TASK_CHARS_MAX) || !fits(&written.content, CONTENT_CHARS_MAX) {
            return Ok(Some("what the model wrote is no record".to_owned()));
        }
        let body = Body { task: Some(written.task), content: Some(written.content), ..Body::default() };
        // A judgement in between changes the version but not the content. A wish in between is not fulfilled yet.
        let now = self.seen(id, origin).await?;
        let confidence = 0.5 * now.eval.confidence + 0.25;
        let metadata = json!({"confidence": confidence, "needs_evolution": now.wishes.saturating_sub(record.wishes)});
        if (&now.task, &now.content) != (&record.task, &record.content) {
            return Ok(Some("it was changed meanwhile".to_owned()));
        }
        let whose = (now.owner.as_str(), now.scopes.as_slice());
        let call = upsert(id, &format!("EXPECT VERSION {}", now.version), &body, &metadata, whose);
        let answer = self.nexus.write_with(&commons(), call, origin, WriteAuthority::Own, Vec::new()).await?;
        match outcome(&answer, id) {
            Ok(_) => Ok(None),
            Err(KnowledgeError::Stale(_)) => Ok(Some("it was changed meanwhile".to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// Returns a fact of the old text that is neither in the new text nor listed as dropped.
fn lost(old: &Record, task: &str, content: &str, dropped: &[String]) -> Option<String> {
    let mut facts = facts(&old.content).map(str::to_owned);
    let kept = |fact: &String| {
        content.contains(fact.as_str())
            || task.contains(fact.as_str())
            || dropped.iter().any(|said| said.contains(fact.as_str()))
    };
    facts.find(|fact| !kept(fact))
}
