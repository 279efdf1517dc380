//! Recording the steps of a replica, so that another can replay them.
//!
//! A replica is a pure function of its setup, its log and its steps: inputs with their time, ticks, and polls. So a
//! second replica with the same setup and steps gives the same outputs, byte for byte. A difference means that
//! something else has an influence: a clock, randomness, or the order of a hash map.

use crate::input::Input;
use crate::output::Output;
use quorate_types::Time;
use quorate_types::codec::Wire;

/// The sink for the encoded steps of a replica, one at a time: see [`Replica::record`](crate::Replica::record).
pub type Sink = Box<dyn FnMut(&[u8]) + Send>;

pub(crate) const INPUT: u8 = 0;
pub(crate) const TICK: u8 = 1;
/// A poll that gave an output.
pub(crate) const OUTPUT: u8 = 2;
/// A poll that gave none.
pub(crate) const NOTHING: u8 = 3;

/// Writes encoded steps.
pub(crate) struct StepRecorder {
    sink: Sink,
    /// The encoded step; reused.
    bytes: Vec<u8>,
}

impl StepRecorder {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { sink, bytes: Vec::new() }
    }

    pub(crate) fn input(&mut self, now: Time, input: &Input) {
        self.step(INPUT, |out| {
            now.0.encode(out);
            input.encode(out);
        });
    }

    pub(crate) fn tick(&mut self, due: Time) {
        self.step(TICK, |out| due.0.encode(out));
    }

    pub(crate) fn poll(&mut self, output: Option<&Output>) {
        match output {
            Some(output) => self.step(OUTPUT, |out| output.encode(out)),
            None => self.step(NOTHING, |_| {}),
        }
    }

    fn step(&mut self, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.clear();
        self.bytes.push(tag);
        fill(&mut self.bytes);
        (self.sink)(&self.bytes);
    }
}
