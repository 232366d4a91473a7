//! A workload that is ready to be simulated: its files are loaded and its groups expanded.

use super::builtin;
use super::request::Recipe;
use super::workload::{Client, Model, Workload};
use crate::WrongInput;
use std::path::Path;

/// A workload with all files that it names.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    /// The contents of its file, after the options of the command have changed model and duration.
    pub workload: Workload,
    pub(super) recipes: Vec<Recipe>,
}

/// A client of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// The index of its group in the workload.
    pub group: usize,
    /// Its number among all clients of the workload, from which its random numbers follow.
    pub number: usize,
}

impl Case {
    /// Loads a built-in workload by its name, or a file.
    pub fn load(name: &str) -> Result<Self, WrongInput> {
        Self::load_with(name, |_| Ok(()))
    }

    pub fn load_with(
        name: &str,
        change: impl FnOnce(&mut Workload) -> Result<(), WrongInput>,
    ) -> Result<Self, WrongInput> {
        if let Some(text) = builtin::find(name) {
            let mut workload =
                Workload::from_toml(text).map_err(|why| why.within(format!("{name} is no workload")))?;
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

    /// Prepares a workload whose files lie in `folder`.
    pub fn new(name: String, workload: Workload, folder: &Path) -> Result<Self, WrongInput> {
        let slots = workload.model.slots;
        let recipe = |client: &Client| {
            Recipe::new(client, slots, folder)
                .map_err(|error| error.within(format!("{name}: client {:?}", client.name)))
        };
        let recipes = workload.client.iter().map(recipe).collect::<Result<_, _>>()?;
        Ok(Self { name, workload, recipes })
    }

    /// Returns all clients, group by group.
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

    pub(super) fn devices(&self) -> usize {
        let queues = self.workload.client.iter().flat_map(|client| &client.queues);
        queues.map(|queue| queue.device as usize + 1).max().unwrap_or(1)
    }
}
