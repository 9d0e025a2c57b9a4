//! Channels.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use super::key;
use crate::schedule::{PointKind, block, is_task, point, wake};
use crate::time;

/// What the ends of a channel wait for: a message, or room.
#[derive(Debug, Default)]
struct Moved {
    /// So that each channel has an address of its own.
    _byte: u8,
}

fn told(moved: &Arc<Moved>) {
    if is_task() {
        wake(key(&**moved), usize::MAX);
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver<T> {
    inner: Option<mpsc::Receiver<T>>,
    moved: Arc<Moved>,
}

/// An end that sends.
#[derive(Debug)]
pub struct Sender<T> {
    inner: Option<mpsc::Sender<T>>,
    moved: Arc<Moved>,
}

/// An end that sends to a queue of bounded length.
#[derive(Debug)]
pub struct SyncSender<T> {
    inner: Option<mpsc::SyncSender<T>>,
    moved: Arc<Moved>,
}

pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let ((sender, receiver), moved) = (mpsc::channel(), Arc::<Moved>::default());
    let sender = Sender { inner: Some(sender), moved: Arc::clone(&moved) };
    (sender, Receiver { inner: Some(receiver), moved })
}

/// `most` must not be 0: a rendezvous is not modelled.
pub fn sync_channel<T>(most: usize) -> (SyncSender<T>, Receiver<T>) {
    let ((sender, receiver), moved) = (mpsc::sync_channel(most), Arc::<Moved>::default());
    let sender = SyncSender { inner: Some(sender), moved: Arc::clone(&moved) };
    (sender, Receiver { inner: Some(receiver), moved })
}

#[allow(dead_code, reason = "the interface of the standard library's")]
impl<T> Receiver<T> {
    fn inner(&self) -> &mpsc::Receiver<T> {
        self.inner.as_ref().expect("invariant: it is there until it is dropped")
    }

    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        point(PointKind::Update);
        self.inner().try_recv().inspect(|_| told(&self.moved))
    }

    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        if !is_task() {
            return self.inner().recv();
        }
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => drop(block(key(&*self.moved), None)),
            }
        }
    }

    #[track_caller]
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        if !is_task() {
            return self.inner().recv_timeout(time);
        }
        let until = time::since_start() + time;
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if time::since_start() >= until => {
                    return Err(RecvTimeoutError::Timeout);
                }
                Err(TryRecvError::Empty) => drop(block(key(&*self.moved), Some(until))),
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.inner = None;
        told(&self.moved);
    }
}

impl<T> Sender<T> {
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        point(PointKind::Update);
        let inner = self.inner.as_ref().expect("invariant: it is there until it is dropped");
        inner.send(value).inspect(|()| told(&self.moved))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { inner: self.inner.clone(), moved: Arc::clone(&self.moved) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.inner = None;
        told(&self.moved);
    }
}

#[allow(dead_code, reason = "the interface of the standard library's")]
impl<T> SyncSender<T> {
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        point(PointKind::Update);
        let inner = self.inner.as_ref().expect("invariant: it is there until it is dropped");
        inner.try_send(value).inspect(|()| told(&self.moved))
    }

    #[track_caller]
    pub fn send(&self, mut value: T) -> Result<(), SendError<T>> {
        if !is_task() {
            let inner = self.inner.as_ref().expect("invariant: it is there until it is dropped");
            return inner.send(value);
        }
        loop {
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(back)) => return Err(SendError(back)),
                Err(TrySendError::Full(back)) => value = back,
            }
            block(key(&*self.moved), None);
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        SyncSender { inner: self.inner.clone(), moved: Arc::clone(&self.moved) }
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.inner = None;
        told(&self.moved);
    }
}
