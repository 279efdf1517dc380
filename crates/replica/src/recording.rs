//! Recording what a replica goes through, and replaying it.
//!
//! A replica is a pure function of what it is opened with and of the steps that follow: inputs with their time,
//! ticks, and polls. So a second replica that is opened alike and takes the same steps gives the same outputs,
//! byte for byte, or something that is not an input has had a say: a clock, randomness, the order of a hash map.

use crate::input::Input;
use crate::output::{Names, Output};
use crate::{Past, Replica, Setup};
use quorate_consensus::{Entry, OpenError};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{BodyLimits, Time};

/// Where the steps of a replica go, encoded, one at a time: see [`Replica::record`].
pub type Sink = Box<dyn FnMut(&[u8]) + Send>;

const INPUT: u8 = 0;
const TICK: u8 = 1;
/// A poll that gave an output.
const OUTPUT: u8 = 2;
/// A poll that gave none.
const NOTHING: u8 = 3;

/// Writes steps down.
pub(crate) struct Recorder {
    sink: Sink,
    /// Reused.
    bytes: Vec<u8>,
}

impl Recorder {
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

/// Why a recording is not what the replay gives.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unlike {
    /// The recorded bytes are no step.
    #[error("the step cannot be read: {0}")]
    Step(#[from] DecodeError),
    /// An input that was read is written in another way: it has two encodings, or loses something.
    #[error("read back and written again it differs: {0}")]
    Encoding(String),
    /// The replica gives another output than the recorded one had given.
    #[error("recorded was {recorded}, and the same inputs give {replayed}")]
    Output {
        /// What the recording has.
        recorded: String,
        /// What came now.
        replayed: String,
    },
}

/// A replica that goes through what another went through.
pub struct Replay {
    replica: Replica,
    entry: Entry,
    limits: BodyLimits,
    names: Names,
    /// Reused.
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({:?})", self.replica)
    }
}

impl Replay {
    /// Opens a second replica, on the same past as the first.
    ///
    /// # Errors
    /// As [`Replica::open`].
    pub fn open(entry: &Entry, setup: Setup, past: Past) -> Result<Self, OpenError> {
        let limits = setup.genesis.bodies;
        let replica = Replica::open(entry, setup, past)?;
        Ok(Self { replica, entry: *entry, limits, names: Names::default(), bytes: Vec::new() })
    }

    /// Takes the next recorded step.
    ///
    /// # Errors
    /// When it cannot be read, or leads to something else than it did; there is no point in going on.
    pub fn step(&mut self, step: &[u8]) -> Result<(), Unlike> {
        let mut reader = Reader::new(step);
        match reader.u8()? {
            INPUT => {
                let now = Time(reader.u64()?);
                let recorded = reader.take_rest();
                let input = Input::decode(&self.entry, &self.limits, recorded)?;
                self.bytes.clear();
                input.encode(&mut self.bytes);
                if self.bytes != recorded {
                    return Err(Unlike::Encoding(format!("{input:?}")));
                }
                self.replica.handle(now, input);
            }
            TICK => {
                let due = Time(reader.u64()?);
                reader.finish()?;
                self.replica.tick(due);
            }
            OUTPUT => return self.compare(Some(reader.take_rest())),
            NOTHING => {
                reader.finish()?;
                return self.compare(None);
            }
            _ => return Err(DecodeError::Tag("step").into()),
        }
        Ok(())
    }

    fn compare(&mut self, recorded: Option<&[u8]>) -> Result<(), Unlike> {
        let output = self.replica.poll();
        self.bytes.clear();
        if let Some(output) = &output {
            output.encode(&mut self.bytes);
        }
        if output.as_ref().map(|_| self.bytes.as_slice()) == recorded {
            return Ok(());
        }
        let recorded = match recorded {
            Some(bytes) => format!("{:?}", Output::decode(&self.limits, &mut self.names, bytes)?),
            None => "nothing".to_owned(),
        };
        let replayed = output.map_or_else(|| "nothing".to_owned(), |output| format!("{output:?}"));
        Err(Unlike::Output { recorded, replayed })
    }
}
