use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tempfile::TempDir;

use super::super::{Media, PAGE, Region};
use super::*;
use crate::os::RealFiles;

const LEN: u64 = 1 << 20;

/// An emulated region that flushes, and takes so long for a block.
fn region(dir: &TempDir, flush: Flush, delay: Duration) -> Region {
    let path = dir.path().join("region");
    fs::write(&path, "").unwrap();
    let mapped = Mapped { flush, ..Mapped::emulated(&RealFiles::default(), &path, delay).unwrap() };
    mapped.reserve(&path, LEN).unwrap();
    Region::new(Media::Mapped(mapped), &path, LEN).unwrap()
}

#[test]
fn media_blocks_take_their_time_streamed_or_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let each = Duration::from_micros(20);
    let region = region(&dir, Flush::of_processor(), each);
    for (len, blocks) in [(16 << 10, 64), (LINE as usize, 1)] {
        let bytes = vec![7; len];
        let from = Instant::now();
        let dirty = region.write(PAGE, &bytes);
        assert_eq!(dirty.streamed, cfg!(target_arch = "x86_64") && blocks > 1);
        region.persist([dirty]).unwrap();
        assert!(from.elapsed() >= each * blocks, "{blocks} blocks in {:?}", from.elapsed());
        assert_eq!(region.bytes(PAGE, len as u64), bytes);
    }
    assert_eq!(region.counts().total(|c| &c.blocks), 65);
}

#[test]
fn without_flushes_there_still_are_fences() {
    let dir = tempfile::tempdir().unwrap();
    let region = region(&dir, Flush::None, Duration::ZERO);
    for at in 0..10 {
        region.persist([region.write(PAGE + at * LINE, &[1; 64])]).unwrap();
    }
    let counts = region.counts();
    assert_eq!((counts.total(|c| &c.flushes), counts.total(|c| &c.fences)), (0, 10));
    assert_eq!(counts.total(|c| &c.bytes), 640);
    assert_eq!(counts.on(crate::pm::Purpose::Other).syncs.load(Ordering::Relaxed), 0);
}

#[test]
fn the_environment_chooses_an_instruction_and_never_less_durability() {
    let path = Path::new("region");
    assert_eq!(Flush::named("none"), Some(Flush::None));
    assert_eq!(Flush::named("clwb "), None);
    #[cfg(target_arch = "x86_64")]
    {
        let asked_for = Flush::named("clflush");
        assert_eq!(flush_of_dax(path, asked_for, false).unwrap(), Flush::Clflush);
    }
    assert_eq!(flush_of_dax(path, None, false).unwrap(), Flush::of_processor());
    for asked_for in [None, Some(Flush::None), Some(Flush::of_processor())] {
        assert_eq!(flush_of_dax(path, asked_for, true).unwrap(), Flush::None);
    }
    let error = flush_of_dax(path, Some(Flush::None), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for word in ["TERRACE_FLUSH=none", "region", "unset", "`emulated`"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

/// What the kernel shows of the device that `file` lies on: a namespace in a region, `up` folders
/// above what `device` leads to, and that region's domain.
fn kernels_tree(file: &File, up: usize, domain: Option<&str>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let sys = dir.path().join("sys");
    let region = sys.join("devices/region0");
    let namespace =
        ["pfn0.0", "namespace0.0"][2 - up..].iter().fold(region.clone(), |p, n| p.join(n));
    fs::create_dir_all(&namespace).unwrap();
    let dev = file.metadata().unwrap().dev();
    let block = sys.join(format!("dev/block/{}:{}", libc::major(dev), libc::minor(dev)));
    fs::create_dir_all(&block).unwrap();
    symlink(&namespace, block.join("device")).unwrap();
    domain.iter().for_each(|d| fs::write(region.join("persistence_domain"), d).unwrap());
    (dir, sys)
}

#[test]
fn a_platform_that_flushes_its_caches_is_known_by_its_region() {
    let file = tempfile::tempfile().unwrap();
    for up in [1, 2] {
        for (domain, expected) in [
            (Some("cpu_cache\n"), true),
            (Some("memory_controller\n"), false),
            (Some("unknown\n"), false),
            (None, false),
        ] {
            let (_dir, sys) = kernels_tree(&file, up, domain);
            assert_eq!(flushed_at_power_failure(&file, &sys), expected, "{domain:?}, {up} up");
        }
    }
    assert!(!flushed_at_power_failure(&file, Path::new("/nowhere")), "no such tree");
}

#[test]
fn a_device_is_no_region() {
    let (path, files) = (Path::new("/dev/null"), &RealFiles::default());
    for opened in [Mapped::dax(files, path), Mapped::emulated(files, path, Duration::ZERO)] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        for word in ["/dev/null is a character device", "fsdax", "dax=always"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
