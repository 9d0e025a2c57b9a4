//! One bound on the memory of a measured process, the kernel's: on what it holds, and on the pages
//! of its files that the system caches for it. Without it "as much memory for each store" means
//! nothing where one reads and writes through the system's cache, which takes what the machine has.
//!
//! Beside the memory that a store is given there is an eighth of it and 32 MiB, for what the store
//! does not count and for the process itself. A control group does it, which takes root; where
//! there is none the report says that nothing is bounded.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where groups are: a memory hierarchy of its own (version 1), or one for everything.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// What a process and its store may have, where the store is given so much.
pub(crate) fn bytes(given: u64) -> u64 {
    given + given / 8 + (32 << 20)
}

/// A control group for one process after the other, until this is dropped.
#[derive(Debug)]
pub(crate) struct Bound(PathBuf);

impl Bound {
    /// A group whose processes have at most `bytes` of memory together.
    pub(crate) fn new(bytes: u64) -> Result<Bound> {
        // Version 2 hands a controller down only where it is asked to.
        let handed_down = "/sys/fs/cgroup/cgroup.subtree_control";
        if Path::new(handed_down).exists() {
            fs::write(handed_down, "+memory").context("cannot hand the memory controller down")?;
        }
        let is_there = |place: &&(&str, &str)| match place.1 {
            "memory.max" => Path::new(handed_down).exists(),
            name => Path::new(place.0).join(name).exists(),
        };
        let (root, limit) = PLACES.iter().find(is_there).context("no control groups of memory")?;
        let group = Path::new(root).join(format!("terrace-bench-{}", std::process::id()));
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let bound = Bound(group);
        let limit = bound.0.join(limit);
        fs::write(&limit, bytes.to_string())
            .with_context(|| format!("cannot write {}", limit.display()))?;
        Ok(bound)
    }

    /// The group.
    pub(crate) fn group(&self) -> &Path {
        &self.0
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It is empty by now; one that stays does no harm.
        drop(fs::remove_dir(&self.0));
    }
}

/// Puts this process into a group.
pub(crate) fn enter(group: &Path) -> Result<()> {
    let members = group.join("cgroup.procs");
    fs::write(&members, std::process::id().to_string())
        .with_context(|| format!("cannot join {}", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_what_the_kernel_was_told() {
        let bound = match Bound::new(123 << 20) {
            Ok(bound) => bound,
            Err(error) => {
                // Said, so that a skip is seen: the groups take root.
                println!("skipped: {error:#}");
                return;
            }
        };
        let group = bound.group().to_path_buf();
        let told = PLACES.iter().find_map(|(_, limit)| fs::read_to_string(group.join(limit)).ok());
        assert_eq!(told.unwrap().trim(), (123u64 << 20).to_string());
        drop(bound);
        assert!(!group.exists());
    }

    #[test]
    fn a_process_has_an_eighth_and_its_own_beside_what_its_store_is_given() {
        assert_eq!(bytes(96 << 20), (96 + 12 + 32) << 20);
    }
}
