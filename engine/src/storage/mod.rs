//! Where extents are kept: files on an SSD, cut into extents by a map of what is free; and objects
//! in an object store.

mod location;
mod object;
mod space;
mod ssd;

pub(crate) use location::Location;
#[cfg(any(test, feature = "testing", feature = "bench"))]
pub(crate) use object::Distance;
#[cfg(any(test, feature = "testing"))]
pub(crate) use object::probe as object_probe;
#[cfg(any(test, feature = "testing"))]
pub(crate) use object::testing as object_testing;
pub(crate) use object::{
    Client as ObjectClient, Collected, ExtentSink, Failure as RequestFailure, FailureKind,
    LAST_EPOCH, MOST_SENT, OBJECT_FILES, ObjectId, ObjectInfo, ObjectNames, ObjectRead, ObjectTier,
    Planted, PutWhen, SHARED_DATA, SHARED_PIECES, Sends, Settings as ObjectSettings,
    Span as ObjectSpan, Tag as ObjectTag, TaggedValue, Transfers, Uploads, open_client,
    open_reader, owner, shared_name,
};
pub(crate) use space::FreeMap;
pub(crate) use ssd::{EXTENT_BYTES, ExtentStore, Reading, SpaceReservation, is_extent_file_name};
