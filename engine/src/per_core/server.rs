//! The thread of a shard.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::reads::ShardScope;
use super::request::{ShardGets, ShardRequest};
use super::state::{ExecutorState, ShardCount, ShardCounts};
use crate::base::error::{Error, ErrorKind, Result};
use crate::mvcc::{EpochGuard, Registered, pin};
use crate::os::pin_thread;
use crate::os::sync::atomic::Ordering;
use crate::os::sync::channel::Receiver;
use crate::table::{TableReader, TableSlot};

thread_local! {
    /// Whether this thread is one of a shard.
    static IS_SHARD: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of a shard, of any executor.
pub(super) fn is_shard() -> bool {
    IS_SHARD.get()
}

/// Does the look-ups of batches.
pub(super) struct ShardServer {
    state: Arc<ExecutorState>,
    /// The tables of the executor, as far as they were asked for.
    slots: Vec<Arc<TableSlot>>,
}

impl ShardServer {
    /// One that has looked up nothing yet.
    pub(super) fn new(state: &Arc<ExecutorState>) -> ShardServer {
        ShardServer { state: Arc::clone(state), slots: Vec::new() }
    }

    /// Serves the requests of shard `number`, on `core` alone if there is one, until there are no
    /// more handles or the executor is closed. What waits then is dropped, and so it is answered.
    pub(super) fn run(
        mut self,
        number: usize,
        core: Option<usize>,
        requests: &Receiver<ShardRequest>,
    ) {
        IS_SHARD.set(true);
        let state = Arc::clone(&self.state);
        let counts = &state.counts[number];
        if let Some(core) = core.filter(|core| pin_thread(*core)) {
            counts.pinned_to(core);
        }
        while let Ok(request) = requests.recv() {
            // What the caller's types do when they are dropped may panic, too.
            let serve = AssertUnwindSafe(|| self.serve(number, request, counts));
            if !catch_unwind(serve).unwrap_or(true) {
                break;
            }
        }
    }

    /// Serves one request; whether there may be more.
    fn serve(&mut self, number: usize, request: ShardRequest, counts: &ShardCounts) -> bool {
        if self.state.check_open().is_err() {
            // The request is dropped. A closed executor has no more; a closed database may have.
            return !self.state.is_closed.load(Ordering::Acquire);
        }
        match request {
            ShardRequest::Gets(gets) => {
                gets.answer(|gets, snapshot| {
                    counts.add(ShardCount::Batches, 1);
                    counts.add(ShardCount::Gets, gets.len() as u64);
                    self.look_up_or_stop(gets, snapshot)
                });
            }
            ShardRequest::Work(work) => {
                work.run(&ShardScope::new(&self.state, number, counts));
            }
            ShardRequest::Stop => return false,
        }
        true
    }

    /// The same as [`ShardServer::look_up`]. The engine alone runs in it, so a panic poisons the
    /// database.
    fn look_up_or_stop(
        &mut self,
        gets: &mut ShardGets,
        snapshot: Option<&Registered>,
    ) -> Result<()> {
        let look_up = AssertUnwindSafe(|| self.look_up(gets, snapshot));
        catch_unwind(look_up).unwrap_or_else(|_| {
            let cause = "a look-up of a per-core executor panicked";
            self.state.shared.stop_because(cause);
            Err(Error::new(ErrorKind::Unavailable, format!("{cause}; open the database again")))
        })
    }

    /// Looks up all keys: those of one table as of one moment, or as of the snapshot.
    pub(super) fn look_up(
        &mut self,
        gets: &mut ShardGets,
        snapshot: Option<&Registered>,
    ) -> Result<()> {
        gets.begin();
        let (mut truncated, mut far) = (Vec::new(), Vec::new());
        let mut tables = 0..;
        // One epoch for all: the pins inside of it are nested, and only count.
        let pinned = pin();
        while let Some(table) = tables.next().and_then(|n| gets.table(n)) {
            self.learn(table);
            if self.slots[table].lent_core(&pinned).lent_view(&pinned).is_remote {
                far.push(table);
                continue;
            }
            match self.look_up_table(gets, table, snapshot, &pinned) {
                Err(error) if error.is_table_gone() => truncated.push(table),
                done => done?,
            }
        }
        drop(pinned);
        for table in far {
            self.look_up_remote(gets, table, snapshot)?;
        }
        // It may have to wait for the truncation, which may wait for epochs.
        let ShardServer { state, slots } = self;
        for table in truncated {
            let (gets, shared) = (RefCell::new(&mut *gets), &state.shared);
            let reader = TableReader { shared, slot: &slots[table], snapshot };
            reader.read(|view, at| gets.borrow_mut().look_up(table, view, at))?;
        }
        Ok(())
    }

    /// Has the tables of the executor up to number `table`.
    fn learn(&mut self, table: usize) {
        if self.slots.len() <= table {
            let all = self.state.slots.read();
            self.slots.extend_from_slice(&all[self.slots.len()..]);
        }
    }

    /// Looks up the keys of one table that has objects. It waits for the store with no epoch
    /// pinned.
    fn look_up_remote(
        &self,
        gets: &mut ShardGets,
        table: usize,
        snapshot: Option<&Registered>,
    ) -> Result<()> {
        let (slot, shared) = (&self.slots[table], &self.state.shared);
        let (numbers, keys): (Vec<usize>, Vec<&[u8]>) = gets.keys_of(table).unzip();
        let values = TableReader { shared, slot, snapshot }.multi_get_remote(&keys)?;
        for (number, value) in numbers.into_iter().zip(values) {
            if let Some(value) = value {
                gets.found(number, &value);
            }
        }
        Ok(())
    }

    /// Looks up the keys of one table.
    fn look_up_table(
        &self,
        gets: &mut ShardGets,
        table: usize,
        snapshot: Option<&Registered>,
        pinned: &EpochGuard,
    ) -> Result<()> {
        let (slot, shared) = (&self.slots[table], &self.state.shared);
        // The table of this moment first: emptied after that, it fails by itself.
        let core = slot.lent_core(pinned);
        if let Some(snapshot) = snapshot {
            slot.check_not_emptied_since(snapshot.lsn())?;
        }
        shared.read(core, snapshot, |view, at| gets.look_up(table, view, at))
    }
}
