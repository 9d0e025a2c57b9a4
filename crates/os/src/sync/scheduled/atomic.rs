//! Atomics.

use std::sync::atomic::{self, Ordering};

use crate::schedule::{PointKind, point};

macro_rules! exchanges {
    ($value:ty: $($name:ident),*) => {
        $(
            #[track_caller]
            #[inline]
            pub fn $name(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point(PointKind::Update);
                self.0.$name(current, new, success, failure)
            }
        )*
    };
}

macro_rules! accesses {
    ($value:ty) => {
        pub const fn new(value: $value) -> Self {
            Self(Inner::new(value))
        }

        #[track_caller]
        #[inline]
        pub fn load(&self, order: Ordering) -> $value {
            point(PointKind::Load);
            self.0.load(order)
        }

        #[track_caller]
        #[inline]
        pub fn store(&self, value: $value, order: Ordering) {
            point(PointKind::Store);
            self.0.store(value, order);
        }

        #[track_caller]
        #[inline]
        pub fn swap(&self, value: $value, order: Ordering) -> $value {
            point(PointKind::Update);
            self.0.swap(value, order)
        }

        exchanges!($value: compare_exchange, compare_exchange_weak);

        pub fn get_mut(&mut self) -> &mut $value {
            self.0.get_mut()
        }

        pub fn into_inner(self) -> $value {
            self.0.into_inner()
        }

        pub const fn as_ptr(&self) -> *mut $value {
            self.0.as_ptr()
        }
    };
}

macro_rules! updates {
    ($value:ty: $($name:ident),*) => {
        $(
            #[track_caller]
            #[inline]
            pub fn $name(&self, value: $value, order: Ordering) -> $value {
                point(PointKind::Update);
                self.0.$name(value, order)
            }
        )*
    };
}

macro_rules! number {
    ($name:ident, $value:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        const _: () = {
            use atomic::$name as Inner;

            #[allow(dead_code, reason = "the interface of the standard library's")]
            impl $name {
                accesses!($value);
                updates!($value: fetch_add, fetch_sub, fetch_max, fetch_min);
                updates!($value: fetch_and, fetch_or, fetch_xor);

                #[track_caller]
                #[inline]
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    point(PointKind::Update);
                    self.0.fetch_update(set, fetch, f)
                }
            }
        };
    };
}

impl AtomicU64 {
    /// # Safety
    ///
    /// As of the standard library's: `word` is aligned, and valid for reads and writes as long as
    /// the reference lives, and each access meanwhile is atomic.
    pub const unsafe fn from_ptr<'a>(word: *mut u64) -> &'a AtomicU64 {
        // SAFETY: the caller's, and this type has the layout of the standard library's, which has
        // that of the word.
        unsafe { &*word.cast::<AtomicU64>() }
    }
}

number!(AtomicU8, u8, "A byte.");
number!(AtomicU32, u32, "32 bits.");
number!(AtomicU64, u64, "64 bits.");
number!(AtomicUsize, usize, "A length.");

/// A flag.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(atomic::AtomicBool);

const _: () = {
    use atomic::AtomicBool as Inner;

    #[allow(dead_code, reason = "the interface of the standard library's")]
    impl AtomicBool {
        accesses!(bool);
        updates!(bool: fetch_and, fetch_or, fetch_xor);
    }
};

impl From<bool> for AtomicBool {
    fn from(value: bool) -> AtomicBool {
        AtomicBool::new(value)
    }
}

/// A pointer.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

const _: () = {
    use atomic::AtomicPtr as Inner;

    #[allow(dead_code, reason = "the interface of the standard library's")]
    impl<T> AtomicPtr<T> {
        accesses!(*mut T);
    }
};

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self(atomic::AtomicPtr::default())
    }
}

/// A fence. A run has sequentially consistent orders only, so no task switches here.
#[inline]
pub fn fence(order: Ordering) {
    atomic::fence(order);
}
