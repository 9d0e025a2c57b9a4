//! Bare loops: what the device and the processor ask for the bytes alone, and what they and the
//! index ask together.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Result;
use terrace::bench::{Arena, RecordIndex, encode_put};

use crate::Settings;
use crate::latency::Latency;
use crate::random::Random;

const REGION: usize = 64 << 20;
const PAGE: usize = 4096;

/// Overwrites a preallocated file page by page, as many bytes a time as a commit has, and syncs
/// each time: writes a second, and their latencies.
pub(crate) fn overwrite_and_sync(
    settings: &Settings,
    bytes: usize,
    time: Duration,
) -> Result<(f64, Latency)> {
    let path = settings.dir.join("bare-region");
    let file = File::create(&path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..REGION).step_by(zeros.len()) {
        file.write_all_at(&zeros, at as u64)?;
    }
    file.sync_all()?;
    let (image, mut latency, mut at, mut n) = (vec![3; REGION], Latency::new(), 0, 0);
    let from = Instant::now();
    while from.elapsed() < time {
        let end = (at + bytes).next_multiple_of(PAGE);
        let start = at / PAGE * PAGE;
        let began = Instant::now();
        file.write_all_at(&image[start..end], start as u64)?;
        file.sync_data()?;
        latency.record(began.elapsed());
        at = if end + bytes + PAGE < REGION { at + bytes } else { 0 };
        n += 1;
    }
    let rate = f64::from(n) / from.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok((rate, latency))
}

/// Streams as many bytes as a commit has into a mapped tmpfs file and fences, each time: writes a
/// second, and their latencies.
#[cfg(target_arch = "x86_64")]
pub(crate) fn stream_and_fence(
    settings: &Settings,
    bytes: usize,
    time: Duration,
) -> Result<(f64, Latency)> {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let shm = std::path::Path::new("/dev/shm");
    let dir = if shm.is_dir() { shm } else { settings.dir.as_path() };
    let path = dir.join(format!("terrace-bare-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.set_len(REGION as u64)?;
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let (access, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a fresh mapping of a file of that length, which no other thread has.
    let base = unsafe { mmap(std::ptr::null_mut(), REGION, access, flags, &file, 0)? };
    let (source, mut latency, mut at, mut n) = (vec![3u8; bytes], Latency::new(), 0, 0u64);
    let from = Instant::now();
    while from.elapsed() < time {
        let began = Instant::now();
        for (i, chunk) in source.chunks_exact(16).enumerate() {
            // SAFETY: `at + bytes` stays within the mapping, and both are multiples of 16.
            unsafe {
                let to = base.cast::<u8>().add(at + i * 16).cast::<__m128i>();
                _mm_stream_si128(to, _mm_loadu_si128(chunk.as_ptr().cast()));
            }
        }
        // SAFETY: a fence has no operands.
        unsafe { _mm_sfence() };
        latency.record(began.elapsed());
        at = if at + 2 * bytes < REGION { at + bytes } else { 0 };
        n += 1;
    }
    let rate = n as f64 / from.elapsed().as_secs_f64();
    // SAFETY: the mapping made above, which nothing refers to any more.
    unsafe { munmap(base, REGION)? };
    std::fs::remove_file(&path)?;
    Ok((rate, latency))
}

/// Streams records with random keys as a commit has them into an emulated region, fences, and puts
/// each into the index of production: what a store cannot do without that finds them again. Commits
/// a second, and their latencies.
pub(crate) fn stream_fence_and_index(
    settings: &Settings,
    (batch, value): (usize, usize),
    time: Duration,
) -> Result<(f64, Latency)> {
    const ROOM: u64 = 256 << 20;
    const HEADER: usize = 64;
    let shm = std::path::Path::new("/dev/shm");
    let dir = if shm.is_dir() { shm } else { settings.dir.as_path() };
    let path = dir.join(format!("terrace-bare-index-{}", std::process::id()));
    let arena = Arena::emulated(&path, ROOM)?;
    let index = RecordIndex::new(&arena);
    let (mut random, value) = (Random::new(settings.seed), vec![7; value]);
    let (mut latency, mut n, mut bytes) = (Latency::new(), 0u64, Vec::new());
    let from = Instant::now();
    // Until the time is over or the room is used up.
    while from.elapsed() < time && arena.tail() + (bytes.len() as u64) < ROOM - (64 << 10) {
        let keys: Vec<[u8; 8]> = (0..batch).map(|_| random.next().to_be_bytes()).collect();
        let began = Instant::now();
        bytes.clear();
        bytes.resize(HEADER, 0);
        n += 1;
        keys.iter().for_each(|key| encode_put(&mut bytes, key, n, &value));
        let records = (bytes.len() - HEADER) as u64;
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        let at = arena.append_durably(&bytes)?;
        index.insert_all(at + HEADER as u64, records);
        latency.record(began.elapsed());
    }
    let rate = n as f64 / from.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok((rate, latency))
}
