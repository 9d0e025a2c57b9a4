//! Reads the page of another process.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::model::Picture;

/// An answer takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer has no more bytes than this.
const MOST: usize = 64 << 20;

/// What a page shows of a moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[non_exhaustive]
pub struct Look {
    /// `open` or `closed`.
    pub state: String,
    /// What the last sample shows; `None` if the database was closed before the first.
    pub picture: Option<Picture>,
}

/// The page of another process.
pub struct Remote {
    host: String,
    bearer: Option<String>,
    runtime: Runtime,
}

impl Remote {
    /// The page at an address as [`Monitor::url`](crate::Monitor::url) gives it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no such address; what the system says where it has no resources.
    pub fn new(url: &str) -> Result<Remote> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidInput, why);
        let uri: Uri = url.parse().map_err(|error| invalid(format!("`{url}`: {error}")))?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid(format!("`{url}` is no address of a page: http://HOST:PORT/")));
        };
        let port = authority.port_u16().unwrap_or(80);
        let token = uri.query().and_then(|query| query.strip_prefix("token="));
        Ok(Remote {
            host: format!("{}:{port}", authority.host()),
            bearer: token.map(|token| format!("Bearer {token}")),
            runtime: runtime::Builder::new_current_thread().enable_all().build()?,
        })
    }

    /// What it shows now.
    ///
    /// # Errors
    ///
    /// What the system says of the connection; `TimedOut`; `PermissionDenied` where the token is
    /// missing or another; `InvalidData` for what is no answer of such a page.
    pub fn look(&self) -> Result<Look> {
        let late = |_| Error::new(ErrorKind::TimedOut, "the page does not answer");
        self.runtime.block_on(async { timeout(PATIENCE, self.ask()).await.map_err(late)? })
    }

    async fn ask(&self) -> Result<Look> {
        let stream = TcpStream::connect(&*self.host).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(Error::other)?;
        // It ends with the answer, whose errors the request has.
        let connection = tokio::spawn(connection);
        let mut request = Request::get("/sample.json").header(HOST, &self.host);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(Error::other)?;
        let answer = sender.send_request(request).await.map_err(Error::other)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(Error::other)?;
        connection.abort();
        match status.as_u16() {
            200 => serde_json::from_slice(&body.to_bytes()).map_err(Error::from),
            401 => Err(Error::new(ErrorKind::PermissionDenied, "the page asks for its token")),
            other => Err(Error::new(ErrorKind::InvalidData, format!("the page answers {other}"))),
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("host", &self.host).finish_non_exhaustive()
    }
}
