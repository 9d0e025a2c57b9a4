//! How long requests may take, by the bytes that they carry.

use std::time::Duration;

use crate::storage::object::store::Span;

/// How long requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// A call of the engine, with all attempts, without bytes.
    pub(crate) deadline: Duration,
    /// One attempt, without bytes.
    pub(crate) attempt: Duration,
    /// Bytes that even a slow connection carries in a second.
    pub(crate) slowest: u64,
    /// The pause after the first attempt; it doubles.
    pub(crate) first_pause: Duration,
    /// The longest pause.
    pub(crate) longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            deadline: Duration::from_secs(30),
            attempt: Duration::from_secs(10),
            slowest: 64 << 10,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
        }
    }
}

/// Objects that are read whole have no more bytes, as a rule.
const LARGEST: u64 = 8 << 20;

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// With all attempts. One that has begun may end later.
    pub(super) deadline: Duration,
    /// One attempt.
    pub(super) attempt: Duration,
}

impl Patience {
    /// How long a request with so many bytes may take.
    pub(super) fn with(&self, bytes: u64) -> Limits {
        let transfer = self.transfer(bytes);
        Limits { deadline: self.deadline + 3 * transfer, attempt: self.attempt + transfer }
    }

    /// How long a read may take. The length of a whole object is not known: an attempt has the time
    /// of a large one, and the attempts together that of a small one.
    pub(super) fn of(&self, span: Span) -> Limits {
        match span {
            Span::Whole => Limits { attempt: self.with(LARGEST).attempt, ..self.with(0) },
            Span::Bytes { len, .. } => self.with(len),
        }
    }

    fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_millis(bytes.saturating_mul(1000) / self.slowest.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: an object of 8 MiB did not reach a store of 200 KB/s, however often it was sent.
    /// Cause: an attempt had 10 seconds whatever its length.
    /// Fix: it has as much longer as a slow connection takes for its bytes.
    #[test]
    fn what_has_more_bytes_has_more_time() {
        let patience = Patience::default();
        let (none, block) =
            (patience.with(0), patience.of(Span::Bytes { offset: 9, len: 64 << 10 }));
        assert_eq!((none.attempt.as_secs(), none.deadline.as_secs()), (10, 30));
        assert_eq!((block.attempt.as_secs(), block.deadline.as_secs()), (11, 33));
        let (object, slowly) = (patience.with(8 << 20), Duration::from_secs((8 << 20) / 200_000));
        assert!(object.attempt > 2 * slowly && object.deadline >= 3 * object.attempt, "{object:?}");
        let whole = patience.of(Span::Whole);
        assert_eq!((whole.attempt, whole.deadline), (object.attempt, none.deadline));
    }
}
