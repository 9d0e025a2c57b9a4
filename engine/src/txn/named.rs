//! Options of transactions by name and value.

use super::options::{Isolation, LockWait, TxnOptions};
use crate::error::Result;
use crate::options::Durability;
use crate::options::named::{NamedOption, SIZE, SWITCH, duration, set_named, size, switch};

const TRANSACTION: &[NamedOption<TxnOptions>] = &[
    NamedOption {
        name: "isolation",
        takes: "read_committed, snapshot or serializable",
        set: |options, value| isolation(value).map(|level| options.isolation = level),
    },
    NamedOption {
        name: "optimistic",
        takes: SWITCH,
        set: |options, value| switch(value).map(|on| options.optimistic = on),
    },
    NamedOption {
        name: "lock_wait",
        takes: "a time, such as 10s or 500ms; or no_wait, or endless",
        set: |options, value| lock_wait(value).map(|wait| options.lock_wait = wait),
    },
    NamedOption {
        name: "durability",
        takes: "durable, relaxed or remote",
        set: |options, value| durability(value).map(|durability| options.durability = durability),
    },
    NamedOption {
        name: "write_limit",
        takes: SIZE,
        set: |options, value| size(value).map(|bytes| options.write_limit = bytes),
    },
    NamedOption {
        name: "spill_at",
        takes: SIZE,
        set: |options, value| {
            usize::try_from(size(value)?).ok().map(|bytes| options.spill_at = bytes)
        },
    },
    NamedOption {
        name: "lock_limit",
        takes: SIZE,
        set: |options, value| {
            usize::try_from(size(value)?).ok().map(|bytes| options.lock_limit = bytes)
        },
    },
];

impl TxnOptions {
    /// Sets an option by its name, as text: `isolation` (`read_committed`, `snapshot`,
    /// `serializable`), `optimistic` (`on`, `off`), `lock_wait` (`10s`, `no_wait`, `endless`),
    /// `durability` (`durable`, `relaxed`, `remote`), and the sizes `write_limit`, `spill_at` and
    /// `lock_limit`. Nothing is changed after an error.
    ///
    /// # Errors
    ///
    /// As [`Options::set`](crate::Options::set).
    ///
    /// # Examples
    ///
    /// ```
    /// let mut options = terrace::TxnOptions::new();
    /// options.set("isolation", "serializable")?;
    /// options.set("lock_wait", "500ms")?;
    /// assert!(options.set("isolation", "chaos").is_err());
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        set_named(TRANSACTION, self, name, value)
    }

    /// The names that [`TxnOptions::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        TRANSACTION.iter().map(|option| (option.name, option.takes))
    }
}

fn isolation(text: &str) -> Option<Isolation> {
    match text {
        "read_committed" => Some(Isolation::ReadCommitted),
        "snapshot" => Some(Isolation::Snapshot),
        "serializable" => Some(Isolation::Serializable),
        _ => None,
    }
}

fn lock_wait(text: &str) -> Option<LockWait> {
    match text {
        "no_wait" => Some(LockWait::NoWait),
        "endless" => Some(LockWait::Endless),
        wait => duration(wait).map(LockWait::AtMost),
    }
}

fn durability(text: &str) -> Option<Durability> {
    match text {
        "durable" => Some(Durability::Durable),
        "relaxed" => Some(Durability::Relaxed),
        "remote" => Some(Durability::Remote),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_option_has_its_name() {
        let mut named = TxnOptions::new();
        for (name, value) in [
            ("isolation", "serializable"),
            ("optimistic", "on"),
            ("lock_wait", "250ms"),
            ("durability", "relaxed"),
            ("write_limit", "1GiB"),
            ("spill_at", "1MiB"),
            ("lock_limit", "64KiB"),
        ] {
            named.set(name, value).unwrap();
        }
        assert_eq!(named.isolation, Isolation::Serializable);
        assert!(named.optimistic);
        assert_eq!(named.lock_wait, LockWait::AtMost(Duration::from_millis(250)));
        assert_eq!(named.durability, Durability::Relaxed);
        assert_eq!(named.write_limit, 1 << 30);
        assert_eq!((named.spill_at, named.lock_limit), (1 << 20, 64 << 10));
        assert_eq!(TxnOptions::names().count(), 7);
        named.set("lock_wait", "no_wait").unwrap();
        assert_eq!(named.lock_wait, LockWait::NoWait);
        assert!(named.set("lock_wait", "10").is_err(), "a time has a unit");
    }
}
