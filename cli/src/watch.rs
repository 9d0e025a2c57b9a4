//! `--watch`: the page of the database that a command works on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use terrace::Database;
use terrace_monitor::Monitor;

use crate::failure::Failure;
use crate::session::Session;

fn failed(error: &std::io::Error) -> Failure {
    Failure::io("serve the page", error)
}

/// Serves the page of a database until what is returned is dropped, and says where it is.
pub(crate) fn serve(session: &Session, database: &Database) -> Result<Monitor, Failure> {
    let page = terrace_monitor::serve(database, (Ipv4Addr::LOCALHOST, 0));
    let page = page.map_err(|error| failed(&error))?;
    say(session, page.address());
    Ok(page)
}

/// Says where a page is.
pub(crate) fn say(session: &Session, address: SocketAddr) {
    session.output.remark(&format!("watch it at http://{address}/"));
}

/// An address for the pages of several processes, one after the other.
pub(crate) fn address() -> Result<SocketAddr, Failure> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    free.and_then(|free| free.local_addr()).map_err(|error| failed(&error))
}

/// Serves the page of a database at an address that was chosen before.
pub(crate) fn serve_at(
    database: &Database,
    address: Option<SocketAddr>,
) -> Result<Option<Monitor>, Failure> {
    let page = address.map(|address| terrace_monitor::serve(database, address));
    page.transpose().map_err(|error| failed(&error))
}
