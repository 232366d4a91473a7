//! A map from handles to values that live as long as the process. Readers take no lock.

use crate::handles::Handles;
use parking_lot::Mutex;
use std::fmt;

/// A map from handles to values of the process's lifetime.
pub struct HandleMap<T: 'static> {
    handles: Handles<T>,
    /// Lets one thread at a time change the map.
    changing: Mutex<()>,
}

impl<T: Sync> HandleMap<T> {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self { handles: Handles::new(), changing: Mutex::new(()) }
    }

    /// Returns the value of a handle.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&'static T> {
        self.handles.get(handle)
    }

    /// Sets the value of a handle; null is no handle.
    pub fn insert(&self, handle: usize, value: &'static T) {
        let _changing = self.changing.lock();
        self.handles.insert(handle, value);
    }

    /// Removes the value of a handle and returns it.
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
