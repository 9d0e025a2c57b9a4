//! Channels. In tests each call is a point of a scheduler.

#[cfg(not(any(test, feature = "testing")))]
pub use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
pub use std::sync::mpsc::{RecvTimeoutError, TrySendError};

#[cfg(any(test, feature = "testing"))]
pub use super::scheduled::channel::{Receiver, Sender, SyncSender, channel, sync_channel};
