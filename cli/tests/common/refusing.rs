//! A server in front of an S3 server, which refuses all requests for a while.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is answered: a status and S3's word for it.
pub(crate) type Refusal = (u16, &'static str);

/// A connection looks so often whether requests are refused now.
const LOOK: Duration = Duration::from_millis(20);

/// The server. It serves as long as the process lives.
pub(crate) struct Refusing {
    refusal: Arc<Mutex<Option<Refusal>>>,
}

impl Refusing {
    /// At a port, in front of the server at an address.
    pub(crate) fn start(port: u16, server: String) -> Refusing {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let refusal = Arc::new(Mutex::new(None));
        let of_all = Arc::clone(&refusal);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (refusal, server) = (Arc::clone(&of_all), server.clone());
                // A connection that breaks is the client's to make again.
                std::thread::spawn(move || serve(client, &server, &refusal).unwrap_or(()));
            }
        });
        Refusing { refusal }
    }

    /// From now on requests are refused so, or are not.
    pub(crate) fn set(&self, refusal: Option<Refusal>) {
        *self.refusal.lock().unwrap() = refusal;
    }
}

fn serve(client: TcpStream, server: &str, refusal: &Mutex<Option<Refusal>>) -> std::io::Result<()> {
    let now = || *refusal.lock().unwrap();
    if let Some(refusal) = now() {
        return refuse(&client, refusal);
    }
    let server = TcpStream::connect(server)?;
    let (mut up, mut down) = (server.try_clone()?, client.try_clone()?);
    let back = std::thread::spawn(move || {
        let copied = std::io::copy(&mut server.try_clone()?, &mut down);
        down.shutdown(Shutdown::Both)?;
        copied
    });
    let (mut client, mut buffer) = (client, vec![0; 64 << 10]);
    client.set_read_timeout(Some(LOOK))?;
    while now().is_none() {
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => up.write_all(&buffer[..len])?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    up.shutdown(Shutdown::Both)?;
    back.join().unwrap().map(drop)
}

/// Reads a request and its body, and refuses it.
fn refuse(client: &TcpStream, (status, code): Refusal) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut line, mut len, mut is_head) = (String::new(), 0, false);
    while reader.read_line(&mut line)? > 2 {
        is_head |= line.starts_with("HEAD ");
        let lower = line.to_ascii_lowercase();
        len =
            lower.strip_prefix("content-length:").map_or(len, |it| it.trim().parse().unwrap_or(0));
        line.clear();
    }
    std::io::copy(&mut reader.take(len), &mut std::io::sink())?;
    let text = format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
    let body = if is_head { "" } else { &text };
    let head = format!("HTTP/1.1 {status} {code}\r\nContent-Length: {}\r\n", body.len());
    write!(
        &mut &*client,
        "{head}Content-Type: application/xml\r\nConnection: close\r\n\r\n{body}"
    )?;
    client.shutdown(Shutdown::Write)
}
