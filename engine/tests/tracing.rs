//! With the feature `tracing` events reach a subscriber that the program has, with their fields.

#![allow(clippy::unwrap_used, reason = "tests stop and tell")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// What a subscriber was told: the metadata, and each field as it was given.
struct Told {
    metadata: &'static Metadata<'static>,
    fields: Fields,
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("debug {value:?}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), format!("number {value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), format!("bool {value}"));
    }

    fn record_f64(&mut self, field: &Field, _: f64) {
        self.0.insert(field.name(), "float".into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), format!("text {value}"));
    }
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "terrace"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        TOLD.lock().unwrap().push(Told { metadata: event.metadata(), fields });
        assert!(event.metadata().name() != "flush", "a panic of a subscriber ends there");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_is_told_of_each_event_with_its_fields() {
    tracing::subscriber::set_global_default(Listener).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let db = terrace::Options::new().pm_size(4 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    table.put("key", "value").unwrap();
    db.compact_range(&table, ..).unwrap();
    db.close().unwrap();

    let told = TOLD.lock().unwrap();
    let of = |name| told.iter().find(|told| told.metadata.name() == name).unwrap();
    let level = |name| *of(name).metadata.level();
    assert_eq!((level("opened"), level("closed")), (Level::INFO, Level::INFO));
    assert_eq!((level("flush"), level("drain")), (Level::DEBUG, Level::DEBUG));
    let opened = &of("opened").fields.0;
    assert_eq!(opened["message"], "debug opened");
    assert_eq!(opened["mode"], "text file");
    assert_eq!(opened["read_only"], "bool false");
    assert_eq!((&*opened["ms"], &*opened["dropped"]), ("float", "number 0"));
    assert!(opened["at_ms"].starts_with("number ") && opened["number"].starts_with("number "));
    assert_eq!(of("flush").fields.0["table"], "text t");
    assert_eq!(of("drain").fields.0["reason"], "text call");
    assert!(!of("closed").fields.0.contains_key("error"), "nothing failed");
    assert_eq!(told.last().unwrap().metadata.name(), "closed");
}
