//! What is refused, and what a client cannot take from the others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{ErrorKind, Read, Write};

use common::{Answer, Page, connect, get, send};
use terrace_monitor::MonitorOptions;

const TOKEN: &str = "0123456789-abcdef";

fn ask(page: &Page, lines: &[&str]) -> Answer {
    send(page.monitor.address(), format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes())
}

#[test]
fn a_forged_host_is_refused() {
    let page = Page::new();
    let own = format!("Host: {}", page.monitor.address());
    for host in ["Host: evil.example", "Host: 127.0.0.1", "Host:", "X: y"] {
        let answer = ask(&page, &["GET /sample.json HTTP/1.1", host]);
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.body.contains("stats"), "{host}");
    }
    assert_eq!(ask(&page, &["GET / HTTP/1.1", &own, "Host: evil.example"]).status, 421);
    assert_eq!(ask(&page, &["GET http://evil.example/ HTTP/1.1", &own]).status, 421);
    let local = format!("Host: localhost:{}", page.monitor.address().port());
    assert_eq!(ask(&page, &["GET / HTTP/1.1", &local]).status, 200);
}

#[test]
fn a_wrong_token_is_refused() {
    let page = Page::new();
    let monitor = MonitorOptions::new().token(TOKEN).serve(&page.db, "127.0.0.1:0").unwrap();
    let address = monitor.address();
    let ask = |path: &str, header: &str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: any.example\r\n{header}\r\n\r\n");
        send(address, text.as_bytes())
    };
    for (path, header) in [
        ("/", "X: y"),
        ("/app.js", "X: y"),
        ("/sample.json", "Authorization: Bearer 0123456789-abcdeg"),
        ("/sample.json", "Authorization: Bearer 0123456789-abcde"),
        ("/sample.json?token=0123456789-abcdef0", "X: y"),
        ("/nothing", "X: y"),
    ] {
        let answer = ask(path, header);
        assert_eq!(answer.status, 401, "{path} {header}");
        assert!(!answer.body.contains(TOKEN) && !answer.head.contains("set-cookie"));
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(ask("/sample.json", &bearer).status, 200);
    let answer =
        send(address, format!("GET {} HTTP/1.1\r\n\r\n", path_of(&monitor.url())).as_bytes());
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(answer.head.contains("location: /\r\n") || answer.head.ends_with("location: /"));
    let cookie = format!("terrace-{}={TOKEN}", address.port());
    assert!(answer.head.contains(&format!("set-cookie: {cookie}; httponly; samesite=lax")));
    assert_eq!(ask("/", &format!("Cookie: {cookie}")).status, 200);
    assert!(!format!("{monitor:?}").contains(TOKEN));
    assert!(!format!("{:?}", MonitorOptions::new().token(TOKEN)).contains(TOKEN));
}

fn path_of(url: &str) -> &str {
    &url[url.rfind('/').unwrap()..]
}

#[test]
fn without_a_token_other_machines_have_no_way_in() {
    let page = Page::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = terrace_monitor::serve(&page.db, address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    let short = MonitorOptions::new().token("short").serve(&page.db, "127.0.0.1:0").unwrap_err();
    assert_eq!(short.kind(), ErrorKind::InvalidInput);
    let open = MonitorOptions::new().token(TOKEN).serve(&page.db, "0.0.0.0:0").unwrap();
    assert!(open.url().starts_with("http://127.0.0.1:"), "{}", open.url());
}

#[test]
fn only_the_pages_there_are_have_an_address() {
    let page = Page::new();
    for path in [
        "/../",
        "/../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/%2e",
        "//",
        "/./",
        "/app.js/",
        "/app.js%00",
        "/APP.JS",
        "/assets/app.js",
        "/index.html",
    ] {
        assert_eq!(page.get(path).status, 404, "{path}");
    }
    let address = page.monitor.address();
    let long = format!("/{}", "a".repeat(60_000));
    let status = get(address, &long).status;
    assert!(matches!(status, 414 | 431), "{status}");
    let nul = send(address, format!("GET /\0 HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    assert_eq!(nul.status, 400);
    let many = "X: y\r\n".repeat(100);
    let many = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{many}\r\n");
    assert_eq!(send(address, many.as_bytes()).status, 431);
    assert_eq!(page.get("/").status, 200);
}

#[test]
fn nothing_but_get_is_answered() {
    let page = Page::new();
    let host = format!("Host: {}", page.monitor.address());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT"] {
        let target = if method == "CONNECT" { "localhost:1" } else { "/" };
        let answer = ask(&page, &[&format!("{method} {target} HTTP/1.1"), &host]);
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get"));
    }
}

#[test]
fn every_answer_has_the_policies() {
    let page = Page::new();
    for path in ["/", "/sample.json", "/app.js", "/nothing"] {
        let head = page.get(path).head;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; \
             connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
        assert!(!head.contains("access-control"));
    }
}

/// Fifty clients that stay, some with a part of a request, take nothing from others.
#[test]
fn clients_that_stay_keep_nobody_out() {
    let page = Page::new();
    let address = page.monitor.address();
    let mut stay: Vec<_> = (0..50).map(|_| connect(address)).collect();
    for stream in stay.iter_mut().step_by(2) {
        stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    }
    assert_eq!(page.get("/").status, 200);
    page.db.table("t").unwrap().put("a", "1").unwrap();
    // Each of them is sent away at last: a read ends.
    for mut stream in stay {
        assert!(!matches!(stream.read(&mut [0; 512]), Err(e) if e.kind() == ErrorKind::WouldBlock));
    }
}

/// More clients than places: those behind wait until the slow ones are sent away.
#[test]
fn more_clients_than_places_are_served_at_last() {
    let page = Page::new();
    let address = page.monitor.address();
    let stay: Vec<_> = (0..100).map(|_| connect(address)).collect();
    assert_eq!(page.get("/").status, 200);
    drop(stay);
}

/// A client that reads nothing, or goes away, does not hold up the closing of the page.
#[test]
fn the_page_closes_beside_clients_that_do_not_read() {
    let page = Page::new();
    let address = page.monitor.address();
    let request = format!("GET /uplot.js HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut clients: Vec<_> = (0..40).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(|client| client.write_all(request.as_bytes()).unwrap());
    clients.truncate(20);
    assert_eq!(page.get("/").status, 200);
    let Page { db, monitor, dir } = page;
    drop(monitor);
    assert!(std::net::TcpStream::connect(address).is_err());
    db.close().unwrap();
    drop((clients, dir));
}
