//! How much memory the process may use, and whether the machine is short of it.
//!
//! Three sources bound a process: the machine's memory, and the control groups of version 1 and 2
//! that it is in. The least of them counts. The kernel tells of a shortage by its pressure stall
//! information, where it has that, and by how much memory is available. macOS tells of the
//! machine's memory alone, Windows of that and of how much is available.
//!
//! Thread safety: every function may be called from any thread.
//!
//! Source: the kernel's documentation of control groups (`memory.max`, `memory.limit_in_bytes`),
//! of `/proc/pressure`, and of `MemAvailable` in `/proc/meminfo`.

use std::fs;
use std::path::{Path, PathBuf};

/// What a machine has of which nothing is known.
const UNKNOWN: u64 = 4 << 30;

/// The share of the time, in percent of the last ten seconds, in which some task waited for memory
/// from which on memory is short.
const SHORT_STALL: f64 = 10.0;

/// The share up to which there is enough again.
const ENOUGH_STALL: f64 = 1.0;

/// One part of so many of the machine's memory is available where memory is short.
const SHORT_AVAILABLE: u64 = 32;

/// And so many where there is enough again.
const ENOUGH_AVAILABLE: u64 = 8;

/// Whether other users of the machine wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// None does, and memory is left.
    Enough,
    /// None does for long, but little is left.
    Tight,
    /// Some do.
    Short,
}

/// The most memory that the process may use, in bytes.
pub fn usable_memory() -> u64 {
    usable_under(Path::new("/"))
}

/// Whether memory is short now.
pub fn memory_pressure() -> Pressure {
    pressure_under(Path::new("/"))
}

fn usable_under(root: &Path) -> u64 {
    let machine = meminfo(root, "MemTotal").or_else(machine_memory).unwrap_or(UNKNOWN);
    limits(root).into_iter().fold(machine, u64::min)
}

/// The machine's memory where no file tells it.
fn machine_memory() -> Option<u64> {
    #[cfg(target_os = "macos")]
    return super::heap::physical_memory();
    #[cfg(windows)]
    return super::calls::machine_memory().map(|(all, _)| all);
    #[cfg(not(any(target_os = "macos", windows)))]
    None
}

/// What of the machine's memory is available, and all of it, where no file tells it.
fn memory_left() -> Option<(u64, u64)> {
    #[cfg(windows)]
    return super::calls::machine_memory().map(|(all, left)| (left, all));
    #[cfg(not(windows))]
    None
}

/// Every limit of the groups that the process is in, and of the groups above them.
fn limits(root: &Path) -> Vec<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let places: &[(&str, &str)] = match controllers {
            "" => &[("sys/fs/cgroup", "memory.max"), ("sys/fs/cgroup", "memory.high")],
            _ if controllers.split(',').any(|name| name == "memory") => {
                &[("sys/fs/cgroup/memory", "memory.limit_in_bytes")]
            }
            _ => &[],
        };
        for (mount, file) in places {
            limits
                .extend(up_from(&root.join(mount), group).filter_map(|at| number(&at.join(file))));
        }
    }
    limits
}

/// A group and all above it. A container may show its own group as the top: the top is in it.
fn up_from(mount: &Path, group: &str) -> impl Iterator<Item = PathBuf> {
    let mount = mount.to_path_buf();
    let group = PathBuf::from(group.trim_start_matches('/'));
    let above: Vec<PathBuf> = group.ancestors().map(|at| mount.join(at)).collect();
    above.into_iter()
}

/// The number that a file has; `None` where it has `max` or is not there.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn pressure_under(root: &Path) -> Pressure {
    let stall = stall(root).unwrap_or(0.0);
    let left = meminfo(root, "MemAvailable").zip(meminfo(root, "MemTotal")).or_else(memory_left);
    let left_at_least = |part: u64| left.is_none_or(|(left, all)| left >= all / part);
    if stall >= SHORT_STALL || !left_at_least(SHORT_AVAILABLE) {
        Pressure::Short
    } else if stall <= ENOUGH_STALL && left_at_least(ENOUGH_AVAILABLE) {
        Pressure::Enough
    } else {
        Pressure::Tight
    }
}

/// The share of the last ten seconds in which some task waited for memory, in percent: of the
/// process's own group where version 2 tells it, else of the machine.
fn stall(root: &Path) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let own = group.map(|group| {
        root.join("sys/fs/cgroup").join(group.trim_start_matches('/')).join("memory.pressure")
    });
    let places = own.into_iter().chain([root.join("proc/pressure/memory")]);
    places.filter_map(|path| fs::read_to_string(path).ok()).find_map(|text| {
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        some.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files below its root.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   22868068 kB\n",
    );

    #[test]
    fn the_least_limit_counts() {
        let alone = machine(&[MEMINFO]);
        assert_eq!(usable_under(alone.path()), 24_684_096 << 10);
        let second = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/system/unit\n"),
            ("sys/fs/cgroup/system/unit/memory.max", "max\n"),
            ("sys/fs/cgroup/system/unit/memory.high", "900000000\n"),
            ("sys/fs/cgroup/system/memory.max", "536870912\n"),
        ]);
        assert_eq!(usable_under(second.path()), 512 << 20);
        let first = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/a/b\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n"),
        ]);
        assert_eq!(usable_under(first.path()), 256 << 20);
        // In a container the group's path is the host's, and the mount shows the group itself.
        let inside = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/docker/1234\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n"),
        ]);
        assert_eq!(usable_under(inside.path()), 128 << 20);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_what_most_have() {
        let root = machine(&[]);
        assert_eq!(usable_under(root.path()), UNKNOWN);
        assert_eq!(pressure_under(root.path()), Pressure::Enough);
    }

    #[test]
    fn stalls_and_little_memory_are_pressure() {
        let stalled = |avg10: &str| {
            let text =
                format!("some avg10={avg10} avg60=0.00 avg300=0.00 total=0\nfull avg10=99\n");
            let root = machine(&[MEMINFO, ("proc/pressure/memory", text.as_str())]);
            pressure_under(root.path())
        };
        assert_eq!(stalled("0.00"), Pressure::Enough);
        assert_eq!(stalled("5.00"), Pressure::Tight);
        assert_eq!(stalled("12.50"), Pressure::Short);
        let left = |kib: u64| {
            let text = format!("MemTotal: 1000 kB\nMemAvailable: {kib} kB\n");
            let root = machine(&[("proc/meminfo", text.as_str())]);
            pressure_under(root.path())
        };
        assert_eq!(left(10), Pressure::Short);
        assert_eq!(left(100), Pressure::Tight);
        assert_eq!(left(500), Pressure::Enough);
    }

    #[test]
    fn the_pressure_of_the_own_group_counts_where_it_is_known() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/unit\n"),
            ("proc/pressure/memory", "some avg10=50.00 avg60=0.00 avg300=0.00 total=0\n"),
            (
                "sys/fs/cgroup/unit/memory.pressure",
                "some avg10=0.10 avg60=0.0 avg300=0.0 total=0\n",
            ),
        ]);
        assert_eq!(pressure_under(root.path()), Pressure::Enough);
    }
}
