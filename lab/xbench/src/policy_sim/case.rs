//! A workload that is ready to be simulated: its files are read, its groups are counted out.

use super::builtin;
use super::request::Recipe;
use super::workload::{Client, Model, Workload};
use crate::WrongInput;
use std::path::Path;

/// A workload with all that it names.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What its file says; the options of the command are in its model and its duration.
    pub workload: Workload,
    pub(super) recipes: Vec<Recipe>,
}

/// One of a group of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// Its group, by its place in the workload.
    pub group: usize,
    /// Its number among all clients of the workload, which its random numbers come from.
    pub number: usize,
}

impl Case {
    /// A built-in workload by its name, or a file.
    ///
    /// # Errors
    /// There is no such workload, or its file cannot be read or makes no sense.
    pub fn load(name: &str) -> Result<Self, WrongInput> {
        Self::load_with(name, |_| Ok(()))
    }

    /// The same, after something is changed of what the file says.
    ///
    /// # Errors
    /// As with [`Case::load`]; and what the change says.
    pub fn load_with(
        name: &str,
        change: impl FnOnce(&mut Workload) -> Result<(), WrongInput>,
    ) -> Result<Self, WrongInput> {
        if let Some(text) = builtin::find(name) {
            let mut workload = Workload::from_toml(text)
                .map_err(|why| WrongInput(format!("{name} is no workload: {why}")))?;
            change(&mut workload)?;
            return Self::new(name.to_owned(), workload, Path::new(""));
        }
        let path = Path::new(name);
        if !path.exists() && path.components().count() <= 1 && path.extension().is_none() {
            let names: Vec<_> = builtin::WORKLOADS.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            return Err(WrongInput(format!("no workload {name:?}, nor such a file (built in are {names})")));
        }
        let stem =
            path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        let mut workload = Workload::load(path)?;
        change(&mut workload)?;
        Self::new(stem, workload, path.parent().unwrap_or(Path::new("")))
    }

    /// A workload whose files lie in `folder`.
    ///
    /// # Errors
    /// A file cannot be read or makes no sense.
    pub fn new(name: String, workload: Workload, folder: &Path) -> Result<Self, WrongInput> {
        let slots = workload.model.slots;
        let recipe = |client: &Client| {
            Recipe::new(client, slots, folder)
                .map_err(|error| WrongInput(format!("{name}: client {:?}: {error}", client.name)))
        };
        let recipes = workload.client.iter().map(recipe).collect::<Result<_, _>>()?;
        Ok(Self { name, workload, recipes })
    }

    /// Every client, group by group.
    pub fn instances(&self) -> Vec<Instance> {
        let groups = self.workload.client.iter().enumerate();
        let all = groups.flat_map(|(group, client)| (0..client.count).map(move |_| group));
        all.enumerate().map(|(number, group)| Instance { group, number }).collect()
    }

    pub(super) fn client(&self, instance: Instance) -> &Client {
        &self.workload.client[instance.group]
    }

    pub(super) fn model(&self) -> &Model {
        &self.workload.model
    }

    /// How many devices there are.
    pub(super) fn devices(&self) -> usize {
        let queues = self.workload.client.iter().flat_map(|client| &client.queues);
        queues.map(|queue| queue.device as usize + 1).max().unwrap_or(1)
    }
}
