//! Memory for direct I/O: bytes at an address that is a multiple of the page.

/// A growing buffer of bytes, aligned to a page.
///
/// Safe Rust cannot request an alignment from the allocator. The buffer therefore allocates one page more than it
/// needs, and begins at the first multiple inside.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
    page: usize,
}

impl PageBuffer {
    /// Returns an empty buffer for pages of this size.
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

    /// Appends zeros up to the next multiple of `unit`.
    pub(crate) fn pad_to(&mut self, unit: usize) {
        let missing = self.len().next_multiple_of(unit) - self.len();
        self.reserve(missing);
        self.bytes.resize(self.bytes.len() + missing, 0);
    }

    fn reserve(&mut self, more: usize) {
        // The last allocation has set `start`, so it is right without a new one.
        if self.bytes.capacity() - self.bytes.len() >= more {
            return;
        }
        let least = self.len().saturating_add(more).max(self.len().saturating_mul(2));
        let mut bytes: Vec<u8> = Vec::with_capacity(least.saturating_add(self.page));
        let start = bytes.as_ptr().align_offset(self.page);
        // Without a known next multiple the buffer only loses direct I/O.
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
    fn growing_buffer_stays_aligned_and_keeps_its_bytes() {
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
        assert_eq!(buffer.as_slice().as_ptr(), memory, "clearing has given the memory away");
    }
}
