//! Clients that write anything on their pages, and send any message.
#![no_main]

#[path = "../../xserver/tests/untrusted/entry.rs"]
#[allow(dead_code, reason = "another target runs the rest")]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::pages(bytes));
