//! The tools that a lifeform was given, and what it did with them outside of the daemon.

use std::sync::Arc;

use neurons::tools::{Effect, Effects, GivenNow, ToolId, ToolUse};
use store::{Kind, Origin};

use super::Lifeforms;
use crate::LifeformError;
use crate::life::{Head, HeadChange};
use crate::spec::LifeformId;

impl Lifeforms {
    /// Gives a lifeform its tools, in place of those that it had. Its next answer has them.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], and [`LifeformError::Spec`] if a tool does not exist or its rules would be laxer.
    pub async fn set_tools(
        &self,
        origin: &Origin,
        id: &LifeformId,
        tools: Vec<ToolUse>,
    ) -> Result<Head, LifeformError> {
        let kept = self.get(id).await?.definition.tools;
        self.inner.fascicles.neurons().tools().check_uses(&tools, &kept).await.map_err(LifeformError::Spec)?;
        self.change_head(origin, id, HeadChange::Tools(tools)).await
    }

    /// Returns the tools that a lifeform was given, each with the single tools that a model sees now, or the reason why it sees
    /// none.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn given_tools(&self, id: &LifeformId) -> Result<Vec<(ToolUse, GivenNow)>, LifeformError> {
        let head = self.get(id).await?;
        Ok(self.inner.fascicles.neurons().tools().given_now(&head.definition.tools).await)
    }

    /// Takes a tool from a lifeform. A lifeform that was not given it stays as it is.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn take_tool(&self, origin: &Origin, id: &LifeformId, tool: &ToolId) -> Result<(), LifeformError> {
        self.change_head(origin, id, HeadChange::Take(tool.clone())).await.map(drop)
    }

    /// Returns the lifeforms that were given a named tool.
    ///
    /// # Errors
    /// A store error.
    pub async fn users_of_tool(&self, tool: &str) -> Result<Vec<LifeformId>, LifeformError> {
        let (mut users, mut after) = (Vec::new(), String::new());
        loop {
            let (heads, next) = self.page(&after, 1_000).await?;
            let uses = |head: &Head| head.definition.tools.iter().any(|used| *used.tool == *tool);
            users.extend(heads.iter().filter(|head| uses(head)).map(|head| head.id.clone()));
            let Some(next) = next else { return Ok(users) };
            after = next.to_string();
        }
    }

    /// Returns the effects of a lifeform's calls outside the daemon by the work around them, for at most `limit` roots after
    /// `after`, and the start of the next page.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn tool_effects(
        &self,
        id: &LifeformId,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<(Arc<str>, Effect)>, Option<Arc<str>>), LifeformError> {
        self.get(id).await?;
        let own = format!("{id}/");
        let after = if after < own.as_str() { own.clone() } else { after.to_owned() };
        let page = self.inner.store.documents::<Effects>(Kind::Effect, &after, limit).await?;
        let full = page.len() == limit;
        let page: Vec<_> = page.into_iter().take_while(|(root, _)| root.starts_with(&own)).collect();
        let next = page.last().filter(|_| full && page.len() == limit).map(|(root, _)| root.clone());
        let tools = self.inner.fascicles.neurons().tools();
        let effects = page.into_iter().flat_map(|(root, found)| {
            found.value.effects.into_iter().map(move |effect| (root.clone(), tools.as_known(effect)))
        });
        Ok((effects.collect(), next))
    }
}
