//! Simulated files.
