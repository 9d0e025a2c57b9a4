//! Counters, and the statistics that users read of them: both from one declaration.
//!
//! Thread safety: each counter is an atomic of its own. A reader may see one counter before
//! another one.

use crate::os::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares counters, and the statistics that have a field for each. Behind `@also` come fields
/// that the statistics have beside, as arguments of `stats`. Behind `@hidden` come counters that
/// are no field.
macro_rules! counters {
    (
        $(#[$counters_doc:meta])* struct $counters:ident;
        $(#[$stats_doc:meta])* $vis:vis struct $stats:ident;
        $($(#[$doc:meta])* $name:ident,)*
        @also $($(#[$also_doc:meta])* $also:ident: $also_ty:ty,)*
        @hidden $($(#[$hidden_doc:meta])* $hidden:ident: $hidden_ty:ty,)*
    ) => {
        $(#[$counters_doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $counters {
            $($(#[$doc])* pub(crate) $name: $crate::base::counters::Counter,)*
            $($(#[$hidden_doc])* pub(crate) $hidden: $hidden_ty,)*
        }

        $(#[$stats_doc])*
        $vis struct $stats {
            $($(#[$doc])* $vis $name: u64,)*
            $($(#[$also_doc])* $vis $also: $also_ty,)*
        }

        impl $counters {
            /// What was counted so far.
            pub(crate) fn stats(&self, $($also: $also_ty),*) -> $stats {
                $stats { $($name: self.$name.get(),)* $($also,)* }
            }
        }
    };
}
pub(crate) use counters;
