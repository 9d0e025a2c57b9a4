//! Object stores of others, through the crate `object_store`: S3 and what is compatible, Azure,
//! Google.
//!
//! The crate's own retries are off, since [`client`](super::client) makes them: the crate tries a
//! server that hangs for three minutes. Requests run on two threads, as many at a time as are
//! begun.
//!
//! S3 compares a checksum (SHA-256) of each put before it acknowledges. The others rely on the
//! checksums of the transport.
//!
//! Thread safety: every method may be called from any thread.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore as Crate, ObjectStoreExt, PutMode,
    PutOptions, PutResult, RetryConfig, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};

use super::store::{
    Answer, Answered, Failure, FailureKind, Got, LIST_LEN, ObjectInfo, ObjectStore, PutWhen, Span,
    Tag, Waiting, late,
};
use crate::base::error::{Error, ErrorKind, Result};

const THREADS: usize = 2;
const CONNECT: Duration = Duration::from_secs(3);
/// A read of which nothing came for so long has failed, however long it may take as a whole.
const STALLED: Duration = Duration::from_secs(10);

/// A store that is reached over a network.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    store: Arc<dyn Crate>,
    /// What all names begin with there; empty, or with a slash at its end.
    base: String,
    address: String,
    /// There until the store is dropped.
    runtime: Option<Runtime>,
}

impl RemoteStore {
    /// The store at `url`: `s3://bucket/prefix`, `gs://…` or `az://…`. Credentials, region and
    /// endpoint come from the variables that the tools of each cloud read.
    ///
    /// # Errors
    ///
    /// `Invalid` if the URL or a variable is not understood.
    pub(crate) fn open(url: &str) -> Result<RemoteStore> {
        let invalid = |cause: &dyn std::fmt::Display| {
            Error::invalid(format!("the object store {url} cannot be used: {cause}"))
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid(&"a URL is needed, for example s3://bucket/prefix"))?;
        let base = rest.split_once('/').map_or("", |(_, base)| base).trim_matches('/');
        let store = build(scheme, url).map_err(|e| invalid(&e))?;
        let store = store.ok_or_else(|| invalid(&"use s3://, gs://, az:// or file://"))?;
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(THREADS).thread_name("terrace-objects").enable_all();
        let runtime = threads.build().map_err(|e| {
            let message = format!("cannot start threads for the object store {url}: {e}");
            Error::new(ErrorKind::Unavailable, message)
        })?;
        let base = match Path::from(base) {
            base if base.as_ref().is_empty() => String::new(),
            base => format!("{base}/"),
        };
        Ok(RemoteStore { store, base, address: url.to_string(), runtime: Some(runtime) })
    }

    /// Where an object of this name lies. A name of a list is taken as it is.
    fn path(&self, name: &str) -> Path {
        let whole = format!("{}{}", self.base, name.trim_end_matches('/'));
        Path::parse(&whole).unwrap_or_else(|_| Path::from(whole))
    }

    /// Runs a request, and has it answer in time.
    fn run<T: Send + 'static>(
        &self,
        within: Duration,
        answer: Answer<T>,
        request: impl Future<Output = Answered<T>> + Send + 'static,
    ) {
        // Without a runtime the answer is dropped, which answers that the store is away.
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                let done = tokio::time::timeout(within, request).await;
                answer.send(done.unwrap_or_else(|_| Err(late(within))));
            });
        }
    }

    fn wait<T: Send + 'static>(
        &self,
        within: Duration,
        request: impl Future<Output = Answered<T>> + Send + 'static,
    ) -> Answered<T> {
        let waiting = Waiting::default();
        self.run(within, waiting.answer(), request);
        waiting.next(within).unwrap_or_else(|| Err(late(within)))
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The crate's store for a URL; `None` for an unknown scheme.
fn build(scheme: &str, url: &str) -> object_store::Result<Option<Arc<dyn Crate>>> {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    // Attempts have their time from the caller.
    let options = || ClientOptions::new().with_connect_timeout(CONNECT).with_timeout_disabled();
    Ok(match scheme {
        "s3" | "s3a" => {
            let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
            let builder = builder.with_checksum_algorithm(Checksum::SHA256);
            let allows_http = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|value| value == "true");
            Some(Arc::new(
                builder.with_client_options(options().with_allow_http(allows_http)).build()?,
            ))
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
            Some(Arc::new(builder.with_client_options(options()).build()?))
        }
        "az" | "azure" | "abfs" | "abfss" => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            Some(Arc::new(builder.with_client_options(options()).build()?))
        }
        _ => None,
    })
}

fn failed(error: &object_store::Error) -> Failure {
    use object_store::Error as E;
    let mut cause = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let more = inner.to_string();
        if !cause.contains(&more) {
            cause = format!("{cause}: {more}");
        }
        source = inner.source();
    }
    let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    let kind = match error {
        _ if says(&["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"]) => {
            FailureKind::Refused
        }
        // Another attempt is under way, maybe one of this client.
        _ if says(&["ConditionalRequestConflict", "OperationAborted"]) => FailureKind::Throttled,
        E::NotFound { .. } => FailureKind::Missing,
        E::AlreadyExists { .. } | E::Precondition { .. } => FailureKind::Changed,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => FailureKind::Refused,
        E::InvalidPath { .. } => FailureKind::Wrong,
        _ if says(&["416 ", "InvalidRange"]) => FailureKind::Short,
        _ if says(&["SlowDown", "503 ", "429 ", "ServerBusy"]) => FailureKind::Throttled,
        _ if says(&["BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"]) => {
            FailureKind::Wrong
        }
        _ if says(&["InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"]) => {
            FailureKind::Refused
        }
        _ => FailureKind::Away,
    };
    Failure::new(kind, cause)
}

fn told<T>(result: object_store::Result<T>) -> Answered<T> {
    result.map_err(|error| failed(&error))
}

fn tag(entity: Option<String>, version: Option<String>) -> Tag {
    Tag { entity, version }
}

/// One request, whatever the length: a put in parts takes no condition. Stores take 5 GiB with one,
/// and no object is as long.
async fn put(
    store: Arc<dyn Crate>,
    path: Path,
    bytes: Bytes,
    when: PutWhen,
) -> Answered<PutResult> {
    let mode = match when {
        PutWhen::Absent => PutMode::Create,
        PutWhen::Tagged(tag) => {
            PutMode::Update(UpdateVersion { e_tag: tag.entity, version: tag.version })
        }
    };
    told(store.put_opts(&path, bytes.into(), PutOptions::from(mode)).await)
}

/// What comes, as long as some of it comes now and then.
async fn moving<T>(next: impl Future<Output = T>) -> Answered<T> {
    tokio::time::timeout(STALLED, next).await.map_err(|_| late(STALLED))
}

async fn get(store: Arc<dyn Crate>, path: Path, span: Span) -> Answered<Got> {
    let range = match span {
        Span::Whole => None,
        Span::Bytes { offset, len } => Some(GetRange::Bounded(offset..offset.saturating_add(len))),
    };
    let options = GetOptions { range, ..GetOptions::default() };
    let found = told(moving(store.get_opts(&path, options)).await?)?;
    let tag = tag(found.meta.e_tag.clone(), found.meta.version.clone());
    let has = found.meta.size;
    let wanted = match span {
        Span::Whole => has,
        Span::Bytes { len, .. } => len,
    };
    let mut bytes = Vec::with_capacity(usize::try_from(wanted.min(has)).unwrap_or(0));
    let mut pieces = found.into_stream();
    while let Some(piece) = moving(pieces.next()).await? {
        bytes.extend_from_slice(&told(piece)?);
    }
    if bytes.len() as u64 != wanted {
        let cause = format!("{} of {wanted} bytes; the object has {has}", bytes.len());
        return Err(Failure::new(FailureKind::Short, cause));
    }
    Ok(Got { bytes, tag })
}

impl ObjectStore for RemoteStore {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn begin_put(
        &self,
        name: &str,
        bytes: &Bytes,
        when: &PutWhen,
        within: Duration,
        answer: Answer<Tag>,
    ) {
        let (store, bytes) = (Arc::clone(&self.store), bytes.clone());
        let (path, when) = (self.path(name), when.clone());
        self.run(within, answer, async move {
            let done = put(store, path, bytes, when).await?;
            Ok(tag(done.e_tag, done.version))
        });
    }

    fn begin_get(&self, name: &str, span: Span, within: Duration, answer: Answer<Got>) {
        self.run(within, answer, get(Arc::clone(&self.store), self.path(name), span));
    }

    fn head(&self, name: &str, within: Duration) -> Answered<ObjectInfo> {
        let (store, path, name) = (Arc::clone(&self.store), self.path(name), name.to_string());
        self.wait(within, async move {
            let found = told(store.head(&path).await)?;
            Ok(ObjectInfo { name, len: found.size })
        })
    }

    fn delete(&self, names: &[String], within: Duration) -> Answered<()> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
        let store = Arc::clone(&self.store);
        self.wait(within, async move {
            let mut done = store.delete_stream(stream::iter(paths).boxed());
            // One that cannot be deleted keeps no other.
            let mut first = Ok(());
            while let Some(deleted) = done.next().await {
                match deleted.map_err(|error| failed(&error)) {
                    Err(failure) if failure.kind != FailureKind::Missing => {
                        first = first.and(Err(failure));
                    }
                    _ => {}
                }
            }
            first
        })
    }

    fn list(&self, prefix: &str, after: &str, within: Duration) -> Answered<Vec<ObjectInfo>> {
        let (store, base) = (Arc::clone(&self.store), self.base.clone());
        let path = (!base.is_empty() || !prefix.is_empty()).then(|| self.path(prefix));
        let after = (!after.is_empty()).then(|| self.path(after));
        self.wait(within, async move {
            let path = path.as_ref();
            let found = match &after {
                Some(after) => store.list_with_offset(path, after),
                None => store.list(path),
            };
            let found: Vec<ObjectMeta> = told(found.take(LIST_LEN).try_collect().await)?;
            let named = |meta: ObjectMeta| ObjectInfo {
                name: meta.location.as_ref().strip_prefix(&base).unwrap_or_default().to_string(),
                len: meta.size,
            };
            let infos: Vec<ObjectInfo> = found.into_iter().map(named).collect();
            if infos.is_sorted_by(|a, b| a.name < b.name) {
                return Ok(infos);
            }
            Err(Failure::new(FailureKind::Wrong, "the list is not in the order of names"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::object::tests::conformance;

    /// A server for this test alone: `TERRACE_S3` is the URL of a bucket that it may write to, and
    /// the variables of the cloud's tools lead there. `cargo xtask object` starts one and sets
    /// them.
    #[test]
    fn a_server_conforms() {
        let Ok(url) = std::env::var("TERRACE_S3") else {
            println!("skipped: TERRACE_S3 names no bucket to write to");
            return;
        };
        let store: Arc<dyn ObjectStore> = Arc::new(RemoteStore::open(&url).unwrap());
        let base = format!("conformance-{}/", std::process::id());
        conformance::conforms(&store, &base);
        conformance::lists_come_in_pages_and_deletions_in_batches(&*store, &base);
    }

    /// Bug: a collection never ended beside an object that somebody else had put there. Cause: a
    /// list began behind an encoded name, which is another one and comes before it. Fix: a name of
    /// a list is taken as it is, and so is what the URL says, once.
    #[test]
    fn a_list_goes_on_behind_any_name_that_it_has_given() {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let (store, within) = (object_store::memory::InMemory::new(), Duration::from_secs(60));
        let names = ["db/a", "db/notes~", "db/x {y}"];
        for name in names {
            let path = Path::parse(format!("own base~/{name}")).unwrap();
            runtime.block_on(store.put(&path, "1".into())).unwrap();
        }
        let (base, address) = ("own base~/".into(), "memory".into());
        let remote = RemoteStore { store: Arc::new(store), base, address, runtime: Some(runtime) };
        let mut after = String::new();
        for name in names {
            let page = remote.list("db/", &after, within).unwrap();
            assert_eq!(page[0].name, name);
            after.clone_from(&page[0].name);
        }
        assert_eq!(remote.list("db/", &after, within), Ok(vec![]));
    }

    #[test]
    fn a_url_that_is_not_understood_is_refused_with_what_to_use() {
        for url in ["bucket", "ftp://host/path", "memory:"] {
            let message = RemoteStore::open(url).unwrap_err().to_string();
            assert!(message.contains(url) && message.contains("s3://"), "{message}");
        }
    }

    /// Bug: a bucket that was not there was told as a lost object, or as a store that another
    /// opening had taken over. A write that met one under way was told as changed by another.
    /// Cause: the kind was taken from the number of the answer. Fix: what it says counts first.
    #[test]
    fn an_answer_is_taken_by_what_it_says() {
        let not_found = |says: &str| object_store::Error::NotFound {
            path: "a".into(),
            source: says.to_string().into(),
        };
        assert_eq!(failed(&not_found("404 NoSuchKey")).kind, FailureKind::Missing);
        for says in ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"] {
            assert_eq!(failed(&not_found(says)).kind, FailureKind::Refused, "{says}");
        }
        let there = |says: &str| object_store::Error::AlreadyExists {
            path: "a".into(),
            source: says.to_string().into(),
        };
        assert_eq!(failed(&there("409 Conflict")).kind, FailureKind::Changed);
        let under_way = failed(&there("ConditionalRequestConflict"));
        assert_eq!(under_way.kind, FailureKind::Throttled);
    }

    /// Nothing listens on the port.
    #[test]
    fn a_server_that_is_away_is_told_as_away_in_its_time() {
        let options = ClientOptions::new().with_allow_http(true);
        let builder = AmazonS3Builder::new().with_bucket_name("b").with_region("us-east-1");
        let builder = builder.with_endpoint("http://127.0.0.1:1").with_client_options(options);
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = builder.with_access_key_id("k").with_secret_access_key("s").with_retry(retry);
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store = RemoteStore {
            store: Arc::new(builder.build().unwrap()),
            base: String::new(),
            address: "s3://b".into(),
            runtime: Some(runtime),
        };
        let within = Duration::from_secs(10);
        for failure in [
            store.head("a", within).unwrap_err(),
            store.get("a", Span::Whole, within).unwrap_err(),
            store.put("a", &Bytes::from_static(b"1"), &PutWhen::Absent, within).unwrap_err(),
            store.list("", "", within).unwrap_err(),
        ] {
            assert_eq!(failure.kind, FailureKind::Away, "{failure}");
        }
    }
}
