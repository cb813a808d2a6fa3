//! The tools of KnowledgePulse.

use serde_json::{Map, Value, json};
use store::Origin;

use super::{Contribute, ContributeSkill, SKILLS_MAX, Skills, read};
use crate::audience::Audience;
use crate::skill::{self, SkillsWanted};
use crate::unit::{id_of, quality_of};
use crate::{Knowledge, KnowledgeError};

impl Knowledge {
    pub(super) async fn tool_contribute(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let Contribute { mut unit, visibility } = read(arguments)?;
        if let Some(visibility) = visibility {
            let metadata = unit.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("visibility".to_owned(), visibility.into());
            }
        }
        let done = Box::pin(self.contribute(unit, None, origin)).await?;
        let (id, quality) = (id_of(&done.record), quality_of(&done.record));
        Ok(json!({"id": id, "quality_score": quality, "knowledge_id": done.record.id, "warnings": done.warnings}))
    }

    pub(super) async fn tool_skills(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
        audience: Option<&Audience>,
    ) -> Result<Value, KnowledgeError> {
        let asked: Skills = read(arguments)?;
        let wanted = SkillsWanted {
            question: Some(asked.query),
            domain: asked.domain,
            tags: asked.tags,
            min_quality: asked.min_quality,
            offset: 0,
            limit: within(asked.limit, SKILLS_MAX)?,
        };
        let (mut found, mut total) = self.skills(&wanted, origin).await?;
        if audience.is_some() {
            let all = found.len();
            found.retain(|record| self.is_for(record, audience));
            total -= all - found.len();
        }
        Ok(json!({"skills": found.iter().map(skill::as_skill).collect::<Vec<_>>(), "total": total}))
    }

    pub(super) async fn tool_contribute_skill(
        &self,
        arguments: Map<String, Value>,
        origin: &Origin,
    ) -> Result<Value, KnowledgeError> {
        let asked: ContributeSkill = read(arguments)?;
        let done = self.contribute_skill(&asked.skill_md_content, asked.visibility.as_deref(), origin).await?;
        Ok(
            json!({"id": skill::as_skill(&done.record)["id"], "knowledge_id": done.record.id, "warnings": done.warnings}),
        )
    }
}

/// Checks that a number of results is from 1 to `max`, and returns it.
pub(super) fn within(limit: usize, max: usize) -> Result<usize, KnowledgeError> {
    let wrong = || KnowledgeError::invalid("limit", format!("is a number from 1 to {max}"));
    (1..=max).contains(&limit).then_some(limit).ok_or_else(wrong)
}
