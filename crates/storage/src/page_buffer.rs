//! Memory for direct I/O: bytes that begin at an address which is a multiple of the page.

/// A growing buffer of bytes, aligned to a page.
///
/// Safe Rust cannot ask the allocator for an alignment, so the buffer allocates a page more than it needs and
/// begins at the first multiple inside.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    page: usize,
}

impl PageBuffer {
    /// An empty buffer for pages of this size.
    pub(crate) fn new(page: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, page }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..).unwrap_or_default()
    }

    /// Empties the buffer and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    pub(crate) fn extend(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.bytes.extend_from_slice(more);
    }

    /// Zeros up to the next multiple of `unit`.
    pub(crate) fn pad_to(&mut self, unit: usize) {
        let missing = self.len().next_multiple_of(unit) - self.len();
        self.reserve(missing);
        self.bytes.resize(self.bytes.len() + missing, 0);
    }

    fn reserve(&mut self, more: usize) {
        // Without an allocation `start` is right already: it was found when the memory was allocated.
        if self.bytes.capacity() - self.bytes.len() >= more {
            return;
        }
        let least = self.len().saturating_add(more).max(self.len().saturating_mul(2));
        let mut bytes: Vec<u8> = Vec::with_capacity(least.saturating_add(self.page));
        let start = bytes.as_ptr().align_offset(self.page);
        // An allocator that cannot say where the next multiple lies costs direct I/O, nothing else.
        let start = if start < self.page { start } else { 0 };
        bytes.resize(start, 0);
        bytes.extend_from_slice(self.as_slice());
        self.bytes = bytes;
        self.start = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_while_it_grows_and_keeps_its_bytes() {
        let mut buffer = PageBuffer::new(4096);
        let mut expected = Vec::new();
        for round in 1..200u32 {
            let piece = vec![round as u8; round as usize * 7];
            buffer.extend(&piece);
            expected.extend_from_slice(&piece);
            assert_eq!(buffer.as_slice(), expected);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(4096), 0);
        }
        buffer.pad_to(4096);
        assert_eq!(buffer.len() % 4096, 0);
        assert!(buffer.as_slice()[expected.len()..].iter().all(|byte| *byte == 0));
        let memory = buffer.as_slice().as_ptr();
        buffer.clear();
        assert!(buffer.is_empty());
        buffer.extend(&expected);
        assert_eq!(buffer.as_slice(), expected);
        assert_eq!(buffer.as_slice().as_ptr(), memory, "cleared memory is used again");
    }
}
