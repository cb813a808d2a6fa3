//! Stored definitions of neurons.

use store::{Batch, Expect, Key, Kind as Document, Origin, PrincipalId, Receipt, Role, StoreError, Versioned};

use super::{CallOptions, FIRST_VERSION, HOUSE, Neurons};
use crate::NeuronError;
use crate::history::{Stored, noted};
use crate::spec::{NeuronId, NeuronSpec, ToolSpec};

impl Neurons {
    /// Stores a new neuron.
    ///
    /// # Errors
    /// Returns [`NeuronError::Spec`] if the definition is invalid, [`NeuronError::Exists`] if the id is taken, and
    /// [`NeuronError::TooManyDefinitions`] if the quota of the principal is used up.
    pub async fn create(
        &self,
        origin: &Origin,
        mut spec: NeuronSpec,
    ) -> Result<(NeuronId, Versioned<NeuronSpec>), NeuronError> {
        if !self.may_define(origin) {
            return Err(NeuronError::LesserToken(origin.principal.id.clone()));
        }
        spec.check().map_err(NeuronError::Spec)?;
        self.check_tools(spec.tools.iter(), origin).map_err(NeuronError::Spec)?;
        let id = spec.id.get_or_insert_with(|| format!("neuron_{}", uuid::Uuid::now_v7().simple()).into()).clone();
        let stored = Stored { spec: spec.clone(), author: Some(origin.principal.id.clone()) };
        let batch = Batch::new(origin).create(Key::new(Document::Neuron, id.clone()), &stored);
        let (batch, _turn) = self.quota.add(batch, &origin.principal).await?;
        match self.commit_definition(noted(batch, &id, FIRST_VERSION, Some(&spec), None)).await {
            Ok(receipt) => Ok((id, Versioned { version: receipt.versions[0], value: spec })),
            Err(StoreError::Conflict { .. }) => Err(NeuronError::Exists(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a neuron's definition.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotFound`].
    pub async fn get(&self, id: &NeuronId) -> Result<Versioned<NeuronSpec>, NeuronError> {
        let Versioned { version, value } = self.stored(id).await?;
        Ok(Versioned { version, value: value.spec })
    }

    pub(crate) async fn stored(&self, id: &NeuronId) -> Result<Versioned<Stored>, NeuronError> {
        let found = self.store.document(&Key::new(Document::Neuron, id.clone())).await?;
        found.ok_or_else(|| NeuronError::NotFound(id.clone()))
    }

    /// Returns at most `limit` definitions with ids after `after`.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn list(&self, after: &str, limit: usize) -> Result<Vec<(NeuronId, Versioned<NeuronSpec>)>, NeuronError> {
        let stored = self.store.documents::<Stored>(Document::Neuron, after, limit).await?;
        let spec = |Versioned { version, value }: Versioned<Stored>| Versioned { version, value: value.spec };
        Ok(stored.into_iter().map(|(id, found)| (id, spec(found))).collect())
    }

    /// Replaces a definition. Running invocations keep the definition that they started with.
    ///
    /// # Errors
    /// Returns [`NeuronError::Spec`], [`NeuronError::NotFound`], [`NeuronError::NotOwner`],
    /// [`NeuronError::LesserToken`], or a conflict if `expect`
    /// is not the current version.
    pub async fn update(
        &self,
        origin: &Origin,
        id: &NeuronId,
        spec: NeuronSpec,
        expect: Option<u64>,
    ) -> Result<Versioned<NeuronSpec>, NeuronError> {
        self.rewrite(origin, id, spec, expect, None).await
    }

    /// Replaces a definition in the name of another author than the writer.
    pub(crate) async fn rewrite(
        &self,
        origin: &Origin,
        id: &NeuronId,
        mut spec: NeuronSpec,
        expect: Option<u64>,
        author: Option<PrincipalId>,
    ) -> Result<Versioned<NeuronSpec>, NeuronError> {
        spec.id = Some(id.clone());
        if !self.may_define(origin) {
            return Err(NeuronError::LesserToken(origin.principal.id.clone()));
        }
        let found = self.changeable(origin, id).await?.version;
        spec.check().map_err(NeuronError::Spec)?;
        self.check_tools(spec.tools.iter(), origin).map_err(NeuronError::Spec)?;
        let expect = expect.unwrap_or(found);
        let key = Key::new(Document::Neuron, id.clone());
        let stored =
            Stored { spec: spec.clone(), author: Some(author.clone().unwrap_or_else(|| origin.principal.id.clone())) };
        let batch = Batch::new(origin).put_expecting(key, Expect::Version(expect), &stored);
        let receipt = self.commit_definition(noted(batch, id, expect + 1, Some(&spec), author)).await?;
        Ok(Versioned { version: receipt.versions[0], value: spec })
    }

    /// Deletes a definition.
    ///
    /// # Errors
    /// Returns [`NeuronError::NotFound`] or [`NeuronError::NotOwner`].
    pub async fn delete(&self, origin: &Origin, id: &NeuronId) -> Result<(), NeuronError> {
        let found = self.changeable(origin, id).await?.version;
        let batch = Batch::new(origin).delete(Key::new(Document::Neuron, id.clone()), Expect::Version(found));
        let (batch, _turn) = self.quota.remove(batch, &self.owner(id).await?).await?;
        self.commit_definition(noted(batch, id, found, None, None)).await?;
        Ok(())
    }

    /// Commits a change of definitions and increments the change counter, which invalidates the plans that were built
    /// before.
    pub(crate) async fn commit_definition(&self, batch: Batch) -> Result<Receipt, StoreError> {
        let this = self.clone();
        self.store.commit_then(batch, move || this.changed()).await
    }

    /// Checks the tools of a definition by `origin`: those that they refer to exist and may be referred to, and only operators
    /// lower an effect class.
    ///
    /// # Errors
    /// Returns a sentence that names the tool and the fault.
    pub fn check_tools<'t>(&self, tools: impl Iterator<Item = &'t ToolSpec>, origin: &Origin) -> Result<(), String> {
        self.tools.check(tools, origin.principal.may(Role::Operator))
    }

    /// Fills in descriptions from other definitions, those of a router's destinations and of tools, for a run with `options`.
    pub(crate) async fn complete(&self, spec: &mut NeuronSpec, options: &CallOptions) -> Result<(), NeuronError> {
        self.expand(spec, options).await?;
        for to in spec.neurons.iter_mut().filter(|to| to.description.is_empty()) {
            let key = Key::new(Document::Neuron, to.neuron.clone());
            if let Some(known) = self.store.document::<Stored>(&key).await? {
                to.description = known.value.spec.description;
            }
        }
        Ok(())
    }

    /// Expands the tools of a definition for a run with `options`.
    pub(crate) async fn expand(&self, spec: &mut NeuronSpec, options: &CallOptions) -> Result<(), NeuronError> {
        let authors = options.caller.as_ref().and_then(|caller| caller.authors.last());
        // Shipped definitions have no author.
        let author = options.author.as_ref().or(authors);
        let is_operators = author.is_none_or(|author| self.directory.principal(&author.0).may(Role::Operator));
        let owner = options.caller.as_ref().map_or(HOUSE, |caller| &*caller.owner);
        let binding = options.caller.as_ref().and_then(|caller| caller.binding.as_deref());
        self.tools.expand(spec, owner, is_operators, binding).await
    }
}
