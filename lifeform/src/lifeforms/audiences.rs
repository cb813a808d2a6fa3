//! The audiences of lifeforms' jobs, for searches that models make.

use std::collections::BTreeSet;

use async_trait::async_trait;
use fascicles::run::Fact;
use knowledge::{Audience, Audiences};
use neurons::tools::Caller;
use store::Entry;

use super::Lifeforms;
use super::mind_tools::MindTools;
use crate::agenda::{ERRAND, Errand};
use crate::perception::PerceivedMessage;
use crate::spec::LifeformId;
use crate::tools::LifeformToolbox;

#[async_trait]
impl Audiences for MindTools {
    async fn of(&self, caller: &Caller) -> Option<Audience> {
        let id: LifeformId = caller.owner.strip_prefix("lifeform:")?.into();
        let anybody = Audience {
            me: caller.owner.to_string(),
            readers: [Audience::ANYBODY.to_owned()].into(),
            ..Audience::default()
        };
        let Some(lifeforms) = self.lifeforms() else { return Some(anybody) };
        let root = caller.root.clone().or_else(|| caller.job.clone()).unwrap_or_default();
        let (Ok(tools), Ok(perception)) = (lifeforms.tools_of(&id).await, lifeforms.perception_of(&root).await) else {
            return Some(anybody);
        };
        let mut audience = match perception {
            Some(perception) => {
                let said =
                    perception.said.iter().filter(|said| said.to_answer).cloned().collect::<Vec<PerceivedMessage>>();
                let sources = said.into_iter().map(|said| said.sender.to_string()).collect();
                Audience { readers: tools.readers_in(perception), sources, ..anybody }
            }
            None => match lifeforms.errand_of(&root).await {
                Some(Errand::Act(errand)) => {
                    let sources = errand.behind.iter().map(|who| who.to_string()).collect();
                    Audience { readers: tools.readers_of_act(&errand), sources, ..anybody }
                }
                _ => anybody,
            },
        };
        if audience.readers.is_empty() {
            audience.readers.insert(Audience::ANYBODY.to_owned());
        }
        if caller.tainted {
            audience.sources.insert(nexus::OUTSIDE.to_owned());
        }
        audience.sources.remove(&audience.me);
        audience.trusted = trusted_among(&audience.readers, &tools);
        Some(audience)
    }
}

fn trusted_among(readers: &BTreeSet<String>, tools: &LifeformToolbox) -> BTreeSet<String> {
    readers.iter().filter(|who| tools.knowledge.trusts_word_of(who)).cloned().collect()
}

impl Lifeforms {
    /// Returns the errand that a job carries out; `None` for other jobs.
    async fn errand_of(&self, job: &str) -> Option<Errand> {
        let accepted = self.inner.store.entries(&format!("job:{job}").into(), 0, 1).await.ok()?;
        let Some(Ok(Fact::Accepted { events, .. })) = accepted.first().map(Entry::decode::<Fact>) else { return None };
        let errand = events.into_iter().find(|event| &*event.role == ERRAND)?;
        serde_json::from_value(errand.content).ok()
    }
}
