//! The server: one thread, and bounds on what a client may take of it.

use std::convert::Infallible;
use std::net;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::routes::Site;
use crate::sampler::INTERVAL;

/// So many connections at a time; further ones wait.
const CONNECTIONS: usize = 64;

/// A request's head comes within this time, and
const HEAD: Duration = Duration::from_secs(5);

/// the whole connection, with its one request and answer, takes no longer than this.
const WHOLE: Duration = Duration::from_secs(15);

/// Bytes of a head, and what is read at a time.
const HEAD_BYTES: usize = 16 << 10;

/// Headers in a head.
const HEADERS: usize = 64;

/// A wait after the system had no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);

/// Serves until `stop` is sent or dropped. What is under way then ends at once.
pub(crate) fn run(
    runtime: &Runtime,
    listener: net::TcpListener,
    site: Site,
    stop: oneshot::Receiver<()>,
) {
    let site = Rc::new(site);
    LocalSet::new().block_on(runtime, async {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        spawn_local(keep_sampling(Rc::clone(&site)));
        let serving = spawn_local(accept(listener, site));
        // It ends with an error if the other half was dropped, which means the same.
        drop(stop.await);
        serving.abort();
    });
}

/// Takes samples while somebody looks.
async fn keep_sampling(site: Rc<Site>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        site.sampler.borrow_mut().tick();
    }
}

async fn accept(listener: TcpListener, site: Rc<Site>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Rc::clone(&site);
                spawn_local(async move {
                    serve_one(stream, site).await;
                    drop(place);
                });
            }
            Err(_) => sleep(REST).await,
        }
    }
}

/// One request of one connection. A client that is slow, or that goes away, is left.
async fn serve_one(stream: TcpStream, site: Rc<Site>) {
    let service = service_fn(move |request: hyper::Request<_>| {
        let (parts, _) = request.into_parts();
        let answer = site.answer(&parts);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    drop(timeout(WHOLE, connection).await);
}
