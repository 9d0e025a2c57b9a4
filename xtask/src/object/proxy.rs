//! A proxy in front of a server that delays bytes and cuts connections: toxiproxy.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::server::{ask, free_port, go_program, wait_for};

const PACKAGE: &str = "github.com/Shopify/toxiproxy/v2/cmd/server@latest";

/// What it does: milliseconds, KB a second, and one connection in twenty that is cut.
const TOXICS: [&str; 3] = [
    r#"{"name":"far","type":"latency","attributes":{"latency":20,"jitter":10}}"#,
    r#"{"name":"slow","type":"bandwidth","attributes":{"rate":20000}}"#,
    r#"{"name":"cut","type":"limit_data","toxicity":0.05,"attributes":{"bytes":40000}}"#,
];

/// A proxy that runs until this is dropped.
pub(super) struct Proxy {
    child: Child,
    /// Where it stands for the server.
    pub(super) port: u16,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            println!("the proxy does not end: {error}");
        }
    }
}

impl Proxy {
    /// A proxy of a server at a port.
    pub(super) fn start(root: &Path, of: u16) -> Result<Proxy> {
        let program = go_program(root, "server", PACKAGE)?;
        let (control, port) = (free_port()?, free_port()?);
        let mut command = Command::new(&program);
        command.args(["-host", "127.0.0.1", "-port", &control.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let mut proxy = Proxy { child, port };
        wait_for(&mut proxy.child, control)?;
        let body =
            format!(r#"{{"name":"s3","listen":"127.0.0.1:{port}","upstream":"127.0.0.1:{of}"}}"#);
        let mut requests = vec![("POST /proxies", body)];
        requests.extend(TOXICS.map(|toxic| ("POST /proxies/s3/toxics", toxic.to_string())));
        for (request, body) in requests {
            let answer = ask(control, request, &body)?;
            ensure!(answer.contains(" 200") || answer.contains(" 201"), "{request}: {answer}");
        }
        Ok(proxy)
    }
}
