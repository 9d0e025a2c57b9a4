//! Ranges that are read from both ends, a leaf at a time.

use std::collections::VecDeque;

use crate::error::Result;

/// What neither end has read yet.
pub(super) trait Rest {
    type Entry;

    /// The next leaf from the front, ascending; `None` when nothing is left.
    fn read_front(&mut self) -> Result<Option<VecDeque<Self::Entry>>>;

    /// The next leaf from the back, ascending too.
    fn read_back(&mut self) -> Result<Option<VecDeque<Self::Entry>>>;
}

/// What is left, between what either end has read and not shown.
#[derive(Debug)]
pub(super) struct Ends<R: Rest> {
    rest: R,
    front: VecDeque<R::Entry>,
    back: VecDeque<R::Entry>,
}

impl<R: Rest> Ends<R> {
    pub(super) fn new(rest: R) -> Ends<R> {
        Ends { rest, front: VecDeque::new(), back: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> Option<Result<R::Entry>> {
        loop {
            if let Some(entry) = self.front.pop_front() {
                return Some(Ok(entry));
            }
            match self.rest.read_front() {
                Ok(Some(entries)) => self.front = entries,
                Ok(None) => return self.back.pop_front().map(Ok),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    pub(super) fn next_back(&mut self) -> Option<Result<R::Entry>> {
        loop {
            if let Some(entry) = self.back.pop_back() {
                return Some(Ok(entry));
            }
            match self.rest.read_back() {
                Ok(Some(entries)) => self.back = entries,
                Ok(None) => return self.front.pop_back().map(Ok),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
