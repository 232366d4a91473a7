//! Recorded models, as in examples/traces.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = xbench::replay::check_trace(text);
});
