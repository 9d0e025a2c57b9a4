//! Fields of events as `tracing` takes them.

use tracing::Value;

use super::ErrorKind;

pub(super) trait Field {
    fn value(&self) -> impl Value;
}

macro_rules! fields {
    ($($ty:ty),*) => {
        $(impl Field for $ty {
            fn value(&self) -> impl Value {
                self
            }
        })*
    };
}

fields!(bool, u8, u64, f64, &'static str, String, Option<String>, Option<u32>);

impl Field for Option<ErrorKind> {
    fn value(&self) -> impl Value {
        self.map(ErrorKind::as_str)
    }
}
