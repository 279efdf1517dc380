//! Replaying the recorded steps of a replica.

use crate::input::Input;
use crate::output::{NameInterner, Output};
use crate::recording::{INPUT, NOTHING, OUTPUT, TICK};
use crate::replica::Replica;
use crate::restored_log::RestoredLog;
use crate::setup::ReplicaSetup;
use quorate_consensus::{Entry, OpenError};
use quorate_types::codec::{DecodeError, Reader};
use quorate_types::{BodyLimits, Time};

/// A difference between a recording and its replay.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayMismatch {
    /// The recorded bytes are no step.
    #[error("the step cannot be read: {0}")]
    Step(#[from] DecodeError),
    /// An input changes when it is read and written: it has two encodings, or loses a part.
    #[error("read back and written again it differs: {0}")]
    Encoding(String),
    /// The replica gives another output than the recorded one.
    #[error("recorded was {recorded}, and the same inputs give {replayed}")]
    Output {
        /// The recorded output.
        recorded: String,
        /// The output of the replay.
        replayed: String,
    },
}

/// A replica that replays the steps of another.
pub struct Replay {
    replica: Replica,
    entry: Entry,
    limits: BodyLimits,
    names: NameInterner,
    /// The encoded step; reused.
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replay({:?})", self.replica)
    }
}

impl Replay {
    /// Opens a second replica, with the same setup and log as the first.
    ///
    /// # Errors
    /// As [`Replica::open`].
    pub fn open(entry: &Entry, setup: ReplicaSetup, log: RestoredLog) -> Result<Self, OpenError> {
        let limits = setup.genesis.bodies;
        let replica = Replica::open(entry, setup, log)?;
        Ok(Self { replica, entry: *entry, limits, names: NameInterner::default(), bytes: Vec::new() })
    }

    /// Takes the next recorded step.
    ///
    /// # Errors When the step cannot be read or gives another result. The replay cannot continue after that.
    pub fn step(&mut self, step: &[u8]) -> Result<(), ReplayMismatch> {
        let mut reader = Reader::new(step);
        match reader.u8()? {
            INPUT => {
                let now = Time(reader.u64()?);
                let recorded = reader.take_rest();
                let input = Input::decode(&self.entry, &self.limits, recorded)?;
                self.bytes.clear();
                input.encode(&mut self.bytes);
                if self.bytes != recorded {
                    return Err(ReplayMismatch::Encoding(format!("{input:?}")));
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

    fn compare(&mut self, recorded: Option<&[u8]>) -> Result<(), ReplayMismatch> {
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
        Err(ReplayMismatch::Output { recorded, replayed })
    }
}
