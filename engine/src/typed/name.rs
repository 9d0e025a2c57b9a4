//! Names of the types of typed tables, as tables store them.

use std::collections::{BTreeMap, BTreeSet};

/// A type that has a name of its own, which a typed table stores and each opening compares.
///
/// The name stands for the bytes that the type has. It is the same in each build, so it is given
/// here: the compiler's own names may change. A type whose bytes change gets another name. The
/// names of a table's key and of its value have at most 47 bytes each.
///
/// # Examples
///
/// ```
/// use terrace::typed::TypeName;
///
/// struct Order;
///
/// impl TypeName for Order {
///     fn type_name() -> String {
///         "shop.Order".into()
///     }
/// }
///
/// assert_eq!(<(u32, Vec<Order>)>::type_name(), "(u32,Vec<shop.Order>)");
/// ```
pub trait TypeName {
    /// Its name.
    fn type_name() -> String;
}

macro_rules! named {
    ($($type:ty),*) => {$(
        impl TypeName for $type {
            fn type_name() -> String {
                stringify!($type).to_string()
            }
        }
    )*};
}

named!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, char, String, ());

macro_rules! made_of {
    ($($made:ident<$($of:ident),+>),*) => {$(
        impl<$($of: TypeName),+> TypeName for $made<$($of),+> {
            fn type_name() -> String {
                format!("{}<{}>", stringify!($made), [$($of::type_name()),+].join(","))
            }
        }
    )*};
}

made_of!(Option<T>, Vec<T>, BTreeSet<T>, BTreeMap<K, V>);

impl<T: TypeName, const N: usize> TypeName for [T; N] {
    fn type_name() -> String {
        format!("[{};{N}]", T::type_name())
    }
}

macro_rules! tuple {
    ($($field:ident),+) => {
        impl<$($field: TypeName),+> TypeName for ($($field,)+) {
            fn type_name() -> String {
                format!("({})", [$($field::type_name()),+].join(","))
            }
        }
    };
}

for_tuples!(tuple);

#[cfg(test)]
mod tests {
    use super::*;

    /// They are on disk: none may change.
    #[test]
    fn names_are_as_tables_store_them() {
        type Fields = (Option<i32>, String, Vec<u8>, [u8; 16], (bool,), ());
        assert_eq!(Fields::type_name(), "(Option<i32>,String,Vec<u8>,[u8;16],(bool),())");
        assert_eq!(<BTreeMap<char, BTreeSet<f64>>>::type_name(), "BTreeMap<char,BTreeSet<f64>>");
    }
}
