//! The page that shows a running database.

use crate::database::Database;
use crate::error::Error;
use crate::guard::{self, Failure, Result, need};
use crate::pointers::Text;

/// A page that is served. Any thread may use it.
#[derive(Debug)]
pub struct Monitor {
    #[cfg(feature = "monitor")]
    served: terrace_monitor::Monitor,
}

/// Serves a page at an address such as 127.0.0.1:8080, with a thread of its own; port 0 takes a
/// free one. It shows what lies where, what moves, and what writers wait for. token may be NULL:
/// then every user of this machine may look, and the address has to be a loopback one. With a token
/// of 16 to 128 letters, digits and -._~ the address may be any. The page does not keep the
/// database open. NULL after an error. It ends with terrace_monitor_free.
///
/// Errors: TERRACE_INVALID when the address cannot be had, for a token that is not so, and where
/// the library was built without the feature monitor.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_monitor_serve(
    database: Option<&Database>,
    address: Text,
    token: Text,
    error: Option<&mut Option<Box<Error>>>,
) -> Option<Box<Monitor>> {
    guard::made(error, || {
        let (database, address) = (need(database, "database")?, address.text("address")?);
        let token = match token.text("token") {
            Err(Failure::Null(_)) => None,
            token => Some(token?),
        };
        serve(&database.0, address, token)
    })
}

#[cfg(feature = "monitor")]
fn serve(database: &terrace::Database, address: &str, token: Option<&str>) -> Result<Monitor> {
    let options = terrace_monitor::MonitorOptions::new();
    let options = match token {
        Some(token) => options.token(token),
        None => options,
    };
    let served = options.serve(database, address);
    let refused = |e| Failure::Invalid(format!("the page cannot be served at {address}: {e}"));
    Ok(Monitor { served: served.map_err(refused)? })
}

#[cfg(not(feature = "monitor"))]
fn serve(_: &terrace::Database, address: &str, _: Option<&str>) -> Result<Monitor> {
    Err(Failure::Invalid(format!(
        "this library serves no page at {address}: build it with the feature monitor"
    )))
}

/// The port of a page; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_monitor_port(monitor: Option<&Monitor>) -> u16 {
    #[cfg(feature = "monitor")]
    return monitor.map_or(0, |monitor| monitor.served.address().port());
    #[cfg(not(feature = "monitor"))]
    monitor.map_or(0, |_| 0)
}

/// Ends a page and its connections at once. NULL is no error.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_monitor_free(monitor: Option<Box<Monitor>>) {
    guard::free(monitor);
}
