//! Parses any bytes as a code object or bundle: no panic, and no read beyond the end.
#![no_main]

use hal_hip::code_object::{Image, Processors};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, &[u8])| {
    let (name, bytes) = data;
    for processors in [Processors::ANY, Processors::new(["gfx90a", "gfx1100"])] {
        let mut image = Image::of_bytes(bytes, &processors);
        for device in [None, Some("gfx1100")] {
            let _ = image.kernel(name.as_bytes(), device);
        }
    }
});
