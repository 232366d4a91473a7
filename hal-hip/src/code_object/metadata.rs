//! The metadata of a code object's kernels (MessagePack): an index by name, and one kernel's layout.
//!
//! A large library has thousands of kernels and a program launches few of them, so the index holds positions
//! only, and a kernel is read when it is needed. Nothing here recurses, and nothing is allocated for a length
//! that the bytes only claim: each step consumes at least one byte of the note.

use crate::layout::{ArgSlot, Kernel, Layout, Unknown};
use crate::mix::Mix;
use rmp::Marker;
use rmp::decode::{self, Bytes, RmpRead};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A kernel's name as a number. Two names with the same number count as one. That is detected where both are
/// in one code object, and has a probability of 2^-64 where they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameKey(u64);

impl NameKey {
    pub(crate) fn new(name: &[u8]) -> Self {
        Self(Mix::bytes(0x9e37_79b9_7f4a_7c15, name))
    }
}

/// The positions of the kernels in the notes.
pub(crate) type Index = HashMap<NameKey, Position, Mix>;

/// The position of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The index of the note, and the offset of the kernel in it.
    At(u32, u32),
    /// Several kernels have this name.
    Several,
}

/// Finds all kernels of a code object's notes.
pub(crate) fn index<N: AsRef<[u8]>>(notes: &[N]) -> Result<Index, Unknown> {
    let mut index = Index::default();
    for (number, note) in notes.iter().enumerate() {
        let number = u32::try_from(number).map_err(|_| Unknown::TooLarge)?;
        add(&mut index, number, note.as_ref())?;
    }
    Ok(index)
}

/// Finds all kernels of a note. Bytes behind its document are padding.
fn add(index: &mut Index, number: u32, note: &[u8]) -> Result<(), Unknown> {
    let mut reader = Reader::new(note);
    for _ in 0..reader.map()? {
        if reader.string()? != b"amdhsa.kernels" {
            reader.skip()?;
            continue;
        }
        for _ in 0..reader.array()? {
            let at = u32::try_from(reader.position()).map_err(|_| Unknown::TooLarge)?;
            let mut name = None;
            for _ in 0..reader.map()? {
                if reader.string()? == b".name" {
                    name = Some(reader.string()?);
                } else {
                    reader.skip()?;
                }
            }
            match index.entry(NameKey::new(name.ok_or(Unknown::Malformed)?)) {
                Entry::Vacant(entry) => drop(entry.insert(Position::At(number, at))),
                Entry::Occupied(mut entry) => drop(entry.insert(Position::Several)),
            }
        }
    }
    Ok(())
}

/// Reads the kernel at a position that [`index`] has found in the same notes.
pub(crate) fn kernel<N: AsRef<[u8]>>(notes: &[N], position: Position) -> Result<Kernel, Unknown> {
    let Position::At(number, at) = position else { return Err(Unknown::Ambiguous) };
    let mut reader = Reader::new(notes.get(number as usize).ok_or(Unknown::Malformed)?.as_ref());
    reader.advance(at as usize)?;
    let (mut name, mut size, mut args, mut threads) = (None, None, None, u32::MAX);
    for _ in 0..reader.map()? {
        match reader.string()? {
            b".name" => name = Some(reader.string()?),
            b".kernarg_segment_size" => size = Some(reader.number()?),
            b".args" => args = Some(arguments(&mut reader)?),
            b".max_flat_workgroup_size" => threads = reader.number()?,
            _ => reader.skip()?,
        }
    }
    let size = size.ok_or(Unknown::Malformed)?;
    let args = match args {
        Some(args) => args,
        None if size == 0 => Vec::new(),
        None => return Err(Unknown::NoArguments),
    };
    let name = name.ok_or(Unknown::Malformed)?;
    let name = String::from_utf8_lossy(name).into();
    Ok(Kernel { name, layout: Layout::new(args, size)?, threads })
}

/// Reads the slots of the visible arguments.
fn arguments(reader: &mut Reader<'_>) -> Result<Vec<ArgSlot>, Unknown> {
    let mut slots = Vec::new();
    for _ in 0..reader.array()? {
        let (mut offset, mut size, mut kind) = (None, None, None);
        for _ in 0..reader.map()? {
            match reader.string()? {
                b".offset" => offset = Some(reader.number()?),
                b".size" => size = Some(reader.number()?),
                b".value_kind" => kind = Some(reader.string()?),
                _ => reader.skip()?,
            }
        }
        match kind.ok_or(Unknown::Malformed)? {
            kind if kind.starts_with(b"hidden_") => {}
            b"by_value" | b"global_buffer" | b"dynamic_shared_pointer" => slots.push(ArgSlot {
                offset: offset.ok_or(Unknown::Malformed)?,
                size: size.ok_or(Unknown::Malformed)?,
            }),
            _ => return Err(Unknown::ValueKind),
        }
    }
    Ok(slots)
}

/// A reader of consecutive values.
struct Reader<'a> {
    note: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(note: &'a [u8]) -> Self {
        Self { note, at: 0 }
    }

    fn position(&self) -> usize {
        self.at
    }

    /// Runs a function of the decoder from the current position on, and advances behind the bytes that it
    /// read.
    fn decode<T, E>(&mut self, read: impl FnOnce(&mut Bytes<'a>) -> Result<T, E>) -> Result<T, Unknown> {
        let mut bytes = Bytes::new(self.note.get(self.at..).ok_or(Unknown::Malformed)?);
        let value = read(&mut bytes).map_err(|_| Unknown::Malformed)?;
        self.at += bytes.position() as usize;
        Ok(value)
    }

    fn advance(&mut self, count: usize) -> Result<&'a [u8], Unknown> {
        let end = self.at.checked_add(count).ok_or(Unknown::Malformed)?;
        let bytes = self.note.get(self.at..end).ok_or(Unknown::Malformed)?;
        self.at = end;
        Ok(bytes)
    }

    fn map(&mut self) -> Result<u32, Unknown> {
        self.decode(decode::read_map_len)
    }

    fn array(&mut self) -> Result<u32, Unknown> {
        self.decode(decode::read_array_len)
    }

    fn number(&mut self) -> Result<u32, Unknown> {
        self.decode(decode::read_int)
    }

    fn string(&mut self) -> Result<&'a [u8], Unknown> {
        let length = self.decode(decode::read_str_len)?;
        self.advance(length as usize)
    }

    /// Skips one value with everything in it.
    fn skip(&mut self) -> Result<(), Unknown> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            let (marker, length) = self.decode(|bytes| {
                let marker = decode::read_marker(bytes).map_err(|_| ())?;
                length_of(marker, bytes).map(|length| (marker, length))
            })?;
            match marker {
                Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => left += 2 * length,
                Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => left += length,
                _ => drop(self.advance(usize::try_from(length).map_err(|_| Unknown::Malformed)?)?),
            }
        }
        Ok(())
    }
}

/// Returns the number of values (of a map: pairs) or bytes that follow a marker.
fn length_of(marker: Marker, bytes: &mut Bytes<'_>) -> Result<u64, ()> {
    let length = match marker {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => 0,
        Marker::U8 | Marker::I8 => 1,
        Marker::U16 | Marker::I16 => 2,
        Marker::U32 | Marker::I32 | Marker::F32 => 4,
        Marker::U64 | Marker::I64 | Marker::F64 => 8,
        Marker::FixMap(length) | Marker::FixArray(length) | Marker::FixStr(length) => length.into(),
        Marker::Str8 | Marker::Bin8 => bytes.read_data_u8().map_err(drop)?.into(),
        Marker::Str16 | Marker::Bin16 | Marker::Array16 | Marker::Map16 => {
            bytes.read_data_u16().map_err(drop)?.into()
        }
        Marker::Str32 | Marker::Bin32 | Marker::Array32 | Marker::Map32 => {
            bytes.read_data_u32().map_err(drop)?.into()
        }
        // An extension's type is a byte in front of its data.
        Marker::FixExt1 => 2,
        Marker::FixExt2 => 3,
        Marker::FixExt4 => 5,
        Marker::FixExt8 => 9,
        Marker::FixExt16 => 17,
        Marker::Ext8 => u64::from(bytes.read_data_u8().map_err(drop)?) + 1,
        Marker::Ext16 => u64::from(bytes.read_data_u16().map_err(drop)?) + 1,
        Marker::Ext32 => u64::from(bytes.read_data_u32().map_err(drop)?) + 1,
        Marker::Reserved => return Err(()),
    };
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{arg, kernel_value, note};
    use proptest::prelude::*;

    fn find(note: &[u8], name: &str) -> Result<Kernel, Unknown> {
        find_in(&[note], name)
    }

    fn find_in(notes: &[&[u8]], name: &str) -> Result<Kernel, Unknown> {
        let place = *index(notes)?.get(&NameKey::new(name.as_bytes())).ok_or(Unknown::NoSuchKernel)?;
        kernel(notes, place)
    }

    #[test]
    fn visible_arguments_exclude_the_hidden_ones() {
        let args = vec![
            arg(0, 8, "global_buffer"),
            arg(8, 4, "by_value"),
            arg(12, 4, "dynamic_shared_pointer"),
            arg(16, 8, "hidden_global_offset_x"),
            arg(24, 8, "hidden_none"),
        ];
        let note = note(vec![kernel_value("other", 0, None), kernel_value("mine", 32, Some(args))]);
        let kernel = find(&note, "mine").unwrap();
        assert_eq!(&*kernel.name, "mine");
        let slots: Vec<_> = kernel.layout.args().iter().map(|slot| (slot.offset, slot.size)).collect();
        assert_eq!(slots, [(0, 8), (8, 4), (12, 4)]);
        assert_eq!((kernel.layout.bytes(), kernel.threads), (16, 256));
        assert_eq!(find(&note, "other").unwrap().layout.args(), []);
        assert_eq!(find(&note, "min"), Err(Unknown::NoSuchKernel));
    }

    #[test]
    fn kernels_of_every_note_are_found() {
        let first = note(vec![kernel_value("first", 0, None), kernel_value("both", 0, None)]);
        let mut padded = note(vec![kernel_value("second", 8, Some(vec![arg(0, 8, "by_value")]))]);
        padded.extend([0xc1; 3]);
        let third = note(vec![kernel_value("third", 0, None), kernel_value("both", 0, None)]);
        let notes = [&first[..], &padded, &third];
        assert_eq!(find_in(&notes, "first").unwrap().layout.args(), []);
        assert_eq!(find_in(&notes, "second").unwrap().layout.bytes(), 8);
        assert_eq!(&*find_in(&notes, "third").unwrap().name, "third");
        assert_eq!(find_in(&notes, "both"), Err(Unknown::Ambiguous));
        assert_eq!(find_in(&notes, "fourth"), Err(Unknown::NoSuchKernel));
    }

    #[test]
    fn uncertain_kernels_are_unknown_with_a_reason() {
        let note = note(vec![
            kernel_value("twice", 0, None),
            kernel_value("twice", 0, None),
            kernel_value("nothing said", 8, None),
            kernel_value("image", 8, Some(vec![arg(0, 8, "image")])),
            kernel_value("outside", 8, Some(vec![arg(4, 8, "by_value")])),
            kernel_value("large", 8192, Some(vec![arg(0, 5000, "by_value")])),
            kernel_value("huge", 8, Some(vec![arg(1 << 32, 8, "by_value")])),
            kernel_value("empty", 0, Some(vec![])),
        ]);
        for (name, reason) in [
            ("twice", Unknown::Ambiguous),
            ("nothing said", Unknown::NoArguments),
            ("image", Unknown::ValueKind),
            ("outside", Unknown::Malformed),
            ("large", Unknown::TooLarge),
            ("huge", Unknown::Malformed),
        ] {
            assert_eq!(find(&note, name), Err(reason), "{name}");
        }
        assert_eq!(find(&note, "empty").unwrap().layout.bytes(), 0);
    }

    #[test]
    fn names_with_a_common_start_have_different_keys() {
        let mut keys: Vec<u64> = (0..200).map(|length| NameKey::new(&vec![b'k'; length]).0).collect();
        keys.extend((0..200).map(|length| NameKey::new(&vec![0; length + 1]).0));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 400);
    }

    #[test]
    fn deep_nesting_and_claimed_lengths_are_refused() {
        // A million nested arrays.
        let mut deep = vec![0x81, 0xa1, b'x'];
        deep.extend(std::iter::repeat_n(0x91, 1_000_000));
        assert_eq!(index(&[&deep]), Err(Unknown::Malformed));
        deep.push(0xc0);
        assert_eq!(index(&[&deep]).unwrap().len(), 0);
        // Four billion kernels are claimed, and there is none.
        let mut claims = vec![0x81, 0xae];
        claims.extend(b"amdhsa.kernels");
        claims.extend([0xdd, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(index(&[&claims]), Err(Unknown::Malformed));
    }

    fn all(note: &[u8]) {
        if let Ok(index) = index(&[note]) {
            for place in index.into_values() {
                let _ = kernel(&[note], place);
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            all(&bytes);
        }

        #[test]
        fn damaged_notes_do_not_panic(damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
            let args = vec![arg(0, 8, "global_buffer"), arg(8, 4, "by_value"), arg(16, 8, "hidden_none")];
            let mut note = note(vec![kernel_value("one", 32, Some(args.clone())), kernel_value("two", 32, Some(args))]);
            for (at, byte) in damage {
                let at = at.index(note.len());
                note[at] = byte;
            }
            all(&note);
        }

        #[test]
        fn encoded_arguments_are_read_back(sizes in proptest::collection::vec(1_u32..64, 0..40)) {
            let mut end = 0;
            let slots: Vec<(u32, u32)> = sizes.iter().map(|&size| {
                let offset = end;
                end += size;
                (offset, size)
            }).collect();
            let args = slots.iter().map(|&(offset, size)| arg(offset.into(), size.into(), "by_value")).collect();
            let note = note(vec![kernel_value("k", end.into(), Some(args))]);
            let kernel = find(&note, "k").unwrap();
            let read: Vec<_> = kernel.layout.args().iter().map(|slot| (slot.offset, slot.size)).collect();
            prop_assert_eq!(read, slots);
        }
    }
}
