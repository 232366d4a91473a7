//! The configuration file of the server for all users.
#![no_main]

#[path = "../../xserver/tests/untrusted/entry.rs"]
#[allow(dead_code, reason = "another target runs the rest")]
mod entry;

libfuzzer_sys::fuzz_target!(|text: &str| entry::configuration(text));
