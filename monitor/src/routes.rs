//! What each address has.

use std::cell::RefCell;
use std::collections::HashMap;

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
pub(crate) struct Site {
    /// Where the database lies.
    path: String,
    pub(crate) sampler: RefCell<Sampler>,
    access: Access,
    made: RefCell<Made>,
}

/// Answers of one sample. All who ask share them.
#[derive(Default)]
struct Made {
    /// Of when the sample is, and whether the database was closed behind it.
    of: Option<(u64, bool)>,
    answers: HashMap<&'static str, Bytes>,
}

impl Site {
    pub(crate) fn new(path: String, sampler: Sampler, access: Access) -> Site {
        Site { path, sampler: RefCell::new(sampler), access, made: RefCell::default() }
    }

    /// Looks, and makes an answer of the sample unless it was made.
    fn made(&self, name: &'static str, make: impl FnOnce(&Sampler) -> String) -> Bytes {
        let (mut sampler, mut made) = (self.sampler.borrow_mut(), self.made.borrow_mut());
        sampler.look();
        let of = (sampler.picture().map_or(0, |picture| picture.at_ms), sampler.is_closed());
        if made.of != Some(of) {
            *made = Made { of: Some(of), answers: HashMap::new() };
        }
        made.answers.entry(name).or_insert_with(|| make(&sampler).into()).clone()
    }

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
                let page = |sampler: &Sampler| page::render(&self.path, sampler).into_string();
                body(of(StatusCode::OK, HTML), self.made("page", page))
            }
            "/sample.json" => {
                let sample = |sampler: &Sampler| sample(sampler).to_string();
                body(of(StatusCode::OK, JSON), self.made("sample", sample))
            }
            "/picture.json" => {
                let look = |of: &Sampler| json!({ "state": of.state(), "picture": of.picture() });
                body(of(StatusCode::OK, JSON), self.made("picture", |of| look(of).to_string()))
            }
            "/history.json" => {
                self.sampler.borrow_mut().look();
                let after = request.uri.query().and_then(|query| query.strip_prefix("after="));
                let after = after.and_then(|after| after.parse().ok()).unwrap_or(0);
                let history = history(&self.sampler.borrow(), after);
                body(of(StatusCode::OK, JSON), history.to_string())
            }
            "/metrics" => match self.sampler.borrow_mut().metrics() {
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

/// The statistics as `terrace stats --json` has them, and what the page shows of them.
fn sample(sampler: &Sampler) -> Value {
    let stats = sampler.sample_of_last_look().map(|sample| &sample.stats);
    json!({ "state": sampler.state(), "stats": stats, "picture": sampler.picture() })
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
    json!({ "state": sampler.state(), "at_ms": times, "series": series })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::Options;

    /// Bug: each client had an answer of its own, of as many megabytes as the statistics have.
    /// Cause: it was made for each request. Fix: it is made once a sample.
    #[test]
    fn all_who_ask_share_the_answers_of_a_sample() {
        let db = Options::new().pm_size(4 << 20).in_memory(64 << 20).open("db").unwrap();
        let access = Access::new("127.0.0.1:8000".parse().unwrap(), None);
        let site = Site::new(String::new(), Sampler::new(&db), access);
        let made = |n: usize| {
            let answer = site.made("sample", |of| format!("{n} {}", of.state()));
            (site.made.borrow().of, answer)
        };
        let (mut answers, mut samples) = (Vec::new(), Vec::new());
        for n in 0..100 {
            let (of, answer) = made(n);
            if samples.last() != Some(&of) {
                samples.push(of);
                answers.push(answer.clone());
            }
            assert_eq!(answer.as_ptr(), answers[answers.len() - 1].as_ptr());
        }
        let text = site.sampler.borrow_mut().metrics().unwrap();
        assert!(text.starts_with(b"# HELP"));
        drop(db);
        site.sampler.borrow_mut().look();
    }
}
