//! A map from handles to values that live as long as the process, read without a lock.

use crate::handles::Handles;
use parking_lot::Mutex;
use std::fmt;

/// The map.
pub struct HandleMap<T: 'static> {
    handles: Handles<T>,
    /// Held by whoever changes the map.
    changing: Mutex<()>,
}

impl<T: Sync> HandleMap<T> {
    /// Has nothing.
    pub const fn new() -> Self {
        Self { handles: Handles::new(), changing: Mutex::new(()) }
    }

    /// The value of a handle.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&'static T> {
        self.handles.get(handle)
    }

    /// Gives a handle a value; null is no handle.
    pub fn insert(&self, handle: usize, value: &'static T) {
        let _changing = self.changing.lock();
        self.handles.insert(handle, value);
    }

    /// Takes a handle's value away, and returns what it was.
    pub fn remove(&self, handle: usize) -> Option<&'static T> {
        let _changing = self.changing.lock();
        let value = self.handles.get(handle);
        self.handles.remove(handle);
        value
    }
}

impl<T: Sync> Default for HandleMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for HandleMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleMap").finish_non_exhaustive()
    }
}
