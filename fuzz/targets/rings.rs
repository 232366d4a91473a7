//! Files of traces.
#![no_main]

#[path = "../../protocol/tests/untrusted/entry.rs"]
#[allow(dead_code, reason = "another target runs the rest")]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::rings(bytes));
