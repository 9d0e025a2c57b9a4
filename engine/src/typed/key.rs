//! Keys of typed tables: values as bytes that sort as the values do.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned integers, `char`, `bool` | big endian |
//! | signed integers | big endian, with the sign bit turned over |
//! | `f32`, `f64` | by their total order: all bits turned over if negative, else the sign bit |
//! | `String`, `Vec<u8>` | each zero byte becomes `00 FF`; `00 00` ends it |
//! | `[u8; N]` | as they are |
//! | `Option<T>` | `00`, or `01` and the value: `None` sorts first |
//! | tuples | one field after the other |
//!
//! Source: the tuple layer of FoundationDB, for the escape of zero bytes. It has type codes; here
//! the table's type says what follows.

use super::TypeName;

/// A type that a typed table has as its key. The order of its bytes is that of its values.
///
/// A type of your own takes the bytes of its fields one after the other, and has a [`TypeName`].
///
/// # Examples
///
/// ```
/// use terrace::typed::TypedKey;
///
/// let key = |year: u16, name: &str| (year, name.to_string()).to_bytes();
/// assert!(key(1912, "Turing") < key(1912, "Turing, A."));
/// assert!(key(1912, "Turing") < key(1913, "Ada"));
/// assert_eq!(<(u16, String)>::from_bytes(&key(1815, "Ada")), Some((1815, "Ada".to_string())));
/// ```
pub trait TypedKey: TypeName + Sized {
    /// Adds its bytes to `out`.
    fn write_to(&self, out: &mut Vec<u8>);

    /// Takes its bytes off the front of `from`; `None` if they are no such value.
    fn read_from(from: &mut &[u8]) -> Option<Self>;

    /// Its bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        self.write_to(&mut bytes);
        bytes
    }

    /// The value that has these bytes, all of them; `None` if there is none.
    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        Self::read_from(&mut bytes).filter(|_| bytes.is_empty())
    }
}

/// The first fields of a key. Rows whose keys begin with them lie together.
pub trait PrefixOf<K>: TypedKey {}

/// Takes `N` bytes off the front.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*taken)
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl TypedKey for $type {
            fn write_to(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn read_from(from: &mut &[u8]) -> Option<Self> {
                take(from).map(<$type>::from_be_bytes)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

macro_rules! signed {
    ($($type:ty as $bits:ty),*) => {$(
        impl TypedKey for $type {
            fn write_to(&self, out: &mut Vec<u8>) {
                (self.cast_unsigned() ^ (1 << (<$bits>::BITS - 1))).write_to(out);
            }

            fn read_from(from: &mut &[u8]) -> Option<Self> {
                let bits = <$bits>::read_from(from)? ^ (1 << (<$bits>::BITS - 1));
                Some(bits.cast_signed())
            }
        }
    )*};
}

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);

macro_rules! float {
    ($($type:ty as $bits:ty),*) => {$(
        impl TypedKey for $type {
            fn write_to(&self, out: &mut Vec<u8>) {
                let (bits, sign) = (self.to_bits(), 1 << (<$bits>::BITS - 1));
                (if bits & sign == 0 { bits | sign } else { !bits }).write_to(out);
            }

            fn read_from(from: &mut &[u8]) -> Option<Self> {
                let (bits, sign) = (<$bits>::read_from(from)?, 1 << (<$bits>::BITS - 1));
                Some(<$type>::from_bits(if bits & sign == 0 { !bits } else { bits ^ sign }))
            }
        }
    )*};
}

float!(f32 as u32, f64 as u64);

impl TypedKey for bool {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        match take(from)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl TypedKey for char {
    fn write_to(&self, out: &mut Vec<u8>) {
        u32::from(*self).write_to(out);
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        u32::read_from(from).and_then(char::from_u32)
    }
}

impl<const N: usize> TypedKey for [u8; N] {
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        take(from)
    }
}

impl TypedKey for Vec<u8> {
    fn write_to(&self, out: &mut Vec<u8>) {
        for byte in self {
            out.push(*byte);
            if *byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        let mut bytes = Vec::new();
        loop {
            match take(from)? {
                [0] => match take(from)? {
                    [0] => return Some(bytes),
                    [0xFF] => bytes.push(0),
                    _ => return None,
                },
                [byte] => bytes.push(byte),
            }
        }
    }
}

impl TypedKey for String {
    fn write_to(&self, out: &mut Vec<u8>) {
        for byte in self.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::read_from(from)?).ok()
    }
}

impl<T: TypedKey> TypedKey for Option<T> {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.is_some().write_to(out);
        if let Some(value) = self {
            value.write_to(out);
        }
    }

    fn read_from(from: &mut &[u8]) -> Option<Self> {
        match bool::read_from(from)? {
            true => T::read_from(from).map(Some),
            false => Some(None),
        }
    }
}

macro_rules! tuple {
    ($($field:ident),+) => {
        impl<$($field: TypedKey),+> TypedKey for ($($field,)+) {
            fn write_to(&self, out: &mut Vec<u8>) {
                #[expect(non_snake_case, reason = "a field has the name of its type")]
                let ($($field,)+) = self;
                $($field.write_to(out);)+
            }

            fn read_from(from: &mut &[u8]) -> Option<Self> {
                Some(($($field::read_from(from)?,)+))
            }
        }
    };
}

for_tuples!(tuple);

macro_rules! prefix {
    (($($first:ident),+) of ($($all:ident),+)) => {
        impl<$($all: TypedKey),+> PrefixOf<($($all,)+)> for ($($first,)+) {}
    };
}

prefix!((A) of (A, B));
prefix!((A) of (A, B, C));
prefix!((A, B) of (A, B, C));
prefix!((A) of (A, B, C, D));
prefix!((A, B) of (A, B, C, D));
prefix!((A, B, C) of (A, B, C, D));
prefix!((A) of (A, B, C, D, E));
prefix!((A, B) of (A, B, C, D, E));
prefix!((A, B, C) of (A, B, C, D, E));
prefix!((A, B, C, D) of (A, B, C, D, E));
prefix!((A) of (A, B, C, D, E, F));
prefix!((A, B) of (A, B, C, D, E, F));
prefix!((A, B, C) of (A, B, C, D, E, F));
prefix!((A, B, C, D) of (A, B, C, D, E, F));
prefix!((A, B, C, D, E) of (A, B, C, D, E, F));

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values come back, and their bytes sort as they do.
    fn check<K: TypedKey + PartialOrd + std::fmt::Debug>(a: &K, b: &K) {
        let (bytes_a, bytes_b) = (a.to_bytes(), b.to_bytes());
        assert_eq!(K::from_bytes(&bytes_a).as_ref(), Some(a));
        assert_eq!(Some(bytes_a.cmp(&bytes_b)), a.partial_cmp(b), "{a:?} and {b:?}");
    }

    type Fields = (Option<i32>, String, Vec<u8>, u8, bool, char);

    proptest! {
        #[test]
        fn bytes_sort_as_values_do(
            a in any::<(Option<i32>, String, Vec<u8>, u8, bool, char)>(),
            b in any::<(Option<i32>, String, Vec<u8>, u8, bool, char)>(),
            few in prop::collection::vec(0u8..2, 0..5),
            others in prop::collection::vec(0u8..2, 0..5),
            numbers in any::<(i64, i64, u128, u128, i8, i8)>(),
            floats in (-1e9..1e9f64, -1e9..1e9f64),
        ) {
            check::<Fields>(&a, &b);
            check::<Fields>(&a, &(a.0, b.1, b.2, b.3, b.4, b.5));
            // Byte strings of zeros and ones, before another field.
            check(&(few, 1u8), &(others, 0u8));
            check(&numbers.0, &numbers.1);
            check(&numbers.2, &numbers.3);
            check(&numbers.4, &numbers.5);
            check(&floats.0, &floats.1);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let read = Fields::from_bytes(&bytes);
            // What is read has these bytes and no other.
            prop_assert!(read.is_none_or(|fields| fields.to_bytes() == bytes));
        }
    }

    #[test]
    fn numbers_sort_across_zero() {
        let sorted = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.0, f64::INFINITY, f64::NAN];
        let bytes = sorted.map(|number| number.to_bytes());
        assert!(bytes.is_sorted());
        assert!([i16::MIN, -1, 0, 1, i16::MAX].map(|number| number.to_bytes()).is_sorted());
        assert_eq!(f64::from_bytes(&(-0.0f64).to_bytes()).unwrap().to_bits(), (-0.0f64).to_bits());
    }

    #[test]
    fn a_prefix_is_the_beginning_of_its_keys() {
        let key = (7u32, "a".to_string(), -1i8).to_bytes();
        assert!(key.starts_with(&(7u32,).to_bytes()));
        assert!(key.starts_with(&(7u32, "a".to_string()).to_bytes()));
        assert!(
            !(7u32, "ab".to_string(), -1i8)
                .to_bytes()
                .starts_with(&(7u32, "a".to_string()).to_bytes())
        );
    }
}
