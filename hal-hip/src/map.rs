//! A map from handles (addresses) to values that live as long as the process. Readers take no lock.
//!
//! The table is an array of keys and values with linear probing. A key stays in its slot once it is written,
//! so that readers need no protection; removing a handle stores null as its value. A table that is half full
//! is replaced by one that holds the entries with a value, with room for as many again. The old table stays
//! for the readers that may be in it: together the old tables of a growing map are smaller than the current
//! one, and a map whose handles come and go under new addresses leaks 32 bytes for each.

use crate::mix::Mix;
use parking_lot::Mutex;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The size of the first table; a power of two.
const FIRST: usize = 64;

/// A map from handles to values of the process's lifetime.
pub struct HandleMap<T: 'static> {
    /// Null, or a table that is never freed.
    table: AtomicPtr<Table<T>>,
    /// The number of slots with a key. The lock lets one thread at a time change the map.
    used: Mutex<usize>,
}

/// The slots; their number is a power of two, and at least half of them have never been used.
struct Table<T>(Box<[Slot<T>]>);

struct Slot<T> {
    /// 0 if the slot has never been used. Once set it never changes.
    key: AtomicUsize,
    /// Null, or from a `&'static T`.
    value: AtomicPtr<T>,
}

impl<T: Sync> HandleMap<T> {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self { table: AtomicPtr::new(ptr::null_mut()), used: Mutex::new(0) }
    }

    /// Returns the value of a handle.
    #[inline]
    pub fn get(&self, handle: usize) -> Option<&'static T> {
        // SAFETY: the value is null or was stored from a `&'static T`.
        unsafe { self.slot(handle)?.value.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value of a handle; null is no handle.
    pub fn insert(&self, handle: usize, value: &'static T) {
        if handle == 0 {
            return;
        }
        let mut used = self.used.lock();
        let value = ptr::from_ref(value).cast_mut();
        if let Some(slot) = self.slot(handle) {
            slot.value.store(value, Ordering::Release);
            return;
        }
        let table = match self.table() {
            Some(table) if (*used + 1) * 2 <= table.0.len() => table,
            full => self.replace(full, &mut used),
        };
        table.add(handle, value);
        *used += 1;
    }

    /// Removes the value of a handle and returns it.
    pub fn remove(&self, handle: usize) -> Option<&'static T> {
        let _changing = self.used.lock();
        // SAFETY: the value is null or was stored from a `&'static T`.
        unsafe { self.slot(handle)?.value.swap(ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }

    #[inline]
    fn slot(&self, handle: usize) -> Option<&'static Slot<T>> {
        self.table()?.find(handle).filter(|slot| slot.key.load(Ordering::Relaxed) == handle)
    }

    #[inline]
    fn table(&self) -> Option<&'static Table<T>> {
        // SAFETY: `replace` stores only leaked tables, after they are complete.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    fn replace(&self, old: Option<&'static Table<T>>, used: &mut usize) -> &'static Table<T> {
        let slots = old.map_or(&[][..], |table| &table.0);
        let living = |slot: &&Slot<T>| !slot.value.load(Ordering::Relaxed).is_null();
        *used = slots.iter().filter(living).count();
        let empty = || Slot { key: AtomicUsize::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        let size = (*used * 4).next_power_of_two().max(FIRST);
        let table = Box::leak(Box::new(Table(std::iter::repeat_with(empty).take(size).collect())));
        for slot in slots.iter().filter(living) {
            table.add(slot.key.load(Ordering::Relaxed), slot.value.load(Ordering::Relaxed));
        }
        self.table.store(table, Ordering::Release);
        table
    }
}

impl<T> Table<T> {
    /// Returns the slot of a key, or the unused slot for it.
    #[inline]
    fn find(&self, key: usize) -> Option<&Slot<T>> {
        let mask = self.0.len() - 1;
        let mut at = Mix::fold(key as u64) as usize;
        // The search ends at an unused slot; the limit only makes that obvious.
        for _ in 0..=mask {
            let slot = self.0.get(at & mask)?;
            let found = slot.key.load(Ordering::Acquire);
            if found == key || found == 0 {
                return Some(slot);
            }
            at = at.wrapping_add(1);
        }
        None
    }

    /// Fills an unused slot. The key is not in the table.
    fn add(&self, key: usize, value: *mut T) {
        if let Some(slot) = self.find(key) {
            // A reader that sees the key sees the value, and one that sees the value sees what it points to.
            slot.value.store(value, Ordering::Release);
            slot.key.store(key, Ordering::Release);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    static VALUES: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    #[test]
    fn empty_map_has_no_value() {
        let map = HandleMap::<usize>::new();
        assert_eq!((map.get(0), map.get(8)), (None, None));
        map.remove(8);
        map.insert(0, &VALUES[1]);
        assert_eq!(map.get(0), None, "null is no handle");
    }

    #[test]
    fn removed_handles_need_no_larger_table() {
        let map = HandleMap::new();
        for key in 1..100_000_usize {
            map.insert(key * 16, &VALUES[key % 16]);
            assert_eq!(map.get(key * 16), Some(&VALUES[key % 16]));
            map.remove(key * 16);
            assert_eq!(map.get(key * 16), None);
        }
        assert_eq!(map.table().unwrap().0.len(), FIRST);
    }

    proptest! {
        #[test]
        fn random_changes_agree_with_a_hash_map(steps in proptest::collection::vec((1_usize..300, proptest::option::of(0_usize..16)), 0..800)) {
            let map = HandleMap::new();
            let mut model = HashMap::new();
            for (key, value) in steps {
                match value {
                    Some(value) => {
                        map.insert(key * 8, &VALUES[value]);
                        model.insert(key * 8, &VALUES[value]);
                    }
                    None => {
                        map.remove(key * 8);
                        model.remove(&(key * 8));
                    }
                }
            }
            for key in (0..300).map(|key| key * 8) {
                prop_assert_eq!(map.get(key), model.get(&key).copied());
            }
        }
    }

    #[test]
    fn readers_beside_a_growing_table_see_only_own_values() {
        let map = HandleMap::new();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for key in 1..2000_usize {
                            if let Some(value) = map.get(key * 8) {
                                assert_eq!(*value, key % 16);
                            }
                        }
                    }
                });
            }
            for round in 0..20 {
                for key in 1..2000_usize {
                    map.insert(key * 8, &VALUES[key % 16]);
                    if (key + round) % 3 == 0 {
                        map.remove(key * 8);
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
