//! Bytes in pages, which copies share until one of them writes: an image of a power cut costs what
//! it changes, not what it is.

use std::sync::Arc;

pub(super) const PAGE: usize = 4096;

pub(super) type Page = Arc<[u8; PAGE]>;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// A row of bytes. Pages without a write hold zeros and take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    len: usize,
    pages: Vec<Option<Page>>,
}

impl Pages {
    /// So many zeros.
    pub(super) fn zeros(len: usize) -> Pages {
        Pages { len, pages: vec![None; len.div_ceil(PAGE)] }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds zeros up to a length.
    pub(super) fn grow(&mut self, len: usize) {
        debug_assert!(len >= self.len, "memory only grows");
        self.len = len;
        self.pages.resize(len.div_ceil(PAGE), None);
    }

    /// Fills `out` with what is there from `at` on.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) {
        self.for_each(at, out.len(), |from, bytes| {
            out[from - at..][..bytes.len()].copy_from_slice(bytes);
        });
    }

    /// The same, as bytes of their own.
    pub(super) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(at, &mut out);
        out
    }

    /// The `n`-th page, if it was written to.
    pub(super) fn page(&self, n: usize) -> Option<&Page> {
        self.pages.get(n)?.as_ref()
    }

    /// Whether it holds `bytes` from `at` on.
    pub(super) fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let mut holds = true;
        self.for_each(at, bytes.len(), |from, part| {
            holds = holds && part == &bytes[from - at..][..part.len()];
        });
        holds
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        for_each_page(at, bytes.len(), |page, within, range| {
            let page = self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within].copy_from_slice(&bytes[range]);
        });
    }

    /// Calls `each` with a range in parts, and where each begins.
    pub(super) fn for_each(&self, at: usize, len: usize, mut each: impl FnMut(usize, &[u8])) {
        for_each_page(at, len, |page, within, range| {
            let bytes = self.pages[page].as_deref().unwrap_or(&ZEROS);
            each(at + range.start, &bytes[within]);
        });
    }

    /// The same, without pages that were never written to.
    pub(super) fn for_each_written(
        &self,
        at: usize,
        len: usize,
        mut each: impl FnMut(usize, &[u8]),
    ) {
        for_each_page(at, len, |page, within, range| {
            let page = self.page(page).into_iter();
            page.for_each(|bytes| each(at + range.start, &bytes[within.clone()]));
        });
    }
}

/// Cuts `len` bytes from `at` on at the ends of pages: calls `each` with the page, the range in it,
/// and the range in the bytes.
fn for_each_page(
    at: usize,
    len: usize,
    mut each: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let start = (at + done) % PAGE;
        let n = (PAGE - start).min(len - done);
        each((at + done) / PAGE, start..start + n, done..done + n);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_differ_by_what_is_written_to_them() {
        let mut one = Pages::zeros(3 * PAGE);
        one.write(PAGE - 2, &[1, 2, 3, 4]);
        let mut two = one.clone();
        two.write(PAGE, &[9]);
        assert_eq!(one.bytes(PAGE - 3, 6), [0, 1, 2, 3, 4, 0]);
        assert_eq!(two.bytes(PAGE - 3, 6), [0, 1, 2, 9, 4, 0]);
        let mut parts = Vec::new();
        two.for_each(10, 2 * PAGE, |at, bytes| parts.push((at, bytes.len())));
        assert_eq!(parts, [(10, PAGE - 10), (PAGE, PAGE), (2 * PAGE, 10)]);
        parts.clear();
        two.for_each_written(10, 3 * PAGE - 10, |at, bytes| parts.push((at, bytes.len())));
        assert_eq!(parts, [(10, PAGE - 10), (PAGE, PAGE)]);
        assert!(two.holds(PAGE - 3, &[0, 1, 2, 9, 4, 0]) && !two.holds(PAGE - 3, &[0, 1, 2, 3]));
    }
}
