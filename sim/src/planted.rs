//! Bugs put in on purpose, each of which a run must find.
