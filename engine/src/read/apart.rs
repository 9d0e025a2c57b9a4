//! Values that lie apart from their keys, of several rows at a time. Those that are near each other
//! are read at once. Those in objects are asked for side by side, so all of them wait about as long
//! as one.

use std::collections::VecDeque;

use bytes::Bytes;

use super::get::Lookup;
use crate::error::Result;
use crate::record::{ComingValues, Reference, SeparatedValue};

/// So many requests are under way at most,
const MOST: usize = 256;

/// and about so many bytes, so that the caller's memory does not depend on how many values there
/// are beside those that it takes.
const MOST_BYTES: u64 = 32 << 20;

/// Sorts values by their places, reads them in this order, and gives each to `take` with the
/// caller's number for it.
///
/// # Errors
///
/// `Corrupt` if one does not check out; or on an I/O error.
pub(super) fn read_apart(
    values: &mut [(usize, SeparatedValue)],
    take: impl FnMut(usize, Bytes),
) -> Result<()> {
    values.sort_unstable_by_key(|(_, value)| (value.at.extent, value.at.offset));
    let mut under_way = ValuesUnderWay { asked: VecDeque::new(), bytes: 0, take };
    for of_one in values.chunk_by(|(_, a), (_, b)| a.at.extent == b.at.extent) {
        let places: Vec<Reference> = of_one.iter().map(|(_, value)| value.at).collect();
        let mut from = 0;
        while from < places.len() {
            let (count, coming) = of_one[from].1.from.clone().ask_values(&places[from..])?;
            debug_assert!(count > 0, "the first place is near itself");
            let to = from + count.max(1);
            under_way.add(&of_one[from..to], coming)?;
            from = to;
        }
    }
    under_way.wait_until(0, 0)
}

/// Values that are asked for together.
struct AskedValues {
    numbers: Vec<usize>,
    bytes: u64,
    coming: ComingValues,
}

/// What was asked for and is not here, the oldest first.
struct ValuesUnderWay<F> {
    asked: VecDeque<AskedValues>,
    bytes: u64,
    take: F,
}

impl<F: FnMut(usize, Bytes)> ValuesUnderWay<F> {
    fn add(&mut self, values: &[(usize, SeparatedValue)], coming: ComingValues) -> Result<()> {
        let numbers = values.iter().map(|(number, _)| *number).collect();
        let bytes = values.iter().map(|(_, value)| u64::from(value.at.len)).sum();
        self.bytes += bytes;
        self.asked.push_back(AskedValues { numbers, bytes, coming });
        self.wait_until(MOST, MOST_BYTES)
    }

    /// Waits for the oldest until no more is under way than this.
    fn wait_until(&mut self, requests: usize, bytes: u64) -> Result<()> {
        while self.asked.len() > requests || self.bytes > bytes {
            let Some(oldest) = self.asked.pop_front() else { break };
            self.bytes -= oldest.bytes;
            let values = (oldest.coming)()?;
            debug_assert_eq!(values.len(), oldest.numbers.len(), "each place has a value");
            oldest.numbers.into_iter().zip(values).for_each(|(n, value)| (self.take)(n, value));
        }
        Ok(())
    }
}

/// What look-ups of several keys found, in the order of the keys.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    /// Without those that lie apart.
    values: Vec<Option<Bytes>>,
    /// Those, with their numbers.
    apart: Vec<(usize, SeparatedValue)>,
    /// Operands over a value that lies apart, with their numbers.
    merges: Vec<(usize, super::get::PendingMerge)>,
}

impl Lookups {
    /// For so many keys.
    pub(crate) fn with_capacity(keys: usize) -> Lookups {
        Lookups { values: Vec::with_capacity(keys), ..Lookups::default() }
    }

    /// The look-up of the next key.
    pub(crate) fn add(&mut self, found: Option<Lookup>) {
        let number = self.values.len();
        let (value, apart) = match found {
            None => (None, None),
            Some(Lookup::Here(value)) => (Some(value), None),
            Some(Lookup::Apart(value)) => (None, Some(value)),
            Some(Lookup::Over(value, operands)) => {
                self.merges.push((number, operands));
                (None, Some(value))
            }
        };
        self.values.push(value);
        self.apart.extend(apart.map(|value| (number, value)));
    }

    /// The values. Those that lie apart are read now.
    ///
    /// # Errors
    ///
    /// Those of reading them; an operator fails.
    pub(crate) fn into_values(mut self) -> Result<Vec<Option<Bytes>>> {
        let values = &mut self.values;
        read_apart(&mut self.apart, |number, value| values[number] = Some(value))?;
        for (number, operands) in self.merges {
            debug_assert!(values[number].is_some(), "what lies below was read");
            values[number] = Some(operands.over(values[number].as_deref())?);
        }
        Ok(self.values)
    }
}
