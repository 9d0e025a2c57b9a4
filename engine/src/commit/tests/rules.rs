//! The rules of the ring, each by name (`docs/commit.md`).
