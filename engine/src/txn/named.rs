//! Options of transactions by name and value.

use super::options::{Isolation, LockWait, TxnOptions};
use crate::error::Result;
use crate::options::Durability;
use crate::options::named::{NamedOption, OptionType, choose, duration, set_named};

pub(super) const ISOLATION: OptionType<Isolation> =
    OptionType::new("read_committed, snapshot or serializable", |text| {
        let names = [
            ("read_committed", Isolation::ReadCommitted),
            ("snapshot", Isolation::Snapshot),
            ("serializable", Isolation::Serializable),
        ];
        choose(&names, text)
    });
pub(super) const LOCK_WAIT: OptionType<LockWait> =
    OptionType::new("a time, such as 10s or 500ms; or no_wait, or endless", lock_wait);
pub(super) const DURABILITY: OptionType<Durability> =
    OptionType::new("durable, relaxed or remote", |text| {
        let names = [
            ("durable", Durability::Durable),
            ("relaxed", Durability::Relaxed),
            ("remote", Durability::Remote),
        ];
        choose(&names, text)
    });

impl TxnOptions {
    /// Sets an option by the name of its method, as text: `isolation` to `serializable`,
    /// `optimistic` to `on`. [`TxnOptions::names`] lists the names with what each takes. Nothing is
    /// changed after an error.
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
        set_named(TxnOptions::NAMED, self, name, value)
    }

    /// The names that [`TxnOptions::set`] knows, each with what it takes.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        NamedOption::names(TxnOptions::NAMED)
    }
}

fn lock_wait(text: &str) -> Option<LockWait> {
    match text {
        "no_wait" => Some(LockWait::NoWait),
        "endless" => Some(LockWait::Endless),
        wait => duration(wait).map(LockWait::AtMost),
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
