//! Functions of the caller's that the library calls: under a deadline, while work goes on, when
//! a commit has ended, with events, and for the bytes of a dump.

use std::ffi::{c_char, c_void};
use std::io;
use std::ops::ControlFlow;

use terrace::Progress;

use crate::database::deadline;
use crate::error::{Error, Status, c_text};
use crate::guard::{self, need};
use crate::options::Options;
use crate::pending::Pending;

/// What a function of the caller's gets, as the caller has passed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(*mut c_void);

// SAFETY: the header demands of a function that threads of the library call, and of its context,
// that any thread may use them, several at once. Nothing else reads the context.
unsafe impl Send for Context {}

// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(context: *mut c_void) -> Context {
        Context(context)
    }

    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// A function that runs under a deadline. It returns normally: no longjmp, and no exception of C++.
pub type Call = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Is told how far work is, and says whether it goes on. operation is "open", "verify", "backup",
/// "restore", "salvage" or "close"; done of total bytes are done, or steps of a closing. total is 0
/// as long as nothing is known. The thread of the call and threads of the library call it, for one
/// piece of work one at a time. Several pieces may be under way at once. Calls of the same database
/// in it fail with TERRACE_INVALID. It returns normally. The text is valid until then.
pub type ProgressFunction = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        operation: *const c_char,
        done: u64,
        total: u64,
    ) -> bool,
>;

/// Is told that the transaction waiter is about to wait for a lock that holder has, or has asked
/// for before; once for each of them. A plain write has a number too. The waiting thread calls it:
/// it calls no function of the library, and returns normally.
pub type LockWaitFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, waiter: u64, holder: u64)>;

/// Is told how a commit has ended, as terrace_pending_wait says it. The error is NULL after
/// TERRACE_OK, and valid until the function returns. A thread of the library calls it, which other
/// commits wait for, or one that is in terrace_pending_wait. It returns soon, and normally. It
/// waits for no commit and closes no database.
pub type CommitFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, status: Status, error: Option<&Error>)>;

/// Is told of an event of a database. name is that of its kind, such as "drain" or "stall_begin".
/// json is an object without a line break: "event" is the name, "at_ms" the time in milliseconds
/// since 1970, "number" rises, "dropped" counts events that were left out right before. The other
/// fields are those of the kind. docs/operations.md has the kinds. Both texts are valid until the
/// function returns. A thread of the library calls it, which holds no lock; where a database is
/// promoted or taken over, that before may still tell its last events. It may take long, call the
/// library, and close the database. It returns normally.
pub type EventFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, json: *const c_char)>;

/// Takes the next bytes of a dump; whether it has taken all of them. They are valid until it
/// returns. The thread of the call calls it, and it returns normally.
pub type WriteFunction =
    Option<unsafe extern "C" fn(context: *mut c_void, data: *const c_void, len: usize) -> bool>;

/// Gives the next bytes of a dump: it writes some to buffer, at most capacity, and returns how
/// many. 0 is the end of the dump, and SIZE_MAX a failure. The thread of the call calls it, and it
/// returns normally.
pub type ReadFunction = Option<
    unsafe extern "C" fn(context: *mut c_void, buffer: *mut c_void, capacity: usize) -> usize,
>;

/// Where a dump goes.
pub(crate) struct Sink {
    pub(crate) function: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> bool,
    pub(crate) context: Context,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the function is the caller's, with this signature and context. The bytes are
        // valid until it returns.
        match unsafe { (self.function)(self.context.pointer(), bytes.as_ptr().cast(), bytes.len()) }
        {
            true => Ok(bytes.len()),
            false => Err(io::Error::other("the function of the caller's returned false")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where a dump comes from.
pub(crate) struct Source {
    pub(crate) function: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> usize,
    pub(crate) context: Context,
}

impl io::Read for Source {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the function is the caller's, with this signature and context. The buffer is
        // valid for writes of its length until it returns.
        let read =
            unsafe { (self.function)(self.context.pointer(), to.as_mut_ptr().cast(), to.len()) };
        match read {
            usize::MAX => Err(io::Error::other("the function of the caller's returned SIZE_MAX")),
            read if read > to.len() => {
                let room = to.len();
                let message = format!("the function of the caller's gave {read} bytes for {room}");
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            read => Ok(read),
        }
    }
}

/// Calls call(context) on this thread. Waits of the library inside of it end with TERRACE_TIMEOUT
/// once wait_ms milliseconds are over: those for row locks, for space and for turns of commits. Of
/// two such deadlines, one inside of the other, the earlier one counts. A commit that has its place
/// in the order is waited for all the same.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_with_deadline(
    wait_ms: u64,
    call: Call,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (call, context) = (need(call, "call")?, Context::new(context));
        // SAFETY: the function is the caller's, with this signature and context.
        terrace::with_deadline(deadline(wait_ms), || unsafe { call(context.pointer()) });
        Ok(())
    })
}

/// Has openings, verifications, backups, restores, salvages and closings with these options, or of
/// a database or set that was opened with them, tell function how far they are: first, last, and
/// some ten times a second between them. Where it returns false the call ends with
/// TERRACE_CANCELLED. An opening leaves all rows, as a power cut does. A verification gives no
/// report. A backup is not in its set. What a restore or salvage has begun cannot be opened, and
/// the next one to the same directory starts over. A closing goes on to its end. Nothing is told of
/// what followers, standbys and takeovers open and close by themselves. The function and its
/// context, which may be NULL, stay valid until the options are freed, the databases, followers and
/// standbys are closed, and the sets of backups are freed.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_set_progress(
    options: Option<&mut Options>,
    function: ProgressFunction,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (options, function) = (need(options, "options")?, need(function, "function")?);
        let context = Context::new(context);
        let tell = move |at: &Progress| {
            let operation = c_text(at.operation);
            // SAFETY: the function is the caller's, with this signature and context. The text is
            // valid until it returns.
            match unsafe { function(context.pointer(), operation.as_ptr(), at.done, at.total) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        options.0 = std::mem::take(&mut options.0).on_progress(tell);
        Ok(())
    })
}

/// Has databases that are opened with these options tell function of waits for locks. The function
/// and its context, which may be NULL, stay valid until the options are freed and the databases are
/// closed.
///
/// Errors: TERRACE_INVALID for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_set_lock_waits(
    options: Option<&mut Options>,
    function: LockWaitFunction,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (options, function) = (need(options, "options")?, need(function, "function")?);
        let context = Context::new(context);
        let tell = move |waiter: u64, holders: &[u64]| {
            for &holder in holders {
                // SAFETY: the function is the caller's, with this signature and context.
                unsafe { function(context.pointer(), waiter, holder) };
            }
        };
        options.0 = std::mem::take(&mut options.0).on_lock_wait(tell);
        Ok(())
    })
}

/// Has databases that are opened with these options tell function of their events, in their order.
/// NULL removes it. Of several functions the last one counts. terrace_close returns when all is
/// told, unless function calls it; no other call waits for that. So the function and its context,
/// which may be NULL, stay valid until the program ends. Events wait for the function: 1,024 at
/// most, 512 for slow operations, and later ones are left out.
///
/// Errors: TERRACE_INVALID where options is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_on_event(
    options: Option<&mut Options>,
    function: EventFunction,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (options, context) = (need(options, "options")?, Context::new(context));
        let of_engine = std::mem::take(&mut options.0);
        let Some(function) = function else {
            options.0 = of_engine.without_events();
            return Ok(());
        };
        options.0 = of_engine.on_event(move |event| {
            let (name, Ok(json)) = (c_text(event.name()), serde_json::to_vec(event)) else {
                return;
            };
            let json = c_text(json);
            // SAFETY: the function is the caller's, with this signature and context. The texts are
            // valid until it returns.
            unsafe { function(context.pointer(), name.as_ptr(), json.as_ptr()) };
        });
        Ok(())
    })
}

/// Has function called once when a commit has ended, also where the handle was freed before. A
/// commit that has ended by now is told of at once, on this thread. Each call adds a function.
/// The function and its context, which may be NULL, stay valid until it was called.
///
/// Errors: TERRACE_INVALID for NULL; TERRACE_UNAVAILABLE in a forked child.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_pending_on_end(
    pending: Option<&Pending>,
    function: CommitFunction,
    context: *mut c_void,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    guard::done(error, || {
        let (pending, function) = (need(pending, "pending")?, need(function, "function")?);
        let context = Context::new(context);
        pending.on_end(Box::new(move |status, error| {
            // SAFETY: the function is the caller's, with this signature and context. The error is
            // valid until it returns.
            unsafe { function(context.pointer(), status, error) };
        }))
    })
}
