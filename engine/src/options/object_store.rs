//! The object store: cold levels, how much of them is on this machine too, and what of a database
//! is shared through it.

use std::time::Duration;

use super::Options;

impl Options {
    /// The object store in which tables may have their cold levels
    /// ([`TableOptions::cold`](crate::TableOptions::cold)): `s3://bucket/prefix` and what is
    /// compatible, `gs://bucket/prefix`, `az://container/prefix`, or `file:///directory`, which may
    /// be a network file system. It is named at each opening. Credentials, region and endpoint come
    /// from the variables that the tools of each cloud read, such as `AWS_ACCESS_KEY_ID`. Stores
    /// that are reached over a network need the cargo feature `object`; a directory does not.
    ///
    /// Opening asks the store for nothing, so it works while the store is away. One database may
    /// write to a store at a time: a second opening of a copy takes the store over, and the first
    /// one stops with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced). Databases may share a bucket
    /// and a prefix. `docs/operations.md` has what the store must allow.
    #[must_use]
    pub fn object_store(mut self, url: impl Into<String>) -> Options {
        self.object_store = Some(url.into());
        self
    }

    /// Ships all commits to the object store, so that other machines can take over, follow or stand
    /// by: see [`Database::open_shared`](crate::Database::open_shared). Needs
    /// [`object_store`](Options::object_store), and one URL for each shared database. Off by
    /// default.
    ///
    /// An opening claims the store with two to about twenty small requests. It fails as
    /// `Unavailable` while the store is away, and as [`Fenced`](crate::ErrorKind::Fenced) if
    /// another directory has taken the database over. The first opening sends all data. Then
    /// commits go out each 100 ms, or once there are 4 MiB of them, on a thread of their own, and
    /// the rest when the database is closed. If the store is away then, closing gives up after five
    /// seconds, or ten if a request is under way; the next opening ships what is left. A commit
    /// does not wait for that, unless it asks for
    /// [`Durability::Remote`](crate::Durability::Remote).
    #[must_use]
    pub fn share(mut self, on: bool) -> Options {
        self.share = on;
        self
    }

    /// For how long the writer of a shared database keeps what it has shipped, so that a follower
    /// that was away goes on where it was: none by default, which is up to two checkpoints, that
    /// is 64 to 128 MiB of commits. It costs the store's space for the commits of that time.
    #[must_use]
    pub fn share_retention(mut self, retention: Duration) -> Options {
        self.share_retention = retention;
        self
    }

    /// Registers a follower or a standby at the shared store by a name of 1 to 64 letters, digits,
    /// `-`, `_` and `.`: the writer keeps what it lacks, up to 16 checkpoints, about 1 GiB of
    /// commits, however long it is away. It tells the store how far it is each ten seconds at most,
    /// with two requests, while it has news. [`Options::forget_follower`] ends that, and a
    /// promotion. Names that begin with `starting-` or `takeover-` are Terrace's own. Without a
    /// name by default.
    #[must_use]
    pub fn follower_name(mut self, name: impl Into<String>) -> Options {
        self.follower_name = Some(name.into());
        self
    }

    /// How many bytes of cold levels may lie on this machine, of tables that have them in the
    /// object store; none by default. What is read again and again comes back from the store while
    /// there is room, and what is read a fourth as often goes down for it. What is here is here
    /// after a restart too.
    ///
    /// Of a follower ([`Database::follow`](crate::Database::follow)): none means that it copies all
    /// data. Otherwise it reads data in the store, and has no more than so many bytes of extents
    /// here, with those of about two checkpoints beside. Name it by [`Options::follower_name`]:
    /// then the writer keeps what the follower reads, and the follower restarts from a checkpoint
    /// less often. Without a name a handle of its database can be read for one more checkpoint.
    /// Later a read that needs deleted data fails as `Unavailable`, and
    /// [`Follower::database`](crate::Follower::database) gives another handle.
    #[must_use]
    pub fn object_cache(mut self, bytes: u64) -> Options {
        self.object_cache = bytes;
        self
    }

    /// For tests and measurements only: has each request to the object store take so much longer,
    /// and its bytes as long as on a connection of so many bytes a second.
    #[cfg(any(test, feature = "testing", feature = "bench"))]
    #[doc(hidden)]
    #[must_use]
    pub fn object_store_distance(
        mut self,
        latency: std::time::Duration,
        bytes_per_second: u64,
    ) -> Options {
        self.distance = Some((latency, bytes_per_second));
        self
    }
}
