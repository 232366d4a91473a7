//! A map from handles (addresses) to values that are never freed. Launching threads read it without a lock;
//! one thread at a time changes it. The meaning of handles is not known here.
//!
//! The table is an array of keys and values with linear probing. A key stays in its slot once it is written,
//! so that readers need no protection; removing a handle stores null as its value. A table that is half full
//! is replaced by one that holds the entries with a value, with room for as many again. The old table stays
//! for the readers that may be in it: together the old tables of a growing map are smaller than the current
//! one, and a map whose handles come and go under new addresses leaks 32 bytes for each.

use std::hash::{BuildHasher, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The size of the first table; a power of two.
const FIRST: usize = 64;

/// The map. A null value means that there is none.
pub(crate) struct Handles<T: 'static> {
    /// Null, or a table that is never freed.
    table: AtomicPtr<Table<T>>,
}

struct Table<T> {
    /// The slots; their number is a power of two, and at least half of them have never been used.
    slots: Box<[Slot<T>]>,
    /// The number of slots with a key. Only the changing thread reads it.
    used: AtomicUsize,
}

struct Slot<T> {
    /// 0 if the slot has never been used. Once set it never changes.
    key: AtomicUsize,
    value: AtomicPtr<T>,
}

impl<T: Sync> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self { table: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value of a handle.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&'static T> {
        let slot = self.table()?.find(key)?;
        if slot.key.load(Ordering::Relaxed) != key {
            return None;
        }
        // SAFETY: the value is null or was stored from a `&'static T`.
        unsafe { slot.value.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value of a handle. The caller makes sure that no other thread changes the map.
    pub(crate) fn insert(&self, key: usize, value: &'static T) {
        if key == 0 {
            return;
        }
        let mut table = self.table();
        if let Some(slot) = table.and_then(|table| table.find(key))
            && slot.key.load(Ordering::Relaxed) == key
        {
            slot.value.store(ptr::from_ref(value).cast_mut(), Ordering::Release);
            return;
        }
        if table.is_none_or(|table| (table.used.load(Ordering::Relaxed) + 1) * 2 > table.slots.len()) {
            table = Some(self.replace(table));
        }
        if let Some(table) = table {
            table.add(key, ptr::from_ref(value).cast_mut());
        }
    }

    /// Removes the value of a handle. The caller makes sure that no other thread changes the map.
    pub(crate) fn remove(&self, key: usize) {
        if let Some(slot) = self.table().and_then(|table| table.find(key))
            && slot.key.load(Ordering::Relaxed) == key
        {
            slot.value.store(ptr::null_mut(), Ordering::Release);
        }
    }

    fn table(&self) -> Option<&'static Table<T>> {
        // SAFETY: `replace` stores only leaked tables, after they are complete.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    fn replace(&self, old: Option<&'static Table<T>>) -> &'static Table<T> {
        let slots = old.map_or(&[][..], |table| &table.slots);
        let living = |slot: &&Slot<T>| !slot.value.load(Ordering::Relaxed).is_null();
        let size = (slots.iter().filter(living).count() * 4).next_power_of_two().max(FIRST);
        let table = Box::leak(Box::new(Table::new(size)));
        for slot in slots.iter().filter(living) {
            table.add(slot.key.load(Ordering::Relaxed), slot.value.load(Ordering::Relaxed));
        }
        self.table.store(table, Ordering::Release);
        table
    }
}

impl<T> Table<T> {
    fn new(size: usize) -> Self {
        let empty = || Slot { key: AtomicUsize::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        Self { slots: std::iter::repeat_with(empty).take(size).collect(), used: AtomicUsize::new(0) }
    }

    /// Returns the slot of a key, or the unused slot for it.
    #[inline]
    fn find(&self, key: usize) -> Option<&Slot<T>> {
        let mask = self.slots.len() - 1;
        let mut at = Mix::fold(key as u64) as usize;
        // The search ends at an unused slot; the limit only makes that obvious.
        for _ in 0..=mask {
            let slot = self.slots.get(at & mask)?;
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
            self.used.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A fast hash of numbers for the tables of this crate. It need not resist chosen collisions, because handles
/// are addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

impl Mix {
    pub(crate) const NEW: Self = Self(0);

    /// Mixes all bits of a number into all bits of the result.
    #[inline]
    pub(crate) fn fold(number: u64) -> u64 {
        let product = u128::from(number ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
        product as u64 ^ (product >> 64) as u64
    }

    /// Mixes bytes and their number into a number.
    pub(crate) fn bytes(seed: u64, bytes: &[u8]) -> u64 {
        let mut words = bytes.chunks_exact(8);
        let mut hash = seed ^ bytes.len() as u64;
        for word in &mut words {
            hash = Self::fold(hash ^ word.try_into().map_or(0, u64::from_le_bytes));
        }
        let tail = words.remainder().iter().rev().fold(0, |tail, &byte| tail << 8 | u64::from(byte));
        Self::fold(hash ^ tail)
    }
}

impl BuildHasher for Mix {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self::NEW
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = Self::bytes(self.0, bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = Self::fold(self.0 ^ number);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
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
        let map = Handles::<usize>::new();
        assert_eq!((map.get(0), map.get(8)), (None, None));
        map.remove(8);
        map.insert(0, &VALUES[1]);
        assert_eq!(map.get(0), None, "null is no handle");
    }

    #[test]
    fn removed_handles_need_no_larger_table() {
        let map = Handles::new();
        for key in 1..100_000_usize {
            map.insert(key * 16, &VALUES[key % 16]);
            assert_eq!(map.get(key * 16), Some(&VALUES[key % 16]));
            map.remove(key * 16);
            assert_eq!(map.get(key * 16), None);
        }
        assert_eq!(map.table().unwrap().slots.len(), FIRST);
    }

    proptest! {
        #[test]
        fn random_changes_agree_with_a_hash_map(steps in proptest::collection::vec((1_usize..300, proptest::option::of(0_usize..16)), 0..800)) {
            let map = Handles::new();
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
        let map = Handles::new();
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
