//! The delay line of a connection: it holds written bytes for a fixed time, like a long cable. Experiments emulate wide
//! networks with it; a connection without a delay has none.
//!
//! Bytes leave in the order in which they entered, so the frames of a connection keep their order. Any number of bytes is
//! under way at once, up to [`HELD_BYTES_MAX`]: a line adds latency and is no limit on bandwidth. A line reads no clock.

use quorate_types::Time;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Bytes that one line holds at most, with [`ENTRY_BYTES`] for each entry. Beyond it the line takes nothing, and further frames
/// wait in their link, where they lose nothing by it. With a delay of 100 ms, 640 MiB pass in a second.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Bytes that each entry counts in addition to its own.
const ENTRY_BYTES: usize = size_of::<Entry>();
/// Memory that an empty line keeps.
const KEEP_BYTES: usize = 1 << 20;

/// Bytes that entered at the same time.
#[derive(Debug)]
struct Entry {
    /// The time from which they may leave. It never decreases from one entry to the next.
    due: Time,
    /// Their number; never zero.
    bytes: usize,
}

/// The delay line of one direction of a connection.
#[derive(Debug)]
pub(super) struct DelayLine {
    delay_ns: u64,
    most: usize,
    held: VecDeque<u8>,
    /// The entries of `held`, the oldest first.
    entries: VecDeque<Entry>,
    /// Whether the connection is in the list of the [`FlushQueue`](super::queues::FlushQueue).
    pub(super) listed: bool,
}

impl DelayLine {
    /// Returns the line for a delay in nanoseconds; `None` for no delay.
    pub(super) fn new(delay_ns: u64) -> Option<Self> {
        (delay_ns > 0).then(|| Self::holding(delay_ns, HELD_BYTES_MAX))
    }

    /// Returns a line that holds at most as many bytes as given, counted as [`HELD_BYTES_MAX`] counts.
    pub(super) fn holding(delay_ns: u64, most: usize) -> Self {
        Self { delay_ns, most, held: VecDeque::new(), entries: VecDeque::new(), listed: false }
    }

    /// Whether the line holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the line takes nothing at present.
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    fn room(&self) -> usize {
        let entries = self.entries.len().saturating_add(1).saturating_mul(ENTRY_BYTES);
        self.most.saturating_sub(self.held.len()).saturating_sub(entries)
    }

    /// Returns the time at which the next bytes may leave.
    pub(super) fn due(&self) -> Option<Time> {
        self.entries.front().map(|entry| entry.due)
    }

    /// Whether bytes may leave.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Returns the end at which bytes enter now. It takes no bytes if the line is full.
    pub(super) fn entrance(&mut self, now: Time) -> LineEntrance<'_> {
        LineEntrance { line: self, now }
    }

    /// Writes due bytes to `out` once; returns the number of bytes that it took.
    ///
    /// # Errors
    /// The error of `out`.
    pub(super) fn release(&mut self, now: Time, out: &mut dyn Write) -> io::Result<usize> {
        let due = self.entries.iter().take_while(|entry| entry.due <= now);
        let due = due.map(|entry| entry.bytes).fold(0, usize::saturating_add);
        let (first, second) = self.held.as_slices();
        let first = first.get(..due).unwrap_or(first);
        let rest = due.saturating_sub(first.len());
        let second = second.get(..rest).unwrap_or(second);
        let count = out.write_vectored(&[IoSlice::new(first), IoSlice::new(second)])?.min(self.held.len());
        self.held.drain(..count);
        self.forget(count);
        if self.held.is_empty() && self.held.capacity() > KEEP_BYTES {
            self.held = VecDeque::new();
        }
        Ok(count)
    }

    /// Removes bytes that have left from their entries.
    fn forget(&mut self, mut count: usize) {
        while let Some(entry) = self.entries.front_mut()
            && count > 0
        {
            let gone = entry.bytes.min(count);
            count = count.saturating_sub(gone);
            entry.bytes = entry.bytes.saturating_sub(gone);
            if entry.bytes == 0 {
                self.entries.pop_front();
            }
        }
    }
}

/// The end of a line at which bytes enter.
pub(super) struct LineEntrance<'a> {
    line: &'a mut DelayLine,
    now: Time,
}

impl Write for LineEntrance<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..self.line.room()).unwrap_or(bytes);
        if taken.is_empty() {
            return Ok(0);
        }
        self.line.held.extend(taken);
        let due = self.now.plus(self.line.delay_ns);
        match self.line.entries.back_mut() {
            // Bytes never overtake earlier ones, also if the caller's time goes back.
            Some(last) if last.due >= due => last.bytes = last.bytes.saturating_add(taken.len()),
            _ => self.line.entries.push_back(Entry { due, bytes: taken.len() }),
        }
        Ok(taken.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut total = 0usize;
        for slice in slices {
            let count = self.write(slice)?;
            total = total.saturating_add(count);
            if count < slice.len() {
                break;
            }
        }
        Ok(total)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_NS: u64 = 1_000;

    fn enter(line: &mut DelayLine, now: u64, bytes: &[u8]) -> usize {
        line.entrance(Time(now)).write(bytes).unwrap()
    }

    fn leave(line: &mut DelayLine, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        line.release(Time(now), &mut out).unwrap();
        out
    }

    #[test]
    fn connection_without_a_delay_has_no_line() {
        assert!(DelayLine::new(0).is_none());
        assert!(DelayLine::new(1).is_some_and(|line| line.is_empty() && line.due().is_none()));
    }

    #[test]
    fn bytes_leave_in_order_and_not_before_they_are_due() {
        let mut line = DelayLine::new(DELAY_NS).unwrap();
        assert_eq!(enter(&mut line, 5, b"one"), 3);
        assert_eq!(enter(&mut line, 5, b" two"), 4);
        assert_eq!(enter(&mut line, 9, b" three"), 6);
        assert_eq!((line.due(), line.is_due(Time(1_004))), (Some(Time(1_005)), false));
        assert_eq!(leave(&mut line, 1_004), b"");
        assert!(line.is_due(Time(1_005)));
        assert_eq!(leave(&mut line, 1_008), b"one two");
        assert_eq!(line.due(), Some(Time(1_009)));
        assert_eq!(leave(&mut line, 1_009), b" three");
        assert_eq!((line.is_empty(), line.due()), (true, None));
    }

    #[test]
    fn bytes_overtake_no_earlier_ones_if_the_time_goes_back() {
        let mut line = DelayLine::new(DELAY_NS).unwrap();
        enter(&mut line, 100, b"late ");
        enter(&mut line, 40, b"early");
        assert_eq!(leave(&mut line, 1_040), b"");
        assert_eq!(leave(&mut line, 1_100), b"late early");
    }

    /// Takes a few bytes at a time, as a socket with a full buffer does.
    struct Narrow(Vec<u8>, usize);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.get(..self.1).unwrap_or(bytes);
            self.0.extend_from_slice(taken);
            Ok(taken.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stream_is_whole_for_every_size_of_writes() {
        let text: Vec<u8> = (0..200u8).collect();
        for (piece, narrow) in [(1, 1), (1, 7), (3, 5), (50, 3), (200, 200)] {
            // The bytes wrap around the end of the line's memory.
            let mut line = DelayLine::holding(DELAY_NS, 40 * (ENTRY_BYTES + 1));
            let (mut out, mut rest, mut now) = (Narrow(Vec::new(), narrow), &text[..], 0);
            while out.0.len() < text.len() {
                let (next, _) = rest.split_at(piece.min(rest.len()));
                let taken = enter(&mut line, now, next);
                rest = rest.split_at(taken).1;
                now += 300;
                if line.is_due(Time(now)) {
                    line.release(Time(now), &mut out).unwrap();
                }
            }
            assert_eq!(out.0, text, "{piece} {narrow}");
            assert!(line.is_empty() && line.entries.is_empty());
        }
    }

    #[test]
    fn full_line_takes_no_more_until_bytes_have_left() {
        let mut line = DelayLine::holding(DELAY_NS, 10 + 2 * ENTRY_BYTES);
        let slices = [IoSlice::new(b"abcdef"), IoSlice::new(b"ghijkl"), IoSlice::new(b"mn")];
        assert_eq!(line.entrance(Time(0)).write_vectored(&slices).unwrap(), 10);
        assert!(line.is_full());
        assert_eq!(enter(&mut line, 1, b"no"), 0);
        assert_eq!(leave(&mut line, 1_000), b"abcdefghij");
        assert_eq!(enter(&mut line, 1_001, b"klmn"), 4);
    }

    #[test]
    fn entries_count_towards_the_bound() {
        let mut line = DelayLine::holding(DELAY_NS, 10 * ENTRY_BYTES);
        let taken: usize = (0..100).map(|now| enter(&mut line, now, b"x")).sum();
        assert!(line.is_full() && taken < 10, "{taken} entries");
    }

    #[test]
    fn empty_line_keeps_little_memory() {
        let mut line = DelayLine::new(DELAY_NS).unwrap();
        enter(&mut line, 0, &vec![7; 8 << 20]);
        assert_eq!(leave(&mut line, 1_000).len(), 8 << 20);
        assert!(line.held.capacity() <= KEEP_BYTES);
    }
}
