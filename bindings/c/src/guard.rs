//! What stands between a body in Rust and its caller in C: panics stop here, and failures become a
//! status with an error object.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Error, Status};

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine says so. Several calls may be told the same.
    Engine(Arc<terrace::Error>),
    /// A pointer is NULL that must not be; its name.
    Null(&'static str),
    /// The request is wrong, in words.
    Invalid(String),
    /// What the handle stood for has ended, in words.
    Closed(String),
    /// A bug: the words of a panic.
    Panic(String),
}

impl From<terrace::Error> for Failure {
    fn from(error: terrace::Error) -> Failure {
        Failure::Engine(Arc::new(error))
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Where C wants an error: a pointer to a pointer that is NULL or has an earlier error.
pub(crate) type ErrorOut<'a> = Option<&'a mut Option<Box<Error>>>;

/// A pointer that must not be NULL.
#[inline]
pub(crate) fn need<T>(pointer: Option<T>, name: &'static str) -> Result<T> {
    pointer.ok_or(Failure::Null(name))
}

/// Runs a body whose outcome is a status.
#[inline]
pub(crate) fn status(error: ErrorOut<'_>, body: impl FnOnce() -> Result<Status>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => tell(error, failure),
        Err(panic) => tell(error, Failure::Panic(words(&*panic))),
    }
}

/// Runs a body that succeeds or fails.
#[inline]
pub(crate) fn done(error: ErrorOut<'_>, body: impl FnOnce() -> Result<()>) -> Status {
    status(error, || body().map(|()| Status::TERRACE_OK))
}

/// Runs a body that makes a handle; `None`, which C sees as NULL, after a failure.
pub(crate) fn made<T>(error: ErrorOut<'_>, body: impl FnOnce() -> Result<T>) -> Option<Box<T>> {
    let mut made = None;
    done(error, || {
        made = Some(Box::new(body()?));
        Ok(())
    });
    made
}

/// Runs a body that cannot fail; `otherwise` after a panic.
pub(crate) fn plain<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Drops a handle. There is no caller to tell of a failure.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    plain((), || drop(handle));
}

/// The status of a failure, which also goes to where C wants its error. An earlier one is freed.
#[cold]
fn tell(out: ErrorOut<'_>, failure: Failure) -> Status {
    let status = failure.status();
    if let Some(out) = out {
        *out = Some(Box::new(Error::new(failure)));
    }
    status
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = None;
        let status = done(Some(&mut error), || panic!("number {}", 7));
        assert_eq!(status, Status::TERRACE_INTERNAL);
        assert!(error.unwrap().message().to_str().unwrap().contains("number 7"));
        assert_eq!(done(None, || panic!("again")), Status::TERRACE_INTERNAL);
        assert_eq!(plain(3, || panic!("and again")), 3);
    }

    #[test]
    fn a_panic_makes_no_handle() {
        let mut error = None;
        assert!(made::<u8>(Some(&mut error), || panic!("x")).is_none());
        assert!(error.is_some());
        assert_eq!(made(None, || Ok(3_u8)).as_deref(), Some(&3));
    }

    #[test]
    fn a_drop_that_panics_is_caught() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("boom");
            }
        }
        free(Some(Box::new(Bomb)));
    }

    #[test]
    fn an_earlier_error_is_replaced() {
        let mut error = None;
        done(Some(&mut error), || Err(Failure::Null("first")));
        done(Some(&mut error), || Err(Failure::Null("second")));
        assert!(error.unwrap().message().to_str().unwrap().contains("second"));
    }
}
