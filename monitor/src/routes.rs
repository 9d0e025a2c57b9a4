//! What each address has.

use std::cell::RefCell;

use bytes::Bytes;
use http_body_util::Full;
use hyper::http::request::Parts;
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::access::{Access, Verdict};
use crate::page;
use crate::sampler::Sampler;

/// Nothing comes from elsewhere, and nothing goes there.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors \
                      'none'";

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// A server's pages.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where the database lies.
    pub(crate) path: String,
    pub(crate) sampler: RefCell<Sampler>,
    pub(crate) access: Access,
}

impl Site {
    /// Answers a request.
    pub(crate) fn answer(&self, request: &Parts) -> Answer {
        if request.method != Method::GET {
            let refused = of(StatusCode::METHOD_NOT_ALLOWED, TEXT).header(header::ALLOW, "GET");
            return body(refused, "Only GET is answered.\n");
        }
        match self.access.judge(request) {
            Verdict::Passes => self.resource(request),
            Verdict::TakesCookie => {
                let answer = of(StatusCode::SEE_OTHER, TEXT)
                    .header(header::SET_COOKIE, self.access.cookie())
                    .header(header::LOCATION, request.uri.path());
                body(answer, "The token is in a cookie from here on.\n")
            }
            Verdict::Refused(StatusCode::UNAUTHORIZED) => {
                let answer = of(StatusCode::UNAUTHORIZED, TEXT);
                let answer = answer.header(header::WWW_AUTHENTICATE, "Bearer");
                body(
                    answer,
                    "A token is needed: in a header `Authorization: Bearer`, or `?token=`.\n",
                )
            }
            Verdict::Refused(status) => {
                body(of(status, TEXT), "The name in `Host` is another's.\n")
            }
        }
    }

    fn resource(&self, request: &Parts) -> Answer {
        let file = |kind, text: &'static str| body(of(StatusCode::OK, kind), text);
        match request.uri.path() {
            "/" => {
                self.sampler.borrow_mut().look();
                let text = page::render(&self.path, &self.sampler.borrow());
                body(of(StatusCode::OK, HTML), text.into_string())
            }
            "/sample.json" => {
                self.sampler.borrow_mut().look();
                body(of(StatusCode::OK, JSON), sample(&self.sampler.borrow()).to_string())
            }
            "/history.json" => {
                self.sampler.borrow_mut().look();
                let after = request.uri.query().and_then(|query| query.strip_prefix("after="));
                let after = after.and_then(|after| after.parse().ok()).unwrap_or(0);
                let history = history(&self.sampler.borrow(), after);
                body(of(StatusCode::OK, JSON), history.to_string())
            }
            "/metrics" => match self.sampler.borrow().metrics() {
                Some(text) => body(of(StatusCode::OK, METRICS), text),
                None => {
                    body(of(StatusCode::SERVICE_UNAVAILABLE, TEXT), "The database is closed.\n")
                }
            },
            "/app.js" => file(SCRIPT, include_str!("../assets/app.js")),
            "/style.css" => file(STYLE, include_str!("../assets/style.css")),
            "/uplot.js" => file(SCRIPT, include_str!("../assets/uPlot.iife.min.js")),
            "/uplot.css" => file(STYLE, include_str!("../assets/uPlot.min.css")),
            _ => body(of(StatusCode::NOT_FOUND, TEXT), "There is no such page.\n"),
        }
    }
}

/// The head of an answer.
fn of(status: StatusCode, kind: &str) -> Builder {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_SECURITY_POLICY, POLICY)
        .header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::CACHE_CONTROL, "no-store")
        .header("cross-origin-resource-policy", "same-origin")
}

fn body(answer: Builder, text: impl Into<Bytes>) -> Answer {
    answer.body(Full::new(text.into())).unwrap_or_else(|_| {
        // A header that cannot be sent: the path of a request in `Location`.
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        answer
    })
}

fn state(sampler: &Sampler) -> &'static str {
    if sampler.is_closed() { "closed" } else { "open" }
}

/// The statistics as `terrace stats --json` has them, and what the page shows of them.
fn sample(sampler: &Sampler) -> Value {
    let stats = sampler.sample_of_last_look().map(|sample| &sample.stats);
    json!({ "state": state(sampler), "stats": stats, "picture": sampler.picture() })
}

/// Each number over time, of the points after a moment.
fn history(sampler: &Sampler, after: u64) -> Value {
    let points: Vec<_> = sampler.points().filter(|point| point.at_ms > after).collect();
    let times: Vec<u64> = points.iter().map(|point| point.at_ms).collect();
    let names = crate::model::Point::default().series();
    let mut series = Map::new();
    for (at, (name, _)) in names.iter().enumerate() {
        let numbers: Vec<Option<f64>> = points.iter().map(|point| point.series()[at].1).collect();
        series.insert((*name).to_owned(), json!(numbers));
    }
    json!({ "state": state(sampler), "at_ms": times, "series": series })
}
