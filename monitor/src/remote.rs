//! Reads the page of another process.

use std::fmt;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use hyper::Uri;
use serde::Deserialize;

use crate::model::Picture;

/// An answer takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// An answer has no more bytes than this.
const MOST: usize = 64 << 20;

/// What a page shows of a moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[non_exhaustive]
pub struct Look {
    /// As [`Sampler::state`](crate::Sampler::state).
    pub state: String,
    /// What the last sample shows; `None` if the database was closed before the first.
    pub picture: Option<Picture>,
}

/// The page of another process.
pub struct Remote {
    host: String,
    token: Option<String>,
}

impl Remote {
    /// The page at an address as [`Monitor::url`](crate::Monitor::url) gives it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for what is no such address.
    pub fn new(url: &str) -> Result<Remote> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidInput, why);
        let uri: Uri = url.parse().map_err(|error| invalid(format!("`{url}`: {error}")))?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid(format!("`{url}` is no address of a page: http://HOST:PORT/")));
        };
        let port = authority.port_u16().unwrap_or(80);
        let token = uri.query().and_then(|query| query.strip_prefix("token="));
        Ok(Remote { host: format!("{}:{port}", authority.host()), token: token.map(str::to_owned) })
    }

    /// The token that the page asks for, if the address does not have it.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Remote {
        self.token.get_or_insert(token.into());
        self
    }

    /// What it shows now. It blocks: asynchronous code calls it on a thread for that.
    ///
    /// # Errors
    ///
    /// What the system says of the connection; `TimedOut`; `PermissionDenied` where the token is
    /// missing or another; `InvalidData` for what is no answer of such a page.
    pub fn look(&self) -> Result<Look> {
        let answer = self.ask().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => late(),
            _ => error,
        })?;
        let invalid = || Error::new(ErrorKind::InvalidData, "this is no page of a database");
        let split = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or_else(invalid)?;
        let status = str::from_utf8(&answer[..split]).ok().and_then(|head| head.get(9..12));
        match status.ok_or_else(invalid)? {
            "200" => serde_json::from_slice(&answer[split + 4..]).map_err(Error::from),
            "401" => Err(Error::new(ErrorKind::PermissionDenied, "the page asks for its token")),
            other => Err(Error::new(ErrorKind::InvalidData, format!("the page answers {other}"))),
        }
    }

    fn ask(&self) -> Result<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        let left = || {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(late()) } else { Ok(left) }
        };
        let mut connected = Err(Error::new(ErrorKind::NotFound, "the host has no address"));
        for address in self.host.to_socket_addrs()? {
            connected = TcpStream::connect_timeout(&address, left()?);
            if connected.is_ok() {
                break;
            }
        }
        let mut stream = connected?;
        stream.set_write_timeout(Some(left()?))?;
        let token = self.token.as_ref();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let (host, token) = (&self.host, token.unwrap_or_default());
        let request = format!("GET /picture.json HTTP/1.0\r\nHost: {host}\r\n{token}\r\n");
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
        // The page closes the connection behind its answer.
        while answer.len() <= MOST {
            stream.set_read_timeout(Some(left()?))?;
            match stream.read(&mut piece)? {
                0 => return Ok(answer),
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
        Err(Error::new(ErrorKind::InvalidData, "the answer is too long"))
    }
}

fn late() -> Error {
    Error::new(ErrorKind::TimedOut, "the page does not answer")
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("host", &self.host).finish_non_exhaustive()
    }
}
