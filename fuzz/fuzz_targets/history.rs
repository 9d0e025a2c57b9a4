#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    terrace::decoders::run("history", bytes);
});
